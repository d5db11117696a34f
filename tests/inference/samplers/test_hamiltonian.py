"""The No-U-Turn sampler on known densities, whitened coordinates and estimates of a precision."""

import math

import numpy as np
import pytest
from scipy import stats

from bayestree._utils.monte_carlo import ess
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.hamiltonian import (
    EvaluatedPoint,
    GradientMoments,
    Information,
    StepSize,
    Whitening,
    _Point,
    _point,
    _Span,
    _Walk,
    expert_blocks,
    first_step_size,
    transition,
)
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 2.0, -0.5], [0.0, -0.5, 0.5]])
CENTER = np.array([1.0, -2.0, 0.5])
BLOCKS = np.array([[0, 2], [4, 3]])
PRECISION = np.array(
    [
        [3.0, 0.0, 1.2, 0.0, 0.0],
        [0.0, 2.0, 0.0, 0.0, 0.0],
        [1.2, 0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 4.0, -1.5],
        [0.0, 0.0, 0.0, -1.5, 0.8],
    ]
)


class Normal:
    """A correlated normal law."""

    precision = np.linalg.inv(COVARIANCE)

    def value_and_gradient(self, vector):
        gradient = -self.precision @ (vector - CENTER)
        return 0.5 * float((vector - CENTER) @ gradient), gradient


class LogGammas:
    """Logarithms of gamma variables: skewed, with an exponential left tail."""

    shape = np.array([0.4, 3.0])

    def value_and_gradient(self, vector):
        value = float((self.shape * vector - np.exp(vector)).sum())
        return value, self.shape - np.exp(vector)


class Square:
    """Uniform on a square: beyond it there is nothing, not even a number."""

    def value_and_gradient(self, vector):
        inside = bool((np.abs(vector) < 1).all())
        return 0.0 if inside else math.nan, np.zeros_like(vector)


def place(density, vector):
    vector = np.asarray(vector, dtype=np.float64)
    return EvaluatedPoint(vector, *density.value_and_gradient(vector))


def run(density, start, n, *, step_size, max_depth=8, seed=0):
    """Positions (n, D) and what each transition recorded."""
    generator = np.random.default_rng(seed)
    at = place(density, start)
    positions, moves = [], []
    for _ in range(n):
        at, move = transition(
            density,
            at,
            step_size=step_size,
            max_depth=max_depth,
            generator=generator,
        )
        positions.append(at.position)
        moves.append(move)
    return np.array(positions), moves


def z_scores(values, expected):
    """Distance of means (n, q) from what is expected, in Monte Carlo errors."""
    effective = ess(values[None], "mean")
    return (values.mean(0) - expected) * np.sqrt(effective) / values.std(0)


class TestLeapfrog:
    def walk(self, step_size):
        density = Normal()
        start = place(density, [0.3, -1.0, 1.0])
        origin = _point(start, np.array([0.7, -0.2, 0.4]))
        walk = _Walk(density, step_size, origin.joint, np.random.default_rng(0))
        return walk, origin

    def test_reversible(self):
        walk, origin = self.walk(0.3)
        there = walk._step(walk._step(origin, 1).last, 1).last
        back = walk._step(walk._step(there, -1).last, -1).last
        np.testing.assert_allclose(back.place.position, origin.place.position, rtol=1e-12)
        np.testing.assert_allclose(back.momentum, origin.momentum, rtol=1e-12)

    def test_keeps_volume(self):
        """The Jacobian of a step, by central differences, has determinant 1."""
        walk, _ = self.walk(0.3)
        walk.density = density = LogGammas()

        def step(both):
            origin = _point(place(density, both[:2]), both[2:])
            end = walk._step(origin, 1).last
            return np.append(end.place.position, end.momentum)

        both = np.array([0.3, -0.5, 0.2, 0.9])
        columns = [(step(both + h) - step(both - h)) / 2e-5 for h in 1e-5 * np.eye(4)]
        assert np.linalg.det(np.array(columns)) == pytest.approx(1, abs=1e-8)

    def test_error_of_energy_falls_with_the_square_of_the_step(self):
        errors = []
        for step_size in (0.1, 0.05, 0.025):
            walk, point = self.walk(step_size)
            start = point.joint
            for _ in range(round(1 / step_size)):
                point = walk._step(point, 1).last
            errors.append(abs(point.joint - start))
        ratios = np.array(errors[:-1]) / np.array(errors[1:])
        np.testing.assert_allclose(ratios, 4, rtol=0.1)

    def test_energy_is_that_of_position_and_momentum(self):
        start = place(Normal(), [0.0, 0.0, 0.0])
        kinetic = 0.5 * (1 + 4 + 9)
        point = _point(start, np.array([1.0, 2.0, 3.0]))
        assert point.joint == pytest.approx(start.value - kinetic)


class TestStationary:
    """Draws have the moments of the law, to 4 Monte Carlo errors."""

    def test_correlated_normal(self):
        draws, moves = run(Normal(), CENTER, 2000, step_size=0.5)
        gap = draws - CENTER
        products = gap[:, [0, 1, 2, 0, 1, 0]] * gap[:, [0, 1, 2, 1, 2, 2]]
        expected = COVARIANCE[[0, 1, 2, 0, 1, 0], [0, 1, 2, 1, 2, 2]]
        assert (np.abs(z_scores(gap, 0)) < 4).all()
        assert (np.abs(z_scores(products, expected)) < 4).all()
        assert not any(move.diverging for move in moves)

    @pytest.mark.parametrize(("step_size", "max_depth"), [(0.4, 8), (1.2, 8), (0.8, 2)])
    def test_skewed(self, step_size, max_depth):
        """Also with coarse steps, and if trajectories are cut short."""
        density = LogGammas()
        draws, _ = run(density, [0.0, 1.0], 3000, step_size=step_size, max_depth=max_depth)
        # bounded functions of the draws, so that means and their errors are well known
        place_in_law = stats.loggamma(density.shape).cdf(draws)
        assert (np.abs(z_scores(place_in_law, 1 / 2)) < 4).all()
        assert (np.abs(z_scores((place_in_law - 0.5) ** 2, 1 / 12)) < 4).all()
        for level in (0.1, 0.9):
            below = place_in_law < level
            assert (np.abs(z_scores(below.astype(float), level)) < 4).all()

    def test_hard_walls(self):
        """Trajectories that leave the support end, and the draws stay uniform."""
        draws, moves = run(Square(), [0.9, 0.0], 4000, step_size=0.3)
        assert (np.abs(draws) < 1).all()
        assert any(move.diverging for move in moves)
        assert (np.abs(z_scores(draws, 0)) < 4).all()
        assert (np.abs(z_scores(draws**2, 1 / 3)) < 4).all()


class TestChoice:
    """The choice of the next state from a trajectory."""

    def span(self, name, log_weight, *, valid=True):
        at = EvaluatedPoint(np.array([float(name)]), 0.0, np.zeros(1))
        point = _Point(at, np.ones(1), 0.0)
        return _Span(
            point, point, at, 0.0, log_weight, np.ones(1), 0.5, 1, valid=valid, diverges=False
        )

    def shares(self, near, far, *, biased, n=4000):
        walk = _Walk(Normal(), 0.1, 0.0, np.random.default_rng(0))
        joined = [walk.join(near, far, biased=biased) for _ in range(n)]
        return np.mean([float(span.chosen.position[0]) for span in joined]), joined[0]

    def test_in_proportion_to_density(self):
        near, far = self.span(0, math.log(3.0)), self.span(1, math.log(1.0))
        share, joined = self.shares(near, far, biased=False)
        assert share == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 4000))
        assert joined.log_weight == pytest.approx(math.log(4.0))
        assert joined.accepted == 1.0
        assert joined.steps == 2

    def test_biased_to_the_new_half(self):
        near, far = self.span(0, math.log(3.0)), self.span(1, math.log(1.0))
        assert self.shares(near, far, biased=True)[0] == pytest.approx(
            1 / 3, abs=4 * math.sqrt(2 / 9 / 4000)
        )
        assert self.shares(far, near, biased=True)[0] == 0  # always the newer, here number 0

    @pytest.mark.parametrize("biased", [True, False])
    def test_never_from_a_stretch_that_turned(self, biased):
        near, far = self.span(0, 0.0), self.span(1, 50.0, valid=False)
        share, joined = self.shares(near, far, biased=biased, n=100)
        assert share == 0
        assert not joined.valid

    def test_a_trajectory_is_weighted_by_its_densities(self):
        """States of a trajectory of two steps are chosen in proportion to their density."""
        density, counts = Normal(), {}
        start = place(density, [0.3, -1.0, 1.0])
        origin = _point(start, np.array([0.7, -0.2, 0.4]))
        generator = np.random.default_rng(0)
        walk = _Walk(density, 0.6, origin.joint, generator)
        for _ in range(2000):
            span = walk.build(origin, 1, 1)
            counts[span.chosen_joint] = counts.get(span.chosen_joint, 0) + 1
        joints = np.array(sorted(counts))
        expected = np.exp(joints) / np.exp(joints).sum()
        found = np.array([counts[joint] for joint in joints])
        assert len(joints) == 2
        assert stats.chisquare(found, 2000 * expected).pvalue > 1e-4


class TestMoves:
    def test_divergence(self):
        draws, moves = run(Normal(), CENTER + 1, 1, step_size=1e4)
        assert moves[0].diverging
        assert moves[0].acceptance_rate == 0
        assert moves[0].n_steps == 1
        assert not moves[0].reached_max_treedepth
        np.testing.assert_array_equal(draws[0], CENTER + 1)

    def test_longest_trajectory(self):
        _, moves = run(Normal(), CENTER, 5, step_size=1e-3, max_depth=3)
        for move in moves:
            assert move.reached_max_treedepth
            assert move.tree_depth == 3
            assert move.n_steps == 7
            assert move.acceptance_rate == pytest.approx(1, abs=1e-4)
            assert move.step_size == 1e-3

    def test_a_trajectory_is_one_orbit(self):
        """No state is visited twice, in whichever directions the trajectory was doubled."""

        class Recorded(Normal):
            seen: list = []

            def value_and_gradient(self, vector):
                self.seen.append(vector)
                return super().value_and_gradient(vector)

        for seed in range(10):
            density = Recorded()
            density.seen = []
            run(density, CENTER, 1, step_size=1e-3, max_depth=4, seed=seed)
            # the start and 15 steps, which at this length go nearly straight
            along = np.linalg.svd(np.array(density.seen) - CENTER)[0][:, 0]
            gaps = np.diff(np.sort(along))
            assert len(gaps) == 15
            np.testing.assert_allclose(gaps, gaps.mean(), rtol=0.05)

    def test_a_turn_at_the_greatest_depth_is_a_turn(self):
        _, moves = run(Normal(), CENTER, 200, step_size=0.4, max_depth=3)
        deepest = [move.reached_max_treedepth for move in moves if move.tree_depth == 3]
        assert any(deepest)
        assert not all(deepest)

    def test_turns_before_the_longest(self):
        """Along a standard normal a trajectory is given up after about half a round."""
        _, moves = run(Normal(), CENTER, 200, step_size=0.1, max_depth=10)
        assert not any(move.reached_max_treedepth for move in moves)
        assert 4 <= np.mean([move.tree_depth for move in moves]) <= 7

    def test_energy(self):
        """Its mean is that of minus the log-density plus half the dimension."""
        density = Normal()
        draws, moves = run(density, CENTER, 2000, step_size=0.5)
        values = np.array([density.value_and_gradient(draw)[0] for draw in draws])
        kinetic = np.array([move.energy for move in moves]) + values
        assert (kinetic > 0).all()
        assert abs(float(z_scores(kinetic[:, None], 1.5)[0])) < 4

    def test_deterministic(self):
        one, _ = run(Normal(), CENTER, 20, step_size=0.5, seed=3)
        two, _ = run(Normal(), CENTER, 20, step_size=0.5, seed=3)
        other, _ = run(Normal(), CENTER, 20, step_size=0.5, seed=4)
        np.testing.assert_array_equal(one, two)
        assert (one != other).any()


class TestStepSize:
    def test_reaches_its_target(self):
        """If acceptance decreases with the step size, the average converges to the target."""
        generator = np.random.default_rng(0)
        step = StepSize.of(0.01, 0.8)
        for _ in range(2000):
            chance = math.exp(-step.during)
            step.update(chance + 0.1 * generator.normal())
        assert math.exp(-step.after) == pytest.approx(0.8, abs=0.02)

    @pytest.mark.parametrize("target", [0.6, 0.9])
    def test_of_a_sampler(self, target):
        density, generator = LogGammas(), np.random.default_rng(0)
        at = place(density, [0.0, 1.0])
        step = StepSize.of(first_step_size(density, at, generator), target)
        settings = {"max_depth": 6, "generator": generator}
        for _ in range(500):
            at, move = transition(density, at, step_size=step.during, **settings)
            step.update(move.acceptance_rate)
        rates = []
        for _ in range(1000):
            at, move = transition(density, at, step_size=step.after, **settings)
            rates.append(move.acceptance_rate)
        assert np.mean(rates) == pytest.approx(target, abs=0.06)

    def test_before_any_update(self):
        step = StepSize.of(0.3, 0.8)
        assert step.during == pytest.approx(0.3)
        assert step.after == pytest.approx(0.3)

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_first(self, scale):
        """The step size is of the order of a normal's scale, wherever the search starts."""

        class Scaled:
            def value_and_gradient(self, vector):
                return -0.5 * float((vector / scale) @ (vector / scale)), -vector / scale**2

        start = place(Scaled(), scale * np.ones(4))
        found = first_step_size(Scaled(), start, np.random.default_rng(0))
        assert 0.2 < found / scale < 4


def blocks_of(matrix):
    return np.stack([matrix[np.ix_(own, own)] for own in BLOCKS])


def whitening(curvature=None):
    precision = GradientMoments(np.diag(PRECISION).copy(), blocks_of(PRECISION))
    return Whitening(precision, BLOCKS, np.zeros(5) if curvature is None else curvature)


class TestWhitening:
    @pytest.mark.parametrize("curvature", [np.zeros(5), np.array([0.0, 1.0, 5.0, 2.0, 1e20])])
    def test_makes_the_precision_one(self, curvature):
        change = whitening(curvature)
        out = np.stack([change.position(unit) for unit in np.eye(5)], axis=1)
        # what the data say nothing of counts for a thousandth, in blocks besides what is known
        floor = np.where(np.isin(np.arange(5), BLOCKS), 1e-3, 0.0)
        whole = PRECISION + np.diag(curvature + floor)
        np.testing.assert_allclose(out.T @ whole @ out, np.eye(5), atol=1e-9)

    def test_goes_there_and_back(self):
        vector, change = np.random.default_rng(0).normal(size=5), whitening()
        np.testing.assert_allclose(change.white(change.position(vector)), vector, rtol=1e-12)

    def test_gradient_is_that_of_the_new_coordinates(self):
        rng, change = np.random.default_rng(0), whitening()
        slope, white = rng.normal(size=5), rng.normal(size=5)
        step = 1e-6 * np.eye(5)
        numeric = [
            (slope @ change.position(white + h) - slope @ change.position(white - h)) / 2e-6
            for h in step
        ]
        np.testing.assert_allclose(change.gradient(slope), numeric, rtol=1e-6, atol=1e-9)

    def test_without_blocks_scales_alone(self):
        none = np.empty((0, 0), dtype=np.int64)
        change = Whitening(
            GradientMoments(np.array([4.0, 0.0]), np.empty((0, 0, 0))), none, np.zeros(2)
        )
        np.testing.assert_allclose(change.position(np.ones(2)), [0.5, 1 / math.sqrt(1e-3)])


class TestInformation:
    def test_guess_counts_for_five_and_in_blocks_for_the_width_more(self):
        guess = GradientMoments(np.full(5, 10.0), np.tile(np.eye(2), (2, 1, 1)))
        information = Information(BLOCKS, guess)
        for have, given in zip(information.estimate, guess, strict=True):
            np.testing.assert_array_equal(have, given)
        for _ in range(15):
            information.add(np.array([2.0, 0.0, 1.0, 0.0, 0.0]))
        found = information.estimate
        np.testing.assert_allclose(found.squares, [5.5, 2.5, 3.25, 2.5, 2.5])
        first = (15 * np.array([[4.0, 2.0], [2.0, 1.0]]) + 7 * np.eye(2)) / 22
        np.testing.assert_allclose(found.products, [first, 7 / 22 * np.eye(2)])

    def test_of_a_normal_law_is_its_precision(self):
        rng, n = np.random.default_rng(0), 20_000
        gradients = -rng.multivariate_normal(np.zeros(5), np.linalg.inv(PRECISION), n) @ PRECISION
        found = Information.of(gradients, BLOCKS)
        # a mean of products of normal variables of unit scale errs by sqrt(2 / n) at most
        slack = 4 * math.sqrt(2 / n) + 10 / n
        scale = np.sqrt(np.diag(PRECISION))
        np.testing.assert_allclose(found.squares / scale**2, 1, atol=slack)
        for have, given, own in zip(found.products, blocks_of(PRECISION), BLOCKS, strict=True):
            unit = np.outer(scale[own], scale[own])
            np.testing.assert_allclose(have / unit, given / unit, atol=slack)


@pytest.mark.parametrize(("n_features", "n_blocks"), [(2, 6), (63, 6), (64, 0)])
def test_blocks_are_the_coefficients_of_each_expert(n_features, n_blocks):
    model = SoftTree(Topology.complete(1), Polytope(6), leaf=Categorical(2))
    layout = Layout(model, n_features)
    blocks = expert_blocks(layout)
    assert len(blocks) == n_blocks
    vector = np.zeros(layout.length)
    for expert, places in enumerate(blocks):
        vector[places] = expert + 1
    free = layout.free(vector)
    if n_blocks:
        expected = np.arange(1, 7) * np.ones((1, 6))
        np.testing.assert_array_equal(free["intercept"], expected)
        assert (free["hyperplane"] == expected[..., None]).all()
    assert np.count_nonzero(vector) == n_blocks * (n_features + 1)
