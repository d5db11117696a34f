"""Forests of soft neural trees as scikit-learn estimators."""

from typing import Annotated, ClassVar

from pydantic import Field

from bayestree._utils.parameters import Count, Inference, Model, Positive, declare
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._forest import ForestClassifier, ForestRegressor, IndependentForest
from bayestree.estimators._parameters import Precision, RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.inference import Data, Posterior
from bayestree.inference.neural import neural_tree
from bayestree.inference.unsplit import ONE_WAY, why_not_parted
from bayestree.models import SoftTree, named
from bayestree.models.leaves import Leaf

MAX_DEPTH = 12  # of a complete tree: 4,096 leaves


@declare
class NeuralTraining(Precision):
    """Parameters that soft neural trees share with forests of them."""

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


@declare
class BaseNeuralTree(NeuralTraining, RandomRun, BaseTree):
    """Train a complete soft tree; subclasses add y."""

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.end_to_end(leaf)

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        return neural_tree(
            model,
            data,
            max_depth=self.max_depth,
            epochs=self.epochs,
            leaf_steps=self.leaf_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )

    def _averages(self) -> bool:
        return True  # predictions are those of the soft tree


@declare
class NeuralTreeClassifier(TreeClassifier, BaseNeuralTree):
    """A tree of :class:`NeuralDecisionForestClassifier`."""


@declare
class NeuralTreeRegressor(TreeRegressor, BaseNeuralTree):
    """A tree of :class:`NeuralDecisionForestRegressor`."""


@declare
class BaseNeuralForest(NeuralTraining, IndependentForest):
    """Fit soft trees from different random starts; classifier and regressor add y.

    Attributes
    ----------
    estimators_ : list
        The trees; ``estimators_[t].posterior_`` is the soft tree, ``estimators_[t].tree_`` its
        deterministic form.
    """

    _tree: ClassVar[type[BaseNeuralTree]]
    combined: ClassVar[str] = (
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
