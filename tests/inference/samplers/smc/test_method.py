"""Sequential Monte Carlo: densities, moves that leave the posterior invariant, and the evidence."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import special, stats
from scipy.special import gammaln

from bayestree import inference
from bayestree.inference import Data
from bayestree.inference.samplers.density import Layout, TorchDensity
from bayestree.inference.samplers.smc.method import draws_of
from bayestree.inference.samplers.smc.moves import MOVES, ParticleMoves, births_and_deaths
from bayestree.inference.samplers.smc.particles import (
    ParticleLikelihood,
    ParticlePrior,
    Particles,
    TreePrior,
)
from bayestree.inference.samplers.smc.sampler import (
    N_SLIDES,
    SmcRun,
    Trajectories,
    log_ratio,
    move_once,
    next_temperature,
    systematic,
)
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    LinearGaussian,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import Topology
from tests.inference.problems import normal, soft_tree
from tests.sampling import quickly

LEAVES = {"classes": Categorical(3), "numbers": Gaussian()}
EVERY = LEAVES | {"linear": LinearGaussian()}
N_FEATURES = 2
#: The prior, where means are the most exact, and temperatures of rising power and steepness.
QUICK = (("classes", 0.0), ("classes", 0.4), ("numbers", 0.8))


def problem(leaf="classes", split=None, depth=2, n=12, steepness=2.0):
    """A prior on trees, and rows whose y hardly depends on the features."""
    split = split or Polytope(2)
    model = SoftTree(Topology.complete(depth), split, leaf=EVERY[leaf], steepness=steepness)
    prior = ParticlePrior(model, Layout(model, N_FEATURES), TreePrior(0.7, 0.5))
    X = normal(n, N_FEATURES)
    y = (X[:, 0] > 0).long() if leaf == "classes" else X[:, 0] + 0.5 * normal(n, seed=1)
    return prior, Data.of(X, y, torch.linspace(0.5, 1.5, n)).for_leaf(model.leaf)


@pytest.mark.parametrize("split", [Polytope(2), Oblique()], ids=["polytope", "oblique"])
@pytest.mark.parametrize("leaf", EVERY)
def test_gradient_of_complete_trees(leaf, split):
    prior, data = problem(leaf, split)
    rows, particles = ParticleLikelihood(prior, data), prior.particles(3, np.random.default_rng(0))
    particles.splits[:] = True
    value, gradient = rows.value_and_gradient(particles)
    empty = data.take(torch.arange(0))
    for i, vector in enumerate(particles.vectors):
        parts = [
            TorchDensity(prior.model, some).value_and_gradient(vector) for some in (data, empty)
        ]
        assert value[i] == pytest.approx(parts[0][0] - parts[1][0])
        np.testing.assert_allclose(gradient[i], parts[0][1] - parts[1][1], atol=1e-8)


@pytest.mark.parametrize("leaf", EVERY)
def test_likelihood_of_every_topology(leaf):
    """Particles, and the draws that represent them, have the likelihood of the small tree."""
    prior, data = problem(leaf, depth=3)
    rng = np.random.default_rng(0)
    particles = prior.particles(200, rng)
    found = ParticleLikelihood(prior, data).log_likelihood(particles)
    draws = draws_of(prior, particles.vectors, particles.splits)
    patterns = {tuple(row): i for i, row in enumerate(particles.splits.tolist())}
    assert len(patterns) > 10
    for pattern, i in patterns.items():
        sites = {name: torch.from_numpy(value[i]) for name, value in draws.items()}
        assert float(prior.model.log_likelihood(sites, *data)) == pytest.approx(found[i])
        topology, nodes, leaves = prior.model.topology.collapse(np.where(pattern, -1, 0))
        kept = {"node": nodes, "leaf": leaves}
        used = {n: v[kept[prior.model.dimensions[n][0]]] for n, v in sites.items()}
        small = prior.model.with_(topology=topology)
        assert float(small.log_likelihood(used, *data)) == pytest.approx(found[i])
        branch = prior.trees.probability(topology.node_depth)
        ends = prior.trees.probability(topology.leaf_depth[topology.leaf_depth < 3])
        expected = np.log(branch).sum() + np.log1p(-ends).sum() + float(small.log_prior(used))
        assert prior.log_density(sites, np.array(pattern)) == pytest.approx(expected)


def test_gradient_of_small_trees():
    prior, data = problem(depth=3)
    rows, particles = ParticleLikelihood(prior, data), prior.particles(40, np.random.default_rng(1))
    _, gradient = rows.value_and_gradient(particles)
    step = 1e-6
    for place in range(prior.layout.n_moving):
        ends = [particles.take(slice(None)) for _ in range(2)]
        ends = [Particles(one.vectors.copy(), one.splits) for one in ends]
        ends[0].vectors[:, place] += step
        ends[1].vectors[:, place] -= step
        high, low = map(rows.log_likelihood, ends)
        np.testing.assert_allclose((high - low) / (2 * step), gradient[:, place], atol=1e-4)


def test_prior_of_the_leaves_that_move():
    """In coordinates: log sigma, with sigma^2 inverse-gamma, and a normal mean given sigma."""
    prior, _ = problem("numbers", Oblique())
    particles, leaf = prior.particles(5, np.random.default_rng(0)), prior.model.leaf
    found, _ = prior.moving(particles.vectors, np.ones_like(particles.vectors, dtype=bool))
    free = prior.layout.free(particles.vectors)
    variance = np.exp(2 * free["leaf_scale"])
    expected = stats.invgamma.logpdf(variance, leaf.shape, scale=leaf.rate) + np.log(2 * variance)
    expected += stats.norm.logpdf(free["leaf_mean"], leaf.mean, np.sqrt(variance / leaf.strength))
    np.testing.assert_allclose(found, expected.sum(axis=1))


def _moved(move, prior, rows, particles, rng):
    if move == "trajectories":
        spread = np.maximum(particles.vectors.std(axis=0), 0.1)
        path = Trajectories(rows, prior, np.ones_like(spread), spread)
        with np.errstate(over="ignore", invalid="ignore"):
            return path.move(particles, 1.5, rng).particles
    moves = ParticleMoves(rows, prior, particles, rng)
    if move == "births":
        for node in range(prior.model.topology.n_nodes):
            births_and_deaths(moves, node)
    elif move == "fresh":
        for _ in range(5):
            moves.fresh_experts()
    elif move == "slide":
        for _ in range(30):
            moves.slide()
    else:
        moves.leaves()
    np.testing.assert_allclose(moves.log_likelihood(), rows.log_likelihood(particles))
    return particles


@pytest.mark.parametrize(
    ("leaf", "temperature"),
    [
        pytest.param(leaf, t, marks=() if (leaf, t) in QUICK else pytest.mark.statistical)
        for leaf in LEAVES
        for t in (0.0, 0.4, 0.8)
    ],
)
@pytest.mark.parametrize("move", ["trajectories", "births", "fresh", "slide", "leaves"])
def test_moves_leave_the_tempered_posterior_invariant(move, leaf, temperature):
    """Weighted draws of the prior are compared with draws that were resampled and then moved.

    A bound of 4.5 standard errors on 8 means in each of 30 cases fails once in 600 runs.
    """
    prior, data = problem(leaf)
    rows, rng = (
        ParticleLikelihood(prior, data).at(temperature),
        np.random.default_rng([len(move), len(leaf)]),
    )
    start = prior.particles(6000, rng)
    value = rows.log_likelihood(start)
    weight = np.exp(rows.power * (value - value.max()))
    weight /= weight.sum()
    before = _summaries(prior, rows, start)
    particles = start.take(rng.choice(len(weight), 3000, p=weight))
    for _ in range(8 if move == "trajectories" else 3):
        with torch.no_grad():
            used = particles.leaves_in_use(prior.model)
            prior.refresh(particles.vectors, particles.splits, used, rng)
        particles = _moved(move, prior, rows, particles, rng)
    after = _summaries(prior, rows, particles)
    expected = weight @ before
    spread = weight @ (before - expected) ** 2
    error = np.sqrt(spread * ((weight**2).sum() + 1 / len(after)))
    assert (np.abs(after.mean(axis=0) - expected) < 4.5 * error + 1e-9).all()


def _summaries(prior, rows, particles):
    """Quantities (P, 8) of trees: topology, likelihood, boundaries, weights, leaves and scales."""
    free = prior.layout.free(particles.vectors)
    n_splits = particles.splits.sum(axis=1)
    likelihood = np.maximum(rows.log_likelihood(particles), -60)
    leaf = free["leaf_probs"] if "leaf_probs" in free else free["leaf_scale"][..., None]
    columns = [
        n_splits,
        particles.splits[:, -1],
        likelihood,
        np.tanh(np.log(np.abs(free["hyperplane"][:, 0, 0, 0])) / 2),
        np.tanh(np.log(np.abs(free["intercept"][:, 0, 0])) / 2),
        np.tanh(free["log_weight"][:, 0].max(axis=1) / 2),
        np.tanh(leaf[:, 0, 0]),
        np.tanh(free["shrinkage"][:, 0, 0] / 2),
    ]
    return np.column_stack(columns).astype(float)


def leaf_evidence(leaf, data):
    """Exact log marginal likelihood of one leaf."""
    if isinstance(leaf, Categorical):
        counts = np.bincount(data.y.numpy(), data.weights.numpy(), minlength=leaf.n_classes)
        a = leaf.pseudo_count
        return float(
            gammaln(leaf.concentration)
            - gammaln(leaf.concentration + counts.sum())
            + (gammaln(a + counts) - gammaln(a)).sum()
        )
    # y is a multivariate Student-t with scale matrix (rate / shape) (I + 1 1' / strength)
    y, spread = leaf.target(data.y).numpy(), 1 / leaf.strength
    if isinstance(leaf, LinearGaussian):  # plus X X' / slope_strength
        spread = spread + data.X.numpy() @ data.X.numpy().T / leaf.slope_strength
    scale = leaf.rate / leaf.shape * (np.eye(len(y)) + spread)
    return float(stats.multivariate_t.logpdf(y, np.zeros(len(y)), scale, 2 * leaf.shape))


@pytest.mark.statistical
@pytest.mark.parametrize("leaf", EVERY)
def test_evidence_without_a_split(leaf):
    _, data = problem(leaf, n=20)
    data = data._replace(weights=torch.ones(20, dtype=torch.float64))
    model = soft_tree(EVERY[leaf], 2)
    found = inference.smc(
        model,
        data,
        n_chains=8,
        n_draws=200,
        split_base=1e-9,
        max_depth=1,
        n_rounds=4,
        random_state=0,
    )
    evidence = found.stats["log_evidence"]
    assert (found.stats["n_leaves"] == 1).all()
    # the standard error is that of the eight runs, whose t quantile at 1 in 1,000 is 5.4
    error = evidence.std(ddof=1) / math.sqrt(8)
    assert abs(evidence.mean() - leaf_evidence(EVERY[leaf], data)) < 5.4 * error
    assert 5.4 * error < math.log(2), "a factor of two is found"


def stump_evidence(prior, data, steepness, n_nodes):
    """Log evidence of a split of one feature by one expert, by Gauss quadrature.

    Over the shrinkage and, by their quantiles, the two coefficients given the shrinkage. The
    likelihood is a polynomial in the two leaf probabilities, for which Gauss-Jacobi is exact.
    """
    nodes, weight = special.roots_legendre(n_nodes)
    nodes, weight = (nodes + 1) / 2, weight / 2
    b = stats.gamma.ppf(nodes, prior.shrinkage_shape, scale=1 / prior.shrinkage_rate)
    unit = np.sqrt(b / prior.shape)[:, None] * stats.t.ppf(nodes, 2 * prior.shape)
    odds = unit[:, :, None, None] * data.X[:, 0].numpy() + unit[:, None, :, None]
    right = special.expit(steepness * odds).reshape(-1, len(data.y))  # (points, n)
    joint = np.einsum("i,j,k->ijk", weight, weight, weight).ravel()
    beta, own = special.roots_jacobi(len(data.y) // 2 + 1, -0.5, -0.5)  # Dirichlet(1/2, 1/2)
    beta, own = (beta + 1) / 2, own / own.sum()
    total, y = 0.0, data.y.numpy() == 1
    for left, left_weight in zip(beta, own, strict=True):
        for other, other_weight in zip(beta, own, strict=True):
            chance = (1 - right) * left + right * other
            likelihood = np.where(y, chance, 1 - chance).prod(axis=1)
            total += left_weight * other_weight * float(joint @ likelihood)
    return math.log(total)


def test_evidence_of_a_stump():
    """By quadrature, and the leaf in closed form."""
    model = SoftTree(Topology.stump(), Oblique(), leaf=Categorical(2), steepness=2.0)
    X = normal(16, 1)
    data = Data.of(X, (X[:, 0] + 0.7 * normal(16, seed=1) > 0).long())
    coarse, fine = (stump_evidence(model.priors.hyperplane, data, 2.0, n) for n in (24, 32))
    assert fine == pytest.approx(coarse, abs=2e-3)
    split, whole = math.log(0.6) + fine, math.log(0.4) + leaf_evidence(model.leaf, data)
    exact = np.logaddexp(split, whole)
    found = inference.smc(
        model,
        data,
        n_chains=8,
        n_draws=400,
        n_rounds=4,
        split_base=0.6,
        max_depth=1,
        random_state=0,
    )
    evidence = found.stats["log_evidence"]
    error = evidence.std(ddof=1) / math.sqrt(8)
    # the t quantile of eight runs at 1 in 1,000
    assert abs(evidence.mean() - exact) < 5.4 * error
    assert 5.4 * error < math.log(2), "a factor of two is found"
    single = (found.stats["n_leaves"] == 1).mean(axis=1)
    assert abs(single.mean() - math.exp(whole - exact)) < 5.4 * single.std(ddof=1) / math.sqrt(8)


@pytest.mark.statistical
@pytest.mark.parametrize("leaf", LEAVES)
def test_evidence_of_trees(leaf):
    """The mean of the likelihood over draws of the prior, topologies and leaves included."""
    prior, data = problem(leaf, n=10)
    value = ParticleLikelihood(prior, data).log_likelihood(
        prior.particles(40_000, np.random.default_rng(0))
    )
    weight = np.exp(value - value.max())
    exact = value.max() + math.log(weight.mean())
    error = weight.std() / weight.mean() / math.sqrt(len(weight))
    found = inference.smc(
        prior.model, data, n_draws=600, split_base=0.7, split_power=0.5, random_state=0
    )
    evidence = found.stats["log_evidence"]
    error = math.hypot(error, evidence.std(ddof=1) / 2)
    assert abs(evidence.mean() - exact) < 8 * error
    assert error < 0.4


@pytest.mark.statistical
@pytest.mark.parametrize("leaf", LEAVES)
def test_evidence_by_thermodynamic_integration(leaf):
    """log Z = int_0^1 E_t log L dt, from chains at fixed temperatures without any weights.

    By the trapezoidal rule with the correction by variances, which are d E_t / dt (Friel, Hurn and
    Wyse 2014). Each of 4 replications has its own chains.
    """
    prior, data = problem(leaf, n=60, steepness=1.0)
    rows, powers = ParticleLikelihood(prior, data), np.linspace(0, 1, 21) ** 5
    found = []
    for seed in range(4):
        run = SmcRun.of(prior, rows, 100, np.random.default_rng([7, seed]))
        moving, levels = run.particles, []
        for power in powers:
            run.temperature, values = power, []
            for _ in range(24):
                moving, value, _ = move_once(run, moving, prior, rows.at(power))
                values.append(value)
            kept = np.array(values[6:])
            levels.append((kept.mean(), kept.var()))
        mean, variance = np.array(levels).T
        step = np.diff(powers)
        area = step @ (mean[1:] + mean[:-1]) / 2 - step**2 @ np.diff(variance) / 12
        found.append(area)
    smc = inference.smc(
        prior.model, data, n_draws=1200, split_base=0.7, split_power=0.5, random_state=0
    ).stats["log_evidence"]
    error = math.hypot(np.std(found, ddof=1) / 2, smc.std(ddof=1) / 2)
    # the t quantile of 6 degrees of freedom at 1 in 1,000
    assert abs(np.mean(found) - smc.mean()) < 6.0 * error
    assert error < 0.15


@pytest.mark.parametrize(("temperature", "end"), [(0.0, 0.5), (0.5, 1.0), (0.9999, 1.0)])
def test_next_temperature(temperature, end):
    """The effective share of the particles, up to the end of a part of the path."""
    prior, data = problem(n=60, steepness=20.0)
    rows, rng = ParticleLikelihood(prior, data), np.random.default_rng(0)
    run = SmcRun.of(prior, rows, 400, rng)
    run.temperature = temperature
    run.log_likelihood = rows.at(temperature).log_likelihood(run.particles)
    new = next_temperature(run, rows, 0.6)
    first, last = rows.at(temperature), rows.at(new)
    terms = [one.power * one.log_likelihood(run.particles) for one in (first, last)]
    np.testing.assert_allclose(
        log_ratio(run.particles, run.log_likelihood, first, last), terms[1] - terms[0]
    )
    weight = np.exp(terms[1] - terms[0] - (terms[1] - terms[0]).max())
    share = weight.sum() ** 2 / (weight @ weight) / 400
    if temperature == 0.9999:
        assert new == end
        assert share > 0.6
    else:
        assert temperature < new < end
        assert share == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("leaf", EVERY)
def test_moves_in_blocks(leaf):
    """A round moves every block in place, and returns the log-likelihoods of all particles."""
    prior, data = problem(leaf)
    rows = ParticleLikelihood(prior, data).at(0.4)
    rows.block = 7
    run = SmcRun.of(prior, rows, 41, np.random.default_rng(0))
    start = run.particles.vectors.copy()
    moved, value, made = move_once(run, run.particles, prior, rows)
    np.testing.assert_allclose(value, rows.log_likelihood(moved))
    assert (moved.vectors != start).any(axis=1).all()
    split = int(moved.splits.any(axis=1).sum())
    assert made[MOVES.index("slide"), 1] == N_SLIDES * split, "every block is counted once"
    assert made[MOVES.index("leaf"), 1] == moved.leaves_in_use(prior.model).sum()


def test_systematic_resampling():
    rng = np.random.default_rng(0)
    weight = rng.gamma(0.5, size=2000)
    counts = np.bincount(systematic(weight, 2000, rng), minlength=2000)
    assert (np.abs(counts - 2000 * weight / weight.sum()) < 1).all()


def test_the_path_of_temperatures():
    """The power rises first, at a steepness of at most 1, then the steepness to the model's."""
    prior, data = problem(steepness=4.0)
    path = [ParticleLikelihood(prior, data).at(t) for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert [(rows.power, rows.steepness) for rows in path] == [
        (0, 1), (0.5, 1), (1, 1), (1, 2), (1, 4)
    ]  # fmt: skip
    soft, data = problem(steepness=0.5)
    assert [(r.power, r.steepness) for r in map(ParticleLikelihood(soft, data).at, (0.3, 1.0))] == [
        (0.3, 0.5), (1, 0.5)
    ]  # fmt: skip


@pytest.mark.parametrize("leaf", quickly(LEAVES, quick=(0,)))
def test_prior_of_topologies(leaf):
    """At a likelihood without rows of weight, the draws are those of the prior."""
    prior, data = problem(leaf, depth=3)
    data = data._replace(weights=data.weights * 0)
    found = inference.smc(
        prior.model, data, n_chains=2, n_draws=1000, max_depth=3, n_rounds=2, random_state=0
    )
    np.testing.assert_allclose(found.stats["log_evidence"], 0.0, atol=1e-12)
    expected = 0.05  # of the root
    share = (found.stats["n_leaves"] == 1).mean()
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 1000)


def test_same_numbers_from_any_number_of_processes():
    model, data = soft_tree(steepness=3.0), problem()[1]
    data = data._replace(y=data.y.clamp_max(1))
    one, two = (
        inference.smc(
            model,
            data,
            n_chains=2,
            n_draws=8,
            max_depth=1,
            n_rounds=2,
            n_jobs=jobs,
            random_state=3,
        )
        for jobs in (1, 2)
    )
    for name, value in one.draws.items():
        np.testing.assert_array_equal(value, two.draws[name])
        assert np.isfinite(value).all()


def test_more_particles_than_draws():
    """The draws are those of every third particle, and the evidence is that of all."""
    prior, data = problem()
    runs = [
        inference.smc(
            prior.model,
            data,
            n_chains=1,
            n_draws=n_draws,
            n_particles=24,
            max_depth=1,
            n_rounds=2,
            random_state=3,
        )
        for n_draws in (24, 8)
    ]
    for name, value in runs[0].draws.items():
        np.testing.assert_array_equal(value[:, 2::3], runs[1].draws[name])
    every, some = (run.stats for run in runs)
    np.testing.assert_array_equal(every["lp"][:, 2::3], some["lp"])
    np.testing.assert_array_equal(every["log_evidence"], some["log_evidence"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priors": Priors(GammaProcess(), Flat())}, "InverseGammaScale on hyperplanes"),
        ({"priors": Priors(GammaProcess(concentration_prior=(1.0, 1.0)))}, "without hyper-priors"),
        ({"steepness": math.inf}, "finite steepness"),
        ({"likelihood": "mutual-information"}, "mixture"),
    ],
)
def test_refused_models(changes, message):
    model = soft_tree().with_(**changes)
    with pytest.raises(ValueError, match=message):
        inference.smc(model, problem()[1])


def test_refused_settings():
    model, data = soft_tree(), problem(n=12)[1]
    with pytest.raises(ValueError, match="at most 2,000 rows, got 2,001"):
        inference.smc(model, data.take(torch.arange(2001) % 12))
    with pytest.raises(ValueError, match="max_depth"):
        inference.smc(model, data, max_depth=4)
    with pytest.raises(ValueError, match="n_particles must be at least n_draws, 100"):
        inference.smc(model, data, n_draws=100, n_particles=99)


@pytest.mark.parametrize(
    ("count", "stated", "rounds"),
    [(20, None, 2), (100, None, 4), (1000, None, 4), (2000, None, 8), (9000, None, 12),
     (9000, 3, 3), (20, 12, 2), (5, 1, 1)],
)  # fmt: skip
def test_the_number_of_rounds(count, stated, rounds):
    assert inference.Smc(n_rounds=stated, n_draws=count).sized().n_rounds == rounds


def test_a_draw_of_the_prior_that_is_impossible_has_no_weight():
    start, next_one = (SimpleNamespace(power=power, steepness=1.0) for power in (0.0, 0.5))
    found = log_ratio(None, np.array([-4.0, -np.inf]), start, next_one)
    np.testing.assert_array_equal(found, [-2.0, -np.inf])
