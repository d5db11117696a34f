"""The evidence lower bound of one node, smooth on fixed base draws, and its ascent."""

import math
from typing import NamedTuple

import torch
import torch.distributions as dist
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree.inference.facets.draws import Draws
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.likelihood import log_likelihood
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.sides import SideState
from bayestree.inference.lbfgs import minimise
from bayestree.models.priors import GammaProcess, InverseGammaScale
from bayestree.models.soft_tree import SoftTree

LOG_2PI = math.log(2 * math.pi)


class FacetPrior(NamedTuple):
    """What is believed of the ``n_experts`` experts of a node."""

    weight: GammaProcess = GammaProcess()
    hyperplane: InverseGammaScale = InverseGammaScale()
    n_experts: int = 20

    @classmethod
    def of(cls, model: SoftTree) -> "FacetPrior":
        """That of a model.

        Raises
        ------
        ValueError
            For priors under which facets have no price.
        """
        weight, hyperplane = model.priors.weight, model.priors.hyperplane
        known = isinstance(weight, GammaProcess) and not weight.hyper_priors
        if not (known and model.split.weighted and isinstance(hyperplane, InverseGammaScale)):
            raise ValueError(
                "The search for facets needs a Polytope split, a GammaProcess without hyper-priors "
                f"and InverseGammaScale hyperplanes, got {model.split}, {weight} and {hyperplane}."
            )
        assert isinstance(weight, GammaProcess)
        return cls(weight, hyperplane, model.split.n_experts)

    def shrinkage_shape(self, width: int) -> float:
        """Shape of the gamma factor of the shrinkage of ``width`` coefficients."""
        return self.hyperplane.shrinkage_shape + width * self.hyperplane.shape

    def log_rate(self, second_moment: Tensor, steps: int = 20) -> Tensor:
        """Best log-rate of that factor given E coefficient^2 (..., feature + 1), shape (...)."""
        prior = self.hyperplane
        shape = self.shrinkage_shape(second_moment.shape[-1])
        rate = torch.full_like(second_moment[..., 0], shape)
        for _ in range(steps):
            precision = 1 / ((shape / rate)[..., None] + second_moment / 2)
            rate = prior.shrinkage_rate + (prior.shape + 0.5) * precision.sum(-1)
        return rate.log()


def divergence(guide: NodeGuide, prior: FacetPrior) -> Tensor:
    """KL divergence of each slot's expert from the prior, scales integrated, (fit, slot)."""
    law = prior.weight.law(prior.n_experts, guide.loc)
    return kl_divergence(guide.law, law) - _coefficient_terms(guide, prior)


def _coefficient_terms(guide: NodeGuide, prior: FacetPrior) -> Tensor:
    """Expected log-prior of coefficients, scales and shrinkages, plus entropies."""
    a, width = prior.hyperplane.shape, guide.mean.shape[-1]
    shape = torch.full_like(guide.log_rate, prior.shrinkage_shape(width))
    shrinkage = dist.Gamma(shape, guide.log_rate.exp(), validate_args=False)
    log_b = torch.digamma(shape) - guide.log_rate
    rate = shrinkage.mean[..., None] + guide.second_moment / 2
    constant = math.lgamma(a + 0.5) - math.lgamma(a) - LOG_2PI / 2
    planes = width * (a * log_b + constant) - (a + 0.5) * rate.log().sum(-1)
    diagonal = guide.factor.diagonal(dim1=-2, dim2=-1)
    entropy = diagonal.log().sum(-1) + width * (1 + LOG_2PI) / 2
    own = kl_divergence(shrinkage, prior.hyperplane.shrinkage_law(shape))
    return planes + entropy - own


def bound(
    guide: NodeGuide, draws: Draws, rows: Rows, state: SideState, prior: FacetPrior
) -> Tensor:
    """ELBO of each fit on the base draws, shape (fit,)."""
    planes, log_weight = guide.realise(draws)
    cost = (divergence(guide, prior) * guide.experts).sum(-1)
    return log_likelihood(planes, log_weight, rows, state) + state.value - cost


class Ascent(NamedTuple):
    """Where a climb ended: guide, ELBO (fit,), and which fits converged (fit,)."""

    guide: NodeGuide
    elbo: Tensor
    converged: Tensor


def climb(
    guide: NodeGuide,
    draws: Draws,
    rows: Rows,
    state: SideState,
    prior: FacetPrior,
    *,
    iterations: int,
    tolerance: float,
) -> Ascent:
    """One run of L-BFGS with the sides held as they are."""

    def objective(flat: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        flat = flat.detach().requires_grad_(True)
        at = guide.take(which).at(flat)
        value = -bound(at, draws, rows, state.take(which), prior)
        (gradient,) = torch.autograd.grad(value.sum(), flat)
        return value.detach(), gradient

    start = guide.mean.new_zeros(len(guide.mean), guide.n_coordinates)
    found = minimise(objective, start, max_iterations=iterations, tolerance=tolerance)
    with torch.no_grad():
        guide = NodeGuide(*(part.detach() for part in guide.at(found.point)))
    return Ascent(guide, -found.value, found.converged)
