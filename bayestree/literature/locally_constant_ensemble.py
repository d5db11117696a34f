"""Ensembles of locally constant networks by stages (ELCN; Lee and Jaakkola, 2020, section 3.7).

F(x) = sum_e f_e(x), of networks that are trained one after the other. Each adds its outputs, class
scores or numbers, to the fixed sum of the networks before it, and minimises the loss of the new
sum; then its outputs are multiplied by the shrinkage. A network is constant in the leaves of its
tree, so that F is a sum of trees.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import Field
from sklearn.base import RegressorMixin
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Inference, Model, NonNegative, check_parameters, declare
from bayestree._utils.progress import Track
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._forest import ForestClassifier, JointForest
from bayestree.estimators._parameters import RandomRun
from bayestree.estimators._regressor import Regressor, TreeRegressor
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.validation import fitted_rows
from bayestree.inference import Data, Posterior
from bayestree.inference.growing import GrowingTree
from bayestree.inference.single_leaf import why_not_parted
from bayestree.inference.stage import Settings
from bayestree.literature._settings import method_of
from bayestree.literature.locally_constant import (
    MAX_NEURONS,
    NetworkTraining,
    ReluNetwork,
    read_off,
    train,
)
from bayestree.models import SoftTree


@declare
class Stagewise(NetworkTraining):
    """Settings of the method that its estimators share."""

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


@declare
class LocallyConstantEnsemble(Stagewise, Settings):
    """Settings of the fit of several networks by stages.

    {parameters}
    """

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        n_networks: int,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> list[Posterior]:
        """Train the networks of an ensemble and read off their trees, each as one draw.

        The leaves of a tree have the probabilities softmax(f_e); their normalised product over the
        trees gives the probabilities of the ensemble. For numbers, leaves have the means E f_e,
        whose mean over the E trees is F.
        """
        check_parameters(self)
        data = data.for_leaf(model.leaf)
        model.leaf.check(data.y)
        real = data.y.is_floating_point()
        if real and bool((data.y == data.y[0]).all()):  # which a network would only come near to
            return [GrowingTree(model, data).assemble(set(), "elcn")] * n_networks
        n_features, n_outputs = data.X.shape[1], model.leaf.n_classes or 1

        def make() -> ReluNetwork:
            return ReluNetwork(self.max_depth, n_features, n_outputs, self.width).to(data.X)

        stages = NetworkSum(make, self.shrinkage)
        with seeded(draw_seed(random_state)):
            track = Track(range(n_networks), "elcn", show=progress, parts={"stages": stages})
            for _ in track:
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

        As in the authors' program, the first one of a regression is not shrunk: it has the mean.
        """
        whole = [e == 0 and real for e in range(len(self.networks))]
        return [
            network(X) * (1.0 if first else self.shrinkage)
            for network, first in zip(self.networks, whole, strict=True)
        ]


class StageTree(RandomRun, BaseTree):
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
class StageTreeClassifier(TreeClassifier, Stagewise, StageTree):
    """A tree of :class:`LocallyConstantEnsembleClassifier`."""


@declare
class StageTreeRegressor(TreeRegressor, Stagewise, StageTree):
    """A tree of :class:`LocallyConstantEnsembleRegressor`."""


@declare
class BaseLocallyConstantEnsemble(Stagewise, JointForest):
    """Train networks by stages and read off their trees; subclasses add y."""

    n_estimators = field(default=8, kw_only=False)

    def _infer(self, model: SoftTree, data: Data, first: BaseTree) -> list[Posterior]:
        return method_of(LocallyConstantEnsemble, self).fit(
            model,
            data,
            n_networks=self.n_estimators,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )

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
    averaged: ClassVar[bool] = False
    combined: ClassVar[str] = "a prediction is the normalised product of their probabilities"

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
