"""The bound on the loss of a whole tree: by hand, by enumeration, and under descent."""

import itertools

import numpy as np
import torch

from bayestree import baselines
from bayestree.inference import Data
from bayestree.inference.non_greedy import augmented, non_greedy
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
    found = non_greedy(
        named.oblique(Categorical(2)), Data.of(X, y), init=start, nu=4.0, epochs=40,
        batch_size=50, learning_rate=0.1, random_state=0,
    )  # fmt: skip
    loss = found.stats["loss"]
    assert len(loss) == 41
    # CART leaves about a quarter of the rows on the wrong side
    assert loss.min() < 0.3 * loss[0]
    first, second = found.point["hyperplane"][0, 0]
    assert abs(np.degrees(np.arctan2(second, first)) - 45) < 8
