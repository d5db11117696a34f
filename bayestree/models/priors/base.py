"""The interface of priors, and the names, dimensions and supports of sites.

Site names are a contract: the Pyro model, the posterior, its files and ArviZ all use them.

``state`` samples the sites inside the Pyro model; ``log_prob`` is the same density as a pure
function of tensors. MAP, EM and Pyro's own inference need nothing else. The other methods are
closed forms, used where a prior has them (:meth:`Prior.implements`): NUTS then needs no automatic
differentiation, the polytope guide no draws, and single experts can be proposed from the prior.

The NumPy methods take *free* sites: positive sites by their logarithms, all others as they are.
Their densities include the Jacobian and omit constants; see docs/concepts/priors.md.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyro
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from bayestree._utils.arrays import BoolArray, FloatArray, gauss_hermite
from bayestree.distributions import Constant, LogGamma

LOG_2PI = math.log(2 * math.pi)
N_HERMITE = 32  # nodes of an expected log-density without a closed form

Sites = Mapping[str, Tensor]
FreeSites = dict[str, FloatArray]

#: Shape and rate of the gamma hyper-prior of each hyperparameter that is sampled.
HyperPriors = Mapping[str, tuple[float, float]]


class Site(NamedTuple):
    """Dimensions of a site, for its shape and its coordinates in ArviZ, and its support."""

    dimensions: tuple[str, ...]
    support: Literal["real", "positive", "simplex"] = "real"


#: The sites of the splits and priors of the package.
SITES: dict[str, Site] = {
    "concentration": Site((), "positive"),
    "rate": Site((), "positive"),
    "log_weight": Site(("node", "expert")),
    "weight": Site(("node", "expert"), "positive"),
    "hyperplane": Site(("node", "expert", "feature")),
    "intercept": Site(("node", "expert")),
    "hyperplane_scale": Site(("node", "expert", "feature"), "positive"),
    "intercept_scale": Site(("node", "expert"), "positive"),
    "shrinkage": Site(("node", "expert"), "positive"),
}


class Lengths(NamedTuple):
    """Lengths of the dimensions of a tree's sites; ``n_classes`` is 0 for numeric leaves."""

    n_nodes: int
    n_experts: int
    n_features: int
    n_leaves: int
    n_classes: int = 0
    n_outputs: int = 1

    def shape(self, dimensions: tuple[str, ...]) -> tuple[int, ...]:
        """Return the shape of one draw of a site with these dimensions."""
        names = ("node", "expert", "feature", "leaf", "class", "output")
        lengths = dict(zip(names, self, strict=True))
        return tuple(lengths[dimension] for dimension in dimensions)


class Plates(NamedTuple):
    """The plates of the sites of the experts, shared by both priors."""

    node: pyro.plate
    expert: pyro.plate

    @classmethod
    def of(cls, size: Lengths) -> "Plates":
        """Return the plates of a tree."""
        return cls(
            pyro.plate("node", size.n_nodes, dim=-2), pyro.plate("expert", size.n_experts, dim=-1)
        )


class Moments(NamedTuple):
    """Means and covariances of normal coefficients, the intercept of each expert last."""

    mean: Tensor  # (V, K, d + 1)
    variance: Tensor  # (V, K, d + 1)
    #: (V, K, d + 1, r): the covariance of an expert's coefficients is root @ root.T; None where
    #: they are independent.
    root: Tensor | None = None

    @property
    def square(self) -> Tensor:
        """Second moments of the coefficients, shape (V, K, d + 1)."""
        return torch.addcmul(self.variance, self.mean, self.mean)


class Prior(ABC):
    """Base of the priors on weights and on hyperplanes."""

    def __str__(self) -> str:
        """Write the prior as Python does, without fields that have their defaults."""
        known: Any = fields(self) if is_dataclass(self) else ()
        given = {one.name: getattr(self, one.name) for one in known}
        changed = [f"{f.name}={given[f.name]!r}" for f in known if given[f.name] != f.default]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def hyper_priors(self) -> HyperPriors:
        """Shape and rate of the gamma hyper-priors in use, by hyperparameter."""
        return {}

    def fixed(self) -> Self:
        """Return the same prior without hyper-priors, at the values of its hyperparameters."""
        return self

    @property
    def proper(self) -> bool:
        """Whether the prior is a distribution, from which values can be drawn."""
        return True

    @property
    def sites(self) -> Mapping[str, Site]:
        """The prior's additional sites, other than the weights or coefficients."""
        return {}

    @abstractmethod
    def log_prob(self, sites: Sites) -> Tensor:
        """Return the log-density of the sites, a scalar."""

    def implements(self, method: str) -> bool:
        """Return whether a closed form exists for this density.

        A method inherited from a class above the one that defines the density (``log_prob``,
        ``laws`` or ``state``) belongs to another density.
        """
        method_owner, density_owner = (
            next((kind for kind in type(self).__mro__ if names & vars(kind).keys()), object)
            for names in ({method}, {"log_prob", "laws", "state"})
        )
        return issubclass(method_owner, density_owner)

    # Closed forms.

    def log_density(self, free: FreeSites, n_experts: int) -> float:
        """Return the log-density of the free sites of all experts, or of some at a node."""
        raise NotImplementedError

    def expert_log_density(self, free: FreeSites, n_experts: int) -> FloatArray:
        """Return the log-density of each expert, shaped as its intercept, up to a constant."""
        raise NotImplementedError

    def set_gradient(self, free: FreeSites, into: FreeSites) -> None:
        """Write the gradient of :meth:`log_density` for all experts."""
        raise NotImplementedError

    def draw_expert(self, free: FreeSites, expert: Any, rng: np.random.Generator) -> None:
        """Replace experts by draws from the prior, in place.

        ``expert`` is an index of arrays whose last dimension is the K experts of a node, such as
        (node, expert), or ``...`` for all.
        """
        raise NotImplementedError


class WeightPrior(Prior):
    """Base of the priors on the log-weights of the experts."""

    @abstractmethod
    def state(self, size: Lengths, like: Tensor, plates: Plates) -> Tensor:
        """Sample the site ``log_weight`` [node, expert] on the dtype and device of ``like``."""

    def law(self, n_experts: int, like: Tensor, sites: Sites | None = None) -> LogGamma:
        """Return the distribution of one log-weight, given the hyper-parameters among ``sites``."""
        raise NotImplementedError


class HyperplanePrior(Prior):
    """Base of the priors on the hyperplanes and intercepts of the experts."""

    #: Whether coefficients depend on each other across features, so that none may be left out.
    couples_features: ClassVar[bool] = False

    @property
    def differentiable(self) -> bool:
        """Whether the log-density has a gradient almost everywhere."""
        return True

    @property
    def expects(self) -> bool:
        """Whether the mean of the log-density is known, which the package's own guide needs."""
        own = type(self).factors is not HyperplanePrior.factors
        return own or self.implements("expected_log_prob")

    @property
    def shrinkage_settings(self) -> dict[str, Any]:
        """Arguments by which ``diagnostics.node_shrinkage`` computes the prior's precision."""
        return {}

    @abstractmethod
    def state(self, size: Lengths, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        """Sample the sites ``hyperplane`` and ``intercept`` and return them."""

    def among(self, features: BoolArray) -> "HyperplanePrior":
        """Return the same prior on the coefficients of some features, a mask (d,)."""
        return self

    def collapsed(self) -> "HyperplanePrior":
        """Return the same prior on the coefficients with as few sites as possible."""
        return self

    def explicit(self) -> "HyperplanePrior":
        """Return the same prior on the coefficients with all sites that a guide has."""
        return self

    def prior_means(self, intercept: Tensor) -> dict[str, Tensor]:
        """Return the additional sites at their prior means, for point estimates."""
        return {}

    def slope(self, hyperplane: Tensor) -> Tensor:
        """Return the slope in coefficients (..., K, d), other sites at their prior means."""
        raise NotImplementedError

    def slope_or_derivative(self, hyperplane: Tensor) -> Tensor:
        """Return :meth:`slope` or, without this closed form, differentiate automatically."""
        if self.implements("slope"):
            return self.slope(hyperplane)
        with torch.enable_grad():
            value = hyperplane.detach().requires_grad_()
            intercept = value.new_zeros(value.shape[:-1])
            sites = {"hyperplane": value, "intercept": intercept, **self.prior_means(intercept)}
            density = self.log_prob(sites)
            if not density.requires_grad:  # a constant
                return torch.zeros_like(hyperplane)
            return torch.autograd.grad(density, value)[0]

    def absent_log_prob(self, sites: Sites) -> Tensor:
        """Return the part of ``log_prob`` of coefficients that are exactly 0, a scalar.

        Without it, ``log_prob`` is the density of experts that do not have these coefficients.
        """
        raise NotImplementedError

    def redraw(self, free: FreeSites, rng: np.random.Generator) -> None:
        """Draw the additional sites given the coefficients, in place."""
        raise NotImplementedError

    def rescale(self, free: FreeSites, expert: tuple[int, int], length: float) -> None:
        """Let the other sites follow coefficients scaled by exp(length), at equal volume."""

    def draw_precision(self, free: FreeSites, rng: np.random.Generator) -> FloatArray:
        """Draw 1 / sigma^2 of each coefficient given all sites, shape (..., d + 1)."""
        raise NotImplementedError

    def precision(self, free: FreeSites) -> FloatArray:
        """Return the curvature of minus the log-density at coefficients of 0, (..., d + 1)."""
        raise NotImplementedError

    def expected_log_prob(self, moments: Moments) -> Tensor:
        """Return the mean of the log-density under normal coefficients, a scalar."""
        raise NotImplementedError

    def factors(
        self, intercept: Tensor, width: int, support: Tensor | None = None
    ) -> "ScaleFactors | None":
        """Return variational factors of the additional sites, or None if E log p is not known.

        ``support`` marks the coefficients (V, K, ``width``) that experts have, by default all;
        the moments of others are 0.
        """
        return ScaleFactors(self, intercept) if self.implements("expected_log_prob") else None


class IndependentPrior(HyperplanePrior):
    """Base of the priors under which all coefficients are independent."""

    @abstractmethod
    def laws(self, like: Tensor) -> tuple[TorchDistribution, TorchDistribution]:
        """Return the laws of one coefficient and one intercept, on the dtype of ``like``."""

    def state(self, size: Lengths, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        coefficient, offset = self.laws(like)
        shape = torch.Size((size.n_nodes, size.n_experts, size.n_features))
        with plates.node, plates.expert:
            hyperplane = pyro.sample("hyperplane", coefficient.expand(shape).to_event(1))
            intercept = pyro.sample("intercept", offset)
        return hyperplane, intercept

    def log_prob(self, sites: Sites) -> Tensor:
        coefficient, offset = self.laws(sites["intercept"])
        total = coefficient.log_prob(sites["hyperplane"]).sum()
        return total + offset.log_prob(sites["intercept"]).sum()

    def implements(self, method: str) -> bool:
        kind, base = type(self), IndependentPrior
        own = kind.expected_log_prob is base.expected_log_prob and kind.log_prob is base.log_prob
        return (own and method == "expected_log_prob") or super().implements(method)

    def expected_log_prob(self, moments: Moments) -> Tensor:
        """Return the mean of the log-density by quadrature, which any laws have."""
        node, weight = (moments.mean.new_tensor(part) for part in gauss_hermite(N_HERMITE))
        away = node.view(-1, 1, 1, 1) * moments.variance.sqrt()
        values = moments.mean + away  # (M, V, K, d + 1)
        coefficient, offset = self.laws(moments.mean)
        total = coefficient.log_prob(values[..., :-1]).sum((1, 2, 3))
        return weight @ (total + offset.log_prob(values[..., -1]).sum((1, 2)))


class PenaltyPrior(HyperplanePrior):
    """Base of the improper priors that are penalties on flat coefficients."""

    proper: ClassVar[bool] = False

    def state(self, size: Lengths, like: Tensor, plates: Plates) -> tuple[Tensor, Tensor]:
        wide = Constant(like, torch.Size((size.n_nodes, size.n_experts, size.n_features)))
        with plates.node, plates.expert:
            hyperplane = pyro.sample("hyperplane", wide.to_event(1))
            intercept = pyro.sample("intercept", Constant(like))
        pyro.factor("hyperplane_penalty", self.log_prob({"hyperplane": hyperplane}))
        return hyperplane, intercept


class ScaleFactors(nn.Module):
    """Variational factors of a prior's additional sites; here, of a prior that has none."""

    def __init__(self, prior: HyperplanePrior, intercept: Tensor) -> None:
        super().__init__()
        self.prior = prior
        self.zero = intercept.new_zeros(())

    def expected_log_prior(self, moments: Moments) -> Tensor:
        """Return E log p of all sites plus the entropies of the others, scalar or per expert."""
        return self.prior.expected_log_prob(moments)

    def refresh(self, moments: Moments) -> None:
        """Move the factors towards their optimum given the coefficients."""

    def state(self, moments: Moments) -> None:
        """Sample the additional sites in Pyro, inside the plates."""

    def sample(self) -> dict[str, Tensor]:
        """Draw the additional sites, without scales, which are integrated out."""
        return {}

    def log_prob(self, sites: Sites) -> Tensor:
        """Return the log-density of such a draw, a scalar."""
        return self.zero

    def point(self) -> dict[str, Tensor]:
        """Return the means of the additional sites."""
        return {}


def check_positive(**values: float) -> None:
    """Raise ValueError if a number is not positive and finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}.")
