from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch

from bayestree.inference import Data, GrowthLimits, Map, grow, svi
from bayestree.inference import map as fit_map
from bayestree.inference.map import STEEPNESS, _folds, _left_out
from bayestree.models import (
    Categorical,
    Flat,
    Gaussian,
    InverseGammaScale,
    LiteralGammaProcess,
    Oblique,
    Priors,
)
from tests.inference.problems import normal, ring, soft_tree, step
from tests.sampling import quickly

FITS = {
    "mixture": (Categorical(2), "mixture"),
    "gaussian": (Gaussian(), "mixture"),
    "mutual-information": (Categorical(2), "mutual-information"),
    "variance": (Gaussian(), "variance"),
}
PRIORS = {
    "default": Priors(),
    "flat": Priors(hyperplane=Flat()),
    "literal": Priors(weight=LiteralGammaProcess()),
}
PLAIN = (1.0, 1.0)  # no annealing


def grown(model, data, depth=2):
    return grow(model, data, limits=GrowthLimits(depth, min_gain=1.0), steps=40, random_state=0)


def log_joint(posterior, model, data):
    """Log-joint of the point at steepness 1, with shrinkages fixed at their prior mean."""
    sites = dict(posterior.point_sites())
    prior = model.priors.hyperplane
    if isinstance(prior, InverseGammaScale):
        mean = prior.shrinkage_shape / prior.shrinkage_rate
        sites["shrinkage"] = torch.full_like(sites["intercept"], mean)
    return float(model.with_(topology=posterior.model.topology).log_joint(sites, *data))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("prior", quickly(PRIORS, quick=(0, 1)))
@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
def test_the_log_joint_rises(fit, prior, optimiser):
    leaf, likelihood = FITS[fit]
    data = ring(200, noise=0.1) if isinstance(leaf, Categorical) else step(200)
    model = soft_tree(leaf, likelihood=likelihood, priors=PRIORS[prior])
    init = grown(model, data)
    assert init.model.topology.n_nodes > 0
    epochs = 40 if optimiser == "adam" else 5
    found = fit_map(
        init.model,
        data,
        init=init,
        optimiser=optimiser,
        epochs=epochs,
        batch_size=100,
        steepness=PLAIN,
        random_state=0,
    )
    assert log_joint(found, model, data) > log_joint(init, model, data)
    assert len(found.stats["log_joint"]) == epochs
    assert all(np.isfinite(value).all() for value in found.point.values())


def overlap(n=400):
    """Two normals on a line, half of whose labels follow a logistic law."""
    X = normal(n, 1)
    return Data.of(X, (X[:, 0] + normal(n, seed=1) > 0).long())


@pytest.mark.portable
def test_adam_and_lbfgs_agree_where_one_optimum_is():
    data = overlap()
    model = soft_tree().with_(split=Oblique())
    init = grown(model, data, depth=1)
    adam = fit_map(
        init.model, data, init=init, epochs=600, batch_size=400, steepness=PLAIN, random_state=0
    )
    lbfgs = fit_map(
        init.model, data, init=init, optimiser="lbfgs", epochs=60, steepness=PLAIN, random_state=0
    )
    # A hundredth of a nat is far below what the data can tell (two log-likelihoods differ by
    # about 1/2 per parameter between the optimum and the truth).
    difference = log_joint(adam, model, data) - log_joint(lbfgs, model, data)
    assert abs(difference) < 0.05
    sides = [
        np.sign(point.point["hyperplane"][0, 0, 0]) * point.point["intercept"][0, 0]
        for point in (adam, lbfgs)
    ]
    assert sides[0] == pytest.approx(sides[1], abs=0.1)


def test_the_end_of_the_annealing_is_in_the_result():
    data = ring(100)
    init = grown(soft_tree(), data)
    found = fit_map(init.model, data, init=init, epochs=3, steepness=(1.0, 4.0), random_state=0)
    assert found.model.steepness == 4.0
    assert found.inference == "map"


@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
def test_validation_keeps_the_state_that_predicts_held_out_rows_best(optimiser):
    data, held_out = ring(80, noise=0.3), ring(400, seed=7, noise=0.3)
    model = soft_tree(n_experts=8, priors=Priors(hyperplane=Flat()))
    init = grown(model, data, depth=3)
    shared = {
        "init": init,
        "optimiser": optimiser,
        "epochs": 40 if optimiser == "adam" else 10,
        "learning_rate": 0.1,
        "steepness": PLAIN,
        "random_state": 0,
    }
    last = fit_map(init.model, data, **shared)
    best = fit_map(init.model, data, validation=held_out, patience=1000, **shared)

    def likelihood(posterior):
        return float(posterior.model.log_likelihood(posterior.point_sites(), *held_out))

    # The same path with and without a look at held-out rows; it goes on to over-fit.
    assert np.array_equal(last.stats["log_joint"], best.stats["log_joint"])
    assert likelihood(best) > likelihood(last)


def test_patience_ends_the_run():
    data, held_out = ring(80, noise=0.3), ring(400, seed=7, noise=0.3)
    model = soft_tree(n_experts=8, priors=Priors(hyperplane=Flat()))
    init = grown(model, data, depth=3)
    found = fit_map(
        init.model,
        data,
        init=init,
        epochs=60,
        learning_rate=0.1,
        validation=held_out,
        patience=1,
        random_state=0,
    )
    assert len(found.stats["log_joint"]) < 60


@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
def test_rows_of_weight_zero_do_no_harm(optimiser):
    """Even where a minibatch holds nothing else."""
    data = ring(60)
    data = data._replace(weights=(torch.arange(60) < 12).double())
    init = grown(soft_tree(), ring(60))
    found = fit_map(
        init.model, data, init=init, optimiser=optimiser, epochs=3, batch_size=4, random_state=0
    )
    assert all(np.isfinite(value).all() for value in found.point.values())


@pytest.mark.portable
@pytest.mark.parametrize("method", [fit_map, partial(svi, n_draws=2)], ids=["map", "svi"])
def test_minibatches_give_heavy_rows_their_weight(method):
    """Class 1 is 2 % of the rows and half of their weight; X says nothing of it."""
    init = grown(soft_tree(), ring(200))
    X = torch.as_tensor(np.random.default_rng(0).normal(size=(1000, 2)))
    heavy = torch.arange(1000) < 20
    data = Data.of(X, heavy.long(), torch.where(heavy, 49.0, 1.0))
    options = {"init": init, "epochs": 3, "batch_size": 20, "learning_rate": 1e-12}
    found = [method(init.model, data, random_state=seed, **options) for seed in range(8)]
    share = np.mean([one.point["leaf_probs"][:, 1] for one in found])
    # Weights that are ignored end near 0.02. A ratio of two sums over so few heavy rows is biased
    # towards the many light ones: half of the way is allowed.
    assert 0.25 < share < 0.75


def test_wrong_arguments_are_rejected():
    data = ring(60)
    init = grown(soft_tree(), data)
    with pytest.raises(ValueError, match="optimiser must be 'adam' or 'lbfgs', got 'sgd'"):
        fit_map(init.model, data, init=init, optimiser="sgd")
    with pytest.raises(ValueError, match=r"epochs must be an integer of 1 or more.* got 0"):
        fit_map(init.model, data, init=init, epochs=0)
    with pytest.raises(ValueError, match="another topology"):
        fit_map(soft_tree(), data, init=init)


@pytest.fixture(scope="module")
def start():
    data = ring(120, noise=0.1)
    return data, grown(soft_tree(), data)


class TestChoiceOfTheSteepness:
    """steepness=None: the value of 1, 6 and 20 that predicts left-out rows best."""

    def chosen(self, start, **others):
        data, init = start
        options = {"epochs": 5, "steepness": None, "random_state": 0} | others
        return fit_map(init.model, data, init=init, **options)

    @pytest.mark.parametrize("seed", [int, np.random.RandomState, np.random.default_rng])
    def test_the_result_is_that_of_the_chosen_value(self, start, seed):
        found = self.chosen(start, random_state=seed(3))
        best = STEEPNESS[int(found.stats["left_out"].argmax())]
        assert found.model.steepness == best
        assert found.settings["steepness"] == (1.0, best)
        given = self.chosen(start, steepness=(1.0, best), random_state=seed(3))
        assert all(np.array_equal(given.point[name], found.point[name]) for name in found.point)

    @pytest.mark.portable
    def test_splits_that_would_follow_noise_are_not_steep(self):
        # 30 % of the labels are flipped, and ten of twelve columns are without effect. The left-out
        # score of 300 rows has a standard error of about 10 nats; steeper splits lose 80 or more.
        data = ring(300, noise=0.3)
        data = data._replace(X=torch.cat((data.X, normal(300, 10, seed=5)), dim=1))
        init = grown(soft_tree(n_experts=8), data)
        assert self.chosen((data, init), epochs=300).model.steepness == 1.0

    def test_validation_rows_choose(self, start):
        held_out = ring(400, seed=7, noise=0.1)
        scores = self.chosen(start, validation=held_out).stats["left_out"]
        twice = held_out._replace(weights=2 * held_out.weights)
        np.testing.assert_allclose(
            self.chosen(start, validation=twice).stats["left_out"], 2 * scores
        )

    def test_a_row_of_weight_two_is_two_rows_of_the_same_fold(self):
        data = ring(30)._replace(weights=1.0 + (torch.arange(30) % 3))
        order = torch.repeat_interleave(torch.arange(30), data.weights.long())[torch.randperm(60)]
        rows = data._replace(weights=torch.ones(30)).take(order)
        for (kept, held), (kept_rows, held_rows) in zip(_folds(data), _folds(rows), strict=True):
            assert len(held.X) == 10
            assert not {*held_rows.X[:, 0].tolist()} & {*kept_rows.X[:, 0].tolist()}
            assert {*held_rows.X[:, 0].tolist()} == {*held.X[:, 0].tolist()}
            assert held.weights.sum() == len(held_rows.X)
            assert kept.weights.sum() == len(kept_rows.X)

    def test_folds_are_stratified_and_few_rows_are_enough(self):
        data = ring(90)
        data = data._replace(y=(torch.arange(90) < 9).long())
        assert [int(held.y.sum()) for _, held in _folds(data)] == [3, 3, 3]
        assert [len(held.X) for _, held in _folds(data.take(torch.arange(2)))] == [1, 1]
        assert _folds(data._replace(weights=torch.eye(90)[0])) == []

    def test_a_class_with_one_row(self, start):
        data, init = start
        alone = data._replace(y=(torch.arange(120) == 7).long())
        assert np.isfinite(self.chosen((alone, init)).stats["left_out"]).all()


def test_every_row_is_left_out_once(monkeypatch):
    module = import_module("bayestree.inference.map")
    monkeypatch.setattr(
        module.training, "log_likelihood_of_tree", lambda *rows: float(rows[2].weights.sum())
    )
    data = ring(90)._replace(weights=torch.arange(90.0).double())
    init = grow(soft_tree(), data, random_state=0)
    start = {"init": init, "random_state": 0, "progress": False}
    found = _left_out(Map(epochs=1), init.model, data, None, **start)
    assert found.tolist() == [float(data.weights.sum())] * len(STEEPNESS)
