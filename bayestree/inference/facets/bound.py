"""The evidence lower bound of one node, smooth on fixed base draws, and its ascent."""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from bayestree.inference.facets.draws import Draws
from bayestree.inference.facets.guide import NodeGuide
from bayestree.inference.facets.likelihood import log_likelihood
from bayestree.inference.facets.rows import Rows
from bayestree.inference.facets.sides import SideState
from bayestree.inference.guides import divergence_from_flat
from bayestree.inference.lbfgs import minimise
from bayestree.models.priors import GammaProcess, InverseGammaScale, WeightPrior
from bayestree.models.soft_tree import SoftTree


class FacetPrior(NamedTuple):
    """The priors of the ``n_experts`` experts of a node."""

    weight: WeightPrior = GammaProcess()
    hyperplane: InverseGammaScale = InverseGammaScale()
    n_experts: int = 20

    @classmethod
    def of(cls, model: SoftTree) -> "FacetPrior":
        """The priors of a model; ValueError for priors under which facets have no cost."""
        weight, hyperplane = model.priors.weight, model.priors.hyperplane
        known = weight.implements("law") and hyperplane.implements("expected_log_prior")
        if not (known and model.split.weighted and not weight.sites):
            raise ValueError(
                "The search for facets needs a Polytope split, a GammaProcess without hyper-priors "
                f"and InverseGammaScale hyperplanes, got {model.split}, {weight} and {hyperplane}."
            )
        return cls(weight, cast(InverseGammaScale, hyperplane), model.split.n_experts)

    def log_rate(self, square: Tensor, steps: int = 20) -> Tensor:
        """Optimal log-rate of q(b) given E coefficient^2 (..., feature + 1), shape (...)."""
        shape = self.hyperplane.shrinkage_factor_shape(square.shape[-1])
        rate = torch.full_like(square[..., 0], shape)
        for _ in range(steps):
            rate = self.hyperplane.updated_rate(rate, square)
        return rate.log()


def divergence(guide: NodeGuide, prior: FacetPrior) -> Tensor:
    """KL divergence of each slot's expert from the prior, scales integrated, (fit, slot)."""
    log_scale = guide.factor.diagonal(dim1=-2, dim2=-1).log()
    log_weight = guide.law, prior.weight.law(prior.n_experts, guide.loc)
    shrinkage = prior.hyperplane.shrinkage_factor(guide.log_rate.exp(), guide.mean.shape[-1])
    expected, _ = prior.hyperplane.expected_log_prior(guide.second_moment, shrinkage)
    return divergence_from_flat(log_scale, log_weight) - expected


def bound(
    guide: NodeGuide, draws: Draws, rows: Rows, state: SideState, prior: FacetPrior
) -> Tensor:
    """ELBO of each fit on the base draws, shape (fit,)."""
    planes, log_weight = guide.realise(draws)
    cost = (divergence(guide, prior) * guide.experts).sum(-1)
    return log_likelihood(planes, log_weight, rows, state) + state.value - cost


class Ascent(NamedTuple):
    """Result of a climb: guide, ELBO (fit,), and which fits converged (fit,)."""

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
    """One run of L-BFGS with fixed sides."""

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
