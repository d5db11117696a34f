"""The posterior of a tree without a split."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Data, Nuts, Posterior, Svi, single_leaf
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology
from tests.models.cases import make

Y = np.array([0, 0, 2, 1, 0, 2, 0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0])


def leaf(topology=None):
    model = SoftTree(topology or Topology.leaf(), Polytope(3), leaf=Categorical(3, 0.6))
    shapes = model.shapes(2)
    sites = {
        name: torch.ones(shapes[name], dtype=torch.float64)
        for name in ("log_weight", "hyperplane", "intercept", "shrinkage", "leaf_probs")
    }
    return Posterior.from_point(model, sites, "grow")


def test_draws_are_of_the_conjugate_posterior():
    data = Data.of(np.zeros((7, 2)), Y, WEIGHTS)
    found = single_leaf(leaf(), data, n_chains=2, n_draws=400, random_state=0)
    counts = np.bincount(Y, WEIGHTS) + 0.2
    probs = found.draws["leaf_probs"].reshape(800, 3)
    for draws, count in zip(probs.T, counts, strict=True):
        assert stats.kstest(draws, stats.beta(count, counts.sum() - count).cdf).pvalue > 1e-3
    np.testing.assert_allclose(found.point["leaf_probs"][0], counts / counts.sum())
    assert found.draws["hyperplane"].shape == (2, 400, 0, 3, 2)


def test_densities_differ_by_the_evidence():
    data = Data.of(np.zeros((7, 2)), Y)
    found = single_leaf(leaf(), data, n_draws=5, random_state=0)
    gain = found.stats["log_p"] - found.stats["log_q"]
    counts, prior = torch.as_tensor(np.bincount(Y)), torch.full((3,), 0.2, dtype=torch.float64)
    evidence = torch.lgamma(prior + counts).sum() - torch.lgamma(prior).sum()
    evidence += torch.lgamma(prior.sum()) - torch.lgamma(prior.sum() + counts.sum())
    np.testing.assert_allclose(gain, float(evidence), rtol=1e-10)


def test_refuses_a_tree_that_splits():
    data = Data.of(np.zeros((7, 2)), Y)
    with pytest.raises(ValueError, match="without a split"):
        single_leaf(Posterior.from_point(make("stump"), {}, "grow"), data)


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
@pytest.mark.parametrize("inference", [Svi(n_draws=200), Nuts(n_draws=200)], ids=repr)
def test_estimators_without_a_split_have_a_spread(inference):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    settings = {"min_gain": 1e6, "inference": inference, "random_state": 0}
    classifier = ConvexPolytopeTreeClassifier(**settings).fit(X, y)
    probability, sd = classifier.predict_proba(X[:1], return_std=True)
    share = (y.sum() + 0.5) / 61
    error = np.sqrt(share * (1 - share) / 62)
    n = classifier.posterior_.n_chains * 200
    assert abs(probability[0, 1] - share) < 4 * error / np.sqrt(n)
    assert sd[0, 1] == pytest.approx(error, rel=4 / np.sqrt(2 * n))
    assert (
        "pareto_k" not in classifier.check_convergence().to_frame().query("verdict != 'ok'").index
    )
    mean, spread = (
        ConvexPolytopeTreeRegressor(**settings).fit(X, X[:, 0]).predict(X, return_std=True)
    )
    assert np.ptp(mean) == 0
    assert (spread > 0).all()
