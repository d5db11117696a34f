"""Trees from locally constant networks as scikit-learn estimators."""

from typing import Annotated

from pydantic import Field

from bayestree._utils.parameters import Count, Inference, Model, NonNegative, Positive, declare
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._leaf_families import MeanLeaves, ShareLeaves
from bayestree.estimators._parameters import RandomRun
from bayestree.estimators._regressor import TreeRegressor
from bayestree.inference import Data, Posterior
from bayestree.inference.locally_constant import locally_constant
from bayestree.inference.unsplit import why_not_parted
from bayestree.models import SoftTree

MAX_NEURONS = 64  # each is connected to all before it, whether rows reach its splits or not


@declare
class NetworkTraining(RandomRun):
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
class BaseLocallyConstantTree(NetworkTraining, BaseTree):
    """Train a ReLU network and read off its tree; subclasses add y."""

    max_depth: Annotated[
        Annotated[int, Field(ge=0, le=MAX_NEURONS)],
        Model("Number of neurons: the splits on a path from the root to a leaf, at most."),
    ] = 6
    min_gain: Annotated[
        NonNegative,
        Model("Minimum gain, in nats, of a split between two leaves; others are removed."),
    ] = 2.0

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        found = locally_constant(
            model,
            data,
            max_depth=self.max_depth,
            min_gain=self.min_gain,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            width=self.width,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )
        reason = "no neuron parts the rows and gains min_gain; lower it or use more epochs"
        topology, reason = found.model.topology, why_not_parted(data, reason)
        self._warn_if_single_leaf(topology, model.leaf, data, reason)
        return found


@declare
class LocallyConstantTreeClassifier(ShareLeaves, TreeClassifier, BaseLocallyConstantTree):
    """Oblique decision tree read off from the derivatives of a ReLU network (LCN).

    Lee and Jaakkola, "Oblique decision trees from derivatives of ReLU networks" (2020). A network
    with one neuron in each of ``max_depth`` layers, each connected to the features and to all
    neurons before it, has as many sign patterns as a tree of that depth has leaves, and its
    derivatives are constant where the signs are. It is trained to predict y from the derivatives,
    and the tree of the signs is read off exactly, with leaves from the training rows. Splits on
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


@declare
class LocallyConstantTreeRegressor(MeanLeaves, TreeRegressor, BaseLocallyConstantTree):
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
