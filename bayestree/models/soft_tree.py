"""The soft tree: a Pyro model, its density, draws from its prior, and its constraints."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyro
import torch
from numpy.typing import NDArray
from pyro import poutine
from scipy.optimize import isotonic_regression
from torch import Tensor
from torch.nn.functional import pad

from bayestree import routing
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.models import likelihoods
from bayestree.models.leaves import Categorical, Leaf
from bayestree.models.priors import Prior, Priors
from bayestree.models.priors.base import SITES, Lengths, Site, Sites
from bayestree.models.splits import Polytope, Split
from bayestree.topology import Topology

MIN_SHARE = 1e-9  # of all rows: leaves without rows follow their neighbours


@dataclass(frozen=True)
class SoftTree:
    """Bayesian decision tree with soft routing; callable as a Pyro model.

    Parameters
    ----------
    topology : Topology
    split : Polytope, Oblique or Network
    priors : Priors
    leaf : Leaf
        For example ``Categorical`` or ``Gaussian``.
    likelihood : Likelihood or str
        ``"mixture"`` is the proper likelihood. ``"mutual-information"`` and ``"variance"`` are
        objectives of the CPT paper with plug-in leaves (eq. 14, 16); ``"misclassification"`` and
        ``"squared-error"`` are the losses that alternating optimisation minimises. These four
        enter the model as a factor: it then has no leaf sites, and without y it only computes
        where each row goes (``leaf_log_prob``). Leaves that regress on the features need
        ``"mixture"`` or, for classes, ``"misclassification"``.
    steepness : float
        Multiplies the log-odds of every split; ``math.inf`` is the deterministic tree.
    monotone : tuple of int
        For each feature 1 if predictions must rise with it, -1 if they must fall, and 0 if they are
        free; () without constraints. Growth, MAP and the package's own guide give the coefficients
        the signs that this needs (``MonotonicityConstraints``). The density of such
        coefficients equals the density without constraints, up to a constant; Pyro, which
        samples the latter, ignores them.
    groups : tuple of tuples of int
        Groups of features: each expert uses those of one group, () without such constraints.
        Growth chooses the groups of the experts, and all other coefficients are exactly 0: these
        are no part of the experts, and have no density: the density is that given the groups that
        growth has chosen. Pyro ignores the constraints.

    Examples
    --------
    >>> import pyro.infer, torch
    >>> from bayestree.models import Categorical, Polytope, SoftTree
    >>> from bayestree.topology import Topology
    >>> model = SoftTree(Topology.stump(), split=Polytope(5), leaf=Categorical(2))
    >>> X, y = torch.randn(100, 2), torch.randint(2, (100,))
    >>> guide = pyro.infer.autoguide.AutoNormal(model)
    >>> svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.01}),
    ...                      pyro.infer.Trace_ELBO())
    >>> loss = svi.step(X, y)
    """

    topology: Topology
    split: Split = field(default_factory=Polytope)
    priors: Priors = field(default_factory=Priors)
    leaf: Leaf = field(default_factory=lambda: Categorical(2))
    likelihood: likelihoods.Likelihood = likelihoods.LIKELIHOODS["mixture"]
    steepness: float = 1.0
    monotone: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        likelihood = likelihoods.resolve(self.likelihood)
        object.__setattr__(self, "likelihood", likelihood)
        likelihood.check_leaf(self.leaf)
        if not self.steepness > 0:
            raise ValueError(f"steepness must be positive, got {self.steepness}.")
        if likelihood.deterministic and self.steepness != math.inf:
            raise ValueError(
                f"likelihood {likelihood!r} is defined for the deterministic tree only: it needs "
                f"steepness math.inf, got {self.steepness}."
            )

    def __call__(
        self,
        X: Tensor,
        y: Tensor | None = None,
        weights: Tensor | None = None,
        subsample_size: int | None = None,
    ) -> Tensor:
        """Define the model in Pyro.

        Parameters
        ----------
        X : Tensor, shape (n, d)
        y : Tensor, shape (n,), optional
            Class numbers (long) or real values; sampled if absent.
        weights : Tensor, shape (n,), optional
            Number of times that each row counts.
        subsample_size : int, optional
            Number of rows that the ``data`` plate draws for a minibatch.

        Returns
        -------
        Tensor
            The observations, or the log-probabilities of the leaves with plug-in leaves and no y.
        """
        sites = self.state_parameters(X.shape[-1], X)
        plate = pyro.plate("data", len(X), subsample_size=subsample_size, dim=-1)
        with plate as rows:
            log_prob = self.leaf_log_probs(sites, X[rows])
        weight = X.new_ones(len(log_prob)) if weights is None else weights[rows]
        batch = likelihoods.Batch(log_prob, None if y is None else y[rows], weight, X[rows])
        return self.likelihood.state(self.leaf, sites, batch, plate)

    def state_parameters(self, n_features: int, like: Tensor) -> dict[str, Tensor]:
        """Sample the sites of splits and, unless plug-in, leaves in Pyro, as ``like``."""
        size = self.size(n_features)
        sites = self.split.state(self.priors, size, like)
        if not self.likelihood.plug_in:
            sites |= self.leaf.state(size.n_leaves, like)
        return sites

    def size(self, n_features: int) -> Lengths:
        """Return the lengths of the dimensions of the sites."""
        topology, n_experts, leaf = self.topology, self.split.n_experts, self.leaf
        lengths = (topology.n_nodes, n_experts, n_features, topology.n_leaves)
        return Lengths(*lengths, leaf.n_classes, leaf.n_outputs)

    @property
    def dimensions(self) -> dict[str, tuple[str, ...]]:
        """Dimensions of every site that splits, priors and leaves can have."""
        return {name: site.dimensions for name, site in declared_sites(self).items()}

    def shapes(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of one draw of every site that splits, priors and leaves can have."""
        size = self.size(n_features)
        return {name: size.shape(dimensions) for name, dimensions in self.dimensions.items()}

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        """Score of each row at each node, shape (n, V)."""
        return self.split.scores(sites, X)

    def leaf_log_probs(self, sites: Sites, X: Tensor) -> Tensor:
        """log P(leaf | x), shape (n, L)."""
        return routing.tree_log_probs(self.scores(sites, X), self.steepness, self.topology)

    def log_priors(self, sites: Sites) -> dict[str, Tensor]:
        """Return the log-density of each group of parameters, scalars.

        ``hyperplane`` includes intercepts, shrinkages and scales; ``weight`` is the density of
        the log-weights and includes the hyperparameters of the gamma process. ``leaf`` is absent
        if leaves are plug-in.
        """
        parts = self.split.log_priors(self.priors, sites)
        if self.groups:
            absent = self.priors.hyperplane.absent_log_prob(sites)
            parts["hyperplane"] = parts["hyperplane"] - absent
        if not self.likelihood.plug_in:
            parts["leaf"] = self.leaf.log_prob(sites)
        return parts

    def log_prior(self, sites: Sites) -> Tensor:
        """Return the log-density of the parameters, a scalar."""
        first, *others = self.log_priors(sites).values()
        return sum(others, start=first)

    def log_likelihood_rows(self, sites: Sites, X: Tensor, y: Tensor) -> Tensor:
        """Return log p(y_n | x_n) of each row without its weight, shape (n,).

        Raises ValueError if leaves are plug-in: their objective is not a sum over rows.
        """
        return self.likelihood.rows(self._joint(sites, X, y))

    def log_likelihood(
        self, sites: Sites, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return the log-likelihood (or objective) of the rows, a scalar."""
        weight, y = X.new_ones(len(X)) if weights is None else weights, self.leaf.response(X, y)
        return self.likelihood.value(self._joint(sites, X, y), self.leaf, y, weight)

    def _joint(self, sites: Sites, X: Tensor, y: Tensor) -> Tensor:
        y = self.leaf.response(X, y)
        return self.likelihood.joint(self.leaf, sites, self.leaf_log_probs(sites, X), y)

    def log_joint(
        self, sites: Sites, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return the log-density of parameters and data, equal to a ``poutine.trace``."""
        return self.log_prior(sites) + self.log_likelihood(sites, X, y, weights)

    def collapsed(self) -> "SoftTree":
        """Return the same model with the scales of the hyperplanes integrated out."""
        collapsed = self.priors.hyperplane.collapsed()
        return self.with_(priors=replace(self.priors, hyperplane=collapsed))

    @property
    def split_priors(self) -> tuple[Prior, ...]:
        """The priors in use: that on hyperplanes and, where experts have weights, that on these."""
        return (self.priors.hyperplane, *(self.priors.weight,) * self.split.weighted)

    def with_(self, **changes: object) -> "SoftTree":
        """Return a copy of the model with the given fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def among(self, features: NDArray[np.bool_]) -> "SoftTree":
        """Return the same model of some features, a mask (d,)."""
        place = np.cumsum(features) - 1
        kept = (tuple(int(place[j]) for j in own if features[j]) for own in self.groups)
        monotone = np.array(self.monotone)[features].tolist() if self.monotone else ()
        priors = replace(self.priors, hyperplane=self.priors.hyperplane.among(features))
        groups, leaf = tuple(filter(None, kept)), self.leaf.among(features)
        return self.with_(monotone=tuple(monotone), groups=groups, priors=priors, leaf=leaf)


def declared_sites(model: SoftTree) -> dict[str, Site]:
    """Return every site that splits, priors and leaves can have."""
    found = dict(SITES)
    for prior in model.split_priors:
        if isinstance(prior.sites, Mapping):  # names alone, as in version 0.1, are among SITES
            found |= prior.sites
    return {**found, **model.leaf.sites}


def sample_prior(
    model: SoftTree, n_features: int, n_draws: int, *, random_state: RandomState = None
) -> dict[str, Tensor]:
    """Draw every site but ``weight`` independently from the prior, (n_draws, ...).

    If experts are constrained to groups of features, each is as probable.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws must be 1 or more, got {n_draws}.")
    improper = improper_priors(model)
    if improper:
        raise ValueError(
            f"there are no draws from improper priors: {', '.join(improper)}; give the model "
            "GammaProcess weights and InverseGammaScale hyperplanes, or Laplace ones with an "
            "intercept_scale."
        )
    with seeded(draw_seed(random_state)), torch.no_grad():
        found = _drawn_sites(model, n_features, n_draws)
        if model.groups:
            plane = found["hyperplane"]
            group = torch.randint(len(model.groups), plane.shape[:-1])
            found["hyperplane"] = plane * group_masks(model.groups, plane)[group]
        return found


def support_of(model: SoftTree, coefficient: Tensor) -> Tensor | None:
    """Mark the coefficients (V, K, d + 1) that experts have; None if these have all.

    With groups of features, those of a start that are not 0, and all intercepts.
    """
    if not model.groups:
        return None
    found = coefficient != 0
    found[..., -1] = True
    return found


def group_masks(groups: tuple[tuple[int, ...], ...], like: Tensor) -> Tensor:
    """Return 1 for the features of each group and 0 for others, (G, d), as ``like`` (..., d)."""
    masks = like.new_zeros(len(groups), like.shape[-1])
    for mask, own in zip(masks, groups, strict=True):
        mask[[*own]] = 1.0
    return masks


def improper_priors(model: SoftTree) -> list[str]:
    """Return the names of the model's improper priors."""
    return [type(prior).__name__ for prior in model.split_priors if not prior.proper]


def site_names(model: SoftTree, n_features: int) -> set[str]:
    """Return the names of the sites that the log-density of the parameters reads."""
    with seeded(0):
        return set(_drawn_sites(model, n_features, 1))


def _drawn_sites(model: SoftTree, n_features: int, n_draws: int) -> dict[str, Tensor]:
    """Draw all sites, with a plate of draws to the left of the model's plates."""
    # Pyro has no plates of size 0: the sites of a tree without a split are cut from a stump's.
    drawn = model if model.topology.n_nodes else model.with_(topology=Topology.stump())

    def draw() -> None:
        with pyro.plate("draw", n_draws, dim=-3):
            drawn.state_parameters(n_features, torch.empty(0, n_features, dtype=torch.float64))

    nodes: dict[str, Any] = poutine.trace(draw).get_trace().nodes
    lengths = {"node": model.topology.n_nodes, "leaf": model.topology.n_leaves}
    found, shapes = {}, drawn.shapes(n_features)
    for name, dims in drawn.dimensions.items():
        if name in nodes and not nodes[name]["infer"].get("_deterministic"):
            # plates that a site does not belong to are dimensions of length 1
            value = nodes[name]["value"].reshape(n_draws, *shapes[name])
            found[name] = value[:, : lengths[dims[0]]] if dims else value
    return found


@dataclass(frozen=True)
class MonotonicityConstraints:
    """What the constraints of a model demand of the coefficients and leaves of a tree.

    A split with q = P(right), and predictions L and R on its sides, predicts
    f = (1 - q) L + q R, so

        df / dx_j  =  dq / dx_j (R - L)  +  (1 - q) dL / dx_j  +  q dR / dx_j.

    f rises in x_j if L and R do, and if q rises and L <= R, or q falls and L >= R. The noisy-OR q
    rises if no expert has a negative coefficient of x_j, and falls if none has a positive one.
    Every node has a side of larger predictions, which determines these signs. All leaves on this
    side must be at least as large as all on the other: a total order of the leaves.

    A coefficient with such a sign is a *fold* of a free one, sign |b|. A symmetric prior of b
    becomes twice its density on one half of the line: the log joint changes by a constant.
    """

    #: Sign of the coefficients of each feature at each node; 0 where they are free, as intercepts
    #: are, (V, 1, d + 1).
    signs: Tensor
    order: IntArray  # the leaves, from the smallest prediction to the largest, (L,)

    @classmethod
    def of(cls, model: SoftTree, hyperplane: Tensor) -> "MonotonicityConstraints | None":
        """Derive what a tree with coefficients (V, K, d) must satisfy; None without constraints."""
        if not any(model.monotone):
            return None
        rises = hyperplane.new_tensor(model.monotone)
        total = (hyperplane * rises).sum((1, 2)).numpy(force=True)
        side = hyperplane.new_tensor(np.where(total < 0, -1.0, 1.0))
        signs = pad(side.view(-1, 1, 1) * rises, (0, 1))
        return cls(signs, leaf_order(model.topology, total))

    def fold(self, coefficient: Tensor) -> Tensor:
        """Fold free coefficients (V, K, d + 1), so that they have their signs."""
        return torch.where(self.signs == 0, coefficient, self.signs * coefficient.abs())

    def folded_mean(self, mean: Tensor, scale: Tensor) -> Tensor:
        """Return the means of the folds of normal coefficients, shape (V, K, d + 1).

        E|b| = m erf(m / (s sqrt 2)) + s sqrt(2 / pi) exp(-m^2 / (2 s^2)).
        """
        ratio = mean / (scale * 2**0.5)
        size = mean * torch.erf(ratio) + scale * (2 / torch.pi) ** 0.5 * torch.exp(-(ratio**2))
        return torch.where(self.signs == 0, mean, self.signs * size)

    def pooled(self, leaf: Leaf, sums: Tensor) -> Tensor:
        """Pool sums (L, c) of the statistics of leaves that are out of order.

        Such leaves share their rows in proportion to their masses: the maximum of the likelihood
        over leaves in this order.
        """
        mass, mean = (each.numpy(force=True).astype(np.float64) for each in leaf.level(sums))
        mean = np.nan_to_num(mean)  # of leaves without rows
        fitted = isotonic(mean, mass, self.order)[self.order]
        if (fitted == mean[self.order]).all():
            return sums
        block = torch.as_tensor(np.cumsum(np.diff(fitted, prepend=fitted[0]) != 0))
        same = (block[:, None] == block).to(sums)
        share = same * torch.as_tensor(mass[self.order]).to(sums)
        share = share / share.sum(1, keepdim=True).clamp_min(torch.finfo(sums.dtype).tiny)
        found = torch.empty_like(sums)
        found[self.order] = share.mT @ sums[self.order]
        return found


def leaf_order(topology: Topology, total: FloatArray) -> IntArray:
    """Sort the leaves from the smallest prediction to the largest.

    Of each node, ``total`` (V,) is the sum of the constrained coefficients times their directions:
    below 0 where predictions are larger on the left.
    """
    children = topology.children
    mirrored = Topology(np.where(total[:, None] < 0, children[:, ::-1], children))
    return np.argsort(mirrored.left_to_right[0])


def isotonic(values: NDArray[Any], mass: FloatArray, order: IntArray) -> NDArray[Any]:
    """Find the nearest predictions (..., L) in this order, weighted by masses (L,).

    Of posterior draws, this is the projection of Lin and Dunson, "Bayesian monotone regression
    using Gaussian process projection" (2014).
    """
    weights = np.maximum(mass, max(MIN_SHARE * mass.sum(), np.finfo(np.float64).tiny))[order]
    found = values.copy()
    for one, own in zip(found.reshape(-1, len(order)), values.reshape(-1, len(order)), strict=True):
        one[order] = isotonic_regression(own[order], weights=weights).x
    return found
