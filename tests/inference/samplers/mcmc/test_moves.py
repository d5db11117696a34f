"""A move is accepted by the change of the model's log joint, and its proposal's terms."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayestree.inference.samplers.mcmc.moves import NodeExperts, Normal, Tally, mirror
from bayestree.inference.samplers.mcmc.trees import ChainTrees
from bayestree.models import Oblique
from tests.inference.samplers.mcmc.test_trees import CASES, trees_of
from tests.models.cases import make

SLIDES = ("sharpen", "shift", "trade")


class Recorded(NodeExperts):
    """Moves whose log acceptance ratios are kept, and all, or none, of which are accepted."""

    take = True

    def accept(self, move, gain):
        self.gain = gain
        return np.full(len(gain), self.take) & np.isfinite(gain)


def log_joint(trees, data):
    """The log density of the vectors of all chains by the model: log joint plus Jacobian."""
    sites = trees.layout.sites(trees.vectors)
    found = [
        float(
            trees.model.log_joint(
                {name: torch.as_tensor(value[i]) for name, value in sites.items()}, *data
            )
        )
        for i in range(trees.n_chains)
    ]
    return np.array(found) + trees.layout.log_jacobian(trees.vectors)


def log_prior_of(trees, node, expert):
    """The log prior density of one expert, as a function of the sites of the model."""
    return Recorded(trees, node, np.random.default_rng(0), Tally(trees.n_chains)).log_prior(
        {name: value[:, node, [expert]] for name, value in trees.free.items() if "leaf" not in name}
    )


def log_normal(law, value):
    """The log-densities (C,) of a proposal at values (C, p), by SciPy."""
    inverse = np.linalg.inv(law.root @ law.root.swapaxes(1, 2))
    covariance = law.spread * law.scale[:, :, None] * inverse * law.scale[:, None]
    of_chain = zip(value, law.mean, covariance, strict=True)
    return np.array([stats.multivariate_normal(*one).logpdf(at) for at, *one in of_chain])


def test_the_density_of_a_proposal_is_that_of_scipy():
    """Up to a constant, which points and laws share, among them laws of different volumes."""
    rng = np.random.default_rng(0)
    root = np.tril(rng.normal(size=(4, 3, 3)), -1) + np.eye(3) * rng.uniform(0.3, 3, (4, 1, 3))
    law = Normal(rng.normal(size=(4, 3)), rng.uniform(0.1, 9, (4, 3)), root, 0.51, np.ones(4, bool))
    each = [law.log_density(at) - log_normal(law, at) for at in rng.normal(size=(2, 4, 3))]
    np.testing.assert_allclose(each, np.full((2, 4), each[0][0]))


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES)
class TestRatios:
    def moved(self, parts, move, seed=0):
        """Log joints before and after a move of the last expert of each node, and its ratio."""
        trees, _, data = trees_of(make(**parts), n_chains=4)
        for node in range(trees.n_nodes):
            before, old = log_joint(trees, data), trees.vectors.copy()
            here = Recorded(trees, node, np.random.default_rng(seed), Tally(4))
            expert = here.n_experts - 1
            prior = log_prior_of(trees, node, expert)
            move(here, expert)
            here.finish()
            fresh = ChainTrees(trees.model, data, trees.vectors.copy())
            np.testing.assert_allclose(trees.log_likelihood(), fresh.log_likelihood(), 1e-9)
            changed = np.isfinite(here.gain)
            assert changed.any()
            assert (trees.vectors != old).any(axis=1)[changed].all()
            gap = log_joint(trees, data) - before
            yield trees, node, expert, old, here, gap[changed], changed, prior

    @pytest.mark.parametrize("kind", SLIDES)
    def test_slides(self, parts, kind):
        if parts.get("split") == Oblique() and kind != "sharpen":
            pytest.skip("an expert without a weight")
        for trees, node, expert, old, here, gap, changed, _ in self.moved(
            parts, lambda here, expert: here.slide(kind, expert)
        ):
            free, before = trees.free, trees.layout.free(old)
            ratio = free["shrinkage"][:, node, expert] - before["shrinkage"][:, node, expert]
            # coefficients are multiplied by the root of the factor of b: the change of volume
            volume = ratio / 2 * (free["hyperplane"].shape[-1] + 1)
            np.testing.assert_allclose(here.gain[changed], gap + volume[changed], 1e-6, 1e-6)

    def test_weights(self, parts):
        if parts.get("split") == Oblique():
            pytest.skip("an expert without a weight")
        for *_, here, gap, changed, _ in self.moved(
            parts, lambda here, expert: here.change_weight(expert)
        ):
            np.testing.assert_allclose(here.gain[changed], gap, 1e-6, 1e-6)

    def test_fresh_experts(self, parts):
        for trees, node, expert, _, here, gap, changed, prior in self.moved(
            parts, lambda here, expert: here.fresh(expert)
        ):
            new = log_prior_of(trees, node, expert)
            np.testing.assert_allclose(here.gain[changed], gap - (new - prior)[changed], 1e-6, 1e-6)

    def test_newton(self, parts):
        """Given the scales, with the densities of both proposals by SciPy."""
        laws, first = [], []

        def move(here, expert):
            normal = here.normal

            def kept(*arguments):
                found = normal(*arguments)
                laws.append((*arguments[:2], found))
                return found

            laws.clear()
            here.normal = kept
            first[:] = here.value.copy()
            here.newton(expert)

        for trees, _, _, _, here, _, changed, _ in self.moved(parts, move):
            (old, precision, forward), (new, _, backward) = laws
            gain = trees.log_likelihood() - first
            gain += ((old**2 - new**2) * precision).sum(axis=1) / 2
            gain += log_normal(backward, old) - log_normal(forward, new)
            np.testing.assert_allclose(here.gain[changed], gain[changed], 1e-6, 1e-6)

    def test_mirror(self, parts, monkeypatch):
        monkeypatch.setitem(mirror.__globals__, "NodeExperts", Recorded)
        seen = []
        monkeypatch.setattr(Recorded, "accept", lambda self, move, gain: _all(seen, gain))
        trees, _, data = trees_of(make(**parts), n_chains=4)
        for node in range(trees.n_nodes):
            before, old = log_joint(trees, data), trees.vectors.copy()
            seen.clear()
            rng = np.random.default_rng(0)
            mirror(trees, node, 0, rng, Tally(4))
            if seen:
                gap = log_joint(trees, data) - before
                assert (trees.vectors != old).any(axis=1).all()
                np.testing.assert_allclose(seen[0], gap, 1e-6, 1e-6)
                mirror(trees, node, 0, rng, Tally(4))
                np.testing.assert_allclose(trees.vectors, old, 1e-9, 1e-9)


def _all(seen, gain):
    seen.append(gain)
    return np.ones(len(gain), dtype=bool)
