"""The soft tree: a Pyro model, its log-density as a pure function of its sites, and prior draws."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import torch
from pyro import poutine
from torch import Tensor

from bayestree import routing
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.models import likelihoods
from bayestree.models.leaves import Categorical, Leaf
from bayestree.models.priors import Prior, Priors
from bayestree.models.sites import SITES, Sites, Size
from bayestree.models.splits import Polytope, Split
from bayestree.topology import Topology


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
        free; () without constraints. Growth, MAP and the package's own guides give the coefficients
        the signs that this needs (see ``bayestree.models.monotone``). The density of such
        coefficients is that of the model without constraints, up to a constant; Pyro, which
        samples the latter, ignores them.

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
        """Define the priors in Pyro: sample the sites of splits and, unless plug-in, leaves.

        The samples are on the dtype and device of ``like``.
        """
        size = self.size(n_features)
        sites = self.split.state(self.priors, size, like)
        if not self.likelihood.plug_in:
            sites |= self.leaf.state(size.n_leaves, like)
        return sites

    def size(self, n_features: int) -> Size:
        """Lengths of the dimensions of the sites."""
        topology, n_experts, leaf = self.topology, self.split.n_experts, self.leaf
        lengths = (topology.n_nodes, n_experts, n_features, topology.n_leaves)
        return Size(*lengths, leaf.n_classes, leaf.n_outputs)

    @property
    def dimensions(self) -> dict[str, tuple[str, ...]]:
        """Dimensions of every site that splits, priors and leaves can have."""
        return {name: site.dimensions for name, site in {**SITES, **self.leaf.sites}.items()}

    def shapes(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Shape of one draw of every site that splits, priors and leaves can have."""
        size = self.size(n_features)
        return {name: size.shape(dimensions) for name, dimensions in self.dimensions.items()}

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        """Score of each row at each node, shape (n, V)."""
        return self.split.scores(sites, X)

    def leaf_log_probs(self, sites: Sites, X: Tensor) -> Tensor:
        """log P(leaf | x), shape (n, L)."""
        return routing.tree_log_probs(self.scores(sites, X), self.steepness, self.topology)

    def log_priors(self, sites: Sites) -> dict[str, Tensor]:
        """Log-density of each group of parameters, scalars.

        ``hyperplane`` includes intercepts, shrinkages and scales; ``weight`` is the density of
        the log-weights and includes the hyperparameters of the gamma process. ``leaf`` is absent
        if leaves are plug-in.
        """
        parts = self.split.log_priors(self.priors, sites)
        if not self.likelihood.plug_in:
            parts["leaf"] = self.leaf.log_prob(sites)
        return parts

    def log_prior(self, sites: Sites) -> Tensor:
        """Log-density of the parameters, a scalar."""
        first, *others = self.log_priors(sites).values()
        return sum(others, start=first)

    def log_likelihood_rows(self, sites: Sites, X: Tensor, y: Tensor) -> Tensor:
        """log p(y_n | x_n) of each row without its weight, shape (n,).

        Raises ValueError if leaves are plug-in: their objective is not a sum over rows.
        """
        return self.likelihood.rows(self._joint(sites, X, y))

    def log_likelihood(
        self, sites: Sites, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Log-likelihood (or objective) of the rows, a scalar."""
        weight, y = X.new_ones(len(X)) if weights is None else weights, self.leaf.response(X, y)
        return self.likelihood.value(self._joint(sites, X, y), self.leaf, y, weight)

    def _joint(self, sites: Sites, X: Tensor, y: Tensor) -> Tensor:
        y = self.leaf.response(X, y)
        return self.likelihood.joint(self.leaf, sites, self.leaf_log_probs(sites, X), y)

    def log_joint(
        self, sites: Sites, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Log-density of parameters and data, equal to that of a ``poutine.trace`` of the model."""
        return self.log_prior(sites) + self.log_likelihood(sites, X, y, weights)

    def collapsed(self) -> "SoftTree":
        """The same model with the scales of the hyperplanes integrated out."""
        collapsed = self.priors.hyperplane.collapsed()
        return self.with_(priors=replace(self.priors, hyperplane=collapsed))

    @property
    def split_priors(self) -> tuple[Prior, ...]:
        """The priors in use: that on hyperplanes and, where experts have weights, that on these."""
        return (self.priors.hyperplane, *(self.priors.weight,) * self.split.weighted)

    def with_(self, **changes: object) -> "SoftTree":
        """A copy of the model with the given fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]


def sample_prior(
    model: SoftTree,
    n_features: int,
    n_draws: int,
    *,
    random_state: RandomState = None,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Independent draws (n_draws, ...) of every site from the prior, except ``weight``.

    Float32 underflows where the shapes of the priors are small.
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
        return _drawn_sites(model, n_features, n_draws, dtype)


def improper_priors(model: SoftTree) -> list[str]:
    """Names of the model's improper priors."""
    return [type(prior).__name__ for prior in model.split_priors if not prior.proper]


def site_names(model: SoftTree, n_features: int) -> set[str]:
    """Names of the sites that the log-density of the parameters reads."""
    with seeded(0):
        return set(_drawn_sites(model, n_features, 1, torch.float64))


def _drawn_sites(
    model: SoftTree, n_features: int, n_draws: int, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Values of all sites, with a plate of draws to the left of the model's plates."""
    # Pyro has no plates of size 0: the sites of a tree without a split are cut from a stump's.
    drawn = model if model.topology.n_nodes else model.with_(topology=Topology.stump())

    def draw() -> None:
        with pyro.plate("draw", n_draws, dim=-3):
            drawn.state_parameters(n_features, torch.empty(0, n_features, dtype=dtype))

    nodes: dict[str, Any] = poutine.trace(draw).get_trace().nodes
    lengths = {"node": model.topology.n_nodes, "leaf": model.topology.n_leaves}
    found, shapes = {}, drawn.shapes(n_features)
    for name, dims in drawn.dimensions.items():
        if name in nodes and not nodes[name]["infer"].get("_deterministic"):
            # plates that a site does not belong to are dimensions of length 1
            value = nodes[name]["value"].reshape(n_draws, *shapes[name])
            found[name] = value[:, : lengths[dims[0]]] if dims else value
    return found
