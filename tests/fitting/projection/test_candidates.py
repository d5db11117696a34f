"""Sparse trees of several modes: which are nearly the same, and how they compare."""

from types import SimpleNamespace

import numpy as np

from bayestree.fitted.training_rows import TrainingRows
from bayestree.fitting.projection import _alike, _Candidate, _compared, _merged
from bayestree.fitting.projection.facets import Conjunction
from bayestree.inference import Units
from bayestree.topology import Topology
from bayestree.tree import Tree


def stump(normals, X):
    """A tree whose only node has the facets normal . x <= 0."""
    d = X.shape[1]
    facets = Conjunction(np.array(normals), np.zeros(len(normals))).experts(np.ones(d))
    weight, plane, intercept = (part[None] for part in facets)
    unit = {"center": np.zeros(d), "scale": np.ones(d)}
    tree = Tree.from_standardised(Topology.stump(), weight, plane, intercept, **unit)
    return tree.fill(X, (X[:, 0] > 0).astype(int), np.ones(len(X)), 2)


def test_a_tree_that_does_without_a_column_is_kept():
    """Both trees divide the rows alike, by x0 and by its copy x1."""
    X = np.repeat(np.linspace(-1, 1, 50)[:, None], 2, axis=1)
    rows = TrainingRows(X, (X[:, 0] > 0).astype(int), np.ones(50), ("a", "b"))
    first, second, both = (
        _Candidate(stump(normals, X), np.any(normals, axis=0).tolist(), 0, 1.0, None)
        for normals in ([[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    )
    assert _alike(first, first, rows)
    assert _alike(both, first, rows)
    assert not _alike(second, first, rows)
    assert not _alike(first, both, rows)
    # another class in the rows of one side, which are of little weight
    X[25:, 1] = np.linspace(-1, -0.5, 25)
    light = rows._replace(weights=np.where(X[:, 0] > 0, 1e-3, 1.0))
    second = second._replace(used=first.used)
    assert [_alike(second, first, one) for one in (rows, light)] == [False, True]


def test_the_tree_of_the_estimator_stands_for_better_ones_of_its_columns():
    X = np.linspace(-1, 1, 50)[:, None]
    rows = TrainingRows(X, (X[:, 0] > 0).astype(int), np.ones(50), ("a", "b"))
    shown, better = stump([[1.0]], X), stump([[-1.0]], X)
    found = [
        _Candidate(
            tree,
            [True],
            mode,
            0.5,
            SimpleNamespace(share=np.ones(1), log_density=np.array([-mode])),
        )
        for mode, tree in enumerate((better, shown))
    ]
    for tree, mode in ((shown, 1), (better, 0), (stump([[1.0], [-1.0]], X), 0)):
        (kept,) = _merged(found, rows, tree)
        assert (kept.mode, kept.weight) == (mode, 1.0)


def test_the_loss_and_its_error_are_those_of_weighted_rows():
    """Of rows of the shares 3/6, 1/6, 1/6, 1/6, the first and the last lose 1 nat."""
    X = np.linspace(-1, 1, 50)[:, None]
    best, other = (
        _Candidate(
            stump([[1.0]], X), [True], 0, 0.5,
            SimpleNamespace(share=np.array([3, 1, 1, 1]) / 6, log_density=-np.array(lost)),
        )
        for lost in ([0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0])
    )  # fmt: skip
    found = _compared([best, other], ["x0"], Units(np.zeros(1), np.ones(1)), ())
    np.testing.assert_allclose(found.loss, [0, 4 / 6])
    np.testing.assert_allclose(found.score, [0, -4 / 6])
    variance = (3 / 6) ** 2 / 9 + (4 / 9 + 4 / 9 + 1 / 9) / 6**2
    np.testing.assert_allclose(found.se, [0, np.sqrt(variance)])
