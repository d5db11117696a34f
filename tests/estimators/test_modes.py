"""A posterior over trees: several modes and their mixture."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.base import clone

import bayestree
from bayestree import ConvexPolytopeTreeClassifier
from bayestree._utils.progress import Bars, watching
from bayestree._utils.state import draw_seed
from bayestree.diagnostics import loo
from bayestree.estimators._serialization import arrays_of, build, describe
from bayestree.fitted import predictions
from bayestree.fitting import defaults, engine, modes
from bayestree.fitting.engine import fit_each
from bayestree.fitting.modes import Stages
from bayestree.inference import Data, Map, Svi, Vi, pointwise
from tests.estimators.modes import QUICK, weighted


def same_tree(a, b):
    return all(np.array_equal(v, b.tree_.arrays()[k]) for k, v in a.tree_.arrays().items())


@pytest.mark.parametrize("more", [{}, {"validation_fraction": 0.2}])
def test_the_first_mode_is_the_fit_of_one(iris, more):
    one = ConvexPolytopeTreeClassifier(n_modes=1, **QUICK, **more).fit(*iris)
    several = ConvexPolytopeTreeClassifier(n_modes=2, **QUICK, **more).fit(*iris)
    np.testing.assert_array_equal(
        several.modes_[0].predict_proba(iris[0]), one.predict_proba(iris[0])
    )
    assert same_tree(several.modes_[0], one)
    assert not same_tree(several.modes_[1], one)
    assert one.modes_ == [one]
    assert one.mode_weights_.tolist() == [1.0]


@pytest.mark.parametrize(
    ("inference", "number"),
    [
        (Svi(epochs=4), 3),
        ("map", 1),
        (Map(epochs=4), 1),
    ],
    ids=str,
)
def test_the_default_number_of_modes_is_that_of_the_method(iris, inference, number):
    X, y = iris
    found = ConvexPolytopeTreeClassifier(
        max_depth=1, n_experts=2, random_state=0, inference=inference
    )
    assert found.plan(X[:, 2:], y > 0).n_trees == number


def test_the_gain_of_unseen_rows_over_frequencies(iris):
    X, y = iris
    weights = 1.0 + np.arange(len(y)) % 3
    found = ConvexPolytopeTreeClassifier(n_modes=2, **QUICK).fit(X, y, weights)
    stats = [mode.posterior_.stats for mode in found.modes_]
    rows = found.modes_[0].fitted_.scaling.standardise(X)
    each = []
    for mode in found.modes_:  # all copies of a row are left out at once
        p = np.concatenate([*mode.posterior_.expectations(rows)])[:, np.arange(len(y)), y]
        each.append(loo((weights * np.log(p))[None]).elpd_row / weights)
    own = logsumexp(each, axis=0, b=found.mode_weights_[:, None])
    share = (np.bincount(y, weights) + 1 / 3) / (weights.sum() + 1)  # the mean under the prior
    gain = weights * (own - np.log(share[y]))
    for one in stats:
        assert float(one["unseen_gain"]) == pytest.approx(gain.sum(), rel=1e-6)
        error = gain.std() * len(y) ** 0.5
        assert float(one["unseen_gain_error"]) == pytest.approx(error, rel=1e-6)
    assert found.check_convergence()["unseen_gain"].verdict == "info"


def test_noise_is_called_noise():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 20)), rng.integers(0, 2, 200)
    short = QUICK | {"max_depth": 1, "inference": Vi(n_steps=40)}
    found = ConvexPolytopeTreeClassifier(n_modes=2, min_gain=0.0, **short).fit(X, y)
    assert found.tree_.n_nodes
    said = found.check_convergence()
    assert said.predictions.startswith("no better than a constant")
    assert "mode" not in said["unseen_gain"].says  # but of their mixture


def test_fewer_modes_are_the_first_of_more(iris, several):
    fewer = ConvexPolytopeTreeClassifier(n_modes=2, **QUICK).fit(*iris)
    assert all(same_tree(a, b) for a, b in zip(fewer.modes_, several.modes_, strict=False))


def test_results_do_not_depend_on_n_jobs(iris, several):
    parallel = clone(several).set_params(n_jobs=2).fit(*iris)
    np.testing.assert_array_equal(parallel.mode_weights_, several.mode_weights_)
    np.testing.assert_array_equal(parallel.predict_proba(iris[0]), several.predict_proba(iris[0]))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_long_fits_have_a_process_for_each_mode_and_the_same_results(iris, several, monkeypatch):
    given = []
    monkeypatch.setattr(defaults, "SINGLE_ROWS", 100)
    monkeypatch.setattr(
        engine,
        "fit_each",
        lambda *args, **others: given.append(others["n_jobs"]) or fit_each(*args, **others),
    )
    parallel = clone(several).set_params(dtype="float64").fit(*iris)
    assert given == [len(several.modes_)]
    np.testing.assert_array_equal(parallel.mode_weights_, several.mode_weights_)
    np.testing.assert_array_equal(parallel.predict_proba(iris[0]), several.predict_proba(iris[0]))


@pytest.mark.usefixtures("two_threads")
def test_fits_that_are_watched_stay_in_their_process(iris, several, monkeypatch):
    assert several.plan(*iris).n_jobs is None
    monkeypatch.setattr(defaults, "SINGLE_ROWS", 100)
    assert "processes 3 (by default from 100 rows on)" in str(several.plan(*iris))
    with watching(Bars(shown=False)):
        assert several.plan(*iris).n_jobs is None


def test_predictions_are_those_of_the_mixture(iris, several):
    X, _ = iris
    weights = several.mode_weights_
    each = [mode.predict_proba(X, return_std=True) for mode in several.modes_]
    mean = sum(w * p for w, (p, _) in zip(weights, each, strict=True))
    square = sum(w * (p**2 + sd**2) for w, (p, sd) in zip(weights, each, strict=True))
    found, sd = several.predict_proba(X, return_std=True)
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(sd, np.sqrt(square - mean**2), atol=1e-6)
    np.testing.assert_array_equal(several.predict(X), several.classes_[mean.argmax(axis=1)])


def test_the_tree_is_that_of_the_medoid(iris, several):
    X, _ = iris
    means = [
        mode.posterior_.predictive(mode.fitted_.scaling.units.standardise(X))[0]
        for mode in several.modes_
    ]
    apart = [[np.abs(a - b).sum() for b in means] for a in means] @ several.mode_weights_
    medoid = several.modes_[int(np.argmin(apart))]
    assert several.tree_ is medoid.tree_
    assert several.posterior_ is medoid.posterior_
    tree = clone(several).set_params(prediction="tree").fit(X, iris[1])
    np.testing.assert_array_equal(tree.predict_proba(X), medoid.tree_.predict(X))
    np.testing.assert_array_equal(several.apply(X), medoid.apply(X))


def test_the_medoid_is_nearest_by_the_weights():
    """Of predictions 0, 1 and 3, 1 is nearest to the others, but 3 has most of the weight."""

    class Constant:
        def __init__(self, value):
            self.posterior, self.value = self, value

        def thinned(self, max_draws):
            return self

        def predictive(self, X):
            return [np.full(len(X), self.value)]

    scored = Data.of(np.zeros((2, 1)), np.zeros(2))
    trees = [*map(Constant, (0.0, 1.0, 3.0))]
    for weights, medoid in (([1 / 3] * 3, 1), ([0.1, 0.1, 0.8], 2)):
        assert modes._medoid(trees, np.array(weights), scored) == medoid


def test_regression_in_the_units_of_y(values, regressor):
    X, y = values
    weights = regressor.mode_weights_
    each = [mode.predict(X, return_std=True) for mode in regressor.modes_]
    mean = sum(w * p for w, (p, _) in zip(weights, each, strict=True))
    variance = sum(w * ((p - mean) ** 2 + sd**2) for w, (p, sd) in zip(weights, each, strict=True))
    found, sd = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(found, mean)
    np.testing.assert_allclose(sd, np.sqrt(variance))
    leaves = regressor.tree_.value
    assert y.min() <= leaves.min()
    assert leaves.max() <= y.max()


def test_intervals_have_the_mass_of_the_mixture(values, regressor):
    X, _ = values
    low, high = regressor.predict_interval(X, 0.8)
    rows = regressor.fitted_.scaling.units.standardise(X)
    mass = [
        sum(
            w * mode.posterior_.cdf(rows)(regressor.fitted_.scaling.units.encode(end))
            for w, mode in zip(regressor.mode_weights_, regressor.modes_, strict=True)
        )
        for end in (low, high)
    ]
    np.testing.assert_allclose(mass[0], 0.1, atol=1e-9)
    np.testing.assert_allclose(mass[1], 0.9, atol=1e-9)


def test_the_uncertainty_of_y_includes_that_between_modes(iris, several, values, regressor):
    found = several.split_uncertainty(iris[0])
    np.testing.assert_allclose(found.expected_y, several.predict_proba(iris[0]), atol=1e-5)
    each = [mode.split_uncertainty(iris[0]) for mode in several.modes_]
    within = np.tensordot(several.mode_weights_, [one.expected_entropy for one in each], axes=1)
    np.testing.assert_allclose(found.expected_entropy, within)
    np.testing.assert_allclose(found.total_entropy, within + found.mutual_information)
    medoid = several.fitted_.medoid
    assert (found.mean != each[medoid].mean).any()  # sides are those of the draws of all modes
    alone = weighted(several, np.eye(3)[medoid]).split_uncertainty(iris[0])
    np.testing.assert_array_equal(alone.mean, each[medoid].mean)
    regressor = weighted(regressor, [0.2, 0.8])
    real = regressor.split_uncertainty(values[0])
    mean, sd = regressor.predict(values[0], return_std=True)
    np.testing.assert_allclose(real.expected_y, mean, rtol=1e-6)
    np.testing.assert_allclose(real.explained, sd**2, rtol=1e-3)
    np.testing.assert_allclose(real.total_variance, real.explained + real.expected_variance)


def test_sizes_over_all_modes(iris, several):
    found = several.polytope_size(20)
    weights = several.mode_weights_
    own = [mode.polytope_size(20) for mode in several.modes_]
    np.testing.assert_array_equal(found.sizes(), own[several.fitted_.medoid].sizes())
    assert "Over all modes: facets of the root" in str(found)
    assert "leaves in use by a draw" in str(found)
    assert "depth of the deterministic trees" in str(found)
    expected = sum(w * (one.sizes()[:, 0] == 2).mean() for w, one in zip(weights, own, strict=True))
    assert found.over_modes.facets[2] == pytest.approx(expected)
    every = sum(w * (one.sizes().sum(1) == 3).mean() for w, one in zip(weights, own, strict=True))
    assert found.over_modes.splits[3] == pytest.approx(every)
    assert every > 0
    leaves = sum(w * (one.n_leaves == 3).mean() for w, one in zip(weights, own, strict=True))
    assert found.over_modes.leaves[3] == pytest.approx(leaves)
    deep = sum(w * (mode.get_depth() == 2) for w, mode in zip(weights, several.modes_, strict=True))
    assert found.over_modes.depth[2] == pytest.approx(deep)
    assert own[0].over_modes is None


def test_co_membership(iris, several):
    X, _ = iris
    found = several.co_membership(X)
    assert found.shape == (150, 150)
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_allclose(several.co_membership(X[:3], X[5:9]), found[:3, 5:9], atol=1e-6)
    expected = np.zeros(2)
    for weight, mode in zip(several.mode_weights_, several.modes_, strict=True):
        sites = list(mode.posterior_.each())
        for one in sites:
            leaf = mode.posterior_.leaf_probs(
                mode.fitted_.scaling.units.standardise(X[[0, 70, 149]]), one
            )
            expected += weight * leaf[0] @ leaf[1:].T / len(sites)
    np.testing.assert_allclose(found[0, [70, 149]], expected, atol=1e-6)


def test_draws_of_y_come_from_each_mode_by_its_weight(iris, several):
    X, _ = iris
    unequal, n = weighted(several, [0.8, 0.2, 0.0]), 4000
    first, second, _ = (mode.predict_proba(X) for mode in several.modes_)
    row = np.abs(first - second).max(axis=1).argmax()
    drawn = unequal.sample_posterior_predictive(X[[row]], n, random_state=0)
    assert drawn.shape == (n, 1)
    for part, p in ((drawn[:3200], first[row]), (drawn[3200:], second[row])):
        # the draws of the parameters are spread evenly: a share varies no more than binomially
        share = (part == several.classes_).mean(axis=0)
        assert (np.abs(share - p) <= 4 * np.sqrt(p * (1 - p) / len(part)) + 1 / n).all()
    assert several.sample_posterior_predictive(X[:20]).shape == (120, 20)
    with pytest.raises(ValueError, match="draws must be 1 or more"):
        several.sample_posterior_predictive(X, 0)


def test_stacking_prefers_the_modes_that_predict_rows_left_out(iris, several):
    X, y = iris
    columns = []
    for mode in several.modes_:
        posterior, data = mode.posterior_, mode.training_data(X, y)
        terms = pointwise.log_likelihood(posterior.model, posterior.each(), data)
        columns.append(bayestree.diagnostics.loo(terms[None]).elpd_row)
    expected = bayestree.diagnostics.stacking_weights(np.stack(columns, axis=1), prior_rows=5.0)
    np.testing.assert_allclose(several.mode_weights_, expected)


def test_rows_held_out_decide_where_there_are_some(iris):
    method = Map(epochs=4, steepness=None)
    settings = QUICK | {"inference": method, "validation_fraction": 0.3, "n_modes": 2}
    found = ConvexPolytopeTreeClassifier(**settings).fit(*iris)
    data = found.modes_[0].training_data(*iris)
    # the first mode draws its rows as a single fit does, and the others take the same
    seeds = np.random.RandomState(draw_seed(0)), np.random.RandomState(7)
    first = Stages(found.plan_, 0, validation_fraction=0.3)
    each = first, replace(first, split_seed=0)
    held = [stages.held_out(data, one)[1] for stages, one in zip(each, seeds, strict=True)]
    assert held[0].X.equal(held[1].X)
    assert len(held[0].X) == 45
    scores = [
        logsumexp(
            pointwise.log_likelihood(m.posterior_.model, m.posterior_.each(), held[0]), axis=0
        )
        for m in found.modes_
    ]
    expected = bayestree.diagnostics.stacking_weights(np.stack(scores, axis=1), prior_rows=5.0)
    np.testing.assert_allclose(found.mode_weights_, expected)


def test_only_some_rows_are_scored(iris, several, monkeypatch):
    monkeypatch.setattr(modes, "SCORED_ROWS", 40)
    again = clone(several).fit(*iris)
    assert all(same_tree(a, b) for a, b in zip(again.modes_, several.modes_, strict=True))
    assert not np.array_equal(again.mode_weights_, several.mode_weights_)


def test_other_weights(iris, several):
    equal = clone(several).set_params(mode_weights="equal").fit(*iris)
    assert equal.mode_weights_.tolist() == [1 / 3] * 3
    bound = clone(several).set_params(mode_weights="elbo").fit(*iris)
    elbo = [float(mode.posterior_.stats["final_elbo"]) for mode in bound.modes_]
    ratios = np.log(bound.mode_weights_ / bound.mode_weights_[0])
    np.testing.assert_allclose(ratios, np.array(elbo) - elbo[0], rtol=1e-6)


def test_point_estimates_have_equal_weights_and_average(iris):
    found = ConvexPolytopeTreeClassifier(
        inference="grow", n_modes=3, max_depth=2, n_experts=3, random_state=0
    ).fit(*iris)
    assert found.mode_weights_.tolist() == [1 / 3] * 3
    mean = np.mean([mode.tree_.predict(iris[0]) for mode in found.modes_], axis=0)
    np.testing.assert_allclose(found.predict_proba(iris[0]), mean)
    assert found.check_convergence().settled == "nothing to judge"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode_weights": "stacking", "inference": Vi(n_draws=1)}, "validation_fraction"),
        ({"n_modes": 0}, "n_modes must be an integer of 1 or more"),
    ],
)
def test_impossible_combinations_are_refused(iris, settings, message):
    with pytest.raises(ValueError, match=message):
        ConvexPolytopeTreeClassifier(**{"n_modes": 2, "max_depth": 1} | settings).fit(*iris)


def test_one_file_holds_all_modes(iris, several, tmp_path):
    X, _ = iris
    several.save(tmp_path / "modes.safetensors")
    loaded = bayestree.load(tmp_path / "modes.safetensors")
    assert loaded.get_params() == several.get_params()
    np.testing.assert_array_equal(loaded.mode_weights_, several.mode_weights_)
    np.testing.assert_array_equal(loaded.predict_proba(X), several.predict_proba(X))
    np.testing.assert_array_equal(loaded.apply(X), several.apply(X))
    assert str(loaded.polytope_size(10)) == str(several.polytope_size(10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(medoid=3), "medoid is 3"),
        (lambda d, a: d.update(modes=d["modes"][:1]), "mode_weights are not those of 1"),
        (lambda d, a: a.update(mode_weights=np.full(3, 0.5)), "have the sum 1.5"),
    ],
)
def test_files_whose_parts_disagree_are_refused(several, change, message):
    described, arrays = describe(several), arrays_of(several)
    change(described, arrays)
    with pytest.raises(ValueError, match=message):
        build(ConvexPolytopeTreeClassifier, described, arrays, None)


def test_a_warm_start_continues_every_mode(iris):
    X, y = iris
    found = ConvexPolytopeTreeClassifier(n_modes=2, warm_start=True, **QUICK).fit(X, y)
    topologies = [mode.posterior_.model.topology for mode in found.modes_]
    trees = [mode.tree_ for mode in found.modes_]
    found.set_params(inference=Svi(epochs=6)).fit(X, y)
    assert [mode.posterior_.model.topology for mode in found.modes_] == topologies
    assert all(mode.tree_ is not tree for mode, tree in zip(found.modes_, trees, strict=True))
    for n_modes in (1, 3):
        with pytest.raises(ValueError, match="continues from 2 fitted modes: set n_modes=2"):
            found.set_params(n_modes=n_modes).fit(X, y)
    assert len(found.set_params(n_modes=None).fit(X, y).modes_) == 2
    found.set_params(n_modes=1, warm_start=False).fit(X, y)
    assert found.modes_ == [found]


def test_the_text_names_its_mode(several):
    text = bayestree.export_text(several)
    assert f"This is mode {several.fitted_.medoid + 1} of 3 (weight " in text
    assert "This is mode" not in bayestree.export_text(several.modes_[1])


@pytest.mark.filterwarnings("error::bayestree.SingleLeafWarning")
def test_trees_without_splits(iris):
    X, y = iris
    leaf = ConvexPolytopeTreeClassifier(
        n_modes=2, max_depth=0, inference=Vi(n_draws=30), random_state=0
    ).fit(X, y)
    assert leaf.get_n_leaves() == 1
    assert leaf.predict_proba(X[:2]).shape == (2, 3)
    assert leaf.check_convergence().settled == "yes"
    np.testing.assert_allclose(leaf.co_membership(X[:2]), 1)
    with pytest.warns(bayestree.SingleLeafWarning, match="no mode has kept a split"):
        ConvexPolytopeTreeClassifier(n_modes=2, min_gain=1e6, inference="grow").fit(X, y)


def scores_of_weighted_rows(monkeypatch, rows, **settings):
    """What stacking is given for rows of weight 4, and the fit."""
    given = []

    def stacked(scores, *, row_weights, prior_rows):
        given.append((scores, row_weights))
        return np.full(scores.shape[1], 1 / scores.shape[1])

    monkeypatch.setattr(modes, "stacking_weights", stacked)
    X, y = rows
    found = ConvexPolytopeTreeClassifier(n_modes=2, **settings).fit(
        X, y, sample_weight=np.full(len(X), 4.0)
    )
    ((scores, weights),) = given
    assert np.unique(weights).tolist() == [4.0]
    return scores, found


def test_stacking_is_given_the_scores_of_single_rows(iris, monkeypatch):
    left_out, _ = scores_of_weighted_rows(monkeypatch, iris, **QUICK)
    assert left_out.min() > np.log(1e-3), "four times the score of a row is below"
    X, y = iris
    settings = {"inference": "grow", "max_depth": 2, "n_experts": 3, "random_state": 0}
    scores, found = scores_of_weighted_rows(monkeypatch, iris, validation_fraction=0.3, **settings)
    for mode, column in zip(found.modes_, scores.T, strict=True):
        probability = mode.posterior_.predictive(mode.fitted_.scaling.standardise(X))[0]
        each = np.log(probability[np.arange(len(X)), y])
        assert np.abs(column[:, None] - each).min(axis=1).max() < 1e-9


def test_prediction_may_be_changed_after_the_fit(iris):
    X, y = iris
    settings = QUICK | {"n_modes": 2}
    hard = ConvexPolytopeTreeClassifier(prediction="tree", **settings).fit(X, y)
    soft = ConvexPolytopeTreeClassifier(prediction="posterior", **settings).fit(X, y)
    assert not np.allclose(hard.predict_proba(X), soft.predict_proba(X))
    np.testing.assert_array_equal(
        hard.set_params(prediction="posterior").predict_proba(X), soft.predict_proba(X)
    )


def test_few_draws_may_come_from_every_mode(several, monkeypatch):
    def numbered(fitted, rows, count, *_):
        (number,) = (m for m, one in enumerate(several.fitted_.trees) if one is fitted)
        return np.full((count, len(rows)), number)

    monkeypatch.setattr(predictions, "_sampled", numbered)
    found, row = weighted(several, [0.1, 0.3, 0.6]), np.zeros((1, several.n_features_in_))
    drawn = [found.sample_posterior_predictive(row, 1, random_state=s)[0, 0] for s in range(400)]
    shares = np.bincount(np.ravel(drawn), minlength=3) / 400
    # four standard errors of a share; the seeds are fixed
    weights = found.mode_weights_
    assert (abs(shares - weights) < 4 * np.sqrt(weights * 0.9 / 400)).all()
    ten = found.sample_posterior_predictive(row, 10, random_state=0)
    np.testing.assert_array_equal(np.bincount(np.ravel(ten)), [1, 3, 6])


@pytest.mark.parametrize(("n_classes", "depth"), [(2, 4), (16, 4), (17, 7), (26, 7), (33, 8)])
def test_the_default_depth_suits_the_number_of_classes(n_classes, depth):
    X, y = np.repeat(np.eye(n_classes), 4, axis=0), np.repeat(np.arange(n_classes), 4)
    for method in ("svi", "map", "grow"):
        clf = ConvexPolytopeTreeClassifier(inference=method)
        assert clf.plan(X, y).limits.max_depth == depth
        assert clf.set_params(max_depth=3).plan(X, y).limits.max_depth == 3
    clf = ConvexPolytopeTreeClassifier(inference="nuts")
    assert clf.plan(X, y).limits.max_depth == 4


def test_a_tree_may_have_a_leaf_for_each_of_many_classes():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 30)
    X = np.column_stack([y % 5, y // 5]) + rng.uniform(-0.3, 0.3, (600, 2))
    clf = ConvexPolytopeTreeClassifier(inference="grow", n_experts=1, random_state=0).fit(X, y)
    assert clf.get_n_leaves() > 16
