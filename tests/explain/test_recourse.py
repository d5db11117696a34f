"""Changes with an assurance over the draws, and robustness radii, against each draw and a grid."""

import numpy as np
import pandas as pd
import pytest
import torch

import bayestree
from bayestree.explain.counterfactual import Robustness, Wanted
from bayestree.inference import Svi

N = 150
SVI = Svi(epochs=6, n_draws=20)
QUICK = {"inference": SVI, "max_depth": 2, "n_experts": 3, "random_state": 0}


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=N),
            "age": rng.integers(20, 60, N),
            "colour": rng.choice(["red", "green", "blue"], N),
        }
    )
    score = X["size"] + (X["age"] - 40) / 15 + (X["colour"] == "red") + rng.normal(size=N) / 2
    return X, score.to_numpy()


@pytest.fixture(scope="module", params=[1, 3])
def classifier(request):
    X, score = table()
    model = bayestree.ConvexPolytopeTreeClassifier(n_modes=request.param, **QUICK)
    return model.fit(X, np.where(score > 0.3, "yes", "no")), X


def share_of_draws(model, X, outcome):
    """The share of the draws of all modes, by weight, that predict the outcome for each row."""
    rows, total = model.encoding_.encode(X).to_numpy(), 0.0
    for tree, weight in model.fitted_:
        for sites in tree.posterior.each():
            standard = tree.scaling.standardise(rows)
            probs = tree.posterior.leaf_probs(standard, sites)[:, None]
            found = tree.posterior.model.leaf.expectation(sites, probs, standard)[0]
            total += weight / tree.n_draws * outcome(tree.scaling.units.decode(found))
    return total


def after(change, X):
    return pd.DataFrame([change.cells], columns=X.columns)


@pytest.mark.parametrize("assurance", [0.9, 1.0])
def test_every_draw_is_asked(classifier, assurance):
    clf, X = classifier
    found = 0
    for number in range(3):
        x = X.iloc[[number]]
        told = clf.explain(x, assurance=assurance)
        change = told.change
        assert change.required == assurance
        if change.row is None:
            assert "does not try every change" in str(told)
            continue
        found += 1
        label = [*clf.classes_].index(change.prediction)
        (agree,) = share_of_draws(
            clf, after(change, X), lambda p, label=label: p.argmax(axis=1) == label
        )
        assert change.assurance == pytest.approx(agree)
        assert agree >= assurance - 1e-9
        assert clf.predict(after(change, X))[0] == change.prediction != clf.predict(x)[0]
        assert change.cells[1] == round(change.cells[1])
        assert f"in at least {100 * assurance:.4g} % of the draws" in str(told)
    assert found


def test_the_least_change_of_one_column(classifier):
    """No value that the column may have is nearer: the search tries all of these 40."""
    clf, X = classifier
    for number in range(4):
        x = X.iloc[[number]]
        change = clf.explain(x, features=["age"], assurance=0.8).change
        now = [*clf.classes_].index(clf.predict(x)[0])
        ages = np.arange(X["age"].min(), X["age"].max() + 1)
        grid = pd.concat([x] * len(ages), ignore_index=True).assign(age=ages)
        share = share_of_draws(clf, grid, lambda p, now=now: p.argmax(axis=1) != now)
        holds = (share >= 0.8 - 1e-9) & (clf.predict(grid) != clf.classes_[now])
        away = np.abs(ages - x["age"].iloc[0])[holds].astype(float)
        least = away.min(initial=np.inf) / clf.tree_.scale[clf.encoding_.places[1][0]]
        assert change.distance == pytest.approx(least)


def test_the_margin_of_the_draws():
    """The margins of a share of the draws are at least this large."""
    wanted = Wanted("at least 1", sign=1, level=1.0)
    values = np.array([[0.5, 3.0], [1.5, 0.0], [2.5, 4.0]])  # draws, rows
    parts = [(values[:2], np.array([0.5, 0.3])), (values[2:], np.array([0.2]))]
    share, margin = wanted.among(iter(parts), 0.5)
    np.testing.assert_allclose(share, [0.5, 0.7])
    np.testing.assert_allclose(margin, [0.5, 2.0])
    np.testing.assert_allclose(wanted.among(iter(parts), 0.7)[1], [-0.5, 2.0])
    np.testing.assert_allclose(wanted.among(iter(parts), 1.0)[1], [-0.5, -1.0])


def test_a_mean_that_draws_reach():
    X, score = table()
    reg = bayestree.ConvexPolytopeTreeRegressor(n_modes=2, **QUICK).fit(X, 10 * score + 5)
    target, x = 15.0, X.iloc[[int(np.argmin(score))]]
    change = reg.explain(x, target=target, assurance=0.9).change
    (agree,) = share_of_draws(reg, after(change, X), lambda mean: mean >= target)
    assert change.assurance == pytest.approx(agree)
    assert agree >= 0.9
    assert change.prediction >= target


def test_directions(classifier):
    clf, X = classifier
    ends = []
    for number in range(8):
        x = X.iloc[[number]]
        for way, sign in (("rise", 1), ("fall", -1)):
            change = clf.explain(x, features={"age": way}).change
            ends.append(change.row is not None)
            assert sign * change.sizes[1] >= 0
    assert any(ends)
    assert not all(ends)
    with pytest.raises(ValueError, match="'rise' or 'fall', got 'up'"):
        clf.explain(X.iloc[[0]], features={"age": "up"})


def test_refusals(classifier):
    clf, X = classifier
    x = X.iloc[[0]]
    with pytest.raises(ValueError, match="assurance must be above 0 and at most 1, got 0"):
        clf.explain(x, assurance=0)
    with pytest.raises(ValueError, match="max_draws must be 1 or more, got 0"):
        clf.robustness(x, max_draws=0)
    grown = bayestree.ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, random_state=0)
    numbers = X[["size", "age"]]
    grown.fit(numbers, table()[1] > 0)
    with pytest.raises(ValueError, match=r"assurance=0.9 needs several draws.*point estimate"):
        grown.explain(numbers.iloc[[0]], assurance=0.9)
    assert len(grown.robustness(numbers.iloc[[0]]).drawn) == 0
    assert "draws" not in str(grown.robustness(numbers.iloc[[0]]))
    reg = bayestree.AlternatingTreeRegressor(max_depth=1, random_state=0)
    with pytest.raises(ValueError, match="target is missing"):
        reg.fit(numbers, table()[1]).robustness(numbers.iloc[[0]])


@pytest.mark.parametrize("target", [None, "yes"])
def test_the_radius_is_where_the_tree_changes(target):
    """With one facet for each node, for which the search is exact."""
    X, score = table()
    settings = QUICK | {"n_experts": 1}
    clf = bayestree.ConvexPolytopeTreeClassifier(n_modes=2, **settings)
    tree = clf.fit(X, np.where(score > 0.3, "yes", "no")).tree_
    for number in range(3):
        x = X.iloc[[number]]
        found = clf.robustness(x, features=["size"], max_draws=4, target=target)
        row = clf.encoding_.encode(x).to_numpy()[0]
        rows = np.repeat(row[None], 20_001, axis=0)
        rows[1:, 0] = np.linspace(X["size"].min(), X["size"].max(), len(rows) - 1)
        own = np.argmax(tree.predict(row[None])[0])
        assert found.bound == pytest.approx(found.radius)
        np.testing.assert_allclose(found.weights, np.repeat(clf.mode_weights_ / 2, 2))
        drawn = [one for mode in clf.fitted_.trees for one in mode.drawn_trees(2)]
        away = np.abs(rows[:, 0] - row[0]) / tree.scale[0]
        for one, radius in zip((tree, *drawn), (found.radius, *found.drawn), strict=True):
            classes = one.predict(rows).argmax(axis=1)
            other = classes != own if target is None else classes == 1
            # a grid may miss the border by one step, and a search ends just beyond it
            np.testing.assert_allclose(away[other].min(initial=np.inf), radius, atol=1e-3)


@pytest.mark.parametrize("leaf", ["constant", "linear", "logistic"])
def test_a_draw_as_a_tree(leaf):
    """It predicts what the draw does if each split takes its more probable side."""
    X, score = table()
    X = X[["size", "age"]]
    kind = bayestree.ConvexPolytopeTreeRegressor
    y = 10 * score + 5
    if leaf == "logistic":
        kind, y = bayestree.ConvexPolytopeTreeClassifier, score > 0
    model = kind(leaf=leaf, n_modes=1, **QUICK).fit(X, y)
    fitted = model.fitted_.shown
    standard = fitted.scaling.standardise(X.to_numpy(dtype=float))
    drawn = [*fitted.drawn_trees(100)]
    assert len(drawn) == fitted.n_draws
    for tree, sites in zip(drawn, fitted.posterior.each(), strict=True):
        hard = np.eye(tree.n_leaves)[tree.apply(X.to_numpy(dtype=float))]
        soft = fitted.posterior.leaf_probs(standard, sites)
        right = fitted.posterior.model.scores(sites, torch.as_tensor(standard)) > np.log(2)
        for v in range(tree.n_nodes):
            np.testing.assert_array_equal(tree.goes_right(v, X.to_numpy(dtype=float)), right[:, v])
        assert soft.shape == hard.shape
        expected = fitted.posterior.model.leaf.expectation(sites, hard[:, None], standard)[0]
        np.testing.assert_allclose(
            tree.predict(X.to_numpy(dtype=float)), fitted.scaling.units.decode(expected), rtol=1e-5
        )


def test_quantiles_and_means_are_weighted():
    drawn, weights = np.array([2.0, 0.0, np.inf]), np.array([0.5, 0.3, 0.2])
    found = Robustness("b", 1.0, 0.9, drawn, weights, 0.5)
    assert found.quantiles([0.25, 0.3, 0.31, 0.79, 0.9]).tolist() == [0, 0, 2, 2, np.inf]
    assert found.interval == (0.0, 2.0)
    assert found.mean == pytest.approx(1.0 / 0.8)
    assert found.disagreement == 0.3
    assert "3 draws: mean 1.25, 50 % interval 0 to 2; 30 % of them" in str(found)
    assert "predicts b: 1, certainly none below 0.9" in str(found)
