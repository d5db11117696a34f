"""Leaves with a multinomial logistic regression of the class on the features."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyro.distributions as dist
import torch
from scipy.special import softmax as softmax_of
from torch import Tensor
from torch.distributions.transforms import ReshapeTransform

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.models.criteria import Criterion
from bayestree.models.leaves.base import LeafDistribution, LeafGradient
from bayestree.models.leaves.discriminant import (
    ClassMoments,
    ScoreGain,
    ScoreTerms,
    class_products,
    learned,
    normal_nodes,
    regression,
)
from bayestree.models.leaves.linear import lower_triangle, with_constant
from bayestree.models.leaves.slopes import (
    NO_SLOPE,
    SLOPE_STRENGTHS,
    START,
    Slopes,
    SlopingLeaf,
    one_or_each,
    paying,
)
from bayestree.models.priors.base import FreeSites, Site, Sites, check_positive

#: Steps of Newton's method with the rows, from the mode that follows from sums, and their largest
#: change of a coefficient: a step may overshoot where classes can be separated.
REFINED, LONGEST = 2, 2.0


@dataclass(frozen=True)
class CoefficientPrior(LeafDistribution):
    """Independent normals of mean 0, with precisions (p,) for 1 and the features."""

    precision: Tensor
    n_classes: int
    prior: LeafDistribution | None = None

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        scale = self.precision.rsqrt().expand(self.n_classes, -1)
        yield "leaf_slope", dist.Normal(torch.zeros_like(scale[:, 1:]), scale[:, 1:]).to_event(2)
        yield "leaf_logit", dist.Normal(torch.zeros_like(scale[:, 0]), scale[:, 0]).to_event(1)

    def of(self, sloping: Tensor) -> Tensor:
        """Return the precisions of 1 and of the features that have slopes."""
        return torch.cat((self.precision[:1], self.precision[1:][sloping]))

    def expected_log_density(self, y: Tensor) -> Tensor:
        raise NotImplementedError("Only posteriors have expectations.")

    def mean(self) -> dict[str, Tensor]:
        zero = self.precision.new_zeros(self.n_classes, len(self.precision))
        return {"leaf_slope": zero[:, 1:], "leaf_logit": zero[:, 0]}


@dataclass(frozen=True)
class LogisticPosterior(LeafDistribution):
    """Normal distribution of the coefficients of each leaf, the intercept of a class first.

    It has those of the features that ``sloping`` (d,) marks; the others keep their prior.
    """

    loc: Tensor  # (L, C, p)
    precision: Tensor  # (L, C p, C p)
    sloping: Tensor
    prior: CoefficientPrior

    @cached_property
    def covariance(self) -> Tensor:
        return torch.cholesky_inverse(torch.linalg.cholesky(self.precision))

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Cholesky factors of the slopes, and of the intercepts given them, and their regression.

        Shapes (L, C d, C d), (L, C, C) and (L, C, C d).
        """
        n_classes, width = self.loc.shape[-2:]
        place = torch.arange(n_classes * width, device=self.loc.device).view(n_classes, width)
        own, others = place[:, 0], place[:, 1:].flatten()
        root = torch.linalg.cholesky(self.covariance[:, others[:, None], others])
        block = torch.linalg.cholesky(self.precision[:, own[:, None], own])
        shift = torch.cholesky_solve(self.precision[:, own[:, None], others], block)
        return root, torch.linalg.cholesky(torch.cholesky_inverse(block)), shift

    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        root, cover, shift = self._factors
        flat = self.loc[..., 1:].flatten(-2)
        law = dist.MultivariateNormal(flat, scale_tril=root, validate_args=False)
        reshaped = ReshapeTransform(flat.shape[-1:], self.loc[..., 1:].shape[-2:])
        own = dist.TransformedDistribution(law, [reshaped], validate_args=False)
        scale = self.loc.new_full((len(self.loc), 1, 1), NO_SLOPE**-0.5)
        yield "leaf_slope", Slopes(own, scale, self.sloping)
        # The conditional of some coefficients of a normal given the others.
        away = (sites["leaf_slope"][..., self.sloping].flatten(-2) - flat).unsqueeze(-1)
        center = self.loc[..., 0] - (shift @ away).squeeze(-1)
        yield "leaf_logit", dist.MultivariateNormal(center, scale_tril=cover, validate_args=False)

    def expected_log_density(self, y: Tensor) -> Tensor:
        # log p = -log sum_k exp(eta_k - eta_y), where the differences of logits from the first
        # class are normal
        row = with_constant(y[:, 1:][:, self.sloping])
        n_leaves, n_classes, width = self.loc.shape
        cover = self.covariance.view(n_leaves, n_classes, width, n_classes, width)
        cover = cover[:, 1:] - cover[:, :1]
        cover = (cover[..., 1:, :] - cover[..., :1, :]).transpose(2, 3)  # (L, K, K, p, p)
        squares = (row.unsqueeze(2) * row.unsqueeze(1)).flatten(1)
        spread = (squares @ cover.reshape(-1, width**2).T).view(-1, *cover.shape[:3])
        differ = self.loc[:, 1:] - self.loc[:, :1]
        mean = (row @ differ.reshape(-1, width).T).view(-1, *differ.shape[:2])  # (n, L, K)
        node, weight = (y.new_tensor(part) for part in normal_nodes(n_classes - 1))
        root = spread.sqrt() if n_classes == 2 else torch.linalg.cholesky(spread)
        logit = mean.unsqueeze(-2) + node @ root.mT  # (n, L, M, K)
        total = torch.nn.functional.pad(logit, (1, 0)).logsumexp(-1) @ weight
        own = torch.nn.functional.pad(mean, (1, 0))
        return own.gather(-1, _numbers(y, own)).squeeze(-1) - total

    def kl(self) -> Tensor:
        prior = self.prior.of(self.sloping)
        root = torch.linalg.cholesky(self.precision)
        inverse = torch.cholesky_inverse(root).diagonal(dim1=-2, dim2=-1).view_as(self.loc)
        square = (prior * (inverse + self.loc.square())).sum()
        ratio = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum() - self.loc.numel()
        return (square + ratio - prior.log().sum() * self.loc[..., 0].numel()) / 2

    def mean(self) -> dict[str, Tensor]:
        return {"leaf_slope": self.slope, "leaf_logit": self.loc[..., 0]}

    @property
    def slope(self) -> Tensor:
        """Mean of all slopes, shape (L, C, d)."""
        found = self.loc.new_zeros(*self.loc.shape[:-1], len(self.sloping))
        found[..., self.sloping] = self.loc[..., 1:]
        return found


class LogisticGradient(LeafGradient):
    """Coefficients (L, C, p), the intercept of a class before its slopes."""

    def __init__(self, leaf: "Logistic", y: FloatArray) -> None:
        self.row = np.column_stack((np.ones(len(y)), y[:, 1:])).astype(np.float64)
        self.classes = y[:, 0].astype(np.int64)
        self.indicator = np.eye(leaf.n_classes)[self.classes].T  # (C, n)
        self.precision = np.array([leaf.logit_scale**-2, *leaf.strengths(y.shape[1] - 1)])

    def read(self, free: FreeSites) -> FloatArray:
        return np.concatenate([free["leaf_logit"][..., None], free["leaf_slope"]], axis=-1)

    def _log_probs(self, leaves: FloatArray) -> FloatArray:
        """Return log-probabilities of the classes, shape (L, C, n)."""
        logit = leaves @ self.row.T
        logit -= logit.max(axis=1, keepdims=True)
        logit -= np.log(np.exp(logit).sum(axis=1, keepdims=True))
        return logit

    def log_density(self, leaves: FloatArray) -> FloatArray:
        return self._log_probs(leaves)[:, self.classes, np.arange(len(self.classes))]

    def prior(self, leaves: FloatArray) -> float:
        return -0.5 * float((self.precision * leaves**2).sum())

    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        away = self.indicator - np.exp(self._log_probs(leaves))
        slope = (away * member[:, None]) @ self.row - self.precision * leaves
        into["leaf_logit"][...] = slope[..., 0]
        into["leaf_slope"][...] = slope[..., 1:]


@dataclass(frozen=True)
class Logistic(SlopingLeaf):
    """Class probabilities by a multinomial logistic regression on the features in each leaf.

    For features of mean 0 and variance 1: P(class c) is proportional to exp(leaf_logit_c +
    leaf_slope_c . x), with leaf_logit ~ Normal(0, logit_scale^2) and leaf_slope ~ Normal(0,
    slope_scale^2) for all classes alike. Only differences between classes matter. The posterior of
    the coefficients is normal (Laplace's approximation). It follows from sums over rows, which
    describe the features of each class in a leaf by their means and a common covariance. The
    likelihood is otherwise used exactly.

    Parameters
    ----------
    n_classes : int
    logit_scale : float
        Standard deviation of a class's logit where all features are 0.
    slope_scale : float or tuple of d floats
        Standard deviation of the slopes of a class: of all features, or of each. Features of 1e-4
        or less have no slopes.
    price : float
        What a slope costs when the scales are learned, in nats for each row.
    """

    sites: ClassVar[Mapping[str, Site]] = {
        "leaf_slope": Site(("leaf", "class", "feature")),
        "leaf_logit": Site(("leaf", "class")),
    }
    loss: ClassVar[str] = "misclassification"
    exact: ClassVar[bool] = False
    priced: ClassVar[bool] = True  # the evidence of slopes is overstated: features are not normal
    gradient: ClassVar[type[LeafGradient] | None] = LogisticGradient

    n_classes: int
    logit_scale: float = 2.0
    slope_scale: float | tuple[float, ...] = 1.0
    price: float = 0.0

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"n_classes must be 2 or more, got {self.n_classes}.")
        each = np.atleast_1d(np.asarray(self.slope_scale, dtype=float))
        own = {f"slope_scale[{j}]": one for j, one in enumerate(each.tolist())}
        check_positive(logit_scale=self.logit_scale, **own)

    @property
    def contrasts(self) -> int:  # type: ignore[override]
        return self.n_classes - 1

    @property
    def given(self) -> FloatArray:
        scales = np.asarray(self.slope_scale, dtype=float)
        return np.where(scales > NO_SLOPE**-0.5, scales**-2, NO_SLOPE)

    def having(self, strengths: FloatArray, **others: Any) -> Self:
        return replace(self, slope_scale=one_or_each(strengths**-0.5), **others)

    @property
    def criterion(self) -> Criterion:
        return ScoreGain()

    def check(self, y: Tensor) -> None:
        super().check(y)
        number = y[:, 0]
        if not ((number >= 0) & (number < self.n_classes) & (number == number.floor())).all():
            raise ValueError(
                f"y must hold class numbers from 0 to {self.n_classes - 1} in its first column, "
                f"got values from {number.min().item()} to {number.max().item()}."
            )

    def target(self, y: Tensor) -> Tensor:
        return y if y.ndim == 1 else y[:, 0].long()

    def prior(self, like: Tensor) -> CoefficientPrior:
        strengths = [self.logit_scale**-2, *self.strengths(like.shape[-1]).tolist()]
        return CoefficientPrior(like.new_tensor(strengths), self.n_classes)

    def posterior(self, sums: Tensor) -> LogisticPosterior:
        moments = ClassMoments.of(sums, self.n_classes)
        n_features = self.given.size if self.given.ndim else moments.gram.shape[-1] - 1
        sloping = self.sloping(n_features).to(sums.device)
        prior = self.prior(sums.new_zeros(n_features))
        found = regression(moments, prior.of(sloping))
        return LogisticPosterior(found.loc, found.precision, sloping, prior)

    def refined(self, law: LogisticPosterior, y: Tensor, member: Tensor) -> LogisticPosterior:
        """Take Newton's steps from the mode of ``law``, with the rows as they are."""
        n_classes, width = law.loc.shape[-2:]
        row, prior = with_constant(y[:, 1:][:, law.sloping]), law.prior.of(law.sloping)
        own = torch.nn.functional.one_hot(y[:, 0].long(), n_classes).to(row)
        first, second = torch.tril_indices(width, width)
        products, place = row[:, first] * row[:, second], lower_triangle(width)
        loc, seen = law.loc, member @ (own.unsqueeze(2) * row.unsqueeze(1)).flatten(1)
        precision = torch.diag_embed(prior.repeat(n_classes)).repeat(len(loc), 1, 1)
        blocks = precision.view(len(loc), n_classes, width, n_classes, width)
        for _ in range(REFINED):
            share = torch.softmax(loc @ row.T, 1)  # (L, C, n)
            weight = share * member.unsqueeze(1)
            slope = seen.view_as(loc) - weight @ row - prior * loc
            blocks.zero_()
            for c in range(n_classes):
                for e in range(c + 1):
                    spread = weight[:, c] * (float(c == e) - share[:, e])
                    found = (spread @ products)[:, place]
                    blocks[:, c, :, e] = found
                    blocks[:, e, :, c] = found
            precision.diagonal(dim1=-2, dim2=-1).add_(prior.repeat(n_classes))
            root = torch.linalg.cholesky(precision)
            step = torch.cholesky_solve(slope.flatten(1).unsqueeze(-1), root).view_as(loc)
            loc = loc + step * (LONGEST / step.abs().amax((1, 2), keepdim=True)).clamp_max(1.0)
        return replace(law, loc=loc, precision=precision)

    def growth_terms(self, y: Tensor, weights: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        own = self._open(y)
        prior = torch.full_like(own[0], START)
        terms = ScoreTerms.at(own, weights, self.n_classes, prior)
        return lambda rows, weight: terms(self._open(rows), weight)

    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        return class_products(self._open(y), weights, self.n_classes)

    def _correlation(self, row: Tensor, y: Tensor) -> Tensor:
        own = torch.nn.functional.one_hot(y.long(), self.n_classes).to(row)
        return (own.T @ (row - row.mean(0))).square().sum(0)

    def _strengths_alone(self, y: Tensor, weights: Tensor, price: float) -> FloatArray:
        sums = class_products(y.double(), weights.double(), self.n_classes).sum(0, keepdim=True)
        return self._learned(sums, price)[0][1:]

    def _learned(self, sums: Tensor, price: float) -> tuple[FloatArray, FloatArray]:
        """Return the precisions of 1 and p slopes, and what they leave of each, (1 + p,)."""
        found = ClassMoments.of(sums.double().cpu(), self.n_classes)
        start = torch.full_like(found.first[0, 0], START)
        start[0] = self.logit_scale**-2
        precision, left = learned(found, start, price)
        return precision.numpy(), left.numpy()

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        logs = _log_probs(sites, y[:, 1:])
        return logs.gather(-1, _numbers(y, logs)).squeeze(-1)

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        logit = torch.einsum("vscd,vmd->vsmc", sites["leaf_slope"], y[..., 1:])
        logs = torch.log_softmax(logit + sites["leaf_logit"].unsqueeze(-2), -1)
        number = y[..., 0].long().unsqueeze(1).unsqueeze(-1)
        return logs.gather(-1, number.expand(-1, logs.shape[1], -1, -1)).squeeze(-1)

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        assert X is not None
        joint = log_prob.unsqueeze(-1) + _log_probs(sites, X)
        return dist.Categorical(logits=joint.logsumexp(-2))

    def draw(
        self, sites: Sites, leaf: Tensor, X: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        assert X is not None
        logit = sites["leaf_logit"][leaf] + (sites["leaf_slope"][leaf] @ X.unsqueeze(-1))[..., 0]
        return dist.Categorical(logits=logit).sample()

    def calibrate(self, sums: Tensor) -> Self:
        """Learn the scales: the highest marginal likelihood by Laplace's approximation."""
        held = ClassMoments.of(sums, self.n_classes).gram[:, 0, 0] > 0
        precision, left = self._learned(sums[held], self.price)
        strengths = self.relevant(precision[1:], left[1:])
        return self.having(strengths, logit_scale=float(precision[0]) ** -0.5)

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        """Return the class probabilities of each row in each leaf, shape (n, L, C)."""
        rows = torch.as_tensor(X).to(sites["leaf_logit"])
        return _log_probs(sites, rows).exp().numpy(force=True)

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        values = self.expected_y(sites, X).reshape(*probs.shape, -1)
        return np.einsum("nsl,nslc->snc", probs, values)

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        found = self.posterior(sums)
        slope = found.slope.numpy()
        slope[..., self.strengths(slope.shape[-1]) >= SLOPE_STRENGTHS[1]] = 0.0
        return {"value": softmax_of(found.loc[..., 0].numpy(), axis=-1), "slope": slope}

    def sparse_values(self, sums: Tensor, most: float = math.inf) -> dict[str, FloatArray]:
        """Return the values of leaves with the slopes that pay, as ``LinearGaussian`` does.

        All classes have slopes in the same features, of which each costs as many nats as there are
        differences between classes, times half the logarithm of the number of rows.
        """
        whole = self.posterior(sums)
        count = ClassMoments.of(sums, self.n_classes).mass.sum(-1).double().numpy()
        price = self.contrasts * np.log(np.maximum(count, 1.0)) / 2
        found = paying(whole.loc, whole.precision, price, most)
        slope = np.zeros((*found.shape[:2], len(whole.sloping)))
        slope[..., np.flatnonzero(whole.sloping.numpy())] = found[..., 1:]
        return {"value": softmax_of(found[..., 0], axis=-1), "slope": slope}


def _log_probs(sites: Sites, X: Tensor) -> Tensor:
    """Return log-probabilities of the classes in each leaf, shape (n, L, C)."""
    slope = sites["leaf_slope"]
    logit = (X @ slope.reshape(-1, slope.shape[-1]).T).view(-1, *slope.shape[:-1])
    return torch.log_softmax(logit + sites["leaf_logit"], -1)


def _numbers(y: Tensor, like: Tensor) -> Tensor:
    """Return the classes of a response (n, 1 + d) as an index (n, L, 1) of ``like``."""
    return y[:, 0].long().view(-1, 1, 1).expand(-1, like.shape[1], 1)
