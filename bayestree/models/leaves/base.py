"""The interface of leaf families. A new family subclasses ``Leaf`` and ``LeafDistribution``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor
from torch.distributions import kl_divergence

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray
from bayestree.models.criteria import Criterion
from bayestree.models.priors.base import FreeSites, Site, Sites

Interval = tuple[float, float]


class LeafDistribution(ABC):
    """Joint distribution of the parameters of all leaves: a conjugate prior or posterior.

    ``prior`` is the distribution from which a posterior was updated.
    """

    prior: "LeafDistribution | None"

    @abstractmethod
    def conditionals(self, sites: Sites) -> Iterator[tuple[str, dist.TorchDistribution]]:
        """Yield the name and the distribution of each site.

        ``sites`` holds the values of the sites yielded before, which may be conditioned on.
        """

    @abstractmethod
    def expected_log_density(self, y: Tensor) -> Tensor:
        """Return E log p(y_n | leaf), shape (n, L)."""

    @abstractmethod
    def mean(self) -> dict[str, Tensor]:
        """Point estimate of each site: its mean, or a transformed mean for scales."""

    def kl(self) -> Tensor:
        """Return the KL divergence from the prior, a scalar; by default for independent sites."""
        pairs = zip(self.conditionals({}), (self.prior or self).conditionals({}), strict=True)
        parts = [
            kl_divergence(own, prior.expand(own.batch_shape)).sum()
            for (_, own), (_, prior) in pairs
        ]
        return torch.stack(parts).sum()

    def state(self) -> dict[str, Tensor]:
        """Sample the sites in Pyro."""
        sites: dict[str, Tensor] = {}
        for name, distribution in self.conditionals(sites):
            sites[name] = pyro.sample(name, distribution)
        return sites

    def sample(self) -> dict[str, Tensor]:
        """Draw the sites once."""
        sites: dict[str, Tensor] = {}
        for name, distribution in self.conditionals(sites):
            sites[name] = distribution.sample()
        return sites

    def log_prob(self, sites: Sites) -> Tensor:
        """Return the log-density of the sites, a scalar."""
        first, *others = (one.log_prob(sites[name]) for name, one in self.conditionals(sites))
        return sum(others, start=first).sum()


class LeafGradient(ABC):
    """Log-density of rows and prior with hand-written gradients, on unconstrained leaf sites.

    Unconstrained means: logarithms of positive sites, log-ratios to the last entry of simplexes.
    """

    @abstractmethod
    def __init__(self, leaf: Any, y: FloatArray) -> None: ...

    @abstractmethod
    def read(self, free: FreeSites) -> FloatArray:
        """Return the parameters of the leaves as one array, the ``leaves`` of the other methods."""

    @abstractmethod
    def log_density(self, leaves: FloatArray) -> FloatArray:
        """log p(y_n | leaf), shape (L, n)."""

    @abstractmethod
    def prior(self, leaves: FloatArray) -> float:
        """Log prior density including Jacobians, up to a constant."""

    @abstractmethod
    def gradient(self, leaves: FloatArray, member: FloatArray, into: FreeSites) -> None:
        """Set the gradient of prior and rows, given weighted memberships (L, n)."""


class Leaf(ABC):
    """A family of leaf distributions p(y | leaf) with a conjugate prior.

    Sites have the leaves as last dimension, unless a subclass overrides the methods that assume
    this.
    """

    sites: ClassVar[Mapping[str, Site]]  # dimensions and support of each site
    n_classes: int  # 0 for numeric leaves
    n_outputs: ClassVar[int] = 1  # numbers in a row of y
    loss: ClassVar[str]  # likelihood that alternating optimisation minimises by default
    impurity: ClassVar[str] = "mixture"  # likelihood of trees that are grown alone
    gradient: ClassVar[type[LeafGradient] | None] = None  # without it, samplers use autograd

    # What estimators, plots and reports need to know about the family.
    quantity: ClassVar[str] = "mean"  # what a numeric leaf predicts, in texts
    standardised: ClassVar[bool] = False  # whether y is fitted in units of its standard deviation
    robust: ClassVar[bool] = False  # if so, whether in units of its middle half instead
    whole: ClassVar[bool] = False  # whether y consists of whole numbers, and so do its quantiles
    extra: ClassVar[str | None] = None  # a number of each row, next to y, that its density needs
    regresses: ClassVar[bool] = False  # whether p(y | leaf) depends on the features
    ordered: ClassVar[bool] = False  # whether the order of the classes matters
    averages: ClassVar[bool] = False  # whether leaves of means or shares of y suit the family
    needs_double: ClassVar[bool] = False  # whether single precision loses the statistics
    #: whether ``posterior`` is the exact law of the sites given rows that are in known leaves
    exact: ClassVar[bool] = True
    level_site: str | None = None  # the site in the order of predictions (see ``level``)

    @property
    @abstractmethod
    def criterion(self) -> Criterion:
        """Criterion of greedy growth, a function of sums of ``statistics``."""

    @abstractmethod
    def check(self, y: Tensor) -> None:
        """Raise ValueError unless the family can generate y, a response."""

    def informed(self, y: Tensor, weights: Tensor) -> Self:
        """Return the family with hyperparameters that it has to know of all rows."""
        return self

    @abstractmethod
    def prior(self, like: Tensor) -> LeafDistribution:
        """Return the prior of one leaf, on the dtype and device of ``like``.

        For leaves that regress on the features, the last dimension of ``like`` is the features.
        """

    @abstractmethod
    def posterior(self, sums: Tensor) -> LeafDistribution:
        """Return the conjugate posterior of the leaves, given sums (L, c) of the statistics."""

    def refined(self, law: Any, y: Tensor, member: Tensor) -> Any:
        """Return ``law``, a posterior from sums, as it follows from the rows themselves.

        ``member`` (L, n) are the weights of the rows in the leaves. Families whose posteriors from
        sums are approximations may do better.
        """
        return law

    @abstractmethod
    def distribution(self, sites: Sites) -> dist.TorchDistribution:
        """Return the distribution of y in each leaf."""

    @abstractmethod
    def statistics(self, y: Tensor, weights: Tensor) -> Tensor:
        """Return the sufficient statistics of each row, shape (n, c)."""

    def growth_terms(self, y: Tensor, weights: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the function of y and weights whose sums ``criterion`` takes, given a node's rows.

        It returns terms (n, c) for any of these rows; by default they are the statistics.
        """
        return self.statistics

    def level(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return mass and prediction (...) of leaves with sums (..., c), for monotonicity.

        The prediction is the mean or rate, or the probability of the second of two classes. Only
        for families with a ``level_site``.
        """
        return sums[..., 0], sums[..., 1] / sums[..., 0]

    def among(self, used: BoolArray) -> Self:
        """Return the family for the features in use (d,), unless it knows only these."""
        return self

    def widened(self, used: BoolArray) -> Self:
        """Return the family for all features (d,), of which it has known those in use."""
        return self

    def response(self, X: Tensor, y: Tensor) -> Tensor:
        """Return what the other methods take as y, given the features X (n, d).

        y itself, or rows of y and all that its distribution in a leaf depends on. Such rows are
        returned unchanged.
        """
        return y

    def known(self, y: Tensor) -> Tensor | None:
        """Return the column of a response that draws of y depend on, next to the features."""
        return None

    def target(self, y: Tensor) -> Tensor:
        """Return the values of y alone, shape (n,)."""
        return y

    def state(self, n_leaves: int, like: Tensor) -> dict[str, Tensor]:
        """Sample the sites of the leaves from the prior in Pyro."""
        with pyro.plate("leaf", n_leaves, dim=-1):
            return self.prior(like).state()

    def log_prob(self, sites: Sites) -> Tensor:
        """Log prior density of the sites, a scalar."""
        return self.prior(sites[next(iter(self.sites))]).log_prob(sites)

    def log_density(self, sites: Sites, y: Tensor) -> Tensor:
        """log p(y_n | leaf), shape (n, L)."""
        return self.distribution(sites).log_prob(y.unsqueeze(-1))

    def node_log_density(self, sites: Sites, y: Tensor) -> Tensor:
        """log p(y | leaf), shape (V, S, m), of y (V, m) at S leaves (V, S, ...) of each node."""
        leaves = {name: sites[name].unsqueeze(-1) for name in self.sites}
        return self.distribution(leaves).log_prob(y.unsqueeze(1))

    def observe(
        self, sites: Sites, log_prob: Tensor, X: Tensor | None = None, y: Tensor | None = None
    ) -> dist.TorchDistribution:
        """Return the distribution of y given log P(leaf | x), shape (n, L), and features (n, d).

        ``y`` is the response of these rows, if it was observed.
        """
        leaves = self.distribution(sites).expand(log_prob.shape)
        return dist.MixtureSameFamily(dist.Categorical(logits=log_prob), leaves)

    def draw(
        self, sites: Sites, leaf: Tensor, X: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        """Draw one y for each row, given the numbers (n,) of their leaves and features (n, d).

        ``known`` (n,) is what the method ``known`` returns.
        """
        return self.distribution({name: sites[name][leaf] for name in self.sites}).sample()

    def estimate(self, sums: Tensor) -> dict[str, Tensor]:
        """Estimate the sites from sums (L, c) of the statistics (CPT, eq. 12, 17)."""
        return self.posterior(sums).mean()

    def calibrate(self, sums: Tensor) -> Self:
        """Fit the hyperparameters to leaves of such sums (empirical Bayes), where there are any."""
        return self

    def reduced(self) -> Self:
        """Return the family, once calibrated, with fewer statistics where some say nothing."""
        return self

    def expected_y(self, sites: Sites, X: AnyArray | None = None) -> FloatArray:
        """Return the prediction of each leaf: E(y | leaf), shape (L,), or class shares (L, C).

        For leaves that regress on the features X (n, d), the shape is (n, L) or (n, L, C).
        """
        return self.distribution(sites).mean.numpy(force=True)

    def expectation(self, sites: Sites, probs: AnyArray, X: AnyArray) -> FloatArray:
        """Return E(y | x) of S draws, (S, n) or (S, n, C), from P(leaf | x), shape (n, S, L).

        ``sites`` has the leaves of all draws, one draw after another.
        """
        values = self.expected_y(sites, X).reshape(*probs.shape[1:], -1)
        kind = np.result_type(probs, values)
        # By torch: the threads of NumPy's library would wait actively beside all that follows.
        both = (np.array(one, kind, order="C") for one in (probs.swapaxes(0, 1), values))
        found: FloatArray = torch.matmul(*map(torch.from_numpy, both)).numpy()
        return found if self.n_classes else found[..., 0]

    def sd_y(self, sites: Sites) -> FloatArray:
        """Return the standard deviation of y in each leaf, shape (L,)."""
        return self.distribution(sites).stddev.numpy(force=True)

    def cdf(self, sites: Sites, y: FloatArray) -> FloatArray:
        """Return P(y' <= y_n | leaf), shape (n, L); quantiles need it. ``y`` is a response."""
        return self.distribution(sites).cdf(torch.as_tensor(y).unsqueeze(-1)).numpy(force=True)

    def reach(self, sites: Sites, X: AnyArray, known: FloatArray | None = None) -> Interval:
        """Return the ends of an interval with all but 1e-23 of the mass of y, in any leaf."""
        mean, reach = self.expected_y(sites, X), 10 * self.sd_y(sites).max()
        return float(mean.min() - reach), float(mean.max() + reach)

    def misfit(self, y: FloatArray, predicted: FloatArray) -> FloatArray:
        """Return the loss of predictions (n,) by which posterior and tree are compared."""
        return (self.target(torch.as_tensor(y)).numpy(force=True) - predicted) ** 2

    def moments(self, draws: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return ``leaf_mean`` and ``leaf_scale``, mean and standard deviation of y, if not sites.

        Diagnostics read predictions from them. They have the shapes of ``draws``.
        """
        return {}

    def tree_values(self, sums: Tensor) -> dict[str, FloatArray]:
        """Return fields of a deterministic tree, from sums (L, c) of the statistics.

        These are ``value`` (L,) and, if leaves are linear, ``slope`` (L, d); none if leaves predict
        the means or shares of y.
        """
        return {}

    def sparse_values(self, sums: Tensor, most: float = math.inf) -> dict[str, FloatArray]:
        """Return the same fields with no more slopes than pay, and ``most`` in all leaves."""
        return self.tree_values(sums)


class NumericLeaf(Leaf):
    """A family for real values or counts."""

    n_classes = 0
    loss: ClassVar[str] = "squared-error"

    def check(self, y: Tensor) -> None:
        if not torch.isfinite(y).all():
            raise ValueError("y must be finite, got infinite or missing values.")

    def moments(self, draws: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        sites = {} if self.regresses else {n: torch.as_tensor(draws[n]) for n in self.sites}
        known = {"leaf_mean": self.expected_y, "leaf_scale": self.sd_y} if sites else {}
        return {name: of(sites) for name, of in known.items() if name not in self.sites}


class RegressingLeaf(Leaf):
    """A family whose distribution of y depends on the features: a response has y, then these."""

    regresses: ClassVar[bool] = True
    needs_double: ClassVar[bool] = True  # sums of squares and products cancel

    def check(self, y: Tensor) -> None:
        if y.ndim != 2:
            raise ValueError(
                f"y must be a response with the features of its row for {self}, got shape "
                f"{tuple(y.shape)}: use data.for_leaf(leaf), or leaf.response(X, y)."
            )

    def response(self, X: Tensor, y: Tensor) -> Tensor:
        return y if y.ndim == 2 else torch.cat((y.to(X).unsqueeze(1), X), dim=1)

    def distribution(self, sites: Sites) -> dist.TorchDistribution:
        """Refuse: p(y | leaf) is not defined without the features."""
        raise TypeError(f"The distribution of y depends on the features, for the leaves {self}.")


def most_likely(
    loss: Callable[[FloatArray], Any],
    start: Sequence[float],
    limits: Sequence[tuple[float, float]],
    *,
    gradient: bool = False,
) -> list[float]:
    """Return the positive hyperparameters, within limits, at which a loss is least.

    ``loss`` is a function of their logarithms (k,): minus a marginal log-likelihood, with
    ``gradient`` followed by its gradient (k,).
    """
    low, high = np.log(limits).T
    first = np.clip(np.log(start), low, high)
    jac, bounds = gradient or None, Bounds(low, high)
    found = minimize(loss, first, jac=jac, method="L-BFGS-B", bounds=bounds).x
    return np.exp(found).tolist()


def log_probabilities(ratios: FloatArray) -> FloatArray:
    """Return log-probabilities from log-ratios to the last class, faster than SciPy."""
    logits = np.concatenate([ratios, np.zeros((*ratios.shape[:-1], 1))], axis=-1)
    shifted: FloatArray = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
