"""What a fit has found: trees with their posteriors, and the weights of their mixture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.monte_carlo import numbered_chains
from bayestree.diagnostics.draws import Matches, classifies, leaf_means, leaf_shares, match, spread
from bayestree.diagnostics.label_free import typical_rows
from bayestree.diagnostics.polytopes import Reach
from bayestree.diagnostics.sample import SampleCheck
from bayestree.diagnostics.sparsity import SparsityPath
from bayestree.fitted.response import Response
from bayestree.fitted.training_rows import Scaling
from bayestree.inference import Posterior
from bayestree.models import SoftTree
from bayestree.routed_tree import RoutedTree
from bayestree.tables import Encoding

MADE_UP = 200  # rows at which models of earlier versions, which keep none, are compared
Prediction = Literal["auto", "tree", "posterior"]


@dataclass(frozen=True, eq=False)
class FittedTree:
    """One fitted tree: its deterministic form, its posterior, and how rows enter it."""

    tree: Any  # a Tree, or a NetworkTree if splits are networks, in the units of the data
    posterior: Posterior  # draws on the standardised features
    scaling: Scaling
    reach: Reach | None = None  # statistics of the training rows for the diagnostics of polytopes
    #: Sums over the rows so far, for ``partial_fit``; empty after ``fit``.
    stream: Mapping[str, AnyArray] = field(default_factory=dict)
    #: Parameters of the estimator that fitted this tree alone.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: How the facets of ``tree`` were chosen, if they are sparse.
    sparsity: SparsityPath | None = None
    #: Whether the rows of the fit had exposures other than 1, or censored times.
    with_extra: bool = False

    @property
    def n_draws(self) -> int:
        """Number of draws over all chains."""
        return self.posterior.n_chains * self.posterior.n_draws

    @property
    def polytopes(self) -> Reach:
        """The statistics of the training rows; AttributeError if the splits are not polytopes."""
        if self.reach is None:
            raise AttributeError(
                "this diagnostic needs the polytopes of a soft tree with linear experts, but this "
                f"fit has none: its splits are of the kind {self.tree.split_name!r}."
            )
        return self.reach

    def moments(self, rows: FloatArray, *, averages: bool) -> tuple[FloatArray, FloatArray]:
        """Compute mean and standard deviation of E(y | x) over the draws, or predict by the tree.

        Parameters
        ----------
        rows : array, shape (n, d)
        averages : bool
            Whether to average over the draws.

        Returns
        -------
        mean, sd : arrays, shape (n, C) for classes, (n,) or (n, q) for numbers
        """
        if not averages:
            only = self.tree.predict(rows)
            return only, np.zeros(only.shape)  # unlike zeros_like, takes no memory until it is used
        return self.in_units(*self.posterior.predictive(self.scaling.standardise(rows)))

    def in_units(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return predictions of the posterior in the units of y."""
        if self.posterior.model.leaf.n_classes:
            # The probabilities of float32 fits sum to 1 in single precision only.
            return mean / mean.sum(axis=-1, keepdims=True), sd
        units = self.scaling.units
        return units.decode(mean), sd * units.y_scale

    @property
    def sample(self) -> FloatArray:
        """Some of the training rows, (m, d); made-up ones for a model of an earlier version."""
        if self.polytopes.sample is not None:
            return self.polytopes.sample
        tree = self.tree
        return tree.center + tree.scale * typical_rows(tree.n_features, MADE_UP)

    @cached_property
    def matches(self) -> Matches:
        """The nodes of ``tree`` among the nodes of the draws."""
        standardised = self.scaling.standardise(self.sample)
        return node_matches(
            self.posterior, self.tree, self.sample, standardised, self.polytopes.nodes
        )

    @property
    def node_draws(self) -> dict[str, NDArray[Any]]:
        """The experts of the nodes of ``tree`` in every draw, (chain, draw, V, K, ...)."""
        return self.matches.of_nodes(self.posterior.draws)

    def drawn_trees(self, max_draws: int) -> Iterator[Any]:
        """Yield the deterministic form of evenly spaced draws, not pruned, in the units of y."""
        model, units, tree = self.posterior.model, self.scaling.units, self.tree
        draws = self.posterior.described_draws
        own = ("center", "scale", "feature_names", "class_names", "quantity")
        frame: Any = {name: getattr(tree, name) for name in own}
        origin = np.zeros((1, tree.n_features))
        for place in spread(self.n_draws, max_draws):
            one = divmod(int(place), self.posterior.n_draws)
            sites = {name: values[one] for name, values in draws.items()}
            drawn = model.split.tree(model.topology, sites, frame)
            of_leaves = leaf_shares if classifies(draws) else leaf_means
            drawn = drawn._with(value=of_leaves(draws, one, origin)[0])
            if "leaf_slope" in sites:
                drawn = drawn._with(slope=sites["leaf_slope"].astype(np.float64) / tree.scale)
            yield drawn.rescaled(units.y_scale, units.y_center)

    def output(self, number: int) -> Self:
        """Return the tree of a single output."""
        return replace(
            self,
            tree=self.tree.output(number),
            posterior=self.posterior.output(number),
            scaling=replace(self.scaling, units=self.scaling.units.output(number)),
        )


def node_matches(
    posterior: Posterior, tree: Any, X: FloatArray, standardised: FloatArray, nodes: IntArray
) -> Matches:
    """Match the nodes of draws to those of a tree of the same posterior, by its rows X (n, d).

    ``nodes`` (V,) are their numbers where every draw has the same ones.
    """
    if posterior.settings.get("mirror"):
        return match(posterior.draws, standardised, *sides_of(tree, X))
    return Matches.fixed(nodes, posterior.draws)


def sides_of(tree: Any, X: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Tell which rows (n, d) go right at each node, and which reach it, both (n, V).

    Nodes that no row reaches are compared at all rows.
    """
    right = np.zeros((len(X), tree.n_nodes), dtype=bool)
    reached = np.zeros_like(right)
    for node, rows, sides in tree.walk(X):
        right[rows, node], reached[rows, node] = sides, True
    for node in np.flatnonzero(~reached.any(axis=0)):
        right[:, node], reached[:, node] = tree.goes_right(node, X), True
    return right, reached


@dataclass(frozen=True, eq=False)
class Mixture:
    """The result of a fit: trees and their weights, and how rows enter them.

    The trees are the modes of a posterior, or those of a forest; a single tree is a mixture of one.
    Diagnostics, explanations, exports and reports read this, and estimators forward to it.
    """

    trees: Sequence[FittedTree]
    weights: FloatArray  # with sum 1, (M,)
    medoid: int = 0  # the tree whose predictions differ least from the others
    #: Of a fit to a sample of the rows of a data set, whether more of them would improve it.
    sample_check: SampleCheck | None = None
    #: Whether a prediction is always the mean over the trees, without uncertainty.
    forest: bool = False
    encoding: Encoding | Any = None  # how the columns of X become features
    #: What the fit did, and why; None of trees without a plan, and of models that were read.
    plan: Any = None

    @classmethod
    def of(cls, *trees: FittedTree, forest: bool = False) -> Self:
        """Return the mixture of trees of equal weights."""
        return cls(trees, np.full(len(trees), 1 / len(trees)), forest=forest)

    def alone(self, tree: FittedTree) -> Self:
        """Return one of the trees, or a changed one, as a mixture of its own."""
        plan = None if self.plan is None else self.plan.of_one_tree()
        own: dict[str, Any] = {"sample_check": None, "forest": False, "plan": plan}
        return replace(self, trees=(tree,), weights=np.ones(1), medoid=0, **own)

    def __iter__(self) -> Iterator[tuple[FittedTree, float]]:
        """Iterate over trees and weights."""
        return zip(self.trees, self.weights.tolist(), strict=True)

    def by_weight(self) -> list[tuple[FittedTree, float]]:
        """Sort trees by weight, the largest first."""
        return sorted(self, key=lambda one: -one[1])

    @property
    def several(self) -> bool:
        """Whether there is more than one tree."""
        return len(self.trees) > 1

    @property
    def shown(self) -> FittedTree:
        """The tree that stands for the mixture: the medoid."""
        return self.trees[self.medoid]

    def with_shown(self, tree: FittedTree) -> Self:
        """Return the mixture with a changed tree in the place of the one that is shown."""
        return replace(self, trees=[tree if one is self.shown else one for one in self.trees])

    @property
    def scaling(self) -> Scaling:
        """The columns in use, and the units of features and y, which all trees share."""
        return self.shown.scaling

    @property
    def hard_trees(self) -> list[tuple[float, RoutedTree]]:
        """The deterministic trees, whose weighted mean predicts without a posterior."""
        return [(weight, one.tree) for one, weight, _ in self.predicting("tree")]

    @property
    def response(self) -> Response:
        """What y of the fit holds."""
        one = self.shown
        return Response(
            self.scaling.labels, self.scaling.units, one.posterior.model.leaf, one.with_extra
        )

    def averages(self, prediction: Prediction) -> bool:
        """Tell whether predictions average over draws."""
        if prediction == "auto":
            return self.several or self.shown.n_draws > 1
        return prediction == "posterior" and not self.forest

    def expectation(
        self, rows: FloatArray, prediction: Prediction
    ) -> tuple[FloatArray, FloatArray]:
        """Compute E(y | x), and its standard deviation over the posterior."""
        (one, share, averages), *others = each = self.predicting(prediction)
        if self.forest:
            parts = (tree.moments(rows, averages=by_draws)[0] for tree, _, by_draws in each)
            total = sum(parts, start=np.zeros(1))
            return total / len(each), np.zeros(total.shape)
        # Relative to the first tree, because squares of values of y may be too large to subtract.
        first, sd = one.moments(rows, averages=averages)
        if not others:
            return first, sd
        shift: Any = 0.0
        square = share * sd**2
        for tree, weight, _ in others:
            mean, sd = tree.moments(rows, averages=averages)
            shift = shift + weight * (mean - first)
            square = square + weight * (sd**2 + (mean - first) ** 2)
        return first + shift, np.sqrt(np.maximum(square - shift**2, 0.0))  # of rounding errors

    def predicting(self, prediction: Prediction) -> list[tuple[FittedTree, float, bool]]:
        """Return the trees that predict, with their weights, and whether by their draws."""
        if self.forest:
            return [(tree, weight, prediction == "posterior") for tree, weight in self]
        if prediction == "tree":
            return [(self.shown, 1.0, False)]
        averages = prediction == "posterior" or self.shown.n_draws > 1
        return [(tree, weight, averages) for tree, weight in self]

    @cached_property
    def matches(self) -> list[Matches]:
        """The nodes of the tree that is shown among the nodes of the draws of each tree."""
        shown, X = self.shown, self.shown.sample
        sides = sides_of(shown.tree, X)
        return [
            one.matches
            if one is shown
            else match(one.posterior.draws, one.scaling.standardise(X), *sides)
            for one in self.trees
        ]

    def drawn(self, rows: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield E(y | x, parameters) of groups of draws, (S, n, C) or (S, n), and their weights."""
        for one, weight in self.by_weight():
            if weight:
                units = one.scaling.units
                for group in one.posterior.expectations(one.scaling.standardise(rows)):
                    each = np.full(len(group), weight / one.n_draws)
                    yield units.decode(group.astype(np.float64)), each

    @property
    def chains(self) -> IntArray:
        """The number of the chain of each draw, in the order in which they are ``drawn``."""
        return numbered_chains([one.posterior.chains for one, weight in self.by_weight() if weight])

    def output(self, number: int) -> "Mixture":
        """Return the mixture of a single output."""
        return replace(self, trees=[tree.output(number) for tree in self.trees])


class MixtureEstimator(Protocol):
    """An estimator that keeps a mixture, as the functions of ``fitted`` read it."""

    fitted_: Mixture
    prediction: Prediction
    validation_fraction: float
    verbose: Any
    missing_values: Any

    @property
    def encoding_(self) -> Encoding: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def _in_place(self) -> bool: ...
    def _y_checks(self, y: Any) -> dict[str, bool]: ...
    def _row_weights(self, sample_weight: ArrayLike | None, y: AnyArray) -> FloatArray: ...


class StagedEstimator(MixtureEstimator, Protocol):
    """An estimator whose fits follow a plan."""

    @property
    def plan_(self) -> Any: ...
    def _before_fit(self, X: ArrayLike) -> tuple[SoftTree, FloatArray]: ...


def one_output(estimator: MixtureEstimator, method: str) -> None:
    """Refuse a method that is defined for one output."""
    check_is_fitted(estimator)
    n_outputs = estimator.fitted_.response.n_outputs
    if n_outputs > 1:
        raise ValueError(
            f"{method} is for one output, but y had {n_outputs} in the fit: use "
            f"output(0).{method}, or another up to output({n_outputs - 1})."
        )
