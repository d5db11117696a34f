"""``leaf="auto"``: constant leaves and leaves with slopes in the trees of one fit."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_text,
    html_report,
    load,
)
from bayestree.description import TreeDescription
from bayestree.models import Categorical, Gaussian, LinearGaussian, Logistic
from bayestree.models.leaves.slopes import NO_SLOPE
from bayestree.tables import UnusedColumnsWarning
from bayestree.tables.profiling import DoubtfulColumnsWarning
from tests.short_checks import short_stages

SHORT = {"max_depth": 1, "n_experts": 2, "random_state": 0}


def sloping(seed=0, n=300):
    """Slopes on both sides of a split, and two features without an effect."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 4)) + np.array([0, 0, 5, 0])
    mean = np.where(X[:, 0] > 0.2, 3 * X[:, 1], 1 - 2 * X[:, 2] + 10)
    return X, mean + 0.2 * rng.normal(size=n)


def stepping(seed=0, n=300):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 4))
    return X, np.where(X[:, 0] > 0.2, 2.0, 0.0) + 0.5 * rng.normal(size=n)


def families(reg):
    return [type(mode.posterior_.model.leaf) for mode in reg.modes_]


@pytest.fixture(scope="module")
def fitted():
    X, y = sloping()
    return ConvexPolytopeTreeRegressor(max_depth=2, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 2),
        ({"n_modes": 5}, 2),
        ({"n_modes": 1}, 0),
        ({"leaf": "constant"}, 0),
        ({"leaf": "linear"}, 0),
        ({"inference": "svi", "n_modes": 4}, 0),
        ({"interaction_constraints": "no_interactions"}, 0),
    ],
)
def test_half_of_several_trees_by_vi_are_linear(changes, expected):
    plan = ConvexPolytopeTreeRegressor(**SHORT | changes).plan(*sloping())
    assert plan.n_linear == plan.to_json()["n_linear"] == expected
    line = f"leaf      constant in {plan.n_trees - 2} trees, linear in 2 trees"
    assert (line in str(plan)) == bool(expected)


def test_classes_have_logistic_leaves_if_they_are_asked_for(tmp_path):
    X, y = sloping(n=120)
    y -= np.median(y)
    settings = SHORT | {"leaf": "auto"}
    assert ConvexPolytopeTreeClassifier(**SHORT).plan(X, y > 0).n_linear == 0
    clf = ConvexPolytopeTreeClassifier(**settings)
    assert "constant in 2 trees, logistic in 2 trees" in str(clf.plan(X, y > 0))
    with short_stages():
        clf.fit(X, y > 0)
    assert families(clf) == [Categorical] * 2 + [Logistic] * 2
    clf.save(tmp_path / "tree.bt")
    read = load(tmp_path / "tree.bt")
    np.testing.assert_array_equal(read.predict_proba(X), clf.predict_proba(X))
    assert families(read) == families(clf)
    weight = clf.mode_weights_[2:].sum()
    words = f"all with logistic leaves have a weight of {weight:.2f}"
    assert words in " ".join(export_text(clf).split())


def test_features_with_detached_values_have_no_slope():
    X, y = sloping()
    reg = ConvexPolytopeTreeRegressor(**SHORT)
    assert reg.plan(X, np.column_stack((y, y))).n_linear == 0
    X[3, 1] = -9999.0  # a code far from all other values
    X[:, 3] = 1.0  # and a column that is not used
    with pytest.warns((DoubtfulColumnsWarning, UnusedColumnsWarning)), short_stages():
        reg.fit(X, y)
    leaf: Any = reg.modes_[-1].posterior_.model.leaf
    assert (leaf.strengths(4)[[1, 3]] == NO_SLOPE).all()
    assert leaf.strengths(4)[2] < NO_SLOPE
    assert (reg.modes_[-1].tree_.slope[:, [1, 3]] == 0).all()


@pytest.mark.portable
def test_the_rows_decide_between_the_leaves(fitted):
    """Slopes raise the log score of new rows, and win the weights; the truth is -log(.2) - 1.42."""
    X, y = sloping(1, 2000)
    constant = ConvexPolytopeTreeRegressor(max_depth=2, leaf="constant", random_state=0)
    gain = fitted.log_score(X, y) - constant.fit(*sloping()).log_score(X, y)
    assert gain.mean() > 4 * gain.std() / 2000**0.5
    linear = np.array([one is LinearGaussian for one in families(fitted)])
    assert fitted.mode_weights_[linear].sum() > fitted.mode_weights_[~linear].sum()
    # 2 parameters a leaf of 120 to 180 rows cost 1 / 100 of a nat; rows near the border more
    best = -np.log(0.2) - 0.5 * np.log(2 * np.pi) - 0.5
    assert best - fitted.log_score(X, y).mean() < 0.15


@pytest.mark.portable
def test_steps_without_slopes_are_told_as_steps():
    """The mixture loses little to constant leaves, and linear leaves keep few slopes."""
    reg = ConvexPolytopeTreeRegressor(max_depth=1, random_state=0).fit(*stepping())
    constant = ConvexPolytopeTreeRegressor(max_depth=1, leaf="constant", random_state=0)
    X, y = stepping(1, 2000)
    gain = reg.log_score(X, y) - constant.fit(*stepping()).log_score(X, y)
    assert gain.mean() > -0.02 - 4 * gain.std() / 2000**0.5
    assert reg.tree_.n_leaves == 2


@pytest.mark.portable
def test_more_features_than_rows_are_not_fitted_to_noise():
    """The best of 60 features of noise gain log 60 nats, which is what a slope costs.

    The truth scores -1.42. A mean and a variance from 40 rows cost a fortieth of a nat; .1 more is
    allowed for the trees, and without the price the fits lost 1.5.
    """
    rng = np.random.default_rng(0)
    reg = ConvexPolytopeTreeRegressor(max_depth=1, random_state=0)
    reg.fit(rng.normal(size=(40, 60)), rng.normal(size=40))
    score = reg.log_score(rng.normal(size=(2000, 60)), rng.normal(size=2000))
    assert score.mean() > -1.42 - 1 / 40 - 0.1 - 4 * score.std() / 2000**0.5


def test_files_and_continued_fits_keep_the_families(tmp_path):
    X, y = sloping(n=120)
    with short_stages():
        reg = ConvexPolytopeTreeRegressor(warm_start=True, **SHORT).fit(X, y)
        assert families(reg) == [Gaussian] * 2 + [LinearGaussian] * 2
        reg.save(tmp_path / "tree.bt")
        read = load(tmp_path / "tree.bt")
        np.testing.assert_array_equal(read.predict(X), reg.predict(X))
        assert families(read) == families(reg)
        assert families(reg.fit(X, y)) == families(read)
    assert reg.set_params(inference="map").plan(X, y).n_linear == 0


def test_the_printed_equation_predicts(fitted):
    """Each leaf is an equation in the columns themselves, to the digits that are printed."""
    tree = next(
        mode.tree_
        for mode in fitted.modes_
        if isinstance(mode.posterior_.model.leaf, LinearGaussian)
    )
    far = tree.on_scaled(np.array([0, -2000.0, 0, 0]), np.ones(4))  # rows are far from 0 in x1
    X = sloping(2, 50)[0] + np.array([0, 2000.0, 0, 0])
    for one, rows in ((tree, X - np.array([0, 2000.0, 0, 0])), (replace(far, center=X.mean(0)), X)):
        at, described = one.apply(rows), TreeDescription(one, digits=4, max_terms=10)
        for leaf in np.unique(at).tolist():
            text = described.prediction(leaf).removeprefix("mean ")
            constant, *terms = re.findall(r"[+-]? ?[\d.]+(?: \(?x\d(?: [+-] [\d.]+\))?)?", text)
            total = float(constant.replace(" ", ""))
            for term in terms:
                parts = re.fullmatch(r"([+-]) ([\d.]+) \(?x(\d)(?: ([+-]) ([\d.]+)\))?", term)
                sign, value, column, shift, by = parts.groups()
                move = float(shift + by) if by else 0.0
                total = total + float(sign + value) * (rows[at == leaf, int(column)] + move)
            # each of at most four slopes has an error of 5e-5 of itself, on at most four units
            np.testing.assert_allclose(total, one.predict(rows)[at == leaf], atol=0.02)


def test_reports_show_trees_of_both_kinds(fitted):
    X, y = sloping()
    page = html_report(fitted, X=X, y=y)
    text = export_text(fitted)
    printed = re.findall(r"mean = [-\d.]+ [+-] [\d.]+ x\d", text)
    assert printed
    linear = fitted.mode_weights_[[one is LinearGaussian for one in families(fitted)]].sum()
    assert f"all with linear leaves have a weight of {linear:.2f}" in " ".join(text.split())
    assert all(one.removeprefix("mean = ") in page for one in printed)
    tree = fitted.tree_
    used = (tree.hyperplane != 0).any(0) | (tree.slope != 0).any(0)
    unused = f"{(~used).sum()} feature{'s are' if (~used).sum() > 1 else ' is'} not in the tree"
    assert ((~used).sum() > 0) == (" not in the tree shown" in page)
    assert used.all() or unused in page
