"""The bound on the loss of a whole tree: by hand, by enumeration, and under descent."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import bayestree
from bayestree import (
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
    ObliqueTreeClassifier,
    baselines,
)
from bayestree.inference import Data
from bayestree.literature.whole_trees import NonGreedy, augmented
from bayestree.models import Categorical, named
from bayestree.topology import Topology


def test_a_stump_by_hand():
    # losses 1 on the left and 4 on the right, for three rows
    scores = torch.tensor([[-2.0, -1.0, 0.5]])
    loss = torch.tensor([[1.0, 1.0, 1.0], [4.0, 4.0, 4.0]])
    found = augmented(scores, loss, Topology.stump())
    # left 1 or right 4 - 2 * 2; left 1 or right 4 - 2 * 1; right 4 or left 1 - 2 * .5
    assert found.bound.tolist() == [1.0, 2.0, 4.0]
    assert found.right.tolist() == [[False, True, True]]


def test_the_maximum_over_all_sides():
    rng = np.random.default_rng(0)
    topology = Topology(np.array([[1, 2], [-1, -2], [-3, 3], [-4, -5]]))
    scores = torch.as_tensor(rng.normal(size=(4, 30)))
    loss = torch.as_tensor(3 * rng.random((5, 30)))
    found = augmented(scores, loss, topology)

    def leaf_of(right):
        node = 0
        while node >= 0:
            node = topology.children[node, int(right[node])]
        return ~node

    best = torch.full((30,), -np.inf, dtype=scores.dtype)
    for right in itertools.product([False, True], repeat=4):
        sign = torch.tensor([1.0 if side else -1.0 for side in right]).to(scores)
        value = sign @ scores + loss[leaf_of(right)] - scores.abs().sum(0)
        best = torch.maximum(best, value)
    torch.testing.assert_close(found.bound, best)
    own = [float(loss[leaf_of(row > 0), n]) for n, row in enumerate(scores.T)]
    assert (found.bound.numpy() >= np.array(own) - 1e-12).all()
    # the sides attain the maximum, and leave the signs on the path alone
    for n in range(30):
        side = torch.where(found.passed[:4, n], found.right[:, n], scores[:, n] > 0)
        sign = side.to(scores) * 2 - 1
        value = sign @ scores[:, n] + loss[leaf_of(side), n] - scores[:, n].abs().sum()
        torch.testing.assert_close(found.bound[n], value)


def test_a_diagonal_is_found_from_axes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X.sum(axis=1) > 0).astype(int)
    start = baselines.cart(X, y, max_depth=1, random_state=0)
    method = NonGreedy(nu=4.0, epochs=40, batch_size=50, learning_rate=0.1)
    found = method.fit(named.oblique(Categorical(2)), Data.of(X, y), init=start, random_state=0)
    loss = found.stats["loss"]
    assert len(loss) == 41
    # CART leaves about a quarter of the rows on the wrong side
    assert loss.min() < 0.3 * loss[0]
    first, second = found.point["hyperplane"][0, 0]
    assert abs(np.degrees(np.arctan2(second, first)) - 45) < 8


def diagonals(n, seed):
    """Classes by the signs of two sums, which no single feature shows."""
    X = np.random.default_rng(seed).normal(size=(n, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] - X[:, 3] > 0.5)


@pytest.mark.portable
def test_it_is_better_than_its_start():
    X, y = diagonals(600, 0)
    X_new, y_new = diagonals(4000, 1)
    found = NonGreedyTreeClassifier(max_depth=3, epochs=30, random_state=0).fit(X, y)
    start = NonGreedyTreeClassifier(max_depth=3, epochs=1, learning_rate=1e-9, random_state=0)
    # four standard errors of two shares on 4,000 rows
    error = np.sqrt(2 * 0.25 / 4000)
    assert found.score(X_new, y_new) > start.fit(X, y).score(X_new, y_new) + 4 * error
    loss = found.posterior_.stats["loss"]
    assert len(loss) == 31
    assert found.get_n_leaves() <= 8


def test_the_start_is_kept_where_nothing_is_better():
    X, y = load_iris(return_X_y=True)
    given = ObliqueTreeClassifier(splitter="guide", max_depth=2, min_gain=0).fit(X, y)
    kept = NonGreedyTreeClassifier(init=given, epochs=1, learning_rate=1e-9, random_state=0)
    np.testing.assert_array_equal(kept.fit(X, y).predict(X), given.predict(X))


def test_numbers():
    X, _ = diagonals(400, 0)
    y = 30 * np.abs(X[:, 0] + X[:, 1]) + 5
    reg = NonGreedyTreeRegressor(max_depth=3, epochs=40, random_state=0).fit(X, y)
    start = NonGreedyTreeRegressor(max_depth=3, epochs=1, learning_rate=1e-9, random_state=0)
    assert reg.score(X, y) > start.fit(X, y).score(X, y) + 0.1
    assert bayestree.export_rules(reg).startswith("1: IF (")


def test_errors():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="nu"):
        NonGreedyTreeClassifier(nu=0).fit(X, y)
    with pytest.raises(TypeError, match="init must be 'cart'"):
        NonGreedyTreeClassifier(init=ObliqueTreeClassifier()).fit(X, y)
    with pytest.warns(bayestree.SingleLeafWarning, match="lower min_leaf"):
        NonGreedyTreeClassifier(min_leaf=80).fit(X, y)
