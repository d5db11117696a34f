"""Trees by non-greedy optimisation of a bound as scikit-learn estimators."""

from typing import Annotated

from bayestree._utils.parameters import Count, Inference, Model, Positive, declare
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._initial import InitialTree
from bayestree.estimators._leaf_families import MeanLeaves, ShareLeaves
from bayestree.estimators._parameters import Precision
from bayestree.estimators._regressor import TreeRegressor
from bayestree.inference import Data, Posterior
from bayestree.inference.non_greedy import non_greedy
from bayestree.models import SoftTree


@declare
class BaseNonGreedyTree(Precision, InitialTree):
    """Start from a tree and descend on a bound of its loss; subclasses add y.

    Attributes
    ----------
    posterior_ : Posterior
        Its splits as one draw, on the scaled features; ``posterior_.stats["loss"]`` is -log p(y) of
        the training rows, of the initial tree and after each epoch.
    """

    max_depth = 8

    nu: Annotated[
        Positive,
        Model(
            "Maximum square of the norm of a hyperplane on the scaled features, intercept "
            "included; small values smooth the bound."
        ),
    ] = 16.0
    epochs: Annotated[Count, Inference("Passes over the rows.")] = 50
    batch_size: Annotated[Count, Inference("Rows in a step.")] = 100
    learning_rate: Annotated[
        Positive, Inference("First step size over sqrt(nu); it falls to 0 along a cosine.")
    ] = 0.1

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        start = self._start(data, model.leaf)
        found = non_greedy(
            model,
            data,
            init=start,
            nu=self.nu,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            random_state=self.random_state,
            progress=bool(self.verbose),
        )
        reason = self._why_no_split(data)
        self._warn_if_single_leaf(found.model.topology, model.leaf, data, reason)
        return found


@declare
class NonGreedyTreeClassifier(ShareLeaves, TreeClassifier, BaseNonGreedyTree):
    """Oblique decision tree whose splits are optimised together, on a bound of the tree's loss.

    Norouzi, Collins, Johnson, Fleet and Kohli, "Efficient non-greedy optimization of decision
    trees" (NIPS, 2015). Starting from an initial tree, stochastic gradient descent lowers a
    convex-concave upper bound on -log P(y) of the deterministic tree, in all splits and leaves. The
    greedy form for single splits is ``ObliqueTreeClassifier(splitter="co2")``.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import NonGreedyTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = NonGreedyTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.95)
    True
    """


@declare
class NonGreedyTreeRegressor(MeanLeaves, TreeRegressor, BaseNonGreedyTree):
    """Oblique regression tree whose splits are optimised together, on a bound of the tree's loss.

    Like :class:`NonGreedyTreeClassifier`, with normal leaves: the loss is -log p(y).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import NonGreedyTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NonGreedyTreeRegressor(max_depth=2, random_state=0).fit(X, y)
    >>> reg.get_n_leaves()
    4
    """

    max_depth = 5
    min_leaf = 10
