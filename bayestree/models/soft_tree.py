"""The soft tree: a Pyro model, and the same log-density as a pure function of its sites."""

import math
from dataclasses import dataclass, field, replace
from typing import get_args

import pyro
from pyro import poutine
from torch import Tensor

from bayestree import routing
from bayestree.models import likelihoods
from bayestree.models.leaves import Categorical, Leaf
from bayestree.models.likelihoods import Likelihood
from bayestree.models.priors import Prior, Priors
from bayestree.models.sites import Sites, Size
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
    leaf : Categorical or Gaussian
    likelihood : {"mixture", "mutual-information", "variance", "misclassification", "squared-error"}
        ``mixture`` is the proper likelihood. ``mutual-information`` and ``variance`` are
        objectives of the CPT paper with plug-in leaves (eq. 14, 16), the last two the losses that
        alternating optimisation descends. These four are stated as a factor: the model then has
        no leaf sites, and called without y it states where each row goes (``leaf_log_prob``) and
        nothing else.
    steepness : float
        Multiplies the log-odds of every split; ``math.inf`` is the deterministic tree.

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
    likelihood: Likelihood = "mixture"
    steepness: float = 1.0

    def __post_init__(self) -> None:
        known = get_args(Likelihood)
        if self.likelihood not in known:
            raise ValueError(f"likelihood must be one of {known}, got {self.likelihood!r}.")
        categorical = isinstance(self.leaf, Categorical)
        if self.likelihood in likelihoods.CLASSES and not categorical:
            raise ValueError(f"likelihood {self.likelihood!r} needs Categorical leaves.")
        if self.likelihood in likelihoods.VALUES and categorical:
            raise ValueError(f"likelihood {self.likelihood!r} needs Gaussian leaves.")
        if not self.steepness > 0:
            raise ValueError(f"steepness must be positive, got {self.steepness}.")
        if self.likelihood in likelihoods.DETERMINISTIC and self.steepness != math.inf:
            raise ValueError(
                f"likelihood {self.likelihood!r} is of the deterministic tree: it needs steepness "
                f"math.inf, got {self.steepness}."
            )

    def __call__(
        self,
        X: Tensor,
        y: Tensor | None = None,
        weights: Tensor | None = None,
        subsample_size: int | None = None,
    ) -> Tensor:
        """State the model.

        Parameters
        ----------
        X : Tensor, shape (n, d)
        y : Tensor, shape (n,), optional
            Class numbers (long) or real values; sampled where absent.
        weights : Tensor, shape (n,), optional
            Each row counts so many times.
        subsample_size : int, optional
            Rows drawn by the ``data`` plate, for minibatches.

        Returns
        -------
        Tensor
            The observations, or the log-probabilities of the leaves with plug-in leaves and no y.
        """
        sites = self.state_parameters(X.shape[-1], X)
        with pyro.plate("data", len(X), subsample_size=subsample_size, dim=-1) as rows:
            log_prob = self.leaf_log_probs(sites, X[rows])
            observed = None if y is None else y[rows]
            weight = X.new_ones(len(log_prob)) if weights is None else weights[rows]
            if self.likelihood == "mixture":
                with poutine.scale(scale=weight):
                    result: Tensor = pyro.sample(
                        "obs", self.leaf.observe(sites, log_prob), obs=observed
                    )
                return result
        if observed is None:
            return pyro.deterministic("leaf_log_prob", log_prob)
        scale = len(X) / len(log_prob)
        pyro.factor("obs", scale * self.objective(log_prob, observed, weight))
        return observed

    def state_parameters(self, n_features: int, like: Tensor) -> dict[str, Tensor]:
        """State the priors: sample the sites of the splits and, unless plug-in, of the leaves.

        Parameters
        ----------
        n_features : int
        like : Tensor
            Of the dtype and device that the values are to have.

        Returns
        -------
        dict of Tensor
            The sites that rows depend on: what ``leaf_log_probs`` and the leaves read.
        """
        size = self.size(n_features)
        sites = self.split.state(self.priors, size, like)
        if self.likelihood == "mixture":
            sites |= self.leaf.state(size.n_leaves, like)
        return sites

    def size(self, n_features: int) -> Size:
        """Lengths of the dimensions of the sites."""
        return Size(self.topology.n_nodes, self.split.n_experts, n_features, self.topology.n_leaves)

    def scores(self, sites: Sites, X: Tensor) -> Tensor:
        """Score of each row at each node, shape (n, V)."""
        return self.split.scores(sites, X)

    def leaf_log_probs(self, sites: Sites, X: Tensor) -> Tensor:
        """log P(leaf | x), shape (n, L)."""
        return routing.tree_log_probs(self.scores(sites, X), self.steepness, self.topology)

    def log_priors(self, sites: Sites) -> dict[str, Tensor]:
        """Log-density of each family of parameters, scalars.

        ``hyperplane`` has the intercepts, shrinkages and scales with it, ``weight`` the
        hyper-parameters of the gamma process; it is the density of the log-weights. ``leaf`` is
        absent where leaves are plug-in.
        """
        parts = self.split.log_priors(self.priors, sites)
        if self.likelihood == "mixture":
            parts["leaf"] = self.leaf.log_prob(sites)
        return parts

    def log_prior(self, sites: Sites) -> Tensor:
        """Log-density of the parameters, a scalar."""
        first, *others = self.log_priors(sites).values()
        return sum(others, start=first)

    def log_likelihood_rows(self, sites: Sites, X: Tensor, y: Tensor) -> Tensor:
        """log p(y_n | x_n) of each row, shape (n,), not weighted.

        Raises
        ------
        ValueError
            For plug-in leaves, whose objective is none of single rows.
        """
        if self.likelihood != "mixture":
            raise ValueError(
                f"likelihood {self.likelihood!r} is an objective of all rows together; single "
                "rows have a log-likelihood under 'mixture' only."
            )
        joint = self.leaf_log_probs(sites, X) + self.leaf.log_density(sites, y)
        return likelihoods.mixture(joint)

    def log_likelihood(
        self, sites: Sites, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Log-likelihood (or objective) of the rows, a scalar."""
        weight = X.new_ones(len(X)) if weights is None else weights
        if self.likelihood == "mixture":
            return self.log_likelihood_rows(sites, X, y) @ weight
        return self.objective(self.leaf_log_probs(sites, X), y, weight)

    def log_joint(
        self, sites: Sites, X: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Log-density of parameters and data: what ``poutine.trace`` of the model sums to."""
        return self.log_prior(sites) + self.log_likelihood(sites, X, y, weights)

    def collapsed(self) -> "SoftTree":
        """The same model with the scales of the hyperplanes integrated out."""
        return self.with_(
            priors=replace(self.priors, hyperplane=self.priors.hyperplane.collapsed())
        )

    @property
    def split_priors(self) -> tuple[Prior, ...]:
        """The priors in use: that on hyperplanes and, where experts have weights, that on these."""
        return (self.priors.hyperplane, *(self.priors.weight,) * self.split.weighted)

    def with_(self, **changes: object) -> "SoftTree":
        """The same model with other parts."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def objective(self, log_prob: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """What stands for the log-likelihood where leaves are plug-in, a scalar."""
        match self.likelihood:
            case "mutual-information":
                return likelihoods.mutual_information(log_prob, y, weight, self.leaf)
            case "misclassification":
                return likelihoods.misclassification(log_prob, y, weight, self.leaf)
            case "squared-error":
                return likelihoods.squared_error(log_prob, y, weight)
        return likelihoods.variance(log_prob, y, weight)
