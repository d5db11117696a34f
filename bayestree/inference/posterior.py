"""The result of every inference method: named draws of the parameters, and predictions by them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.state import InUsualState, RandomState, draw_seed
from bayestree._utils.wording import counted
from bayestree.inference.data import PART, Data, Units, part_size
from bayestree.inference.pointwise import ROWS, draws_at_once, leaf_probs, wide_leaf_log_probs
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import SoftTree

Arrays = Mapping[str, NDArray[Any]]
WIDTH = 90  # of a part of the model, when draws are printed
MEDOID_ROWS = 1_000  # maximum number of rows on which draws are compared
PRECISION = 1e-12  # length of the final interval of a quantile, of the initial one
MOST_STEPS = 100  # 13 for continuous y, 43 for whole numbers


@dataclass(frozen=True, eq=False)
class Posterior(InUsualState):
    """Draws of the parameters of a soft tree, with predictions; a point estimate is one draw.

    Parameters
    ----------
    model : SoftTree
        Model of the draws, with the final topology.
    draws : mapping of arrays, each of shape (chain, draw, ...)
        Draws by site name (see ``bayestree.models.priors.base``).
    point : mapping of arrays
        The MAP estimate or posterior mean of each site, which gives the deterministic tree.
    inference : str
        Name of the inference method.
    stats : mapping of arrays
        Recorded quantities: ``elbo`` by step, ``log_p`` and ``log_q`` by draw, ``loss`` by epoch.
    settings : mapping
        Settings of the inference method, for reports.
    warmup_draws, warmup_stats : mapping of arrays
        Draws and statistics of a sampler's adaptation; not part of the posterior.
    """

    model: SoftTree
    draws: Arrays
    point: Arrays
    inference: str
    stats: Arrays = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warmup_draws: Arrays = field(default_factory=dict)
    warmup_stats: Arrays = field(default_factory=dict)

    def __repr__(self) -> str:
        model, kind = self.model, type(self).__name__
        parts = [*map(repr, (model.split, *vars(model.priors).values(), model.leaf))]
        return "\n    ".join(
            [
                f"{kind} by {self.inference!r}: {counted(self.n_chains, 'chain')} of "
                f"{counted(self.n_draws, 'draw')}, {counted(model.topology.n_leaves, 'leaf')}",
                *(part if len(part) <= WIDTH else f"{part[:WIDTH]}..." for part in parts),
                *(f"{name} {values.shape}" for name, values in self.draws.items()),
            ]
        )

    @classmethod
    def from_point(cls, model: SoftTree, sites: Sites, inference: str, **recorded: Any) -> Self:
        """Create a posterior of one draw."""
        point = {name: value.detach().cpu().numpy() for name, value in sites.items()}
        draws = {name: value[None, None] for name, value in point.items()}
        return cls(model, draws, point, inference, **recorded)

    @property
    def variational(self) -> bool:
        """Whether the draws come from a variational fit alone."""
        return "elbo" in self.stats and not self.settings.get("n_sweeps")

    @property
    def n_chains(self) -> int:
        return int(next(iter(self.draws.values())).shape[0])

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return int(next(iter(self.draws.values())).shape[1])

    @property
    def chains(self) -> IntArray:
        """The number of the chain of each draw, (C S,); independent draws have one each.

        Where chains have moved independent draws, each gave every ``n_chains``-th one.
        """
        if self.n_chains > 1:
            return np.repeat(np.arange(self.n_chains), self.n_draws)
        return np.arange(self.n_draws) % self.settings.get("n_chains", self.n_draws)

    def sites(self, chain: int, draw: int) -> dict[str, Tensor]:
        """Return one draw as tensors."""
        return {name: torch.as_tensor(values[chain, draw]) for name, values in self.draws.items()}

    def joined(self, draws: slice) -> dict[str, Tensor]:
        """Join the sites of consecutive draws, chain after chain, to the sites of one wide tree.

        The nodes (leaves) of each draw follow the nodes of the draw before; other sites are left
        out.
        """
        found = {}
        for name, values in self.draws.items():
            if values.ndim > 2:
                each = values.reshape(self.n_chains * self.n_draws, *values.shape[2:])[draws]
                wide = each.reshape(each.shape[0] * each.shape[1], *each.shape[2:])
                found[name] = torch.as_tensor(wide)
        return found

    def point_sites(self, like: Tensor | None = None) -> dict[str, Tensor]:
        """Return the point estimate as tensors, on the dtype and device of ``like`` if given."""
        sites = {name: torch.as_tensor(values) for name, values in self.point.items()}
        return sites if like is None else {name: value.to(like) for name, value in sites.items()}

    def thinned(self, most: int) -> Self:
        """Return at most ``most`` evenly spaced draws of each chain."""
        step = -(-self.n_draws // most)
        return replace(self, draws={name: value[:, ::step] for name, value in self.draws.items()})

    def each(self) -> Iterator[dict[str, Tensor]]:
        """Yield every draw of every chain as tensors."""
        for chain in range(self.n_chains):
            for draw in range(self.n_draws):
                yield self.sites(chain, draw)

    @property
    def model_of_draws(self) -> SoftTree:
        """Model of the sites that were drawn: collapsed if these exclude the scales."""
        return self.model if "hyperplane_scale" in self.draws else self.model.collapsed()

    def weight(self) -> NDArray[Any]:
        """Compute the weights of the experts of the point estimate, shape (V, K)."""
        if self.model.split.weighted:
            return np.exp(self.point["log_weight"])
        return np.ones_like(self.point["intercept"])

    def leaf_probs(self, X: NDArray[Any], sites: Sites) -> NDArray[Any]:
        """Compute P(leaf | x) of one draw, shape (n, L)."""
        rows = torch.as_tensor(X, dtype=next(iter(sites.values())).dtype)
        with torch.no_grad():
            parts = list(leaf_probs(self.model, sites, rows.split(ROWS)))
        return torch.cat(parts).numpy(force=True)

    def _routed(self, X: NDArray[Any]) -> Iterator[tuple[NDArray[Any], Sites]]:
        """Yield P(leaf | x) of consecutive draws, (n, S, L), and their joined sites.

        One product evaluates as many draws as keep a part of the rows in the cache.
        """
        count, size = self.n_chains * self.n_draws, draws_at_once(self.model, *X.shape)
        for start in range(0, count, size):
            several = min(size, count - start)
            sites = self.joined(slice(start, start + several))
            if several == 1:
                yield self.leaf_probs(X, sites)[:, None], sites
                continue
            rows = torch.as_tensor(X, dtype=next(iter(sites.values())).dtype)
            with torch.no_grad():
                each = (
                    wide_leaf_log_probs(self.model, sites, part, several).exp()
                    for part in rows.split(part_size(rows))
                )
                yield torch.cat([*each]).numpy(force=True), sites

    def expectations(self, X: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield E(y | x, parameters) of consecutive draws, by groups of S draws.

        Yields
        ------
        array, shape (S, n, C) for class probabilities, (S, n) for numbers
        """
        for probs, sites in self._routed(X):
            yield self.model.leaf.expectation(sites, probs, X)

    def predictive(self, X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute the mean and standard deviation over the draws of E(y | x, parameters).

        Returns
        -------
        mean, sd : arrays, shape (n, C) for class probabilities, (n,) for numbers
        """
        total = square = np.zeros(1)
        for group in self.expectations(X):
            values = group.astype(np.float64)  # squares of single precision leave no digits
            total = total + values.sum(axis=0)
            square = square + (values**2).sum(axis=0)
        count = self.n_chains * self.n_draws
        mean = total / count
        # Rounding can leave a difference of squares just below zero.
        sd = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        return mean, sd

    @property
    def described_draws(self) -> Arrays:
        """The draws, with the means and scales of y in the leaves where these are not sites."""
        return {**self.draws, **self.model.leaf.moments(self.draws)}

    def output(self, number: int) -> "Posterior":
        """Select the posterior of an output."""
        leaf: Any = self.model.leaf

        def own(values: Arrays) -> Arrays:
            return {n: v[..., number] if n in leaf.sites else v for n, v in values.items()}

        return replace(
            self,
            model=self.model.with_(leaf=leaf.parts[number]),
            draws=own(self.draws),
            point=own(self.point),
            warmup_draws=own(self.warmup_draws),
        )

    def quantiles(self, X: NDArray[Any], levels: NDArray[Any]) -> NDArray[Any]:
        """Compute quantiles of y | x, shape (levels, n), of the mixture of all draws and leaves.

        For regression leaves only.
        """
        return mixture_quantiles([self], np.ones(1), X, levels)

    def range_y(self, X: NDArray[Any], known: NDArray[Any] | None = None) -> tuple[float, float]:
        """Return an interval that has all but 1e-23 of the mass of y | x. Regression only."""
        return self.model.leaf.reach(self.joined(slice(None)), X, known)

    def cdf(
        self, X: NDArray[Any], known: NDArray[Any] | None = None
    ) -> Callable[[FloatArray], FloatArray]:
        """Return the function P(Y_n <= y_n | x_n) of y (n,), for a few rows. Regression only.

        ``known`` (n,) is what the distribution of y needs next to the features (see
        ``Leaf.known``).
        """
        leaf, every = self.model.leaf, self.joined(slice(None))
        probs = np.concatenate([probs for probs, _ in self._routed(X)], axis=1)
        weights = probs.reshape(len(X), -1) / probs.shape[1]

        features = torch.as_tensor(X)

        def below(y: FloatArray) -> FloatArray:
            rows = y if known is None else np.column_stack((y, known))
            response = leaf.response(features, torch.as_tensor(rows)).numpy(force=True)
            return np.einsum("nl,nl->n", weights, leaf.cdf(every, response))

        return below

    def distributions(self, X: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        """Compute P(y <= v | x, draw), (draws, n, T), of values v (T,). Constant leaves only."""
        leaf, found = self.model.leaf, []
        at = torch.as_tensor(values, dtype=torch.float64)
        response = leaf.response(at[:, None], at).numpy(force=True)
        for probs, sites in self._routed(X):
            below = leaf.cdf(sites, response).reshape(len(values), *probs.shape[1:])
            found.append(np.einsum("nsl,tsl->snt", probs, below))
        return np.concatenate(found)

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
        """Convert the posterior to ArviZ's container.

        ``posterior``, ``prior``, ``log_prior``, ``sample_stats`` and ``constant_data`` need no
        rows; ``log_likelihood``, ``posterior_predictive``, ``prior_predictive`` and
        ``observed_data`` do, and have one variable, ``obs``. Groups that cannot exist are omitted:
        y under plug-in leaves, draws from improper priors, and a warm-up that was not recorded.

        Parameters
        ----------
        data : Data, optional
            The n rows of the fit, on the scale of the draws.
        groups : iterable of str, optional
            Groups to create, by default all. Those of rows have draws * n values each.
        feature_names, class_names : sequence of str
            Coordinates of ``feature`` and ``class``; by default ``x0``, ... and ``0``, ...
        units : Units, optional
            Original units of X and y; by default the units of the draws.
        row_labels : array of int, shape (n,), optional
            Coordinates of ``row``.
        n_prior : int
            Number of draws from the prior.
        random_state : int, RandomState or Generator
            Seed of the draws from the prior and of y.
        attributes : mapping, optional
            Strings and numbers to add to those that describe the fit.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            The former with ArviZ 0.x, the latter with 1.x. ``log_likelihood`` is the weighted
            log-density of each row of y in its units.

        Raises
        ------
        ValueError
            If a group is unknown or cannot be created, or the number of names is wrong.
        TypeError
            If an attribute is neither a string nor a number.
        """
        # xarray is slow to import, and most fits do not need it
        from bayestree.inference import arviz_groups  # noqa: PLC0415

        named = arviz_groups.Labels.of(self, feature_names, class_names, row_labels)
        seed = draw_seed(random_state)
        source = arviz_groups.Conversion(self, named, data, units, n_prior, seed)
        return arviz_groups.to_arviz(source, groups, attributes or {})


def mixture_quantiles(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    X: NDArray[Any],
    levels: NDArray[Any],
    known: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute quantiles of y | x, (levels, n), of the mixture of all posteriors, draws and leaves.

    The posteriors have ``weights`` (M,); ``known`` (n,) is what the distribution of y needs next to
    the features. For regression leaves only.
    """
    parts = []
    for start in range(0, len(X), PART):
        rows = X[start : start + PART]
        some = None if known is None else known[start : start + PART]
        low, high = zip(*(one.range_y(rows, some) for one in posteriors), strict=True)
        cdf, ends = _mixture_cdf(posteriors, weights, rows, some), (min(low), max(high))
        parts.append(np.stack([_invert(cdf, level, len(rows), ends) for level in levels]))
    found = np.concatenate(parts, axis=1)
    return np.rint(found) if posteriors[0].model.leaf.whole else found


def mixture_below(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    X: NDArray[Any],
    y: NDArray[Any],
    known: NDArray[Any] | None = None,
) -> FloatArray:
    """Compute P(Y < y | x) and P(Y <= y | x) of the mixture, (2, n), as :func:`mixture_quantiles`.

    They are equal unless y are whole numbers.
    """
    whole, found = posteriors[0].model.leaf.whole, np.empty((2, len(X)))
    for part in (slice(start, start + PART) for start in range(0, len(X), PART)):
        some = None if known is None else known[part]
        cdf = _mixture_cdf(posteriors, weights, X[part], some)
        found[1, part] = cdf(y[part])
        found[0, part] = cdf(np.ceil(y[part]) - 1) if whole else found[1, part]
    return found


def _mixture_cdf(
    posteriors: Sequence[Posterior],
    weights: FloatArray,
    X: NDArray[Any],
    known: NDArray[Any] | None,
) -> Callable[[FloatArray], FloatArray]:
    """Return P(Y <= y | x) of the mixture as a function of y (n,), for a few rows."""
    kept = [(one, weight) for one, weight in zip(posteriors, weights, strict=True) if weight > 0]
    each = [(one.cdf(X, known), weight) for one, weight in kept]
    return lambda y: np.sum([weight * below(y) for below, weight in each], axis=0)


def _invert(
    cdf: Callable[[FloatArray], FloatArray], level: float, n: int, ends: tuple[float, float]
) -> FloatArray:
    """Find the smallest y with cdf(y) >= level for n rows, by Chandrupatla's method (1997).

    Inverse quadratic interpolation where the function is nearly linear, otherwise bisection. The
    value at ``new`` has been computed last, ``old`` is on the other side of the solution.
    """
    new, old = np.full(n, ends[0]), np.full(n, ends[1])
    at_new, at_old = np.full(n, -level), np.full(n, 1 - level)
    share, closest = np.full(n, 0.5), PRECISION * (ends[1] - ends[0])
    for _ in range(MOST_STEPS):
        middle = new + share * (old - new)
        value = cdf(middle) - level
        same = (value >= 0) == (at_new >= 0)
        third, at_third = np.where(same, new, old), np.where(same, at_new, at_old)
        old, at_old = np.where(same, old, new), np.where(same, at_old, at_new)
        new, at_new = middle, value
        width = np.abs(old - new)
        if (width <= closest).all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            place = (new - old) / (third - old)
            height = (at_new - at_old) / (at_third - at_old)
            curve = at_new / (at_old - at_new) * at_third / (at_old - at_third)
            curve += (
                (third - new) / (old - new) * at_new / (at_third - at_new)
                * at_old / (at_third - at_old)
            )  # fmt: skip
            smooth = (height**2 < place) & ((1 - height) ** 2 < 1 - place) & np.isfinite(curve)
            least = np.minimum(0.5 * closest / width, 0.5)
        share = np.clip(np.where(smooth, curve, 0.5), least, 1 - least)
    return (new + old) / 2


def at_medoid(posterior: Posterior, data: Data, among: BoolArray | None = None) -> Posterior:
    """Take the draw, ``among`` some (chain, draw), of predictions nearest to the mean as point."""
    rows = data.X[:: max(1, len(data.X) // MEDOID_ROWS)].double().numpy(force=True)
    predictions = np.concatenate([*posterior.expectations(rows)])
    gap = ((predictions - predictions.mean(axis=0)) ** 2).reshape(len(predictions), -1).sum(axis=1)
    if among is not None:
        gap[~among.ravel()] = np.inf
    place = divmod(int(np.argmin(gap)), posterior.n_draws)
    return replace(posterior, point={name: value[place] for name, value in posterior.draws.items()})
