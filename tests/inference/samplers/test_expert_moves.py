"""Moves between modes: involutions, volumes and acceptance."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree.distributions import draw_log_gamma
from bayestree.inference import Data
from bayestree.inference.samplers import expert_moves
from bayestree.inference.samplers.density import NumpyDensity
from bayestree.inference.samplers.expert_moves import MIN_LOG_WEIGHT, ExpertMoves
from bayestree.models import InverseGammaScale, Priors
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology, matching
from tests.models.cases import TOPOLOGIES, WEIGHTS, Oblique, make, rows

# A complete tree of depth 2 whose nodes and leaves are numbered out of order.
SHUFFLED = Topology([[2, 1], [~3, ~0], [~1, ~2]])


class Fixed:
    """A generator whose draws are given: node, expert, then acceptance."""

    def __init__(self, *choices, threshold=1e9):
        self.choices, self.threshold = list(choices), threshold

    def integers(self, high):
        choice = self.choices.pop(0)
        assert 0 <= choice < high
        return choice

    def standard_exponential(self):
        return self.threshold


def jumps_for(model, n=12, *, empty=False):
    """Jumps, and the density that they move in."""
    X, y, weights = rows(model, n=n, weighted=True)
    density = NumpyDensity(model, Data.of(X, y, 0 * weights if empty else weights))
    return ExpertMoves(density.model, density.layout, density.value), density


def normal(density, seed=0):
    return np.random.default_rng(seed).normal(size=density.layout.length)


def mirrored(jumps, vector, node, expert=0):
    """The proposal itself, always accepted."""
    at = jumps.mirrored.index(node)
    return jumps.mirror(vector, 0.0, Fixed(at, expert))


@pytest.fixture(params=[None, Oblique()], ids=["polytope", "oblique"])
def split(request):
    return request.param


@pytest.fixture(params=["categorical-mixture", "gaussian-mixture"])
def fit(request):
    return request.param


class TestMirror:
    @pytest.mark.parametrize("topology", TOPOLOGIES)
    def test_twice_is_nothing(self, topology, split, fit):
        jumps, density = jumps_for(make(topology, split=split, fit=fit))
        vector = normal(density)
        for node in jumps.mirrored:
            for expert in range(jumps.shape[1]):
                once, value = mirrored(jumps, vector, node, expert)
                assert value == density.value(once)
                assert (once != vector).any()
                twice, _ = mirrored(jumps, once, node, expert)
                np.testing.assert_allclose(twice, vector, rtol=1e-12, atol=1e-12)

    def test_keeps_volume(self, split):
        jumps, density = jumps_for(make("complete", split=split))
        vector, length = normal(density), density.layout.length
        columns = [
            mirrored(jumps, vector + h, 0)[0] - mirrored(jumps, vector - h, 0)[0]
            for h in 1e-5 * np.eye(length)
        ]
        assert abs(np.linalg.det(np.array(columns) / 2e-5)) == pytest.approx(1, abs=1e-7)

    @pytest.mark.parametrize("fit", ["categorical-mixture"])
    def test_turns_one_facet_where_it_stands(self, fit):
        """The points where it alone would split at 1/2 stay, its inside becomes its outside."""
        jumps, density = jumps_for(make("stump", fit=fit))
        vector = normal(density)
        new, _ = mirrored(jumps, vector, 0, expert=1)
        old, free = density.layout.free(vector), density.layout.free(new)
        np.testing.assert_array_equal(free["hyperplane"][0, 1], -old["hyperplane"][0, 1])
        weight = math.exp(old["log_weight"][0, 1])
        border = math.log(math.expm1(math.log(2) / weight))
        assert weight * np.logaddexp(0, border) == pytest.approx(math.log(2))
        assert free["intercept"][0, 1] - border == pytest.approx(border - old["intercept"][0, 1])
        for name in ("log_weight", "shrinkage"):
            np.testing.assert_array_equal(free[name], old[name])
        for expert in (0, 2):
            np.testing.assert_array_equal(
                free["hyperplane"][0, expert], old["hyperplane"][0, expert]
            )
            assert free["intercept"][0, expert] == old["intercept"][0, expert]
        np.testing.assert_array_equal(free["leaf_probs"], old["leaf_probs"][::-1])

    def test_swaps_whole_subtrees(self, fit):
        jumps, density = jumps_for(make(fit=fit).with_(topology=SHUFFLED))
        assert jumps.mirrored == [0, 1, 2]
        vector = normal(density)
        new, _ = mirrored(jumps, vector, 0)
        old, free = density.layout.free(vector), density.layout.free(new)
        for name in ("log_weight", "hyperplane", "intercept", "shrinkage"):
            np.testing.assert_array_equal(free[name][1:], old[name][[2, 1]], err_msg=name)
        # leaves by path: LL is 1, LR is 2, RL is 3, RR is 0
        for name in {"leaf_probs", "leaf_mean", "leaf_scale"} & free.keys():
            np.testing.assert_array_equal(free[name][[1, 2, 3, 0]], old[name][[3, 0, 1, 2]])

    def test_a_lower_node_swaps_its_leaves_alone(self):
        jumps, density = jumps_for(make().with_(topology=SHUFFLED))
        vector = normal(density)
        new, _ = mirrored(jumps, vector, 1)
        old, free = density.layout.free(vector), density.layout.free(new)
        np.testing.assert_array_equal(free["leaf_probs"], old["leaf_probs"][[3, 1, 2, 0]])
        np.testing.assert_array_equal(free["hyperplane"][[0, 2]], old["hyperplane"][[0, 2]])

    def test_branches_of_unlike_shape_stay(self):
        """In the incomplete tree, only the lowest node has two leaves."""
        jumps, density = jumps_for(make("incomplete"))
        assert jumps.mirrored == [2]
        chain = Topology([[1, ~2], [~0, ~1]])
        assert matching(chain, 1, ~2) is None
        twisted = Topology([[1, 2], [3, ~0], [~1, 4], [~2, ~3], [~4, ~5]])
        assert matching(twisted, 1, 2) is None
        jumps.mirrored = []
        vector = normal(density)
        new, value = jumps.mirror(vector, 3.0, Fixed())
        assert new is vector
        assert value == 3.0

    @pytest.mark.parametrize("topology", ["stump", "complete", "incomplete"])
    @pytest.mark.parametrize("steepness", [1.0, 6.0])
    def test_an_oblique_tree_says_the_same(self, topology, steepness, fit):
        """Inside and outside of one half-space: prior and likelihood are those of before."""
        model = make(topology, split=Oblique(), fit=fit, steepness=steepness)
        jumps, density = jumps_for(model)
        vector = normal(density)
        for node in jumps.mirrored:
            new, value = mirrored(jumps, vector, node)
            assert value == pytest.approx(density.value(vector), rel=1e-12)
            X = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            y = rows(model, n=30)[1]
            both = [
                {n: torch.as_tensor(v) for n, v in density.layout.sites(v).items()}
                for v in (vector, new)
            ]
            before, after = (model.log_likelihood_rows(sites, X, y) for sites in both)
            assert torch.allclose(before, after, rtol=1e-12)
            assert torch.allclose(*(model.log_prior(sites) for sites in both), rtol=1e-12)  # type: ignore[misc]

    def test_the_prior_moves_with_the_intercept_alone(self, fit):
        """The prior is symmetric in the hyperplane and the same at every node and leaf."""
        jumps, density = jumps_for(make("complete", fit=fit), empty=True)
        vector = normal(density)
        new, value = mirrored(jumps, vector, 0, expert=2)
        back = new.copy()
        old = density.layout.free(vector)
        density.layout.free(back)["intercept"][0, 2] = old["intercept"][0, 2]
        assert density.value(back) == pytest.approx(density.value(vector), rel=1e-12)
        a, b = density.model.priors.hyperplane.shape, np.exp(old["shrinkage"][0, 2])
        here, there = old["intercept"][0, 2], density.layout.free(new)["intercept"][0, 2]
        gain = -(a + 0.5) * (np.log1p(there**2 / (2 * b)) - np.log1p(here**2 / (2 * b)))
        assert value - density.value(vector) == pytest.approx(gain, rel=1e-9)

    def test_accepted_by_the_density(self):
        jumps, density = jumps_for(make("stump"))
        # from the better of the two places to the worse
        worse = normal(density)
        vector, now = mirrored(jumps, worse, 0)
        proposed = density.value(worse)
        gain = proposed - now
        assert gain < 0
        new, value = jumps.mirror(vector, now, Fixed(0, 0, threshold=-gain * 1.01))
        assert value == pytest.approx(proposed, rel=1e-12)
        new, value = jumps.mirror(vector, now, Fixed(0, 0, threshold=-gain * 0.99))
        assert new is vector
        assert value == now

    def test_idle_experts_are_left_alone(self):
        """Their threshold is beyond what a number can be added to."""
        jumps, density = jumps_for(make("stump"))
        vector = normal(density)
        density.layout.free(vector)["log_weight"][0, 0] = MIN_LOG_WEIGHT - 1
        new, _ = mirrored(jumps, vector, 0)
        assert new is vector
        density.layout.free(vector)["log_weight"][0, 0] = 30.0
        heavy, _ = mirrored(jumps, vector, 0)
        assert np.isfinite(heavy).all()


@pytest.mark.parametrize("name", ["sharpen", "shift", "trade"])
class TestSlide:
    """Moves along curves on which the boundary of an expert stays."""

    def made(self, name, length, topology="stump", expert=(0, 1)):
        """Before and after a slide, the change of volume, and the density."""
        jumps, density = jumps_for(make(topology))
        vector = normal(density)
        new = vector.copy()
        volume = getattr(jumps, name)(density.layout.free(new), expert, length)
        return vector, new, volume, jumps, density

    def test_there_and_back(self, name):
        vector, new, volume, jumps, density = self.made(name, 0.7, "complete", (2, 0))
        assert (new != vector).any()
        back = getattr(jumps, name)(density.layout.free(new), (2, 0), -0.7)
        np.testing.assert_allclose(new, vector, rtol=1e-12, atol=1e-12)
        assert back == pytest.approx(-volume)

    def test_change_of_volume(self, name):
        vector, _, volume, jumps, density = self.made(name, 0.4)

        def slid(start):
            new = start.copy()
            getattr(jumps, name)(density.layout.free(new), (0, 1), 0.4)
            return new

        columns = [slid(vector + h) - slid(vector - h) for h in 1e-5 * np.eye(len(vector))]
        _, found = np.linalg.slogdet(np.array(columns) / 2e-5)
        assert volume == pytest.approx(found, abs=1e-6)

    def test_touches_one_expert(self, name):
        vector, new, _, _, density = self.made(name, 0.7, "complete", (1, 0))
        before, after = density.layout.free(vector), density.layout.free(new)
        np.testing.assert_array_equal(before["leaf_probs"], after["leaf_probs"])
        changed = {
            (*place[:2],)
            for site in ("log_weight", "hyperplane", "intercept", "shrinkage")
            for place in np.argwhere(before[site] != after[site])
        }
        assert changed == ({(1, 0), (1, 1)} if name == "trade" else {(1, 0)})

    def test_idle_experts_have_no_boundary(self, name):
        jumps, density = jumps_for(make("stump"))
        vector = normal(density)
        density.layout.free(vector)["log_weight"][...] = MIN_LOG_WEIGHT - 1
        volume = getattr(jumps, name)(density.layout.free(vector), (0, 0), 0.1)
        assert math.isnan(volume) == (name != "trade")


def test_slides_keep_boundaries_and_sums():
    jumps, density = jumps_for(make("stump"))
    vector = normal(density)
    X = np.random.default_rng(1).normal(size=(200, 2))

    def alone(free, expert):
        """Whether each row would go right by this expert alone."""
        pre = X @ free["hyperplane"][expert] + free["intercept"][expert]
        return np.exp(free["log_weight"][expert]) * np.logaddexp(0, pre) > math.log(2)

    before = density.layout.free(vector.copy())
    for slide in (jumps.sharpen, jumps.shift):
        free = density.layout.free(vector)
        for expert in ((0, 0), (0, 1), (0, 2)):
            slide(free, expert, 0.9)
            np.testing.assert_array_equal(alone(free, expert), alone(before, expert))
    total = np.exp(free["log_weight"][0, [2, 0]]).sum()
    jumps.trade(free, (0, 2), 1.3)
    assert np.exp(free["log_weight"][0, [2, 0]]).sum() == pytest.approx(total)


def test_shifts_keep_the_slope_at_the_boundary():
    jumps, density = jumps_for(make("stump"))
    free = density.layout.free(normal(density))

    def slope():
        """Of r softplus(a) along the normal of the boundary, on which softplus(a) = log(2) / r."""
        rate = math.log(2) * np.exp(-free["log_weight"][0, 1])
        sigmoid = -math.expm1(-rate)  # exp(softplus(a)) = 1 / (1 - sigmoid(a))
        return math.log(2) / rate * sigmoid * np.linalg.norm(free["hyperplane"][0, 1])

    before = slope()
    for length in (3.0, -8.0):
        jumps.shift(free, (0, 1), length)
        assert slope() == pytest.approx(before)


@pytest.mark.parametrize(("split", "n_experts", "n_slides"), [(None, 3, 3), (Oblique(), 1, 1)])
def test_slides_of_a_split(split, n_experts, n_slides):
    """An oblique split has no weights to shift or to trade."""
    jumps, _ = jumps_for(make("stump", split=split))
    assert (jumps.shape[1], len(jumps.slides)) == (n_experts, n_slides)


class TestRefresh:
    def test_proposes_from_the_prior(self, split):
        """All coordinates of one expert, by two-sample KS tests against the model itself."""
        scales = InverseGammaScale(0.7, 2.0, 0.5)
        model = make("stump", split=split).with_(priors=Priors(WEIGHTS["gamma"], scales))
        _, density = jumps_for(model, empty=True)
        vector, rng, n = normal(density), np.random.default_rng(0), 1500
        free = density.layout.free(vector)
        found = {name: [] for name in free if name != "leaf_probs"}
        for _ in range(n):
            scales.draw_expert(free, (0, 0), rng)
            if model.split.weighted:
                model.priors.weight.draw_expert(free, (0, 0), rng)
            for name, values in found.items():
                values.append(density.layout.sites(vector)[name][0, 0].copy())
        expected = sample_prior(model, 2, n, random_state=1)
        for name, values in found.items():
            mine, theirs = np.array(values), expected[name][:, 0, 0].numpy()
            if name in ("hyperplane", "intercept"):
                # jointly with the shrinkage: of unit scale
                mine = mine.T / np.sqrt(np.array(found["shrinkage"]))
                theirs = theirs.T / np.sqrt(expected["shrinkage"][:, 0, 0].numpy())
            for one, two in zip(np.atleast_2d(mine), np.atleast_2d(theirs), strict=True):
                assert stats.ks_2samp(one, two).pvalue > 1e-4, name

    def test_touches_one_expert(self):
        jumps, density = jumps_for(make("complete"))
        vector = normal(density)
        new, _ = jumps.refresh(vector, -1e9, np.random.default_rng(0))
        old, free = density.layout.free(vector), density.layout.free(new)
        changed = [old[n] != free[n] for n in ("log_weight", "intercept", "shrinkage")]
        assert changed[0].sum() == 1
        for other in changed[1:]:
            np.testing.assert_array_equal(other, changed[0])
        assert (old["hyperplane"] != free["hyperplane"]).any(-1).sum() == 1
        np.testing.assert_array_equal(old["leaf_probs"], free["leaf_probs"])

    def test_the_ratio_is_that_of_likelihoods(self, split, fit, monkeypatch):
        model = make("incomplete", split=split, fit=fit, steepness=2.0)
        jumps, density = jumps_for(model)
        gains = []
        monkeypatch.setattr(expert_moves, "_accepts", lambda gain, rng: gains.append(gain) or True)
        rng, vector = np.random.default_rng(0), normal(density)
        X, y, weights = rows(model, weighted=True)
        now, before = density.value(vector), None
        for _ in range(20):
            sites = {n: torch.as_tensor(v) for n, v in density.layout.sites(vector).items()}
            here = float(model.log_likelihood(sites, X, y, weights))
            if before is not None:
                assert gains[-1] == pytest.approx(here - before, rel=1e-8, abs=1e-8)
            before = here
            vector, now = jumps.refresh(vector, now, rng)
            assert now == density.value(vector)
        assert np.std(gains) > 0.1

    def test_without_data_all_are_accepted(self, split, fit):
        jumps, density = jumps_for(make("complete", split=split, fit=fit), empty=True)
        rng, vector = np.random.default_rng(0), normal(density)
        for _ in range(50):
            new, _ = jumps.refresh(vector, density.value(vector), rng)
            assert new is not vector
            vector = new

    def test_all_experts_get_their_turn(self):
        jumps, density = jumps_for(make("complete"), empty=True)
        rng, vector = np.random.default_rng(0), normal(density)
        value = density.value(vector)
        start = vector
        for _ in range(150):
            vector, value = jumps.refresh(vector, value, rng)
        moved = density.layout.free(vector)["intercept"] != density.layout.free(start)["intercept"]
        assert moved.all()

    @pytest.mark.parametrize("worth", [math.nan, -math.inf])
    def test_what_is_no_number_is_refused(self, worth):
        jumps, density = jumps_for(make("stump"))
        jumps.value = lambda vector: worth
        vector = normal(density)
        new, value = jumps.refresh(vector, 1.0, np.random.default_rng(0))
        assert new is vector
        assert value == 1.0

    @pytest.mark.parametrize("shape", [0.001, 0.3, 5.0])
    def test_log_gamma(self, shape):
        rng = np.random.default_rng(0)
        draws = np.array([draw_log_gamma(shape, 2.0, rng) for _ in range(2000)])
        law = stats.loggamma(shape, loc=-math.log(2.0))
        assert np.isfinite(draws).all()
        assert stats.kstest(draws, law.cdf).pvalue > 1e-4
