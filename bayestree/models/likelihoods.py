"""Likelihoods: how a soft tree is compared with y.

Those of a deterministic tree have a rule for its optimal leaves, for alternating optimisation.
"""

from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import pyro
import torch
from pyro import poutine
from torch import Tensor

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree.models.leaves import Leaf, Logistic
from bayestree.models.priors.base import Sites

Rows = tuple[AnyArray, AnyArray, FloatArray]  # X (n, d), y (a response of the leaf), weights (n,)


class LeafRule(Protocol):
    """Optimal leaves for given rows; ``values`` holds the parameters of each leaf."""

    def start(self, n_leaves: int) -> AnyArray:
        """Return initial values: the best of a single leaf."""

    def fit(self, values: AnyArray, leaf: IntArray) -> AnyArray:
        """Return the best values given the leaf (n,) of each row; empty leaves keep theirs."""

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        """Return the unweighted loss of each of ``rows`` in the corresponding entry of ``leaf``."""

    def penalty(self, values: AnyArray) -> float:
        """Return the penalty of the leaves in the objective."""
        return 0.0


class MajorityRule(LeafRule):
    """The class of largest weight, under 0/1 loss; on ties a leaf keeps its class."""

    def __init__(self, y: IntArray, weights: FloatArray, n_classes: int) -> None:
        self.y, self.weights, self.n_classes = y, weights, n_classes

    def start(self, n_leaves: int) -> IntArray:
        majority = np.bincount(self.y, self.weights, self.n_classes).argmax()
        return np.full(n_leaves, majority, dtype=np.int64)

    def fit(self, values: AnyArray, leaf: IntArray) -> IntArray:
        cell = leaf * self.n_classes + self.y
        counts = np.bincount(cell, self.weights, len(values) * self.n_classes)
        counts = counts.reshape(len(values), self.n_classes)
        current = counts[np.arange(len(values)), values]
        return np.where(counts.max(axis=1) > current, counts.argmax(axis=1), values)

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        return (values[leaf] != self.y[rows]).astype(np.float64)


class LogisticRule(LeafRule):
    """A logistic regression in every leaf, under the 0/1 loss of its most probable class.

    ``values`` (L, C, 1 + d) are posterior means of the coefficients, the intercept of a class
    first. ``y`` (n, 1 + d) is a response of ``leaf``.
    """

    def __init__(self, leaf: Logistic, y: FloatArray, weights: FloatArray) -> None:
        self.leaf, self.y = leaf, y[:, 0]
        self.row = np.column_stack((np.ones(len(y)), y[:, 1:]))
        self.statistics = leaf.statistics(torch.as_tensor(y), torch.as_tensor(weights))

    def start(self, n_leaves: int) -> FloatArray:
        one = self.leaf.posterior(self.statistics.sum(0, keepdim=True)).loc.numpy()
        return np.repeat(one, n_leaves, axis=0)

    def fit(self, values: AnyArray, leaf: IntArray) -> FloatArray:
        sums = self.statistics.new_zeros(len(values), self.statistics.shape[1])
        sums.index_add_(0, torch.as_tensor(leaf), self.statistics)
        empty = np.bincount(leaf, minlength=len(values)) == 0
        return np.where(empty[:, None, None], values, self.leaf.posterior(sums).loc.numpy())

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        scores = np.einsum("nd,ncd->nc", self.row[rows], values[leaf])
        return (scores.argmax(axis=1) != self.y[rows]).astype(np.float64)


class MeanRule(LeafRule):
    """The mean of y, under squared loss."""

    def __init__(self, y: FloatArray, weights: FloatArray) -> None:
        self.y, self.weights = y, weights

    def start(self, n_leaves: int) -> FloatArray:
        return np.full(n_leaves, np.average(self.y, weights=self.weights))

    def fit(self, values: AnyArray, leaf: IntArray) -> FloatArray:
        mass = np.bincount(leaf, self.weights, len(values))
        total = np.bincount(leaf, self.weights * self.y, len(values))
        return np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), values)

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        return (self.y[rows] - values[leaf]) ** 2


class LinearRule(LeafRule):
    """Ridge regression in every leaf, under squared loss plus ``ridge`` |slope|^2.

    ``values`` has d + 1 columns: the slopes, and the prediction where all features are 0.

    ``ridge`` is positive and in units of the loss, for features on the scale of ``X``.
    """

    def __init__(self, X: AnyArray, y: FloatArray, weights: FloatArray, ridge: float) -> None:
        self.X, self.y, self.weights, self.ridge = X, y, weights, ridge

    def start(self, n_leaves: int) -> FloatArray:
        values = np.zeros((n_leaves, self.X.shape[1] + 1))
        values[:, -1] = np.average(self.y, weights=self.weights)
        return values

    def fit(self, values: AnyArray, leaf: IntArray) -> FloatArray:
        from sklearn.linear_model import Ridge  # noqa: PLC0415 - slow to import

        found = values.copy()
        for number in np.unique(leaf):
            rows = leaf == number
            best = Ridge(self.ridge).fit(self.X[rows], self.y[rows], self.weights[rows])
            found[number] = np.append(best.coef_, best.intercept_)
        return found

    def loss(self, values: AnyArray, leaf: IntArray, rows: IntArray) -> FloatArray:
        slopes = values[leaf, :-1]
        guess = np.einsum("ij,ij->i", self.X[rows], slopes) + values[leaf, -1]
        return (self.y[rows] - guess) ** 2

    def penalty(self, values: AnyArray) -> float:
        return float(self.ridge * (values[:, :-1] ** 2).sum())


class Batch(NamedTuple):
    """Rows of the Pyro model: log P(leaf | x), shape (n, L), y if observed, weights (n,) and X."""

    log_prob: Tensor
    y: Tensor | None
    weights: Tensor
    X: Tensor


class Likelihood(str):
    """Base class of likelihoods; its own methods suit objectives with plug-in leaves.

    A likelihood is also the string that names it in arguments, model files and reports, so that
    ``model.likelihood == "mixture"`` holds. It is a function of ``joint`` (n, L), the log of the
    contribution of each leaf to each row.
    """

    #: Whether leaves follow from the routing of the rows. They are then not parameters of the
    #: model, and there is no distribution of y.
    plug_in: ClassVar[bool] = True
    #: Whether it is a sum over rows, so that it can be evaluated in parts and for single rows.
    additive: ClassVar[bool] = False
    deterministic: ClassVar[bool] = False  # whether it is defined for the deterministic tree only
    leaf_kind: ClassVar[Literal["any", "class", "number"]] = "any"  # what y has to be
    regresses: ClassVar[bool] = False  # whether leaves may regress on the features

    def __eq__(self, other: object) -> bool:
        """Return whether the other is the same likelihood, or its name."""
        if isinstance(other, Likelihood) and type(other) is not type(self):
            return False
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        """Return the opposite of equality; ``str`` has its own."""
        return not self == other

    __hash__ = str.__hash__

    def check_leaf(self, leaf: Leaf) -> None:
        """Raise ValueError unless the likelihood is defined for a family of leaves."""
        kind = "class" if leaf.n_classes else "number"
        if self.leaf_kind not in ("any", kind):
            needed = {"class": "Categorical", "number": "numeric (such as Gaussian)"}
            leaves = needed[self.leaf_kind]
            raise ValueError(f"likelihood {self!r} needs {leaves} leaves, got {leaf}.")
        if leaf.regresses and not self.regresses:
            raise ValueError(
                f"likelihood {self!r} compares rows with constant leaves, got {leaf}; use "
                "likelihood='mixture' for leaves that regress on the features."
            )

    def check_mixture(self, method: str) -> None:
        """Raise ValueError, with the name of a method that needs the mixture likelihood."""
        raise ValueError(
            f"{method} needs likelihood 'mixture', got {self!r}, which is an objective of all rows "
            "together without a distribution of y; use model.with_(likelihood='mixture')."
        )

    def state(self, leaf: Leaf, sites: Sites, batch: Batch, plate: pyro.plate) -> Tensor:
        """Define the rows of a plate in Pyro; without y, draw it or return log P(leaf | x)."""
        if batch.y is None:
            return pyro.deterministic("leaf_log_prob", batch.log_prob)
        scale, y = plate.size / len(batch.log_prob), leaf.response(batch.X, batch.y)
        pyro.factor("obs", scale * self.value(batch.log_prob, leaf, y, batch.weights))
        return batch.y

    def joint(self, leaf: Leaf, sites: Sites, log_prob: Tensor, y: Tensor) -> Tensor:
        """Log of the contribution of each leaf to each row, shape (n, L)."""
        return log_prob

    def memberships(self, joint: Tensor) -> Tensor:
        """Return P(leaf | x), given y too if leaves are parameters, shape (n, L)."""
        return joint.exp()

    def rows(self, joint: Tensor) -> Tensor:
        """log p(y_n | x_n), shape (n,), for additive likelihoods."""
        self.check_mixture("The log-likelihood of single rows")
        raise NotImplementedError

    def value(self, joint: Tensor, leaf: Leaf, y: Tensor, weights: Tensor) -> Tensor:
        """Return the log-likelihood or objective of weighted responses ``y``, a scalar."""
        raise NotImplementedError

    def rule(self, leaf: Leaf, rows: Rows, ridge: float | None) -> LeafRule:
        """Return the rule for optimal leaves under the loss; with ``ridge`` they are linear."""
        losses = [name for name, one in LIKELIHOODS.items() if one.deterministic]
        raise ValueError(
            "tao minimises the loss of a deterministic tree: likelihood must be one of "
            f"{losses}, got {self!r}; see bayestree.models.named.alternating."
        )


class MixtureLikelihood(Likelihood):
    """log sum_leaf P(leaf | x_n) p(y_n | leaf): the proper likelihood of the soft tree."""

    plug_in = False
    additive = True
    regresses = True

    def check_mixture(self, method: str) -> None:
        """Accept any method: this is the mixture likelihood."""

    def state(self, leaf: Leaf, sites: Sites, batch: Batch, plate: pyro.plate) -> Tensor:
        with plate, poutine.scale(scale=batch.weights):
            distribution = leaf.observe(sites, batch.log_prob, batch.X, batch.y)
            observed = None if batch.y is None else leaf.target(batch.y)
            return pyro.sample("obs", distribution, obs=observed)

    def joint(self, leaf: Leaf, sites: Sites, log_prob: Tensor, y: Tensor) -> Tensor:
        return log_prob + leaf.log_density(sites, y)

    def memberships(self, joint: Tensor) -> Tensor:
        return joint.softmax(-1)

    def rows(self, joint: Tensor) -> Tensor:
        return torch.logsumexp(joint, dim=-1)

    def value(self, joint: Tensor, leaf: Leaf, y: Tensor, weights: Tensor) -> Tensor:
        return self.rows(joint) @ weights


class MutualInformation(Likelihood):
    """-N H(Y | L) with plug-in leaves (CPT, eq. 11-14).

    The log-likelihood of leaf membership at its best class probabilities; as a factor, a
    generalised posterior.
    """

    leaf_kind = "class"

    def value(self, joint: Tensor, leaf: Leaf, y: Tensor, weights: Tensor) -> Tensor:
        # The least normal number keeps the gradient of n log n finite in an empty cell.
        counts = joint.exp().T @ leaf.statistics(y, weights)
        counts = counts + torch.finfo(counts.dtype).tiny
        return (counts * (counts / counts.sum(-1, keepdim=True)).log()).sum()


class Misclassification(Likelihood):
    """Minus the weight of the rows outside their leaf's majority class: TAO's 0/1 loss.

    Of logistic leaves, the class of highest probability for the features of the row.
    """

    deterministic = True
    leaf_kind = "class"
    regresses = True

    def value(self, joint: Tensor, leaf: Leaf, y: Tensor, weights: Tensor) -> Tensor:
        member = joint.exp()
        sums = member.T @ leaf.statistics(y, weights)
        if not leaf.regresses:
            return sums.amax(-1).sum() - weights.sum()
        shares = leaf.expected_y(leaf.estimate(sums.detach()), y[:, 1:].numpy(force=True))
        wrong = torch.as_tensor(shares.argmax(-1)).to(y.device) != leaf.target(y).unsqueeze(-1)
        return -(weights @ (member * wrong).sum(-1))

    def rule(self, leaf: Leaf, rows: Rows, ridge: float | None) -> LeafRule:
        if ridge is not None:
            raise ValueError("leaf_ridge is for linear leaves under squared loss, not for classes.")
        if isinstance(leaf, Logistic):
            return LogisticRule(leaf, *rows[1:])
        return MajorityRule(*rows[1:], leaf.n_classes)


def _sum_of_squares(joint: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of squares about the means of the leaves, a scalar."""
    member = joint.exp() * weights.unsqueeze(-1)
    mean = (y @ member) / (member.sum(0) + torch.finfo(member.dtype).tiny)
    return (member * (y.unsqueeze(-1) - mean) ** 2).sum()


class SquaredLoss(Likelihood):
    """Minus the weighted sum of squares about the means of the leaves (CPT, eq. 16)."""

    deterministic = True
    leaf_kind = "number"

    def value(self, joint: Tensor, leaf: Leaf, y: Tensor, weights: Tensor) -> Tensor:
        return -_sum_of_squares(joint, y, weights)

    def rule(self, leaf: Leaf, rows: Rows, ridge: float | None) -> LeafRule:
        X, y, weights = rows
        y = y.astype(np.float64)
        return MeanRule(y, weights) if ridge is None else LinearRule(X, y, weights, ridge)


class Variance(Likelihood):
    """-N/2 log of the within-leaf variance with plug-in means (CPT, eq. 16-17).

    The sum of squares of eq. 16 with its unknown unit profiled out: the same optimum without a
    prior, and on the scale of a log-likelihood, as -N H(Y | L) is.
    """

    leaf_kind = "number"

    def value(self, joint: Tensor, leaf: Leaf, y: Tensor, weights: Tensor) -> Tensor:
        total = weights.sum()
        return -0.5 * total * (_sum_of_squares(joint, y, weights) / total).log()


#: Every likelihood of the package by its name.
LIKELIHOODS: dict[str, Likelihood] = {
    str(one): one
    for one in (
        MixtureLikelihood("mixture"),
        MutualInformation("mutual-information"),
        Variance("variance"),
        Misclassification("misclassification"),
        SquaredLoss("squared-error"),
    )
}


def resolve(likelihood: str) -> Likelihood:
    """Look up a likelihood by its name; return a likelihood itself."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {(*LIKELIHOODS,)}, got {likelihood!r}.")
    return LIKELIHOODS[likelihood]
