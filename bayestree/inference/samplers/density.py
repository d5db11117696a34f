"""The log-density of a soft tree on an unconstrained vector, with its gradient.

Samplers move in a vector of real numbers: ``log_weight``, ``hyperplane``, ``intercept`` and
``leaf_mean`` as they are, positive sites by their logarithms, class probabilities by their
log-ratios to the last class. The densities include the Jacobians. The scales of hyperplanes are
integrated out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from bayestree._utils.arrays import MIN_SCORE, FloatArray
from bayestree.inference.data import Data
from bayestree.models.leaves.base import LeafDistribution, LeafGradient, log_probabilities
from bayestree.models.soft_tree import SoftTree, declared_sites, site_names

Sites = dict[str, FloatArray]
MAX_EXPONENT = 50.0  # the activation above which its exponential is not needed


class Layout:
    """Positions of the sites of a model with collapsed scales in the vector.

    Sites that the prior on hyperplanes can draw given the others come last, from ``n_moving`` on;
    trajectories leave them unchanged.
    """

    def __init__(self, model: SoftTree, n_features: int) -> None:
        weight, hyperplane = model.priors.weight, model.priors.hyperplane
        names = ["hyperplane", "intercept", *model.leaf.sites, *hyperplane.sites]
        if model.split.weighted:
            names = [*weight.sites, "log_weight", *names]
        shapes = model.shapes(n_features)
        unknown = [name for name in names if name not in shapes]
        if unknown:
            raise ValueError(
                f"A sampler does not know the dimensions and supports of the sites {unknown} of "
                "the priors: declare each in the prior's attribute `sites`, as in "
                "{'NAME': bayestree.models.leaves.Site(('node', 'expert'), 'positive')}."
            )
        self.shapes = {name: shapes[name] for name in names}
        known = declared_sites(model)
        self.supports = {name: known[name].support for name in names}
        self.free_shapes = {
            name: (*shape[:-1], shape[-1] - 1) if self.supports[name] == "simplex" else shape
            for name, shape in self.shapes.items()
        }
        self.places: dict[str, slice] = {}
        start = 0
        for name, shape in self.free_shapes.items():
            stop = start + int(np.prod(shape))
            self.places[name] = slice(start, stop)
            start = stop
        self.length = start
        redrawn = hyperplane.sites if hyperplane.implements("redraw") else ()
        self.n_moving = min((self.places[name].start for name in redrawn), default=start)

    def free(self, vector: FloatArray) -> Sites:
        """View the vector (..., D) as unconstrained sites."""
        lead = vector.shape[:-1]
        return {
            name: vector[..., place].reshape((*lead, *self.free_shapes[name]))
            for name, place in self.places.items()
        }

    def sites(self, vector: FloatArray) -> Sites:
        """Return the constrained sites of vectors (..., D)."""
        sites = self.free(vector)
        for name, value in sites.items():
            if self.supports[name] == "positive":
                sites[name] = np.exp(value)
            elif self.supports[name] == "simplex":
                sites[name] = np.exp(log_probabilities(value))
        return sites

    def log_jacobian(self, vector: FloatArray) -> FloatArray:
        """Compute log |d sites / d vector| for vectors (..., D), shape (...)."""
        lead = vector.ndim - 1
        total = np.zeros(vector.shape[:-1])
        for name, value in self.free(vector).items():
            inner = tuple(range(lead, value.ndim))
            if self.supports[name] == "positive":
                total = total + value.sum(axis=inner)
            elif self.supports[name] == "simplex":
                total = total + log_probabilities(value).sum(axis=inner)
        return total

    def vector(self, sites: Mapping[str, Any]) -> FloatArray:
        """Invert :meth:`sites` for one draw."""
        parts = []
        for name, shape in self.shapes.items():
            if name not in sites or np.shape(sites[name]) != shape:
                found = f"shape {np.shape(sites[name])}" if name in sites else "none"
                raise ValueError(
                    f"The start needs a site {name!r} of shape {shape}, got {found}: it must be a "
                    "posterior of the same topology, split, priors, leaves and features."
                )
            value = np.asarray(sites[name], dtype=np.float64)
            positive = self.supports[name] != "real"
            if not (np.isfinite(value).all() and (not positive or (value > 0).all())):
                needed = "positive and finite" if positive else "finite"
                raise ValueError(f"Values of the start's site {name!r} must be {needed}.")
            parts.append(np.ravel(unconstrained(value, self.supports[name])))
        return np.concatenate(parts)


def unconstrained(value: FloatArray, support: str) -> FloatArray:
    """Return the coordinates of a site."""
    if support == "simplex":
        logs = np.log(value)
        value = logs[..., :-1] - logs[..., -1:]
    return np.log(value) if support == "positive" else value


def constrained(free: torch.Tensor, support: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a site from its coordinates, and the terms of its log-Jacobian."""
    if support == "simplex":
        logs = torch.log_softmax(torch.nn.functional.pad(free, (0, 1)), -1)
        return logs.exp(), logs
    return (free.exp(), free) if support == "positive" else (free, free.new_zeros(()))


def prior_excess(law: LeafDistribution, sites: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the log prior density of leaves (L,) less that under a posterior."""
    pairs = zip((law.prior or law).conditionals(sites), law.conditionals(sites), strict=True)
    each = [own.log_prob(sites[n]) - mine.log_prob(sites[n]) for (n, own), (_, mine) in pairs]
    return torch.as_tensor(sum(each))


class TorchDensity:
    """Log-density by automatic differentiation of ``SoftTree.log_joint``, for any priors."""

    def __init__(self, model: SoftTree, data: Data) -> None:
        self.model = model.collapsed()
        self.data = data.to(torch.empty(0, dtype=torch.float64))
        self.layout = Layout(self.model, data.X.shape[1])
        size = model.topology.n_nodes * model.split.n_experts * len(data.X)
        self.seconds = 1e-3 + 2e-8 * size  # approximate CPU time of a gradient

    def value(self, vector: FloatArray) -> float:
        with torch.no_grad():
            return float(self._value(torch.from_numpy(vector)))

    def value_and_gradient(self, vector: FloatArray) -> tuple[float, FloatArray]:
        free = torch.from_numpy(vector).requires_grad_()
        value = self._value(free)
        (gradient,) = torch.autograd.grad(value, free)
        return float(value.detach()), gradient.numpy()

    def _value(self, vector: torch.Tensor) -> torch.Tensor:
        sites: dict[str, torch.Tensor] = {}
        jacobian = vector.new_zeros(())
        for name, place in self.layout.places.items():
            part = vector[place].view(self.layout.free_shapes[name])
            sites[name], volume = constrained(part, self.layout.supports[name])
            jacobian = jacobian + volume.sum()
        return self.model.log_joint(sites, *self.data) + jacobian


class NumpyDensity:
    """The same log-density, up to a constant, with a hand-coded gradient.

    Arrays of nodes x experts x rows are written in place: allocating them for each gradient takes
    longer than the arithmetic. One density therefore serves one thread.
    """

    def __init__(self, model: SoftTree, data: Data) -> None:
        self._arguments = model, data
        self.model = model = model.collapsed()
        self.priors = model.split_priors
        self.layout = Layout(model, data.X.shape[1])
        X = data.X.numpy(force=True).astype(np.float64)
        # rows last, so that every pass is contiguous in memory
        self.columns = np.ascontiguousarray(np.concatenate([X, np.ones((len(X), 1))], axis=1).T)
        self.weights = data.weights.numpy(force=True).astype(np.float64)
        self.paths = np.concatenate(model.topology.turns.astype(np.float64))  # (2V, L)
        leaves = model.leaf.gradient
        assert leaves is not None
        response = data.for_leaf(model.leaf).y.numpy(force=True)
        self.leaves: LeafGradient = leaves(model.leaf, response)
        # Each call copies its vector to the first array and its gradient from the second.
        self._vectors = np.empty((2, self.layout.length))
        self._free, self._into = map(self.layout.free, self._vectors)
        shape = (model.topology.n_nodes, model.split.n_experts, len(X))
        self._activation, self._power, self._vote = np.empty((3, *shape))
        self._branch = np.empty((2, shape[0], shape[2]))
        self.seconds = 1e-4 + 5e-9 * self._vote.size  # approximate CPU time of a gradient
        # as an array, because the minimum with a scalar takes three times as long
        self._most = np.full(len(X), MAX_EXPONENT)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy needs views of its own arrays.
        return type(self), self._arguments

    @staticmethod
    def covers(model: SoftTree) -> bool:
        """Return whether the gradients of a model's priors and leaves are hand-coded."""
        written = all(prior.implements("set_gradient") for prior in model.split_priors)
        return written and model.leaf.gradient is not None

    def value(self, vector: FloatArray) -> float:
        self._vectors[0] = vector
        leaves = self.leaves.read(self._free)
        joint = self._route(leaves)[-1]
        top = joint.max(axis=0)
        row = top + np.log(np.exp(joint - top).sum(axis=0))
        return self._prior(leaves) + float(row @ self.weights)

    def value_and_gradient(self, vector: FloatArray) -> tuple[float, FloatArray]:
        self._vectors[0] = vector
        leaves = self.leaves.read(self._free)
        power, chance, joint = self._route(leaves)
        top = joint.max(axis=0)
        joint -= top
        member = np.exp(joint, out=joint)
        total = member.sum(axis=0)
        member *= self.weights / total
        value = self._prior(leaves) + float((top + np.log(total)) @ self.weights)
        self.leaves.gradient(leaves, member, self._into)
        for prior in self.priors:
            prior.set_gradient(self._free, self._into)
        self._routing_gradient(power, chance, self.paths @ member)
        return value, self._vectors[1].copy()

    def _prior(self, leaves: FloatArray) -> float:
        experts = self.model.split.n_experts
        split = sum(prior.log_density(self._free, experts) for prior in self.priors)
        return split + self.leaves.prior(leaves)

    def _route(self, leaves: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute P(right) / P(left), and P(right) at a steepness of 1 (V, n); log joint (L, n).

        Leaves softplus of the activations z in ``_vote`` and exp(z) in ``_power``, (V, K, n).
        """
        free, z, n = self._free, self._activation, len(self.weights)
        coefficient = np.concatenate([free["hyperplane"], free["intercept"][..., None]], axis=-1)
        width = coefficient.shape[-1]
        np.matmul(coefficient.reshape(-1, width), self.columns, out=z.reshape(-1, n))
        vote = self._softplus(z, self._power, self._vote)
        score = np.matmul(self._weight(free)[:, None], vote)[:, 0]
        score += MIN_SCORE
        chance = -np.expm1(-score)
        log_left, odds = self._branch
        np.add(score, np.log(chance, out=odds), out=odds)
        odds *= self.model.steepness
        power = score  # no longer needed
        minus = self._softplus(odds, power, log_left)  # minus log P(left)
        odds -= minus  # log P(right)
        np.negative(minus, out=log_left)
        joint = self.paths.T @ self._branch.reshape(-1, n)
        joint += self.leaves.log_density(leaves)
        return power, chance, joint

    def _softplus(self, z: FloatArray, power: FloatArray, out: FloatArray) -> FloatArray:
        """Compute log(1 + exp(z)), with exp(z), up to exp(MAX_EXPONENT), in ``power``."""
        np.exp(np.minimum(z, self._most, out=power), out=power)
        # in double precision, softplus(z) is z long before MAX_EXPONENT
        return np.maximum(z, np.log1p(power, out=out), out=out)

    def _weight(self, free: Sites) -> FloatArray:
        if self.model.split.weighted:
            return np.exp(free["log_weight"])
        return np.ones_like(free["intercept"])

    def _routing_gradient(self, power: FloatArray, chance: FloatArray, turned: FloatArray) -> None:
        """Add the gradient in weights and coefficients, after ``_route``.

        ``turned`` (2V, n) are the expected numbers of times that each row goes left and right. With
        q = P(right), the log joint has slope right - q (left + right) in the log-odds of q. These
        have slope steepness / (1 - exp(-s)) = steepness / chance in the score s = sum of r
        softplus(z).
        """
        left, slope = turned.reshape(2, *power.shape)
        left += slope
        left *= power
        power += 1.0
        left /= power
        slope -= left
        slope *= self.model.steepness
        slope /= chance
        weight, into = self._weight(self._free), self._into
        if self.model.split.weighted:
            into["log_weight"] += weight * np.matmul(self._vote, slope[..., None])[..., 0]
        # the slope of softplus is exp(z) / (1 + exp(z))
        step = np.add(self._power, 1.0, out=self._activation)
        np.divide(self._power, step, out=step)
        step *= slope[:, None]
        plane = (self.columns @ step.reshape(-1, step.shape[-1]).T).T.reshape(*weight.shape, -1)
        plane *= weight[..., None]
        into["hyperplane"] += plane[..., :-1]
        into["intercept"] += plane[..., -1]


TreeDensity = NumpyDensity | TorchDensity


def density_of(model: SoftTree, data: Data) -> TreeDensity:
    """Choose the fastest log-density for a model; ValueError if samplers cannot handle it."""
    model.likelihood.check_mixture("A sampler")
    weight, hyperplane = model.priors.weight, model.priors.hyperplane
    if model.split.weighted and not weight.proper:
        raise ValueError(f"A sampler needs proper priors on the weights, got {weight}.")
    n_features = data.X.shape[1]
    unknown = site_names(model.collapsed(), n_features) - set(Layout(model, n_features).shapes)
    if unknown:
        raise ValueError(
            f"A sampler does not know the sites {sorted(unknown)} of {hyperplane}: a prior must "
            "declare all sites other than hyperplane and intercept in its property 'sites'."
        )
    return (NumpyDensity if NumpyDensity.covers(model) else TorchDensity)(model, data)
