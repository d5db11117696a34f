"""Explanations of one prediction by every estimator."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import entr
from torch import nn

import bayestree
from bayestree import EndToEndTreeClassifier
from bayestree.explain.decision_path import Belief, PathNode, Regression
from bayestree.models import Network
from tests.fitted_cases import BY_SVI, CLASSIFIERS, QUICK, REGRESSORS, SMALL, rows, trained
from tests.plots.cases import drawn, texts

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SINGLE = [name for name in CLASSIFIERS if name != "forest"]
REALS = [name for name in REGRESSORS if name != "forest"]


@pytest.fixture(scope="module")
def posterior():
    X, y, _ = rows()
    return bayestree.ConvexPolytopeTreeClassifier(
        inference=replace(BY_SVI, n_draws=8), n_modes=1, n_experts=4, **SMALL
    ).fit(X, y)


def test_terms_that_are_not_shown_are_summed():
    found = Regression("mean", 25.0, 1.0, np.array([4.0, -2.0, 8.0, 6.0, 0.0, 1.5]))
    *_, last = found.lines(tuple("abcdef"), (1.0,) * 6)
    assert last.strip() == "- 0.5: 2 more"


def test_a_turn_in_words():
    """Of the largest vote, the sum of the effects leads from the mean, 0.25 outside, to the row."""
    share = np.array([0.6, 0.25, 0.1, 0.05])
    turn = PathNode(
        node="root",
        side="yes",
        right=False,
        score=0.5,
        belief=Belief(0.8, (0.6, 0.9), 0.75),
        experts=np.arange(4),
        conditions=("a <= 1", "b > 2", "a + b <= 9", "a > 0"),
        votes=0.5 * share,
        share=share,
        distance=np.array([0.5, -2.0, np.inf, 1.0]),
        points=np.array([np.nan, np.nan, np.nan, 4.0]),
        effects=np.array([[1.0, -1.75], [0.0, 0.5], [0.0, 0.0], [0.1, 0.0]]),
    )
    assert list(turn.lines(("a", "b"), (3.0, "north"))) == [
        "root: yes, probability 0.80 [0.60, 0.90], 75% of draws",
        "  a <= 1",
        "    60% of the votes, 0.5 inside: b = north (-1.8), a = 3 (+1)",
        "  b > 2",
        "    25% of the votes, 2 outside: b = north (+0.5)",
        "  a + b <= 9",
        "    10% of the votes, no border",
        "  1 other facet with 5% of the votes",
    ]
    name, side, effects, label, border = turn.effects_shown()
    assert (name, side, border) == ("root", "yes, P = 0.80", -0.25)
    assert effects.tolist() == [1.0, -1.75]
    assert label == "effect, inside to outside\nfacet with 60% of the votes"
    alone = replace(turn, belief=None, share=np.array([0.997, 0.003, 0, 0]))
    assert alone.effects_shown()[3] == "effect, inside to outside"
    assert list(alone.lines(("a", "b"), (3.0, "north")))[2].startswith("    0.5 inside: b = north")
    without = replace(turn, effects=np.zeros((4, 2)))
    assert without.effects_shown()[2] is None


def test_large_numbers_have_no_exponent():
    found = trained("numbers", "alternating").explain(rows()[0][5])
    parts = {"total": 98765.0, "data": 54321.0, "posterior": 44444.0}
    text = str(replace(found, expected=np.array([51234.0]), sd=np.array([1234.0]), **parts))
    assert text.startswith("Prediction: 51230 (sd over the draws 1200)\n")
    assert ": 98800 = 54300 from the data + 44400 from the posterior\n" in text


@pytest.mark.parametrize("name", SINGLE)
def test_every_classifier(name):
    X, clf = rows()[0], trained("classes", name)
    for x in X[:3]:
        found = clf.explain(x)
        assert found.prediction == clf.predict(x[None])[0]
        np.testing.assert_allclose(found.expected, clf.predict_proba(x[None])[0])
        tree, leaf = clf.tree_, clf.apply(x[None])[0]
        assert found.leaf == tree.topology.leaf_labels[leaf]
        assert [turn.right for turn in found.turns] == [side == "R" for side in found.leaf]
        if found.change.row is not None:
            assert clf.predict(found.change.row[None])[0] != found.prediction
            assert found.change.prediction != found.prediction
        assert str(found).startswith(f"Prediction: {found.prediction}")


@pytest.mark.parametrize("name", REALS)
def test_every_regressor(name):
    X, reg = rows()[0], trained("numbers", name)
    x = X[5]
    found = reg.explain(x)
    assert found.change is None
    np.testing.assert_allclose(found.prediction, reg.predict(x[None])[0])
    target = float(np.median(reg.predict(X))) + 0.1
    below = reg.predict(x[None])[0] > target
    moved = reg.explain(x, target=target).change
    (mean,) = reg.predict(moved.row[None])
    assert mean <= target if below else mean >= target
    assert f"at {'most' if below else 'least'}" in moved.wanted
    assert moved.prediction == pytest.approx(mean)


def test_votes_and_effects_add_up(posterior):
    tree, x = posterior.tree_, rows()[0][7]
    for turn in posterior.explain(x).turns:
        node = tree.topology.node_labels.index(turn.node)
        np.testing.assert_allclose(turn.votes.sum(), turn.score)
        np.testing.assert_allclose(turn.score, tree.score(node, x[None])[0])
        np.testing.assert_allclose(turn.share.sum(), 1.0)
        assert (np.diff(turn.votes) <= 0).all()
        assert (turn.log_odds > 0) == turn.right
        plane = tree.hyperplane[turn.experts]
        norm = np.linalg.norm(plane * tree.scale, axis=1)
        limit = tree.facet_limit[turn.experts]
        mean_distance = (limit - plane @ tree.center) / norm
        np.testing.assert_allclose(mean_distance - turn.effects.sum(axis=1), turn.distance)
        # Beyond its facet, and only there, an expert sends the row right alone.
        assert ((turn.distance < 0) == (turn.votes > np.log(2))).all()


def test_turns_and_uncertainty_are_those_of_the_posterior(posterior):
    x = rows()[0][:1]
    found, own = posterior.explain(x, level=0.8), posterior.split_uncertainty(x, level=0.8)
    for turn in found.turns:
        node = posterior.tree_.topology.node_labels.index(turn.node)
        probability, interval, agreement = turn.belief
        right = own.mean[0, node]
        np.testing.assert_allclose(probability, right if turn.right else 1 - right)
        ends = own.interval[0, node]
        np.testing.assert_allclose(interval, ends if turn.right else 1 - ends[::-1])
        np.testing.assert_allclose(agreement, 1 - own.disagreement[0, node])
    assert found.total == pytest.approx(entr(posterior.predict_proba(x)).sum(), rel=1e-6)
    assert found.total == pytest.approx(found.data + found.posterior)
    assert found.posterior > 0
    assert found.leaf_probability == pytest.approx(own.leaf_probability[0, posterior.apply(x)[0]])
    assert "of draws" in str(found)


def test_variance_of_a_regression_has_two_parts():
    X, _, y = rows()
    reg = bayestree.ConvexPolytopeTreeRegressor(
        inference=replace(BY_SVI, n_draws=5), n_modes=2, n_experts=2, **SMALL
    ).fit(X, y)
    found = reg.explain(X[0])
    assert found.total == pytest.approx(found.data + found.posterior)
    _, sd = reg.predict(X[:1], return_std=True)
    assert found.posterior == pytest.approx(sd[0] ** 2, rel=1e-4)
    drawn_y = reg.sample_posterior_predictive(X[:1], 4000, random_state=0).ravel()
    # The relative standard error of a variance of normal draws is sqrt(2 / n); their tails here are
    # heavier, by a factor below 2.
    assert found.total == pytest.approx(drawn_y.var(), rel=4 * 2 * np.sqrt(2 / 4000))


def test_rows_may_have_names():
    X, y, _ = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    clf = bayestree.BivariateTreeClassifier(max_depth=3).fit(frame, y)
    for x in (frame.iloc[3], frame.iloc[3:4], frame.iloc[3, ::-1].to_dict()):
        found = clf.explain(x, features=["a", 1])
        assert found.cells == tuple(X[3])
        assert found.features == ("a", "b", "c", "d")
        changed = set(found.to_frame("change")["feature"])
        assert changed <= {"a", "b"}
    limits = {"a": (None, X[3, 0]), "b": (X[3, 1], None)}
    row = clf.explain(frame.iloc[3], features=limits, target=y[0]).change.row
    if row is not None:
        assert row[0] <= X[3, 0]
        assert row[1] >= X[3, 1]


def test_a_target_class():
    X, y, _ = rows()
    clf = bayestree.BivariateTreeClassifier(max_depth=4).fit(X, np.array(["no", "so", "yes"])[y])
    found = clf.explain(X[0], target="no")
    assert found.change.prediction == clf.predict(found.change.row[None])[0] == "no"
    assert "makes the prediction no: distance" in str(found)
    again = clf.explain(found.change.row, target="no")
    assert "The prediction is no already." in str(again)
    with pytest.raises(ValueError, match="target 'yess' is not a class of the fit; did you mean"):
        clf.explain(X[0], target="yess")


def test_the_bound_is_named_where_a_smaller_change_may_exist(posterior):
    found = posterior.explain(rows()[0][0])
    said = (
        str(replace(found, change=replace(found.change, distance=3.0, bound=bound)))
        for bound in (2.0, 3.0)
    )
    assert ["No change below 2 does; there may be one" in one for one in said] == [True, False]


def test_refusals(posterior):
    X = rows()[0]
    with pytest.raises(ValueError, match="x must be one row, got 2"):
        posterior.explain(X[:2])
    with pytest.raises(ValueError, match="'x9' is not a column of the fit"):
        posterior.explain(X[0], features=["x9"])
    with pytest.raises(ValueError, match="column 4 does not exist; the fit had 4"):
        posterior.explain(X[0], features=[4])
    with pytest.raises(ValueError, match="must contain its value"):
        posterior.explain(X[0], features={"x1": (X[0, 1] + 1, None)})
    with pytest.raises(ValueError, match="by must be one of 'turn', "):
        posterior.explain(X[0]).to_frame("node")
    reg = trained("numbers", "alternating")
    for target in (np.inf, "high"):
        with pytest.raises(ValueError, match="target must be a finite number"):
            reg.explain(X[0], target=target)


def test_tables(posterior):
    found = posterior.explain(rows()[0][0])
    turns, facets = found.to_frame("turn"), found.to_frame()
    assert list(turns["node"]) == [turn.node for turn in found.turns]
    assert turns["probability"].between(0, 1).all()
    assert facets.groupby("node")["share"].sum().round(9).eq(1).all()
    effects = found.to_frame("feature")
    assert set(effects["feature"]) <= set(found.features)
    change = found.to_frame("change")
    assert change["change"].abs().sum() == pytest.approx(found.change.distance, rel=1e-6)


def test_plot(posterior):
    found = posterior.explain(rows()[0][0])
    axes = found.plot()
    drawn(axes)
    assert [ax.get_title(loc="left") for ax in axes] == [turn.node for turn in found.turns]
    assert any(text.startswith("x") for text in texts(axes[0]))


def test_networks_have_a_path_but_no_facets():
    X, y, _ = rows()

    def linear(n_features):
        return nn.Linear(n_features, 1)

    clf = EndToEndTreeClassifier(split=Network(linear), **QUICK).fit(X, y)
    found = clf.explain(X[0])
    assert found.change is None
    assert len(found.turns) == len(found.leaf)
    assert found.to_frame().empty
    drawn(found.plot())


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_a_single_leaf():
    X, y, _ = rows()
    clf = bayestree.BivariateTreeClassifier(max_depth=0).fit(X, y)
    found = clf.explain(X[0])
    assert found.turns == ()
    assert found.change.row is None
    assert "The tree has no split." in str(found)
    assert "No change of these columns within their ranges makes the prediction" in str(found)
    with pytest.raises(ValueError, match="no split"):
        found.plot()


SLOPES = {
    "linear": bayestree.ObliqueTreeRegressor(splitter="guide", leaf="linear", max_depth=1),
    "logistic": bayestree.ObliqueTreeClassifier(splitter="guide", leaf="logistic", max_depth=1),
    "single": bayestree.ObliqueTreeRegressor(splitter="guide", leaf="linear", max_depth=0),
}


@pytest.mark.parametrize("name", SLOPES)
def test_leaves_with_slopes(name):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(2.0, 1.0, 150), "b": rng.normal(size=150)})
    X["c"] = rng.choice(["u", "v", "w"], 150)
    y = 3 * X["b"] + np.abs(X["a"] - 2) * (name != "single") + (X["c"] == "u")
    if name == "logistic":
        y = np.where(y > 3, "hi", np.where(y > 0, "mid", "lo"))
    model = SLOPES[name].fit(X, y)
    for number in range(4):
        found = model.explain(X.iloc[[number]])
        own, predicted = found.regression, found.expected
        assert own.effects.shape == (3,)
        assert own.total == pytest.approx(own.constant + own.effects.sum())
        if name == "logistic":
            most, second = np.argsort(predicted)[:-3:-1]
            ends = f"{found.classes[most]} to {found.classes[second]}"
            assert own.quantity == f"log odds of {ends}"
            predicted = np.log(predicted[most] / predicted[second])
        assert own.total == pytest.approx(float(np.squeeze(predicted)), rel=1e-6)
        table = found.to_frame("leaf")
        sloping = {"b", "c"} if name == "single" else {"a", "b", "c"}  # where "a" has an effect
        if name == "logistic":  # which the split tells of, so that its slope need not pay
            sloping -= {"a"} - {*table["feature"]}
        assert {*table["feature"]} == sloping
        np.testing.assert_allclose(table["effect"].sum(), own.effects.sum())
        assert table["effect"].abs().is_monotonic_decreasing
        assert f"b = {X['b'][number]:.3g}" in str(found).split("\n\n")[0]
        axes = found.plot()
        drawn(axes)
        assert len(axes) == len(found.turns) + 1
        assert "effect on the " in axes[-1].get_xlabel()
    # The slopes count: b has no split in a single leaf, and decides most of y in every case.
    assert model.feature_importances_.argmax() == 1
    assert model.feature_importances_.sum() == pytest.approx(1.0)


def test_leaves_without_slopes(posterior):
    found = posterior.explain(rows()[0][0])
    assert found.regression is None
    assert found.to_frame("leaf").empty
