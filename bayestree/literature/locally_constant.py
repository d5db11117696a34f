"""Oblique trees from the derivatives of a ReLU network (Lee and Jaakkola, 2020).

A network of M layers with one neuron each and skip connections has the pre-activations
z_i = w_i . x + sum_{j < i} v_ij a_j + b_i, with a_j = relu(z_j). Given the signs of z_1, ...,
z_{i-1}, z_i is linear in x: an oblique split. The signs are the decisions of a tree of depth M.
The derivatives of the activations are constant in each of its leaves. A second network of these
derivatives predicts y, through which the splits are trained: the activation changes from softplus
to relu during the fit, and its derivative from sigmoid to step (section 3.6 of the paper).

Ensembles (ELCN, section 3.7) are sums F(x) = sum_e f_e(x) of networks that are trained one after
the other. Each adds its outputs, class scores or numbers, to the fixed sum of the networks before
it, and minimises the loss of the new sum; then its outputs are multiplied by the shrinkage. A
network is constant in the leaves of its tree, so that F is a sum of trees.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import Field
from sklearn.base import RegressorMixin
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, softplus

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegative,
    Positive,
    declare,
    takes,
)
from bayestree._utils.progress import Track
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._members import ForestClassifier, JointForest
from bayestree.estimators._parameters import (
    MeanFamily,
    RandomRun,
    ShareFamily,
)
from bayestree.estimators._regressor import Regressor, TreeRegressor
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.validation import fitted_rows
from bayestree.inference import Data, GrowthLimits, Posterior, Stage
from bayestree.inference.grow import GrowingTree
from bayestree.inference.single_leaf import why_not_parted
from bayestree.inference.splitters import FittedSplit
from bayestree.literature._method import WholeFit, fitted_by
from bayestree.models import SoftTree

MAX_NEURONS = 64  # each is connected to all before it, whether rows reach its splits or not
GROWTH = GrowthLimits(min_rows=0, min_leaf=1)  # of nodes that can be split


@declare
class NetworkTraining:
    """How a network is trained."""

    epochs: Annotated[
        Count,
        Inference("Passes over the rows, during which the activation becomes piecewise linear."),
    ] = 100
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 64
    learning_rate: Annotated[Positive, Inference("Learning rate of Adam (with AMSGrad).")] = 0.01
    width: Annotated[
        Count, Inference("Hidden units of the network that predicts y from the derivatives.")
    ] = 64


@declare
class LocallyConstant(NetworkTraining, WholeFit[Posterior], Stage):
    """Settings of the fit of a network, from which a tree is read off.

    {parameters}
    """

    max_depth: Annotated[
        Annotated[int, Field(ge=0, le=MAX_NEURONS)],
        Model("Number of neurons: the splits on a path from the root to a leaf, at most."),
    ] = 6
    min_gain: Annotated[
        NonNegative,
        Model("Minimum gain, in nats, of a split between two leaves; others are removed."),
    ] = 2.0

    why_single_leaf = "no neuron parts the rows and gains min_gain; lower it or use more epochs"
    refines = False  # of soft trees

    def _fit(self, model: SoftTree, data: Data, *, progress: bool) -> Posterior:
        """Train a network of ``max_depth`` neurons and read off its tree.

        Nodes are left out if no row reaches them, if all rows pass on one side, or if their rows
        have one value of y. So are pairs of leaves whose split gains less than ``min_gain`` nats.
        """
        if self.max_depth == 0:
            return GrowingTree(model, data.held()).assemble(set(), "lcn")
        leaf = model.leaf
        n_features, n_outputs = data.X.shape[1], leaf.n_classes or 1
        network = ReluNetwork(
            self.max_depth, n_features, n_outputs, self.width, linear=leaf.regresses
        ).to(data.X)
        target = data._replace(y=leaf.target(data.y))
        before = data.X.new_zeros(len(data.X), n_outputs)
        train(network, target, before, self, progress=progress)
        tree = read_off(network, model, data)
        return tree.assemble(tree.cut(None, self.min_gain), "lcn")


class ReluNetwork(nn.Module):
    """The network of M neurons on d features, and the one that predicts from its derivatives.

    Its outputs are constant in each leaf of the tree or, with ``linear``, linear in the features.
    """

    def __init__(
        self, n_neurons: int, n_features: int, n_outputs: int, width: int, *, linear: bool = False
    ) -> None:
        super().__init__()
        self.linear = linear
        n_coefficients = n_outputs * (1 + n_features) if linear else n_outputs
        single: Any = {"dtype": torch.float32}  # whatever the default is
        weight, skip = (torch.randn(n_neurons, n, **single) for n in (n_features, n_neurons))
        self.weight = nn.Parameter(weight / math.sqrt(n_features))
        self.skip = nn.Parameter(skip / math.sqrt(n_neurons))
        self.bias = nn.Parameter(torch.zeros(n_neurons, **single))
        self.head = nn.Sequential(
            nn.Linear(n_neurons * n_features, width, **single),
            nn.ReLU(),
            nn.Linear(width, n_coefficients, **single),
        )

    def derivatives(self, X: Tensor, hardness: float = 1.0) -> Tensor:
        """Compute derivatives of the activations with respect to the rows (n, d), shape (n, M, d).

        ``hardness`` is the share of relu in the activation and of the step in its derivative.
        """
        active: list[Tensor] = []  # (n,)
        slope: list[Tensor] = []  # (n, d)
        for weight, skip, bias in zip(self.weight, self.skip, self.bias, strict=True):
            z, linear = X @ weight + bias, weight.expand(len(X), -1)
            for j, (a, s) in enumerate(zip(active, slope, strict=True)):
                z, linear = z + skip[j] * a, linear + skip[j] * s
            step = hardness * (z > 0) + (1 - hardness) * z.sigmoid()
            active.append(hardness * z.relu() + (1 - hardness) * softplus(z))
            slope.append(step.unsqueeze(-1) * linear)
        return torch.stack(slope, dim=1)

    def forward(self, X: Tensor, hardness: float = 1.0) -> Tensor:
        """Compute class scores, or the mean of y, shape (n, outputs)."""
        found: Tensor = self.head(self.derivatives(X, hardness).flatten(1))
        if not self.linear:
            return found
        row = nn.functional.pad(X, (1, 0), value=1.0)
        return (found.unflatten(1, (-1, row.shape[1])) * row.unsqueeze(1)).sum(-1)

    def split(self, turns: list[bool]) -> Tensor:
        """Return coefficients and intercept (d + 1,) of the next neuron, given earlier sides."""
        joined = torch.cat((self.weight, self.bias.unsqueeze(1)), dim=1)
        active: list[Tensor] = []
        for i, right in enumerate([*turns, True]):
            z = joined[i] + sum(self.skip[i, j] * a for j, a in enumerate(active))
            active.append(z if right else torch.zeros_like(z))
        return active[-1].detach()


def train(
    network: ReluNetwork,
    data: Data,
    before: Tensor,
    settings: NetworkTraining,
    *,
    progress: bool = False,
) -> None:
    """Train a network whose outputs are added to those ``before`` (n, outputs)."""
    n_features, real = data.X.shape[1], data.y.is_floating_point()
    joined = data._replace(X=torch.cat((data.X, before), dim=1))
    optimiser = torch.optim.Adam(network.parameters(), settings.learning_rate, amsgrad=True)
    parts = {"network": network, "optimiser": optimiser}
    epochs = settings.epochs
    track = Track(range(epochs), "lcn", show=progress, parts=parts)
    for epoch in track:
        hardness = epoch / (epochs - 1) if epochs > 1 else 1.0
        for batch in joined.batches(settings.batch_size):
            scores = batch.X[:, n_features:] + network(batch.X[:, :n_features], hardness)
            loss = (
                mse_loss(scores[:, 0], batch.y, reduction="none")
                if real
                else cross_entropy(scores, batch.y, reduction="none")
            )
            optimiser.zero_grad()
            (loss @ batch.weights / batch.weights.sum()).backward()
            optimiser.step()


def read_off(
    network: ReluNetwork, model: SoftTree, data: Data, *, pure: bool = False
) -> GrowingTree:
    """Return the tree of the signs of the neurons, as far as rows reach it.

    Nodes whose rows have one value of y are split only if ``pure``.
    """
    tree = GrowingTree(model, data.held())
    rows, n_neurons = tree.data.X, len(network.bias)
    waiting: list[tuple[int, list[bool]]] = [(0, [])]
    while waiting:
        i, turns = waiting.pop()
        if len(turns) == n_neurons or not (pure or tree.can_split(i, GROWTH)):
            continue
        plane = network.split(turns)
        members = tree.nodes[i].rows
        right = rows[members] @ plane[:-1] + plane[-1] > 0
        if bool((right == right[0]).all()):
            waiting.append((i, [*turns, bool(right[0])]))
            continue
        gain = model.leaf.criterion.hard_gain(tree.statistics(members), right)
        sites = {"hyperplane": plane[None, :-1], "intercept": plane[-1:]}
        children = tree.branch(i, FittedSplit(sites, right, gain))
        waiting += zip(children, ([*turns, False], [*turns, True]), strict=True)
    return tree


@declare
@takes(LocallyConstant, RandomRun)
class BaseLocallyConstantTree(BaseTree):
    """Train a ReLU network and read off its tree; subclasses add y."""

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        found = fitted_by(LocallyConstant, self, model, data)
        reason = why_not_parted(data, LocallyConstant.why_single_leaf)
        self._warn_if_single_leaf(found.model.topology, model.leaf, data, reason)
        return found


@declare
class LocallyConstantTreeClassifier(TreeClassifier, BaseLocallyConstantTree):
    """Oblique decision tree read off from the derivatives of a ReLU network (LCN).

    Lee and Jaakkola, "Oblique decision trees from derivatives of ReLU networks" (2020). A network
    has one neuron in each of ``max_depth`` layers, connected to the features and to all neurons
    before it. It has as many sign patterns as a tree of that depth has leaves, and its derivatives
    are constant where the signs are. It is trained to predict y from the derivatives, and the tree
    of the signs is read off exactly, with leaves from the training rows. Splits on
    different branches share parameters. With logistic leaves the scores of the classes are linear
    in the features where the signs are constant.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import LocallyConstantTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LocallyConstantTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    >>> clf.get_depth() <= 3
    True
    """

    leaf: ShareFamily = "constant"


@declare
class LocallyConstantTreeRegressor(TreeRegressor, BaseLocallyConstantTree):
    """Oblique regression tree read off from the derivatives of a ReLU network (LCN).

    Like :class:`LocallyConstantTreeClassifier`, trained for the squared error. With linear leaves
    the second network predicts the coefficients of a function of the features in place of y.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import LocallyConstantTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = LocallyConstantTreeRegressor(max_depth=3, epochs=20, random_state=0).fit(X, y)
    >>> reg.get_depth() <= 3
    True
    """

    leaf: MeanFamily = "constant"


@declare
class LocallyConstantEnsemble(NetworkTraining, WholeFit[list[Posterior]]):
    """Settings of the fit of several networks by stages.

    {parameters}
    """

    max_depth: Annotated[
        Annotated[int, Field(ge=1, le=MAX_NEURONS)],
        Model("Number of neurons: the splits on a path from the root to a leaf, at most."),
    ] = 6
    shrinkage: Annotated[
        Annotated[float, Field(gt=0, le=1)],
        Inference(
            "Factor of the outputs of each network after its training; in regression not of the "
            "first, which holds the mean."
        ),
    ] = 1.0
    epochs = 30

    def _fit(
        self, model: SoftTree, data: Data, *, n_networks: int, progress: bool
    ) -> list[Posterior]:
        """Train the networks of an ensemble and read off their trees, each as one draw.

        The leaves of a tree have the probabilities softmax(f_e); their normalised product over the
        trees gives the probabilities of the ensemble. For numbers, leaves have the means E f_e,
        whose mean over the E trees is F.
        """
        real = data.y.is_floating_point()
        if real and bool((data.y == data.y[0]).all()):  # which a network would only come near to
            return [GrowingTree(model, data).assemble(set(), "elcn")] * n_networks
        n_features, n_outputs = data.X.shape[1], model.leaf.n_classes or 1

        def make() -> ReluNetwork:
            return ReluNetwork(self.max_depth, n_features, n_outputs, self.width).to(data.X)

        stages = NetworkSum(make, self.shrinkage)
        for _ in Track(range(n_networks), "elcn", show=progress, parts={"stages": stages}):
            before = sum(stages.contributions(data.X, real=real), start=data.X.new_zeros(()))
            network = make()
            train(network, data, before.expand(len(data.X), n_outputs), self, progress=progress)
            stages.networks.append(network)
        found = stages.contributions(data.X, real=real)
        trees = (read_off(network, model, data, pure=True) for network in stages.networks)
        return [
            tree.assemble(
                tree.split_nodes(),
                "elcn",
                {"leaf_mean": n_networks * f[:, 0]} if real else {"leaf_probs": f.softmax(1)},
            )
            for tree, f in zip(trees, found, strict=True)
        ]


class NetworkSum:
    """The networks so far; ``make`` creates one with random parameters."""

    def __init__(self, make: Callable[[], ReluNetwork], shrinkage: float) -> None:
        self.make, self.shrinkage = make, shrinkage
        self.networks: list[ReluNetwork] = []

    def state_dict(self) -> dict[str, Any]:
        return {"networks": [network.state_dict() for network in self.networks]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.networks = [self.make() for _ in state["networks"]]
        for network, values in zip(self.networks, state["networks"], strict=True):
            network.load_state_dict(values)

    @torch.no_grad()
    def contributions(self, X: Tensor, *, real: bool) -> list[Tensor]:
        """Compute f_e of rows (n, d), of shape (n, outputs), for each network.

        As in the authors' program, the first network of a regression is not shrunk: it has the
        mean.
        """
        whole = [e == 0 and real for e in range(len(self.networks))]
        return [
            network(X) * (1.0 if first else self.shrinkage)
            for network, first in zip(self.networks, whole, strict=True)
        ]


@declare
@takes(LocallyConstantEnsemble, RandomRun)
class StageTree(BaseTree):
    """The tree of one network, with its contribution to the sum in the leaves."""

    def _leaf_values(
        self, tree: Any, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> dict[str, FloatArray]:
        leaf = tree.apply(rows.X)
        value = np.zeros(tree.value.shape)
        X: Any = self._scaling.standardise(rows.X)
        value[leaf] = posterior.predictive(X)[0]
        if value.ndim == 2:  # the smoothing is rows in which the tree contributes nothing
            weight = tree.leaf_rows[:, None]
            even = self.smoothing / value.shape[1]
            value = (weight * value + even) / (weight + self.smoothing)
        return {"value": value}


@declare
class StageTreeClassifier(TreeClassifier, StageTree):
    """A tree of :class:`LocallyConstantEnsembleClassifier`."""


@declare
class StageTreeRegressor(TreeRegressor, StageTree):
    """A tree of :class:`LocallyConstantEnsembleRegressor`."""


@declare
@takes(LocallyConstantEnsemble)
class BaseLocallyConstantEnsemble(JointForest):
    """Train networks by stages and read off their trees; subclasses add y."""

    n_estimators = field(default=8, kw_only=False)

    def _infer(self, model: SoftTree, data: Data, first: BaseTree) -> list[Posterior]:
        return fitted_by(LocallyConstantEnsemble, self, model, data, n_networks=self.n_estimators)

    def _why_single_leaves(self, tree: BaseTree, data: Data) -> str:
        reason = "no neuron parts the rows; use more epochs, or another learning_rate"
        return why_not_parted(data, reason)


@declare
class LocallyConstantEnsembleClassifier(ForestClassifier, BaseLocallyConstantEnsemble):
    """Sum of oblique trees from ReLU networks that are trained by stages (ELCN).

    Lee and Jaakkola, "Oblique decision trees from derivatives of ReLU networks" (2020), section
    3.7: as in boosting, each network adds its class scores to the scores so far. The leaves of its
    tree hold softmax(scores), and the ensemble multiplies and normalises the probabilities of its
    trees.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import LocallyConstantEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LocallyConstantEnsembleClassifier(2, max_depth=3, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    smoothing: Annotated[
        NonNegative,
        Model("Weight, in rows, of even probabilities in each leaf of a tree; 0 is the paper's."),
    ] = 0.0

    _tree: ClassVar[type[BaseTree]] = StageTreeClassifier
    _averaged: ClassVar[bool] = False
    _combined: ClassVar[str] = "a prediction is the normalised product of their probabilities"

    def _expectation(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the normalised product of the probabilities of the trees."""
        least = np.finfo(np.float64).tiny  # where a probability has underflowed
        log = sum(
            (np.log(np.maximum(one.tree.predict(rows), least)) for one in self.fitted_.trees),
            start=np.zeros(1),
        )
        found: FloatArray = np.exp(log - log.max(axis=1, keepdims=True))
        return found / found.sum(axis=1, keepdims=True), np.zeros(found.shape)

    def shapley_values(self, X: ArrayLike, background: ArrayLike | None = None) -> Any:
        """Not defined for a product of trees."""
        raise TypeError(
            f"shapley_values needs one tree or a mean of trees, but {type(self).__name__} "
            "multiplies the probabilities of its trees; use importance or partial_dependence."
        )


@declare
class LocallyConstantEnsembleRegressor(RegressorMixin, Regressor, BaseLocallyConstantEnsemble):
    """Sum of oblique regression trees from ReLU networks that are trained by stages (ELCN).

    Like :class:`LocallyConstantEnsembleClassifier`, for the squared error. A tree predicts the mean
    of y and ``n_estimators`` times its contribution to the sum, so that the ensemble is the mean
    of its trees.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import LocallyConstantEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = LocallyConstantEnsembleRegressor(2, max_depth=3, random_state=0).fit(X, y)
    >>> reg.get_depth() <= 3
    True
    """

    _tree: ClassVar[type[BaseTree]] = StageTreeRegressor

    def predict(self, X: ArrayLike) -> FloatArray:
        """Return the expected value, shape (n,): the mean over the trees."""
        return self._expectation(fitted_rows(self, X))[0]
