"""Bivariate trees with the face of scikit-learn."""

from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from sklearn.utils._param_validation import Interval, StrOptions

from bayestree import inference
from bayestree._utils.progress import Verbose
from bayestree.estimators._classifier import TreeClassifier
from bayestree.inference import Data, Posterior
from bayestree.inference.cost_complexity import cost_complexity
from bayestree.inference.splitters.bivariate import BivariateSplitter
from bayestree.inference.splitters.bivariate_search import LineSearch
from bayestree.models import SoftTree, named
from bayestree.models.criteria import Criterion, Entropy, Gini
from bayestree.models.leaves import Leaf

CRITERIA: dict[str, Criterion] = {"entropy": Entropy(), "gini": Gini()}


class BivariateTreeClassifier(TreeClassifier):
    """Decision tree that looks at one or two features in each node, grown as CART grows.

    Kairgeldin and Carreira-Perpinan, "Bivariate decision trees: smaller, interpretable, more
    accurate" (2024), the fast algorithm: in each node the best of all cuts of a feature, and of
    all pairs of features at ``n_orientations`` slopes. The same rows give the same tree; nothing
    is drawn at random. For the same splits optimised together see
    :class:`~bayestree.AlternatingTreeClassifier` with ``split="bivariate"``.

    Parameters
    ----------
    max_depth : int, default=10
        Most splits on a path from the root to a leaf.
    n_orientations : int, default=30
        Slopes of a line searched for each pair of features, on features standardised at the node.
    criterion : {"entropy", "gini"}, default="entropy"
        The impurity that a split lowers.
    pair_penalty : float, default=2.0
        By how many nats of log-likelihood two features must gain more than one to be used.
        More makes a tree of fewer pairs; infinity is CART.
    max_leaves : int, optional
        Splits of the least gain are dropped until so many leaves are left.
    min_rows : float, default=2
        Least weight of rows in a node that is split.
    min_leaf : int, default=1
        Least number of rows on each side of a split.
    min_gain : float, default=5.0
        Least gain of a split in nats of log-likelihood.
    ccp_alpha : float, default=0.0
        Minimal cost-complexity pruning: the impurity of the rows on average that a leaf must be
        worth, as in scikit-learn, but that an entropy is in nats.
    budget : float, default=1e6
        Numbers up to which a node's pairs are all searched at all slopes. Where there are more,
        they are screened at a few slopes on 1,000 rows, and the best 20 searched on all.
    max_pairs : int, default=20000
        With more pairs of features, only those of the features that split best alone.
    smoothing : float, default=1.0
        Rows that the Dirichlet prior of each leaf is worth, spread over the classes as the
        training rows are; with 0 a leaf predicts the shares of its own rows.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

    Attributes
    ----------
    classes_ : array, shape (C,)
    tree_ : Tree
        The tree, in the units of the data.
    posterior_ : Posterior
        Its splits as one draw, on the standardised features.
    n_features_in_, feature_names_in_

    See Also
    --------
    bayestree.export_rules : The tree as rules.
    bayestree.plots.node_scatter : Each node as a scatter plot with its line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2).fit(X, y)
    >>> clf.get_n_leaves()
    3
    >>> bool(clf.score(X, y) > 0.97)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "n_orientations": [Interval(Integral, 2, None, closed="left")],
        "criterion": [StrOptions(set(CRITERIA))],
        "pair_penalty": [Interval(Real, 0, None, closed="both")],
        "max_leaves": [Interval(Integral, 1, None, closed="left"), None],
        "min_rows": [Interval(Real, 0, None, closed="left")],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "min_gain": [Interval(Real, 0, None, closed="left")],
        "ccp_alpha": [Interval(Real, 0, None, closed="left")],
        "budget": [Interval(Real, 0, None, closed="both")],
        "max_pairs": [Interval(Integral, 1, None, closed="left")],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "verbose": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        *,
        max_depth: int = 10,
        n_orientations: int = 30,
        criterion: Literal["entropy", "gini"] = "entropy",
        pair_penalty: float = 2.0,
        max_leaves: int | None = None,
        min_rows: float = 2,
        min_leaf: int = 1,
        min_gain: float = 5.0,
        ccp_alpha: float = 0.0,
        budget: float = 1e6,
        max_pairs: int = 20_000,
        smoothing: float = 1.0,
        class_weight: Any = None,
        verbose: Verbose = "auto",
    ) -> None:
        self.max_depth = max_depth
        self.n_orientations = n_orientations
        self.criterion = criterion
        self.pair_penalty = pair_penalty
        self.max_leaves = max_leaves
        self.min_rows = min_rows
        self.min_leaf = min_leaf
        self.min_gain = min_gain
        self.ccp_alpha = ccp_alpha
        self.budget = budget
        self.max_pairs = max_pairs
        self.smoothing = smoothing
        self.class_weight = class_weight
        self.verbose = verbose

    def _model(self, leaf: Leaf) -> SoftTree:
        return named.bivariate(leaf)

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        criterion = CRITERIA[self.criterion]
        splitter = BivariateSplitter(
            model.leaf,
            criterion,
            pair_penalty=self.pair_penalty,
            search=LineSearch(
                n_orientations=self.n_orientations,
                min_leaf=self.min_leaf,
                budget=self.budget,
                max_pairs=self.max_pairs,
            ),
        )
        prune = partial(cost_complexity, alpha=self.ccp_alpha, criterion=criterion)
        return inference.grow(
            model,
            data,
            limits=self._limits(),
            splitter=splitter,
            prune=prune if self.ccp_alpha > 0 else None,
            random_state=0,
            progress=bool(self.verbose),
        )
