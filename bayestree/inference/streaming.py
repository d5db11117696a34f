"""What earlier rows say about a tree: the prior of a fit to more rows.

Streaming Bayes (Broderick et al., "Streaming variational Bayes", 2013): the posterior given the
rows so far is the prior for the next ones. Leaves are conjugate, so that sums of their statistics
add up. The likelihood of the earlier rows as a function of the splits is a normal factor around the
last estimate. Its precisions are sums of squared scores, the diagonal of the empirical Fisher
information (online Laplace: Ritter, Botev and Barber, 2018).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from bayestree.distributions import LogWeibull
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_probs, leaf_sums
from bayestree.models.priors.base import Moments, Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import joined

N_SIGNS = 32  # random sums of scores; the standard error of a precision is a quarter of it


@dataclass(frozen=True)
class Memory:
    """Sums of the leaves' statistics, and a normal factor of the splits.

    ``sums`` and ``hard_sums`` (L, c) are weighted by soft and by deterministic memberships; with
    the latter, leaves have rows of total weights ``rows`` (L,). ``mean`` and
    ``precision`` are (V, K, d + 1), the intercept last, and ``log_weight`` and
    ``log_weight_precision`` (V, K).
    """

    sums: Tensor
    hard_sums: Tensor
    rows: Tensor
    mean: Tensor
    precision: Tensor
    log_weight: Tensor
    log_weight_precision: Tensor

    @classmethod
    def of(cls, model: SoftTree, sites: Sites, data: Data, *, seed: int) -> Self:
        """Sum up what rows say at these values of the sites."""
        data = data.for_leaf(model.leaf)
        splits = model.split.parameters(sites)
        precision = information(model, sites, data, seed=seed)
        coefficient = joined(sites)
        nothing = coefficient.new_zeros(coefficient.shape[:2])
        weighted, hard = "log_weight" in splits, model.with_(steepness=math.inf)
        (member,) = leaf_probs(hard, sites, [data.X])
        return cls(
            leaf_sums(model, sites, data),
            leaf_sums(hard, sites, data),
            data.weights @ member,
            coefficient,
            joined(precision),
            sites["log_weight"] if weighted else nothing,
            precision["log_weight"] if weighted else nothing,
        )

    def updated(self, new: "Memory") -> Self:
        """Add rows; the normal factor is centred at their estimates of the splits."""
        added = ("sums", "hard_sums", "rows", "precision", "log_weight_precision")
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(new, name) for name in added}
        return replace(self, mean=new.mean, log_weight=new.log_weight, **sums)

    def to(self, like: Tensor) -> Self:
        """Move to the dtype and device of a tensor."""
        return replace(self, **{name: value.to(like) for name, value in vars(self).items()})

    def penalty(self, coefficient: Tensor, log_weight: Tensor | None) -> Tensor:
        """Compute minus the log of the normal factor, up to a constant, a scalar."""
        square = (self.precision * (coefficient - self.mean).square()).sum()
        if log_weight is not None:
            gap = log_weight - self.log_weight
            square = square + (self.log_weight_precision * gap.square()).sum()
        return square / 2

    def expected_penalty(self, moments: Moments, log_weight: LogWeibull | None) -> Tensor:
        """Compute the expectation of ``penalty`` under a guide, a scalar."""
        mean = None if log_weight is None else log_weight.mean
        spread = (self.precision * moments.variance).sum()
        if log_weight is not None:
            spread = spread + (self.log_weight_precision * log_weight.variance).sum()
        return self.penalty(moments.mean, mean) + spread / 2


def information(model: SoftTree, sites: Sites, data: Data, *, seed: int) -> dict[str, Tensor]:
    """Compute the diagonal of the empirical Fisher information of the splits, by their sites.

    The sum over the rows of w_n (d log p(y_n | x_n) / d site)^2 is the expected square of the
    gradient of sum_n e_n sqrt(w_n) log p(y_n | x_n), for independent random signs e_n.
    """
    free = {name: sites[name].detach().requires_grad_() for name in model.split.parameters(sites)}
    generator = torch.Generator().manual_seed(seed)
    found = {name: torch.zeros_like(value) for name, value in free.items()}
    for part in data.parts():
        rows = model.log_likelihood_rows({**sites, **free}, part.X, part.y)
        root = part.weights.sqrt()
        for repeat in range(N_SIGNS):
            signs = torch.randint(2, root.shape, generator=generator).to(root) * 2 - 1
            more = repeat + 1 < N_SIGNS
            gradients = torch.autograd.grad(
                rows @ (signs * root), [*free.values()], retain_graph=more
            )
            for name, gradient in zip(free, gradients, strict=True):
                found[name] += gradient.square() / N_SIGNS
    return found
