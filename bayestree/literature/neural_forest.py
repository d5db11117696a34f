"""Soft trees of fixed size by gradient steps and closed-form leaves (Kontschieder et al., 2015).

A complete tree with random logistic splits. Between two updates of its leaves, the splits climb
the log-likelihood of minibatches. With fixed splits the leaves have the update (eq. 11 there)

pi_l <- sum_n P(leaf l | x_n, y_n) [y_n] / sum_n P(leaf l | x_n, y_n),

an M-step of EM, to which this package adds the rows of the leaves' prior. The tree is not made
deterministic: its splits have steepness 1 from first to last.
"""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from bayestree._utils.parameters import Count, Inference, Model, Positive, declare, takes
from bayestree._utils.progress import Track
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._forests import ForestClassifier, ForestRegressor, IndependentForest
from bayestree.estimators._parameters import Precision, RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.estimators._tree import BaseTree
from bayestree.fitted.training_rows import Scaling
from bayestree.inference import Data, Posterior, Stage
from bayestree.inference.em import Climb
from bayestree.inference.growth.single_leaf import ONE_WAY, why_not_parted
from bayestree.inference.pointwise import leaf_sums, summed
from bayestree.inference.training import recalibrated
from bayestree.literature._method import WholeFit, fitted_by
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf
from bayestree.models.splits import StumpSplit
from bayestree.topology import Topology

MAX_DEPTH = 12  # of a complete tree: 4,096 leaves


@declare
class NeuralTree(WholeFit[Posterior], Stage):
    """Settings of the fit of a complete soft tree.

    {parameters}
    """

    max_depth: Annotated[
        Annotated[int, Field(ge=0, le=MAX_DEPTH)],
        Model("Number of splits on each path: a tree has 2^max_depth leaves."),
    ] = 8
    epochs: Annotated[
        Count, Inference("Passes of gradient steps over the rows; the leaves follow after each.")
    ] = 50
    leaf_steps: Annotated[
        Count,
        Inference(
            "Updates of the leaves after each pass (eq. 11); each starts from the last. The paper "
            "starts afresh from uniform leaves and takes 20."
        ),
    ] = 3
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 250
    learning_rate: Annotated[
        Positive, Inference("Learning rate of Adam. The initial hyperplanes have norm 1.")
    ] = 0.05

    refines = False  # of soft trees

    def _fit(self, model: SoftTree, data: Data, *, progress: bool) -> Posterior:
        """Train a complete soft tree of ``max_depth`` levels.

        Returns
        -------
        Posterior
            One draw. ``stats["log_likelihood"]`` holds the log-likelihood of the rows after each
            epoch, before the last update of the leaves.
        """
        model = model.with_(topology=Topology.complete(self.max_depth))
        trace: list[float] = []
        descent = _LeafwiseClimb(model, _start(model, data), data, self.learning_rate)
        parts = {"tree": descent, "optimiser": descent.optimiser, "trace": trace}
        track = Track(range(self.epochs), "neural tree", show=progress, parts=parts)
        for _ in track:
            descent.descend(self.batch_size)
            for _ in range(self.leaf_steps):
                value = descent.update_leaves(self.batch_size)
            trace.append(value)
            track.note(f"log-likelihood {value:,.0f}")
        stats = {"log_likelihood": np.array(trace)}
        return Posterior.from_point(descent.model, descent.sites(), "neural tree", stats=stats)


class _LeafwiseClimb(Climb):
    """Gradient steps at fixed leaves, and updates of the leaves at fixed splits."""

    def descend(self, batch_size: int) -> None:
        """Take one pass of gradient steps on the log-likelihood.

        At the parameters that also weigh the paths, EM's bound and the log-likelihood have the
        same gradient.
        """
        for batch in self.data.batches(batch_size):
            self.step(batch, self.sites(), 1.0)

    def update_leaves(self, batch_size: int) -> float:
        """Take one step of eq. 11 on all rows; the log-likelihood before it."""
        held, values, sums = self.sites(), [], []
        for part in self.data.parts(batch_size):
            value, found = self.sums(part, self.members(part, held, 1.0))
            values.append(float(value))
            sums.append(found)
        self.leaves = self.model.leaf.estimate(summed(sums))
        return sum(values)


def _start(model: SoftTree, data: Data) -> Posterior:
    """Draw random splits, with leaves of the rows that reach them."""
    split: StumpSplit = model.split  # type: ignore[assignment]
    sites = split.start(model.topology.n_nodes, data.X.shape[1], data.X)
    sites |= model.leaf.estimate(leaf_sums(model, sites, data))
    return recalibrated(Posterior.from_point(model, sites, "start"), data)


@declare
@takes(NeuralTree, Precision, RandomRun)
class BaseNeuralTree(BaseTree):
    """Train a complete soft tree; subclasses add y."""

    prediction = "posterior"  # of the soft tree, which has one draw

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.end_to_end(leaf)

    def _infer(self, model: SoftTree, data: Data, scaling: Scaling) -> Posterior:
        return fitted_by(NeuralTree, self, model, data)


@declare
class NeuralTreeClassifier(TreeClassifier, BaseNeuralTree):
    """A tree of :class:`NeuralDecisionForestClassifier`."""


@declare
class NeuralTreeRegressor(TreeRegressor, BaseNeuralTree):
    """A tree of :class:`NeuralDecisionForestRegressor`."""


@declare
@takes(NeuralTree, Precision)
class BaseNeuralForest(IndependentForest):
    """Fit soft trees from different random starts; classifier and regressor add y.

    Attributes
    ----------
    estimators_ : list
        The trees; ``estimators_[t].posterior_`` is the soft tree, ``estimators_[t].tree_`` its
        deterministic form.
    """

    prediction = "posterior"
    _tree: ClassVar[type[BaseNeuralTree]]
    _combined: ClassVar[str] = (
        "a prediction is the mean over all leaves of the soft trees, whose deterministic forms are "
        "shown"
    )

    def _why_single_leaves(self, tree: BaseTree, data: Data) -> str:
        return why_not_parted(data, ONE_WAY)


@declare
class NeuralDecisionForestClassifier(ForestClassifier, BaseNeuralForest):
    """Forest of soft trees with linear splits: the shallow neural decision forest.

    Kontschieder, Fiterau, Criminisi and Rota Bulo, "Deep Neural Decision Forests" (ICCV, 2015),
    without a network below the trees (sNDF). Each tree is complete, and all of its splits are
    trained together: gradient steps on the log-likelihood alternate with closed-form updates of
    the leaves (eq. 11). A row goes to all leaves, with probabilities, in predictions too, and the
    forest averages its trees. With one tree it is a soft (fuzzy) neural tree.

    Text, plots and ONNX show the deterministic form of each tree, ``estimators_[t].tree_``, which
    predicts differently.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import NeuralDecisionForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = NeuralDecisionForestClassifier(
    ...     n_estimators=2, max_depth=3, epochs=20, learning_rate=0.1, random_state=0
    ... ).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    _tree = NeuralTreeClassifier


@declare
class NeuralDecisionForestRegressor(ForestRegressor, BaseNeuralForest):
    """Forest of soft regression trees with linear splits and normal leaves.

    Like :class:`NeuralDecisionForestClassifier`, with the likelihood of y as a mixture of normal
    leaves, whose closed-form update has their means and variances; the paper treats classes only.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import NeuralDecisionForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NeuralDecisionForestRegressor(n_estimators=2, max_depth=3, epochs=20, random_state=0)
    >>> low, high = reg.fit(X, y).predict_interval(X, 0.9)
    """

    _tree = NeuralTreeRegressor
