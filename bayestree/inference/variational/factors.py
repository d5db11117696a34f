"""The variational factors of several trees that are fitted together.

Coefficients are normal with a covariance that is full within each expert, weights are gamma
variables, leaves have their conjugate factors, and scales and shrinkages follow the coefficients
(:class:`~bayestree.models.priors.base.ScaleFactors`). Nodes and leaves are numbered tree by tree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from bayestree.distributions import LogGamma
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.posterior import Posterior
from bayestree.inference.training import expert_size
from bayestree.inference.variational.guides import scale_factors
from bayestree.models.leaves import Leaf, LeafDistribution
from bayestree.models.priors import Moments, ShrinkageFactors
from bayestree.models.soft_tree import SoftTree, support_of
from bayestree.models.splits import joined, log_weight
from bayestree.topology import JoinedTopology

MOST_PRODUCTS = 5_000_000  # of columns, of all rows together, that are kept from step to step
BLOCK = 500_000  # products that are computed at a time if they are not kept


@dataclass(frozen=True)
class Rows:
    """Rows [X, 1] with their statistics for all steps."""

    X: Tensor  # (n, d + 1)
    y: Tensor
    weights: Tensor
    statistics: Tensor  # (n, c)
    kept: Tensor  # products of columns i <= j or, of the diagonal factors, squares; or (n, 0)

    @classmethod
    def of(cls, data: Data, leaf: Leaf, *, full: bool) -> Self:
        """Prepare rows for covariances that are ``full`` within experts, or diagonal."""
        X, statistics = data.with_ones().X, leaf.statistics(data.y, data.weights)
        if not full:
            kept = X.square()
        elif X.shape[1] * (X.shape[1] + 1) // 2 * len(X) <= MOST_PRODUCTS:
            kept = _products(X)
        else:
            kept = X[:, :0]
        return cls(X, data.y, data.weights, statistics, kept)

    def take(self, rows: Tensor) -> Self:
        """Select rows, weighted to represent all."""
        share, weights, statistics = len(self.X) / len(rows), self.weights, self.statistics
        own = share * weights[rows], share * statistics[rows], self.kept[rows]
        return type(self)(self.X[rows], self.y[rows], *own)

    def second_moments(self, factor: Tensor) -> Tensor:
        """Sum x x' over the rows, with factors (V, K, n): (V, K, d + 1, d + 1)."""
        width = self.X.shape[1]
        if self.kept.shape[1]:
            sums = factor @ self.kept
        else:
            size = max(1, 2 * BLOCK // (width * (width + 1)))
            parts = zip(factor.split(size, -1), self.X.split(size), strict=True)
            sums = torch.stack([own @ _products(X) for own, X in parts]).sum(0)
        first, second = torch.triu_indices(width, width)
        place = torch.empty(width, width, dtype=torch.long)
        place[first, second] = place[second, first] = torch.arange(len(first))
        return sums[..., place]


def _products(X: Tensor) -> Tensor:
    """Return products of the columns i <= j, shape (n, (d + 1) (d + 2) / 2)."""
    first, second = torch.triu_indices(X.shape[1], X.shape[1])
    return X[:, first] * X[:, second]


class StepRule(NamedTuple):
    """How a step is taken."""

    rate: float  # its length
    prior: float  # power of the prior of the splits, which rises to 1 early in a fit
    steepness: float
    exact: bool  # whether by the curvature, or by its Gauss-Newton approximation


@dataclass(frozen=True)
class StepSchedule:
    """The rules of ``n_steps`` steps."""

    n_steps: int
    rate: float
    steepness: float
    rising: float = 0.3  # share of the steps in which the power of the prior rises
    constant: float = 0.6  # share of the steps after which they become shorter
    annealed: float = 0.7  # share of the steps after which the steepness is reached

    def rule(self, number: int) -> StepRule:
        """Return the rule of a step."""
        share = (number + 1) / self.n_steps
        late = max(0.0, number - self.constant * self.n_steps)
        return StepRule(
            rate=self.rate / (1 + 0.1 * late),
            prior=min(1.0, share / self.rising),
            steepness=self.steepness ** min(1.0, share / self.annealed),
            exact=number >= self.n_steps / 2,
        )


LOG_2PI = math.log(2 * math.pi)
SPREAD = 0.3  # initial standard deviation of a coefficient, in units of its node's rms
JITTER = 1e-9  # relative to the precision, which rounding may leave indefinite for large weights
SHAPE = 4.0  # initial shape of the weights


class ExpertDraw(NamedTuple):
    """One draw of the experts of all trees."""

    coefficient: Tensor  # (V, K, d + 1), the intercept last
    log_weight: Tensor  # (V, K)
    noise: Tensor  # (V, K, d + 1), of which the root makes the coefficients


class Factors(nn.Module):
    """Factors of the experts and leaves of T trees with V nodes and L leaves in total.

    Parameters
    ----------
    model : SoftTree
        Split, priors, leaves and steepness of all trees; its topology is not used.
    topology : JoinedTopology
    mean, precision : Tensor, shapes (V, K, d + 1) and (V, K, d + 1, d + 1)
        Of the normal factors of the coefficients, the intercept of each expert last.
    shape, rate : Tensor, shape (V, K)
        Of the gamma factors of the weights; not used where experts have no weights.
    sums : Tensor, shape (L, c)
        Expected sums of the leaves' statistics.
    """

    mean: Tensor
    precision: Tensor
    root: Tensor  # (V, K, d + 1, d + 1): root @ root.mT is the covariance
    shape: Tensor
    rate: Tensor
    sums: Tensor

    def __init__(
        self,
        model: SoftTree,
        topology: JoinedTopology,
        *,
        mean: Tensor,
        precision: Tensor,
        shape: Tensor,
        rate: Tensor,
        sums: Tensor,
    ) -> None:
        super().__init__()
        self.model, self.topology = model, topology
        self.register_buffer("mean", mean)
        self.register_buffer("precision", precision)
        self.register_buffer("root", torch.empty_like(precision))
        self.register_buffer("shape", shape)
        self.register_buffer("rate", rate)
        self.register_buffer("sums", sums)
        self.support = support_of(model, mean)
        plane, offset = mean[..., :-1], mean[..., -1]
        scales = scale_factors(model, {"hyperplane": plane, "intercept": offset})
        assert isinstance(scales, ShrinkageFactors)  # Vi takes no other prior
        self.scales = scales
        self.prepare()
        self.factorise()
        self.refresh(steps=20)

    def prepare(self) -> None:
        """Allocate what else describes the precision."""

    @classmethod
    def around(cls, model: SoftTree, starts: Sequence[Posterior], data: Data) -> Self:
        """Start around the point estimates of several trees."""
        sites = [one.point_sites(data.X) for one in starts]
        mean = torch.cat([joined(one) for one in sites])
        size = expert_size(mean[..., :-1], mean[..., -1], support_of(model, mean))
        precision = (SPREAD * size).pow(-2).expand_as(mean)
        weight = torch.cat([log_weight(model.split, one) for one in sites]).exp()
        trees = JoinedTopology(tuple(one.model.topology for one in starts))
        return cls(
            model,
            trees,
            mean=mean,
            precision=cls.initial(precision),
            shape=torch.full_like(weight, SHAPE),
            rate=SHAPE / weight.clamp_min(1e-8),  # below it, an expert sends no row right
            sums=torch.cat(
                [
                    leaf_sums(start.model.with_(leaf=model.leaf), one, data)
                    for start, one in zip(starts, sites, strict=True)
                ]
            ),
        )

    def tree(self, number: int) -> "Factors":
        """Return the factors of one of the trees."""
        nodes, leaves = self.topology.nodes[number], self.topology.leaves[number]
        parts = ("mean", "precision", "shape", "rate")
        own = {name: getattr(self, name)[nodes].clone() for name in parts}
        found = type(self)(
            self.model,
            JoinedTopology((self.topology.trees[number],)),
            sums=self.sums[leaves].clone(),
            **own,
        )
        for mine, buffer in zip(found.buffers(), self.buffers(), strict=True):
            mine.copy_(buffer[leaves] if buffer is self.sums else buffer[nodes])
        return found

    @staticmethod
    def initial(diagonal: Tensor) -> Tensor:
        """Return the precision of independent coefficients."""
        return torch.diag_embed(diagonal)

    def factorise(self) -> None:
        """Compute the root of the covariance from the precision.

        Coefficients are scaled to a unit diagonal first, because columns and experts may differ in
        their units by many orders of magnitude.
        """
        unit = self.precision.diagonal(dim1=-2, dim2=-1).rsqrt()
        scaled = self.precision * unit.unsqueeze(-1) * unit.unsqueeze(-2)
        scaled.diagonal(dim1=-2, dim2=-1).add_(JITTER)
        lower = torch.linalg.cholesky(scaled)
        eye = torch.eye(unit.shape[-1]).to(unit).expand_as(lower)
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        self.root.copy_(self._own(inverse.mT * unit.unsqueeze(-1)))

    def _own(self, values: Tensor) -> Tensor:
        """Return values (V, K, d + 1, ...), 0 for coefficients that experts do not have."""
        if self.support is None:
            return values
        support = self.support.view(*self.support.shape, *[1] * (values.ndim - 3))
        return torch.where(support, values, 0.0)

    def refresh(self, steps: int) -> None:
        """Move the factors of scales and shrinkages to their optimum given the coefficients."""
        moments = self.moments
        for _ in range(steps):
            self.scales.refresh(moments)

    @property
    def moments(self) -> Moments:
        return Moments(self.mean, self.variance)

    @property
    def variance(self) -> Tensor:
        return self.root.square().sum(-1)

    @property
    def scale(self) -> Tensor:
        """Factors of the determinant of the root, (V, K, d + 1), 1 for absent coefficients."""
        found = self.root.diagonal(dim1=-2, dim2=-1)  # as of the triangular inv(chol).T
        return found if self.support is None else torch.where(self.support, found, 1.0)

    def spread(self, noise: Tensor) -> Tensor:
        """Multiply standard normals by the root."""
        return (self.root @ noise.unsqueeze(-1)).squeeze(-1)

    def move(
        self, rows: Rows, slope: Tensor, information: Tensor, prior: Tensor, rule: StepRule
    ) -> None:
        """Move the coefficients along the natural gradient.

        ``slope`` (V, K, d + 1) is that of the bound in the means, ``information`` (V, K, n) minus
        the curvature of the rows and ``prior`` (V, K, d + 1) the expected precision of the prior.
        """
        change = rows.second_moments(information)
        change.diagonal(dim1=-2, dim2=-1).add_(prior)
        change.sub_(self.precision)
        if self.support is not None:  # absent coefficients are independent of all others
            change = self._own(self._own(change).mT)
        self.precision.add_(change, alpha=rule.rate)
        if rule.exact:
            inner = self.root.mT @ change
            self.precision.add_(inner.mT @ inner, alpha=rule.rate**2 / 2)
        self.factorise()
        along = (self.root.mT @ slope.unsqueeze(-1)).squeeze(-1)
        self.mean.add_(self.spread(along), alpha=rule.rate)

    @property
    def weight_law(self) -> LogGamma:
        """Factor of the log-weights, shape (V, K)."""
        return LogGamma(self.shape, self.rate, validate_args=False)

    @property
    def leaf_law(self) -> LeafDistribution:
        return self.model.leaf.posterior(self.sums)

    # The divergence from the prior.

    def split_divergence(self, log_prior: Tensor | None = None) -> Tensor:
        """Compute the KL divergence of the splits of each tree from their prior, (T,).

        ``log_prior`` (V, K) is what ``scales.expected_log_prior`` returns, if it is known.
        """
        if log_prior is None:
            log_prior = self.scales.expected_log_prior(self.moments)
        width = self.mean.shape[-1] if self.support is None else self.support.sum(-1)
        entropy = self.scale.log().sum(-1) + width * (1 + LOG_2PI) / 2
        each = (-entropy - log_prior).sum(1)
        if self.model.split.weighted:
            law = self.model.priors.weight.law(self.model.split.n_experts, self.rate)
            each = each + _gamma_divergence(self.shape, self.rate, law).sum(1)
        return torch.stack([each[nodes].sum() for nodes in self.topology.nodes])

    def leaf_divergence(self) -> Tensor:
        """Compute the KL divergence of the leaves of each tree from their prior, (T,)."""
        family = self.model.leaf
        return torch.stack([family.posterior(self.sums[own]).kl() for own in self.topology.leaves])

    # Draws.

    def draw(self) -> ExpertDraw:
        """Draw the experts once."""
        noise = torch.randn_like(self.mean)
        weighted = self.model.split.weighted
        value = self.weight_law.sample() if weighted else torch.zeros_like(self.rate)
        return ExpertDraw(self.mean + self.spread(noise), value, noise)

    def sample(self) -> tuple[dict[str, Tensor], float]:
        """Draw the sites of a single tree without scales, and return the draw's log density."""
        draw, leaf = self.draw(), self.leaf_law
        density = self._own(-self.scale.log() - draw.noise.square() / 2 - LOG_2PI / 2).sum()
        sites = {"hyperplane": draw.coefficient[..., :-1], "intercept": draw.coefficient[..., -1]}
        if self.model.split.weighted:
            sites["log_weight"] = draw.log_weight
            density = density + self.weight_law.log_prob(draw.log_weight).sum()
        sites |= self.scales.sample()
        leaves = leaf.sample()
        density = density + self.scales.log_prob(sites) + leaf.log_prob(leaves)
        return sites | leaves, float(density)

    def point(self) -> dict[str, Tensor]:
        """Return posterior means; ``log_weight`` is the logarithm of the mean weight."""
        point = {"hyperplane": self.mean[..., :-1], "intercept": self.mean[..., -1]}
        if self.model.split.weighted:
            point["log_weight"] = (self.shape / self.rate).log()
        return point | self.scales.point() | self.leaf_law.mean()


def _gamma_divergence(shape: Tensor, rate: Tensor, prior: LogGamma) -> Tensor:
    """Compute the KL divergence of gamma variables from a prior, of the shape of ``rate``."""
    own, at = prior.concentration, prior.rate
    change = (shape - own) * torch.digamma(shape) - torch.lgamma(shape) + torch.lgamma(own)
    return change + own * (rate.log() - at.log()) + shape * (at / rate - 1)
