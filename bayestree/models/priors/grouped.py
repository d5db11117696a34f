"""Inverse-gamma scales that the coefficients of a group share, so that it shrinks as a whole.

With beta_g the n_g coefficients of a group, q_g = |beta_g|^2 and the notation of
:mod:`~bayestree.models.priors.inverse_gamma`, whose groups are single coefficients,

    1 / sigma_g^2 | beta, b  ~  Gamma(a + n_g/2, b + q_g/2)
    log p(beta_g | b)        =  a log b - (a + n_g/2) log(b + q_g/2) + constant
    b | sigma                ~  Gamma(e_0 + m a, f_0 + sum of 1 / sigma_g^2),

with m the number of scales, the intercept's included. The penalty of a group depends on its length
alone, as that of the group lasso (Yuan and Lin 2006), but is bounded by a logarithm: a group that
the rows need is hardly shrunk, and another one is shrunk as a whole. The bound under q(beta) has
E q_g in the place of q_g.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pyro.distributions import Gamma, TorchDistribution
from torch import Tensor
from torch.distributions import constraints, kl_divergence

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.distributions import draw_log_gamma
from bayestree.models.priors.base import LOG_2PI, FreeSites, Sites
from bayestree.models.priors.inverse_gamma import InverseGammaScale

Groups = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=32)
def scale_places(groups: Groups, n_features: int) -> IntArray:
    """Return the number of the scale of each feature: those outside the groups have their own."""
    place = np.full(n_features, -1)
    for number, own in enumerate(groups):
        place[[*own]] = number
    alone = np.flatnonzero(place < 0)
    place[alone] = len(groups) + np.arange(len(alone))
    return place


@dataclass(frozen=True)
class GroupedScale(InverseGammaScale):
    """``InverseGammaScale`` with scales that the coefficients of a group of features share.

    Parameters
    ----------
    groups : sequence of sequences of int or str, or "columns"
        Groups of features, none of which is in two. Other features have scales of their own. For
        estimators: groups of columns by name or number, or all features of each column (the levels
        of a category, a missing value).

    Raises
    ------
    ValueError
        For a feature in two groups, a group without features, and ``form="explicit"``.
    """

    groups: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form != "collapsed":
            raise ValueError(f"GroupedScale needs form='collapsed', got {self.form!r}.")
        if self.groups == "columns":
            return
        if isinstance(self.groups, str) or any(isinstance(own, str) for own in self.groups):
            raise ValueError(f"groups must be 'columns' or a list of lists, got {self.groups!r}.")
        object.__setattr__(self, "groups", tuple(map(tuple, self.groups)))  # with a hash
        every = [feature for own in self.groups for feature in own]
        if len(set(every)) < len(every) or not all(self.groups):
            raise ValueError(
                f"groups must have features, each in one group at most, got {self.groups}."
            )

    @property
    def shrinkage_settings(self) -> dict[str, Any]:
        return {**super().shrinkage_settings, "scale_groups": self.groups}

    def among(self, features: BoolArray) -> Self:
        place = np.cumsum(features) - 1
        kept = (tuple(int(place[j]) for j in own if features[j]) for own in self.groups)
        return replace(self, groups=tuple(filter(None, kept)))

    def _place(self, like: Any) -> IntArray:
        return scale_places(self.groups, like.shape[-1])

    def _members(self, like: Any) -> FloatArray:
        """Return 1 where a feature has a scale, (d, scales)."""
        place = self._place(like)
        return np.eye(place.max(initial=-1) + 1)[place]

    def _pooled(self, values: Tensor) -> Tensor:
        """Sum values (..., d) over the features of each scale."""
        return values @ torch.as_tensor(self._members(values)).to(values)

    # The densities.

    def _group_constant(self, count: Tensor) -> Tensor:
        """Constant of log p(beta_g | b) above, of groups of ``count`` coefficients."""
        return torch.lgamma(self.shape + count / 2) - math.lgamma(self.shape) - count * LOG_2PI / 2

    def _planes(self, value: Tensor, b: Tensor, present: Tensor) -> Tensor:
        """log p of the coefficients (..., d) that are ``present`` given b (..., 1), by scale."""
        count, square = self._pooled(present.to(value)), self._pooled(value.square())
        penalty = (self.shape + count / 2) * torch.log1p(square / (2 * b))
        return self._group_constant(count) - count / 2 * b.log() - penalty

    def _coefficient_law(self, b: Tensor) -> TorchDistribution:
        return _SharedScale(self, b)

    def _coefficient_log_probs(self, sites: Sites, site: str, b: Tensor) -> Tensor:
        if site == "intercept":
            return super()._coefficient_log_probs(sites, site, b)
        return self._planes(sites[site], b, torch.ones_like(sites[site]))

    def absent_log_prob(self, sites: Sites) -> Tensor:
        value, b = sites["hyperplane"], (self._square * sites["shrinkage"]).unsqueeze(-1)
        every = self._planes(value, b, torch.ones_like(value))
        return (every - self._planes(value, b, value != 0)).sum()

    def slope(self, hyperplane: Tensor) -> Tensor:
        b = self._square * self.shrinkage_shape / self.shrinkage_rate
        count = self._pooled(torch.ones_like(hyperplane[..., :1, :]))
        factor = (self.shape + count / 2) / (b + self._pooled(hyperplane.square()) / 2)
        return -hyperplane * factor[..., self._place(hyperplane)]

    # NumPy: gradients and conditionals of the scales, the intercept's last.

    def _rates(self, free: FreeSites) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return shapes of the precisions, b, and q_g / 2, by scale and in units of s."""
        plane = free["hyperplane"] / self.coefficient_scale
        members = self._members(plane)
        square = np.concatenate([plane**2 @ members, free["intercept"][..., None] ** 2], axis=-1)
        shape = self.shape + np.append(members.sum(0), 1.0) / 2
        return shape, np.exp(free["shrinkage"])[..., None], square / 2

    def _by_coefficient(self, values: FloatArray, plane: FloatArray) -> FloatArray:
        """Return values (..., scales) by coefficient, (..., d + 1), in the units of beta."""
        place = self._place(plane)
        found: FloatArray = values[..., np.append(place, values.shape[-1] - 1)]
        found[..., :-1] /= self._square
        return found

    def expert_log_density(self, free: FreeSites, n_experts: int) -> FloatArray:
        shape, b, half = self._rates(free)
        width = free["hyperplane"].shape[-1] + 1
        own = (self.shrinkage_shape - 0.5 * width) * free["shrinkage"]
        own = own - self.shrinkage_rate * b[..., 0]
        found: FloatArray = own - np.log1p(half / b) @ shape
        return found

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        shape, b, half = self._rates(free)
        factor = self._by_coefficient(shape / (b + half), free["hyperplane"])
        into["hyperplane"][...] = -factor[..., :-1] * free["hyperplane"]
        into["intercept"][...] = -factor[..., -1] * free["intercept"]
        width = free["hyperplane"].shape[-1] + 1
        own = self.shrinkage_shape - 0.5 * width - self.shrinkage_rate * b[..., 0]
        into["shrinkage"][...] = own + (half / (b + half)) @ shape

    def scale_of(self, n_features: int) -> IntArray:
        return scale_places(self.groups, n_features)

    def draw_precision(self, free: FreeSites, rng: np.random.Generator) -> FloatArray:
        return self._by_coefficient(self._drawn_scales(free, rng), free["hyperplane"])

    def _drawn_scales(self, free: FreeSites, rng: np.random.Generator) -> FloatArray:
        shape, b, half = self._rates(free)
        found: FloatArray = rng.standard_gamma(np.broadcast_to(shape, half.shape)) / (b + half)
        return found

    def redraw(self, free: FreeSites, rng: np.random.Generator) -> None:
        precision = self._drawn_scales(free, rng)
        shape = self.shrinkage_factor_shape(precision.shape[-1])
        rate = self.shrinkage_rate + precision.sum(-1)
        free["shrinkage"][...] = np.log(rng.standard_gamma(shape, rate.shape) / rate)

    def precision(self, free: FreeSites) -> FloatArray:
        shape, b, half = self._rates(free)
        return self._by_coefficient(np.broadcast_to(shape / b, half.shape), free["hyperplane"])

    def draw_expert(self, free: FreeSites, expert: Any, rng: np.random.Generator) -> None:
        plane = free["hyperplane"][expert]
        size = (*plane.shape[:-1], self._place(plane).max(initial=-1) + 2)
        log_b = draw_log_gamma(self.shrinkage_shape, self.shrinkage_rate, rng, size[:-1])
        precision = rng.standard_gamma(self.shape, size) / np.exp(log_b)[..., None]
        sd = self._by_coefficient(precision, plane) ** -0.5
        beta = sd * rng.standard_normal(sd.shape)
        free["hyperplane"][expert], free["intercept"][expert] = beta[..., :-1], beta[..., -1]
        free["shrinkage"][expert] = log_b

    # Under normal coefficients.

    def n_scales(self, width: int, support: Tensor | None) -> Any:
        if support is None:
            return int(scale_places(self.groups, width - 1).max(initial=-1)) + 2
        return (self._pooled(support[..., :-1].double()) > 0).sum(-1) + 1

    def _expected_rates(
        self, square: Tensor, b: Tensor, support: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return numbers of coefficients, and rates of the factors of the scales."""
        present = torch.ones_like(square) if support is None else support.to(square)
        units = square / self.squares(square)
        count, pooled = (
            torch.cat((self._pooled(values[..., :-1]), values[..., -1:]), dim=-1)
            for values in (present, units)
        )
        return count, b.unsqueeze(-1) + pooled / 2

    def updated_rate(self, rate: Tensor, square: Tensor, support: Tensor | None = None) -> Tensor:
        n_scales = self.n_scales(square.shape[-1], support)
        count, rates = self._expected_rates(
            square, self.shrinkage_factor(rate, n_scales).mean, support
        )
        return self._shared_rate(count, rates)

    def _shared_rate(self, count: Tensor, rates: Tensor) -> Tensor:
        each = torch.where(count > 0, (self.shape + count / 2) / rates, 0.0)
        return self.shrinkage_rate + each.sum(-1)

    def expected_precision(self, square: Tensor, b: Tensor, support: Tensor | None) -> Tensor:
        count, rates = self._expected_rates(square, b, support)
        each = (self.shape + count / 2) / rates
        place = np.append(self._place(square[..., :-1]), -1)
        return each[..., place] / self.squares(square)

    def expected_log_prior(
        self, square: Tensor, shrinkage: Gamma, support: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        log_b = torch.digamma(shrinkage.concentration) - shrinkage.rate.log()
        count, rates = self._expected_rates(square, shrinkage.mean, support)
        each = self.shape * log_b.unsqueeze(-1) + self._group_constant(count)
        each = each - (self.shape + count / 2) * rates.log()
        planes = torch.where(count > 0, each, 0.0).sum(-1)
        planes = planes - count[..., :-1].sum(-1) * math.log(self.coefficient_scale)
        own = kl_divergence(shrinkage, self.shrinkage_law(log_b))
        return planes - own, self._shared_rate(count, rates.detach())


class _SharedScale(TorchDistribution):
    """Law of the coefficients (..., d) of experts given b (..., d), the same for all d."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector

    def __init__(self, prior: GroupedScale, b: Tensor) -> None:
        self.prior, self.b = prior, b
        super().__init__(b.shape[:-1], b.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "_SharedScale":
        return _SharedScale(self.prior, self.b.expand(*batch_shape, self.b.shape[-1]))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        b = self.b.expand(self._extended_shape(sample_shape))
        place = self.prior._place(b)
        size = (*b.shape[:-1], int(place.max(initial=-1)) + 1)
        law = Gamma(b.new_tensor(self.prior.shape), b.new_ones(()))
        variance = b / law.sample(size)[..., place]
        return variance.sqrt() * torch.randn_like(b)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.prior._planes(value, self.b[..., :1], torch.ones_like(value)).sum(-1)
