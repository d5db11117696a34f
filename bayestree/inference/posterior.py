"""What every inference returns: named draws of one soft tree's parameters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from bayestree._utils.seed import RandomState, draw_seed
from bayestree.inference.data import Data, Units
from bayestree.models.sites import Sites
from bayestree.models.soft_tree import SoftTree

Arrays = Mapping[str, NDArray[Any]]
ROWS = 8_192
BISECTIONS = 40  # halvings: the interval ends 1e-12 of its start


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of the parameters of a soft tree; a point estimate is one draw.

    Parameters
    ----------
    model : SoftTree
        What was believed, with the topology that was found.
    draws : mapping of arrays, each of shape (chain, draw, ...)
        By site name (see ``bayestree.models.sites``).
    point : mapping of arrays
        One value of each site, from which the deterministic tree is made: the MAP, or the
        posterior mean.
    inference : str
        Which inference made it.
    stats : mapping of arrays
        What was recorded: ``elbo`` by step, ``log_p`` and ``log_q`` by draw, ``loss`` by epoch.
    settings : mapping
        The settings that the inference ran with, for reports.
    warmup_draws, warmup_stats : mapping of arrays
        What a sampler drew and recorded while it adapted; not part of the posterior.
    """

    model: SoftTree
    draws: Arrays
    point: Arrays
    inference: str
    stats: Arrays = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warmup_draws: Arrays = field(default_factory=dict)
    warmup_stats: Arrays = field(default_factory=dict)

    @classmethod
    def from_point(
        cls, model: SoftTree, sites: Sites, inference: str, **recorded: Any
    ) -> "Posterior":
        """A posterior of one draw."""
        point = {name: value.detach().cpu().numpy() for name, value in sites.items()}
        draws = {name: value[None, None] for name, value in point.items()}
        return cls(model, draws, point, inference, **recorded)

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(next(iter(self.draws.values())).shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return int(next(iter(self.draws.values())).shape[1])

    def sites(self, chain: int, draw: int) -> dict[str, Tensor]:
        """One draw, as tensors."""
        return {name: torch.as_tensor(values[chain, draw]) for name, values in self.draws.items()}

    def point_sites(self) -> dict[str, Tensor]:
        """The point estimate, as tensors."""
        return {name: torch.as_tensor(values) for name, values in self.point.items()}

    def each(self) -> Iterator[dict[str, Tensor]]:
        """Every draw of every chain, as tensors."""
        for chain in range(self.n_chains):
            for draw in range(self.n_draws):
                yield self.sites(chain, draw)

    @property
    def model_of_draws(self) -> SoftTree:
        """The model of the sites that were drawn: without the scales where these are not."""
        return self.model if "hyperplane_scale" in self.draws else self.model.collapsed()

    def weight(self) -> NDArray[Any]:
        """Weights of the experts of the point estimate, shape (V, K)."""
        if self.model.split.weighted:
            return np.exp(self.point["log_weight"])
        return np.ones_like(self.point["intercept"])

    def leaf_probs(self, X: NDArray[Any], sites: Sites) -> NDArray[Any]:
        """P(leaf | x) of one draw, shape (n, L)."""
        rows = torch.as_tensor(X, dtype=next(iter(sites.values())).dtype)
        with torch.no_grad():
            parts = [self.model.leaf_log_probs(sites, part).exp() for part in rows.split(ROWS)]
        return torch.cat(parts).numpy()

    def predictive(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean and standard deviation over the draws of E(y | x, parameters).

        Returns
        -------
        mean, sd : arrays, shape (n, C) for categorical leaves, (n,) for Gaussian ones
        """
        total = square = np.zeros(1)
        for sites in self.each():
            value = self.leaf_probs(X, sites) @ self._leaf_value(sites)
            total = total + value
            square = square + value.astype(np.float64) ** 2
        count = self.n_chains * self.n_draws
        mean = total / count
        # Rounding can leave a difference of squares just below zero.
        sd = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        return mean.astype(np.float64), sd

    def quantiles(self, X: NDArray[Any], levels: NDArray[Any]) -> NDArray[Any]:
        """Quantiles of y | x for Gaussian leaves, shape (levels, n), by bisection.

        The distribution function is that of the mixture of all draws and leaves.
        """
        parts = []
        for start in range(0, len(X), ROWS):
            rows = X[start : start + ROWS]
            draws = [
                (self.leaf_probs(rows, s), s["leaf_mean"].numpy(), s["leaf_scale"].numpy())
                for s in self.each()
            ]
            parts.append(np.stack([_mixture_quantile(draws, level) for level in levels]))
        return np.concatenate(parts, axis=1)

    def to_arviz(
        self,
        data: Data | None = None,
        *,
        groups: Iterable[str] | None = None,
        feature_names: Sequence[str] = (),
        class_names: Sequence[str] = (),
        units: Units | None = None,
        row_labels: NDArray[np.int64] | None = None,
        n_prior: int = 200,
        random_state: RandomState = 0,
        attributes: Mapping[str, str | float] | None = None,
    ) -> Any:
        """The posterior as ArviZ's functions take it.

        ``posterior``, ``prior``, ``log_prior``, ``sample_stats`` and ``constant_data`` need no
        rows; ``log_likelihood``, ``posterior_predictive``, ``prior_predictive`` and
        ``observed_data`` do, and hold one variable, ``obs``. Groups for which there is nothing
        are left out: those of y under plug-in leaves, draws from improper priors, a warm-up
        that was not recorded.

        Parameters
        ----------
        data : Data, optional
            The n rows of the fit, on the scale of the draws.
        groups : iterable of str, optional
            Which groups to make. Those of rows hold draws * n numbers each.
        feature_names, class_names : sequence of str
            Coordinates of ``feature`` and ``class``; by default ``x0``, ... and ``0``, ...
        units : Units, optional
            Of X and y; by default those of the draws.
        row_labels : array of int, shape (n,), optional
            Coordinates of ``row``.
        n_prior : int
            Draws from the prior.
        random_state : int, RandomState or Generator
            Of the draws from the prior and of y.
        attributes : mapping, optional
            Strings and numbers to keep beside those that describe the fit.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            The former with ArviZ 0.x, the latter with 1.x. ``log_likelihood`` is the density of
            y in its units and holds each row's term, its weight included.

        Raises
        ------
        ValueError
            For a group that is not known or cannot be made, or names that do not fit the draws.
        TypeError
            For an attribute that is neither string nor number.
        """
        # xarray is slow to import, and most fits go without
        from bayestree.inference import conversion, labels  # noqa: PLC0415

        named = labels.Labels.of(self, feature_names, class_names, row_labels)
        seed = draw_seed(random_state)
        made = conversion.Conversion(self, named, data, units, n_prior, seed)
        return conversion.to_arviz(made, groups, attributes or {})

    def _leaf_value(self, sites: Sites) -> NDArray[Any]:
        return sites["leaf_probs" if "leaf_probs" in sites else "leaf_mean"].numpy()


def _mixture_quantile(
    draws: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]], level: float
) -> NDArray[np.float64]:
    """Quantile of each row's mixture of normals; draws hold (n, L), (L,), (L,) arrays."""
    n = len(draws[0][0])
    reach = 10 * max(scale.max() for _, _, scale in draws)
    low = np.full(n, min(mean.min() for _, mean, _ in draws) - reach)
    high = np.full(n, max(mean.max() for _, mean, _ in draws) + reach)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = np.zeros(n)
        for probs, mean, scale in draws:
            below += (probs * ndtr((middle[:, None] - mean) / scale)).sum(axis=1)
        right = below / len(draws) < level
        low, high = np.where(right, middle, low), np.where(right, high, middle)
    return (low + high) / 2
