"""Trees whose splits are optimised together, on a bound of the loss."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import bayestree
from bayestree import NonGreedyTreeClassifier, NonGreedyTreeRegressor, ObliqueTreeClassifier


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
