"""Oblique trees from the derivatives of a ReLU network (Lee and Jaakkola, 2020: LCN).

A network of M layers with one neuron each and skip connections has the pre-activations
z_i = w_i . x + sum_{j < i} v_ij a_j + b_i, with a_j = relu(z_j). Given the signs of z_1, ...,
z_{i-1}, z_i is linear in x: an oblique split. The signs are the decisions of a tree of depth M, in
whose leaves the a_i are linear. A second network predicts y from their coefficients and intercepts,
which are constant in a leaf. The splits are trained through it: during the fit the activation
changes from softplus to relu, and its derivative from a sigmoid to a step (section 3.6).

Two things are not in the paper. The sigmoid becomes steeper meanwhile, and its gradient replaces
that of the step, so that the splits move to the end. Each neuron starts at a random row.
"""

import math
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, mse_loss, softplus

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import (
    Count,
    Inference,
    Model,
    NonNegative,
    Positive,
    Share,
    Size,
    declare,
    takes,
)
from bayestree._utils.progress import Track
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._parameters import RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling, TrainingRows
from bayestree.fitting.engine import HardForm
from bayestree.fitting.plan import Task
from bayestree.inference import Data, Posterior, Stage
from bayestree.inference.growth.grow import GrowingTree
from bayestree.inference.growth.single_leaf import warn_single_leaf, why_not_parted
from bayestree.inference.splitters import FittedSplit
from bayestree.literature.whole_trees import WholeFit, fitted_by
from bayestree.models import SoftTree, named
from bayestree.routed_tree import weight_unit


@declare
class LocallyConstant(WholeFit[Posterior], Stage):
    """Settings of the fit of a network, from which a tree is read off.

    {parameters}
    """

    max_depth: Annotated[
        Annotated[int, Field(ge=0, le=64)],
        Model("Number of neurons: the splits on a path from the root to a leaf, at most."),
    ] = 20
    min_gain: Annotated[
        NonNegative,
        Model("Minimum gain, in nats, of a split between two leaves; others are removed."),
    ] = 1.0
    epochs: Annotated[
        Count, Inference("Passes over the rows, during which the activation becomes relu.")
    ] = 50
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 64
    learning_rate: Annotated[
        Positive, Inference("First learning rate of AMSGrad; it falls to 0 along a cosine.")
    ] = 0.01
    width: Annotated[
        Size, Inference("Hidden units of the network that predicts y; 0 makes it linear.")
    ] = 256
    dropconnect: Annotated[
        Share, Inference("Share of the weights of neurons that a row leaves out, at random.")
    ] = 0.0
    steepness: Annotated[
        Positive | None,
        Inference(
            "Steepness at the end of the sigmoid whose gradient replaces that of the step; None "
            "has the paper's: 1, and no gradient of the step."
        ),
    ] = 40.0

    refines = False  # of soft trees

    def _fit(self, model: SoftTree, data: Data, *, progress: bool) -> Posterior:
        """Train a network, and read off its tree as far as rows reach it."""
        if self.max_depth == 0:
            return GrowingTree(model, data).assemble(set(), "lcn")
        network = ReluNetwork(self, data.X, model.leaf.n_classes or 1)
        loss = cross_entropy if model.leaf.n_classes else mse_loss
        optimiser = torch.optim.Adam(network.parameters(), amsgrad=True)
        parts = {"network": network, "optimiser": optimiser}
        rows = data.to(network.bias)
        for epoch in Track(range(self.epochs), "lcn", show=progress, parts=parts):
            falling = (1.0 + math.cos(math.pi * epoch / self.epochs)) / 2.0
            optimiser.param_groups[0]["lr"] = self.learning_rate * falling
            for batch in rows.batches(self.batch_size):
                found = network(batch.X, (epoch + 1) / self.epochs).squeeze(1)
                each = loss(found, batch.y, reduction="none")
                optimiser.zero_grad()
                (each @ batch.weights / batch.weights.sum()).backward()
                optimiser.step()
        return self._read(network.to(data.X).eval(), model, data)

    @torch.no_grad()
    def _read(self, network: "ReluNetwork", model: SoftTree, data: Data) -> Posterior:
        """Return the tree with the mean predictions of the network."""
        tree = read_off(network, model, data)
        found = tree.assemble(kept := tree.cut(None, self.min_gain), "lcn")
        scores = torch.cat([network(part.X) for part in data.parts()])
        if not scores.isfinite().all():
            raise ValueError(f"the fit diverged: reduce learning_rate={self.learning_rate:g}.")
        each = scores.softmax(1) if (classes := model.leaf.n_classes) else scores[:, 0]
        below = [child for i in tree.breadth_first(kept) for child in tree.nodes[i].children]
        leaves = [tree.nodes[i].rows for i in below if i not in kept] or [tree.nodes[0].rows]
        value = torch.stack([each[rows].mean(0) for rows in leaves])
        sites = {"leaf_probs" if classes else "leaf_mean": value}
        return Posterior.from_point(found.model, found.point_sites() | sites, "lcn")


class ReluNetwork(nn.Module):
    """The network of M neurons on d features, and the one that predicts from its derivatives."""

    def __init__(self, settings: LocallyConstant, X: Tensor, n_outputs: int) -> None:
        super().__init__()
        self.steepness, self.share = settings.steepness, settings.dropconnect
        n_neurons, (n_rows, n_features) = settings.max_depth, X.shape
        shapes = (n_neurons, n_features), (n_neurons, n_neurons)
        single: Any = {"dtype": torch.float32}  # whatever the default is
        weight, skip = (torch.randn(shape, **single) / math.sqrt(shape[1]) for shape in shapes)
        self.weight, self.skip = nn.Parameter(weight), nn.Parameter(skip)  # v_ij where i > j
        start = X[torch.randint(n_rows, (n_neurons,))].to(weight)
        self.bias = nn.Parameter(-(weight * start).sum(1))
        size, width = n_neurons * (n_features + 1), settings.width
        hidden = [nn.Linear(size, width, **single), nn.ReLU()] if width else []
        self.head = nn.Sequential(*hidden, nn.Linear(width or size, n_outputs, **single))

    def derivatives(self, X: Tensor, hardness: float = 1.0) -> Tensor:
        """Compute coefficients and intercept of each activation at the rows, shape (n, M, d + 1).

        ``hardness`` is the share of relu in the activation and of the step in its derivative.
        """
        steepness = 1.0 + hardness * ((self.steepness or 1.0) - 1.0)
        held = (one.expand(len(X), -1, -1) for one in (self.weight, self.skip.tril(-1)))
        weight, skip = (dropout(one, self.share, self.training) for one in held)
        z = (weight @ X.unsqueeze(-1)).squeeze(-1) + self.bias
        active, slopes = [], []  # (n,) each
        for i in range(len(self.bias)):
            own = z[:, i]
            smooth = (steepness * own).sigmoid()
            step = (own > 0).to(own)
            if self.steepness:
                step = step + smooth - smooth.detach()
            slopes.append(smooth.lerp(step, hardness))
            active.append(softplus(own, steepness).lerp(own.relu(), hardness))
            z = z + skip[:, :, i] * active[-1].unsqueeze(1)
        # with slopes S, the coefficients J = S (W + V J)
        slope = torch.stack(slopes, dim=1)
        system = -slope.unsqueeze(-1) * skip
        each = slope.unsqueeze(-1) * weight
        found = torch.linalg.solve_triangular(system, each, upper=False, unitriangular=True)
        intercept = torch.stack(active, dim=1) - (found @ X.unsqueeze(-1)).squeeze(-1)
        return torch.cat((found, intercept.unsqueeze(-1)), dim=2)

    def forward(self, X: Tensor, hardness: float = 1.0) -> Tensor:
        """Compute class scores, or the mean of y, shape (n, outputs)."""
        scores: Tensor = self.head(self.derivatives(X, hardness).flatten(1))
        return scores


def read_off(network: ReluNetwork, model: SoftTree, data: Data) -> GrowingTree:
    """Return the tree of the signs of the neurons, without nodes whose rows are on one side."""
    tree, X = GrowingTree(model, data), data.X
    planes = torch.cat((network.weight, network.bias.unsqueeze(1)), dim=1)
    waiting = [(0, planes[:0])]  # nodes, and the activations above them
    while waiting:
        i, active = waiting.pop()
        k, rows = len(active), tree.nodes[i].rows
        if k == len(planes):
            continue
        plane = planes[k] + network.skip[k, :k] @ active
        right = X[rows] @ plane[:-1] + plane[-1] > 0
        off, on = (torch.cat((active, one.unsqueeze(0))) for one in (0 * plane, plane))
        if bool((right == right[0]).all()):
            waiting.append((i, on if right[0] else off))
            continue
        gain = model.leaf.criterion.hard_gain(tree.statistics(rows), right)
        sites = {"hyperplane": plane[None, :-1], "intercept": plane[-1:]}
        children = tree.branch(i, FittedSplit(sites, right, gain))
        waiting += zip(children, (off, on), strict=True)
    return tree


@declare
@takes(LocallyConstant, RandomRun)
class BaseLocallyConstantTree(BaseTree):
    """Train a ReLU network and read off its tree; subclasses add y."""

    def _model(self, task: Task) -> SoftTree:
        return named.deterministic(named.oblique(task.leaf))

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        found = fitted_by(LocallyConstant, self, model, data)
        if found.model.topology.n_nodes == 0:
            reason = "no neuron parts the rows; use more epochs, or another learning_rate"
            warn_single_leaf(data.y, model.leaf, self._limits(), why_not_parted(data, reason))
        return found

    def _form(self, task: Task) -> HardForm:
        form = super()._form(task)

        def values(
            tree: Any, posterior: Posterior, rows: TrainingRows, scaling: Scaling
        ) -> dict[str, FloatArray]:
            """Return the leaves of the posterior, shrunk towards the mean of all rows."""
            leaf = form.splits(posterior, scaling, rows.class_names).apply(rows.X)
            each = posterior.point["leaf_probs" if tree.classifies else "leaf_mean"]
            value = np.empty(tree.value.shape)
            value[tree.apply(rows.X)] = each[leaf]
            prior = self.smoothing * weight_unit(rows.weights)
            overall = np.average(value, axis=0, weights=tree.leaf_rows)
            share = tree.leaf_rows / (tree.leaf_rows + prior)
            return {"value": overall + ((value - overall).T * share).T}

        return replace(form, values=values)


@declare
class LocallyConstantTreeClassifier(TreeClassifier, BaseLocallyConstantTree):
    """Oblique decision tree read off from the derivatives of a ReLU network (LCN).

    Lee and Jaakkola, "Oblique decision trees from derivatives of ReLU networks" (2020). A network
    has one neuron in each of ``max_depth`` layers, connected to the features and to all neurons
    before it. It has as many sign patterns as a tree of that depth has leaves, and its derivatives
    are constant where the signs are. It is trained to predict y from the derivatives, and the tree
    of the signs is read off exactly. Splits on different branches share parameters.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import LocallyConstantTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = LocallyConstantTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.95)
    True
    """


@declare
class LocallyConstantTreeRegressor(TreeRegressor, BaseLocallyConstantTree):
    """Oblique regression tree read off from the derivatives of a ReLU network (LCN).

    Like :class:`LocallyConstantTreeClassifier`, trained for the squared error.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import LocallyConstantTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = LocallyConstantTreeRegressor(max_depth=3, random_state=0).fit(X, y)
    >>> reg.get_depth() <= 3
    True
    """

    max_depth = 8
