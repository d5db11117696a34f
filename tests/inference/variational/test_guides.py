import math

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from scipy import integrate, optimize, stats

from bayestree.inference import Data, GrowthLimits, grow
from bayestree.inference.convergence import evaluate_elbo
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models import (
    Categorical,
    FeatureCount,
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Laplace,
    LinearGaussian,
    LiteralGammaProcess,
    Oblique,
    Polytope,
    Priors,
    Spatial,
)
from bayestree.topology import Topology
from tests.inference.problems import ring, soft_tree, step
from tests.sampling import quickly

PRIORS = Priors(GammaProcess(1.5, 0.8), InverseGammaScale(1.5, 2.0, 0.7))
PARTS = [
    (leaf, split, hyperplane)
    for leaf in (Categorical(2), Gaussian())
    for split in (Polytope(2), Oblique())
    for hyperplane in (PRIORS.hyperplane, Flat())
] + [
    (Categorical(2), Oblique(), Laplace(2.0)),
    (Gaussian(), Polytope(2), Laplace(2.0, intercept_scale=3.0)),
    (Categorical(2), Polytope(2), Spatial(0.7, (1, 2))),
    (LinearGaussian(), Polytope(2), PRIORS.hyperplane),
]


def guide_for(leaf=None, split=None, hyperplane=PRIORS.hyperplane, *, n=24, steepness=2.0):
    """A guide somewhere between prior and posterior of a tiny tree, and its data."""
    leaf = leaf or Categorical(2)
    data = (ring(n) if isinstance(leaf, Categorical) else step(n)).for_leaf(leaf)
    model = soft_tree(leaf, priors=Priors(PRIORS.weight, hyperplane), steepness=steepness)
    model = model.with_(split=split or Polytope(2))
    limits = GrowthLimits(1, min_rows=2, min_leaf=1, min_gain=0.0)
    init = grow(model, data, limits=limits, steps=5, random_state=0)
    assert init.model.topology.n_nodes, "there is a split, whose guide the tests are about"
    sites = init.point_sites()
    member = init.model.leaf_log_probs(sites, data.X).exp()
    sums = member.T @ leaf.statistics(data.y, data.weights)
    guide = PolytopeGuide(init.model, sites, sums)
    with torch.no_grad():
        for index, parameter in enumerate(guide.parameters()):
            generator = torch.Generator().manual_seed(index)
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).double())
    guide.refresh(steps=50)
    return guide.eval(), data


def log_ratios(guide, data, n):
    """log p - log q of each of n draws of the guide, without and with the rows."""
    model = guide.stated(guide.model.steepness)
    prior, joint = [], []
    with torch.no_grad():
        for _ in range(n):
            drawn = poutine.trace(guide).get_trace(*data)
            stated = poutine.trace(poutine.replay(model, drawn)).get_trace(*data)
            log_q = float(drawn.log_prob_sum())
            sites = {k: v["value"] for k, v in drawn.nodes.items() if v["type"] == "sample"}
            prior.append(float(model.log_prior(sites)) - log_q)
            joint.append(float(stated.log_prob_sum()) - log_q)
    return np.array(prior), np.array(joint)


@pytest.mark.parametrize("parts", quickly(PARTS, quick=(0, 7)), ids=str)
def test_divergence_and_bound_are_those_of_the_pyro_guide(parts):
    guide, data = guide_for(*parts)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        prior, joint = log_ratios(guide, data, 400)
        estimates = [float(evaluate_elbo(guide, data, n_draws=15)) for _ in range(60)]
    error = prior.std() / math.sqrt(len(prior))
    assert abs(prior.mean() + float(guide.kl().detach())) < 4 * error
    error = math.sqrt(joint.var() / len(joint) + np.var(estimates) / len(estimates))
    assert abs(joint.mean() - np.mean(estimates)) < 4 * error


def test_bound_is_that_of_trace_elbo():
    guide, data = guide_for()
    loss, model = Trace_ELBO(), guide.stated(guide.model.steepness)
    with torch.random.fork_rng(), torch.no_grad(), pyro.get_param_store().scope():
        torch.manual_seed(1)
        stated = [-loss.loss(model, guide, *data) for _ in range(400)]
        ours = [float(evaluate_elbo(guide, data, n_draws=15)) for _ in range(60)]
    error = math.sqrt(np.var(stated) / len(stated) + np.var(ours) / len(ours))
    assert abs(np.mean(stated) - np.mean(ours)) < 4 * error


def test_the_bound_that_is_climbed_has_the_leaves_at_their_best():
    """The leaves' own factor integrates to a bound below that with drawn leaves."""
    guide, data = guide_for()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        climbed, drawn = (
            np.array([float(value()) for _ in range(500)])
            for value in (
                lambda: guide.fit(data.with_ones(), guide.model.steepness)[0],
                lambda: guide.expected_log_likelihood(data),
            )
        )
    error = math.sqrt(climbed.var() / 500 + drawn.var() / 500)
    assert climbed.mean() <= drawn.mean() + 4 * error


@pytest.mark.parametrize("factor", [0.9, 0.99, 1.01, 1.1])
def test_refreshed_shrinkages_are_the_best(factor):
    guide, _ = guide_for()
    best = float(guide.kl().detach())
    guide.scales.rate *= factor
    assert float(guide.kl().detach()) > best
    guide.refresh(steps=50)
    assert float(guide.kl().detach()) == pytest.approx(best, rel=1e-10)


def test_divergence_has_the_gradient_of_its_finite_differences():
    guide, _ = guide_for()
    guide.zero_grad()
    guide.kl().backward()
    step_size = 1e-5
    for name, parameter in guide.named_parameters():
        flat, gradient = parameter.detach().view(-1), parameter.grad.view(-1)
        for i in range(len(flat)):
            values = []
            for shift in (step_size, -step_size):
                flat[i] += shift
                # the shrinkages follow, as they do in a fit
                guide.refresh(steps=50)
                values.append(float(guide.kl().detach()))
                flat[i] -= shift
            slope = (values[0] - values[1]) / (2 * step_size)
            assert float(gradient[i]) == pytest.approx(slope, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("parts", quickly(PARTS, quick=(0, 7, 9, 11)), ids=str)
def test_draws_are_those_that_the_guide_states_in_pyro(parts):
    guide, data = guide_for(*parts)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        ours = [guide.sample() for _ in range(400)]
        stated = [poutine.trace(guide).get_trace(*data).nodes for _ in range(400)]
    expected = {"hyperplane", "intercept", *guide.model.leaf.sites}
    expected |= {"log_weight"} if guide.model.split.weighted else set()
    expected |= {"shrinkage"} if parts[2] is PRIORS.hyperplane else set()
    assert set(ours[0]) == expected
    for name in expected:
        one = torch.stack([draw[name] for draw in ours]).flatten(1).numpy()
        other = torch.stack([draw[name]["value"] for draw in stated]).flatten(1).numpy()
        for column in range(one.shape[1]):
            p_value = stats.ks_2samp(one[:, column], other[:, column]).pvalue
            assert p_value > 2 * stats.norm.sf(4), name


def test_point_is_the_mean_of_the_draws():
    guide, _ = guide_for()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = [guide.sample() for _ in range(3000)]
    point = guide.point()
    for name in ("hyperplane", "intercept", "shrinkage", "leaf_probs", "log_weight"):
        values = torch.stack([draw[name] for draw in draws])
        # Of the weights themselves, not of their logarithms.
        expected = point[name].exp() if name == "log_weight" else point[name]
        values = values.exp() if name == "log_weight" else values
        error = 4 * values.std(0) / math.sqrt(len(draws))
        assert ((values.mean(0) - expected).abs() < error).all(), name


def best_weibull(concentration, rate):
    """Shape and scale of the Weibull of least divergence from a gamma, by quadrature."""
    gamma = stats.loggamma(concentration, loc=-math.log(rate))

    def divergence(parameters):
        law = stats.gumbel_l(loc=parameters[1], scale=math.exp(-parameters[0]))
        low, high = law.ppf(1e-12), law.ppf(1 - 1e-12)
        points = np.linspace(low, high, 4001)
        density = law.pdf(points)
        return integrate.trapezoid(density * (law.logpdf(points) - gamma.logpdf(points)), points)

    found = optimize.minimize(divergence, (0.0, 0.0), method="Nelder-Mead")
    return math.exp(found.x[0]), found.x[1]


@pytest.mark.parametrize("concentration", [0.3, 1.5, 6.0])
def test_without_rows_the_guide_returns_to_the_prior(concentration):
    """Within its family: the log-Weibulls nearest to the log-gamma, normals of mean 0."""
    data = ring(30)._replace(weights=torch.zeros(30, dtype=torch.float64))
    priors = Priors(GammaProcess(concentration, 0.8), PRIORS.hyperplane)
    init = grow(
        soft_tree(), ring(30), limits=GrowthLimits(1, min_gain=0.0), steps=5, random_state=0
    )
    model = init.model.with_(priors=priors)
    guide = PolytopeGuide(model, init.point_sites(), torch.zeros(2, 2, dtype=torch.float64)).eval()
    optimiser = torch.optim.LBFGS(
        guide.parameters(), line_search_fn="strong_wolfe", max_iter=500, tolerance_change=1e-12
    )

    def closure():
        optimiser.zero_grad()
        guide.refresh(steps=20)
        loss = guide.kl() - guide.expected_log_likelihood(data)
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(closure)
    for parameter in guide.parameters():
        parameter.requires_grad = False
    law = guide.log_weight_law
    shape, loc = best_weibull(concentration / model.split.n_experts, 0.8)
    torch.testing.assert_close(
        law.concentration, torch.full_like(law.concentration, shape), rtol=1e-2, atol=0.0
    )
    assert float((law.loc - loc).abs().max()) < 1e-2 / shape
    assert float((guide.mean.abs() / guide.moments.variance.sqrt()).max()) < 1e-2
    alike = guide.moments.variance.flatten(1)
    assert float(alike.max() / alike.min()) < 1.01
    assert torch.allclose(guide.leaf_law.concentration, torch.ones(2, 2).double())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"likelihood": "mutual-information"}, "needs likelihood 'mixture'"),
        ({"priors": Priors(weight=LiteralGammaProcess())}, "needs a GammaProcess"),
        ({"priors": Priors(hyperplane=FeatureCount())}, "another prior that has expected_log_prob"),
    ],
)
def test_models_beyond_the_guide_are_rejected(changes, message):
    data = ring(30)
    init = grow(soft_tree(), data, limits=GrowthLimits(1, min_gain=0.0), steps=5, random_state=0)
    sums = torch.zeros(2, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        PolytopeGuide(init.model.with_(**changes), init.point_sites(), sums)


def test_a_prior_of_ones_own_needs_but_its_mean_under_normals():
    """A ridge: its guide is the one of a prior that the package has."""

    class Ridge(Flat):
        def log_prob(self, sites):
            return -sites["hyperplane"].square().sum()

        def expected_log_prob(self, moments):
            return -(moments.mean**2 + moments.variance)[..., :-1].sum()

    guide, _ = guide_for(hyperplane=Flat())
    flat = float(guide.kl().detach())
    guide, _ = guide_for(hyperplane=Ridge())
    square = (guide.mean**2 + guide.moments.variance)[..., :-1].sum()
    assert float(guide.kl().detach()) == pytest.approx(flat + float(square.detach()), rel=1e-10)


def test_float32_bounds_are_nearly_those_of_float64():
    guide, data = guide_for()
    single = PolytopeGuide(
        guide.model,
        {name: value.float() for name, value in guide.point().items()},
        guide.leaf_sums.float(),
    ).eval()
    double = PolytopeGuide(guide.model, guide.point(), guide.leaf_sums).eval()
    assert float(single.kl().detach()) == pytest.approx(float(double.kl().detach()), rel=1e-4)
    rows = Data.of(data.X, data.y, dtype=torch.float32)
    assert torch.isfinite(single.expected_log_likelihood(rows))


def test_noise_of_a_small_fit_is_standard_on_average():
    """Over a whole fit, whatever the size of its steps."""
    guide, _ = guide_for(n=12)
    guide.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        noise = torch.stack([guide.noise(torch.empty(4, 12).double()) for _ in range(4000)])
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.var()) - 1) < 0.02


@pytest.mark.parametrize("weighted", [True, False])
def test_experts_that_cut_rows_off_are_counted(weighted):
    """Three on the rows of one feature: far away, at 0, and at 0 without a weight."""
    model = soft_tree(n_experts=3).with_(topology=Topology.stump())
    sites = {
        "hyperplane": torch.ones(1, 3, 1).double(),
        "intercept": torch.tensor([[-9.0, 0.0, 0.0]]).double(),
        "log_weight": torch.tensor([[0.0, 0.0, -9.0]]).double(),
    }
    if not weighted:
        model = model.with_(split=Oblique(), priors=Priors(hyperplane=InverseGammaScale()))
        sites = {"hyperplane": torch.ones(1, 1, 1), "intercept": torch.zeros(1, 1)}
    guide = PolytopeGuide(model, sites, torch.ones(2, 2))
    rows = torch.tensor([[-1.0, 1.0], [1.0, 1.0]]).to(guide.size)
    assert guide.n_facets(rows) == 1
    assert guide.n_facets(rows[:1]) == 0
    far = torch.tensor([[10.0, 1.0]]).to(rows)
    assert guide.n_facets(far) == (2 if weighted else 1)
