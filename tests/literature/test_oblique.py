"""Trees of one hyperplane per node as estimators; tests of the searches are with the splitters."""

from typing import get_args

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import bayestree
from bayestree import ObliqueTreeClassifier, ObliqueTreeRegressor
from bayestree._utils.parameters import declare
from bayestree.estimators.registry import TREES
from bayestree.inference.splitters.planes import PlaneSearch
from bayestree.literature.oblique import SEARCHES, SearchName
from bayestree.literature.plane_searches import OC1
from bayestree.models.criteria import Gini, Twoing


def rows(n, seed=0):
    """A number that jumps across two oblique lines."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    a, b = X @ [1.0, 1, 0] > 0, X @ [1.0, -1, 0.5] > 0.3
    return X, 2.0 * a + a * b


def test_names():
    assert get_args(SearchName) == (*SEARCHES,)
    assert {tree for tree, one in TREES.items() if "splitter" in one.fixed} == SEARCHES.keys()
    assert all(TREES[name].fixed == {"splitter": name} for name in SEARCHES)


@pytest.mark.portable
@pytest.mark.parametrize("splitter", ["cart-lc", "co2", "oc1"])
def test_oblique_lines_need_few_leaves(splitter):
    X, y = rows(600)
    X_new, y_new = rows(4000, 1)
    search = OC1(n_restarts=3) if splitter == "oc1" else splitter
    clf = ObliqueTreeClassifier(splitter=search, random_state=0).fit(X, y.astype(str))
    single = DecisionTreeClassifier(random_state=0).fit(X, y.astype(str))
    # each of the three regions has a leaf, or a few more where a line is a little off
    assert clf.get_n_leaves() < 12
    assert clf.get_n_leaves() < single.get_n_leaves() / 2
    # two lines of (d + 1) / n = 0.7 % error each if consistent; the tree of steps needs 14 %
    assert clf.score(X_new, y_new.astype(str)) > 0.94
    assert clf.score(X_new, y_new.astype(str)) > single.score(X_new, y_new.astype(str))
    reg = ObliqueTreeRegressor(splitter=search, min_leaf=5, random_state=0).fit(X, y)
    single = DecisionTreeRegressor(min_samples_leaf=5, random_state=0).fit(X, y)
    assert reg.score(X_new, y_new) > single.score(X_new, y_new)


@pytest.mark.parametrize("kind", [ObliqueTreeClassifier, ObliqueTreeRegressor])
@pytest.mark.parametrize("splitter", [*SEARCHES, OC1(n_restarts=1, n_jumps=2)], ids=str)
def test_files_and_exports(kind, splitter, tmp_path):
    X, y = load_iris(return_X_y=True)
    tree = kind(splitter=splitter, max_depth=3, random_state=0).fit(X, y)
    assert tree.get_n_leaves() > 2
    tree.save(tmp_path / "tree.safetensors")
    found = bayestree.load(tmp_path / "tree.safetensors")
    assert found.splitter == splitter
    np.testing.assert_array_equal(found.predict(X), tree.predict(X))
    assert bayestree.export_text(tree)
    assert bayestree.export_rules(tree)


def test_pruning_and_the_number_of_leaves():
    X, y = load_iris(return_X_y=True)

    def leaves(**parameters):
        return ObliqueTreeClassifier(min_gain=0.0, **parameters).fit(X, y).get_n_leaves()

    assert leaves(ccp_alpha=0.1) < leaves()
    assert leaves(max_leaves=3) == 3


@pytest.mark.parametrize(("criterion", "cut"), [("entropy", 4.5), ("gini", 7.5)])
def test_the_criterion_by_hand(criterion, cut):
    # below 4.5, 5 rows are pure and 4 are even: 4 log 2 = 2.8 nats, Gini 4 / 2 = 2; below 7.5, 1 of
    # 8 rows is of the other class: 8 H(1 / 8) = 3.0 nats, Gini 8 x 2 x 7 / 64 = 1.75
    X, y = np.arange(9.0)[:, None], [0, 0, 0, 0, 0, 1, 0, 0, 1]
    limits = {"max_depth": 1, "min_gain": 0.0}
    for splitter in SEARCHES:
        clf = ObliqueTreeClassifier(
            splitter=splitter, criterion=criterion, random_state=0, **limits
        )
        tree = clf.fit(X, y).tree_
        np.testing.assert_allclose(-tree.intercept / tree.hyperplane[:, 0], cut)


@pytest.mark.parametrize(("criterion", "cut"), [("entropy", 3.5), ("gini", 3.5), ("twoing", 4.5)])
def test_the_twoing_rule_by_hand(criterion, cut):
    # below 3.5 the counts are 3, 1, 0, 0 and 0, 1, 1, 2: shares differ by .75 + 0 + .25 + .5, and
    # 4 x 4 x 1.5^2 / 32 = 1.125; below 4.5 they are 3, 1, 1, 0 and 0, 1, 0, 2, with shares that
    # differ by .6 + .13 + .2 + .67, and 5 x 3 x 1.6^2 / 32 = 1.2
    X, y = np.arange(8.0)[:, None], [0, 0, 1, 0, 2, 3, 1, 3]
    for splitter in SEARCHES:
        clf = ObliqueTreeClassifier(splitter=splitter, criterion=criterion, max_depth=1, min_gain=0)
        tree = clf.fit(X, y).tree_
        np.testing.assert_allclose(-tree.intercept / tree.hyperplane[:, 0], cut)


def test_twoing_is_half_of_gini_for_two_classes():
    whole, side = torch.tensor([30.0, 12.0]), torch.tensor([[4.0, 9.0], [0.0, 0.0], [30.0, 12.0]])
    half = (Gini().split_value(side, whole) - Gini().value(whole)) / 2
    torch.testing.assert_close(Twoing().split_value(side, whole), half)


@pytest.mark.parametrize("splitter", ["cart", OC1, 3])
def test_what_is_no_search_is_refused(splitter):
    with pytest.raises(ValueError, match=r"splitter must be 'cart-lc' or .* a PlaneSearch, got"):
        ObliqueTreeClassifier(splitter=splitter).fit(*load_iris(return_X_y=True))


def test_settings_of_a_search_are_checked():
    clf = ObliqueTreeClassifier(splitter=OC1(n_restarts=-1))
    with pytest.raises(ValueError, match="n_restarts must be an integer of 0 or more, got -1"):
        clf.fit(*load_iris(return_X_y=True))


def test_a_search_of_ones_own():
    @declare
    class FirstFeature(PlaneSearch):
        def find(self, node, rng):
            return node.best(np.eye(node.n_features)[:1])

    X, y = load_iris(return_X_y=True)
    clf = ObliqueTreeClassifier(splitter=FirstFeature(), max_depth=2).fit(X, y)
    assert not clf.tree_.hyperplane[:, 1:].any()
