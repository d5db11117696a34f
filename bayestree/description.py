"""The description of a deterministic tree for plots, exports, the report and summaries.

It names nodes, leaves and sides, counts rows and facets, and puts conditions and predictions into
words.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import (
    Days,
    counted,
    in_levels,
    in_sum,
    inequality,
    limit,
    one_line,
    plain,
    score,
    signed,
)
from bayestree.routed_tree import RoutedTree
from bayestree.topology import Topology
from bayestree.tree import INSIDE, Tree

#: Colours of the classes: Okabe and Ito's palette for all kinds of colour vision ("Color Universal
#: Design"), the two that differ most in hue and lightness first. Its black is reserved for lines.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
#: How several facets decide at a node.
POLYTOPE_RULE = (
    "A row goes left if the votes of all facets of the node add up to at most log 2. Each facet's "
    "inequality is necessary for this, but not sufficient: a row that satisfies all of them may go "
    "right."
)
CONJUNCTION_RULE = "A row goes left if it satisfies every facet of the node, and otherwise right."
HALF = 0.5  # the mantissa of powers of two
SPARSE_TERMS = 12  # of a sparse facet, which texts show whatever the limit
TINY = float(np.finfo(np.float64).tiny)


class Visit(NamedTuple):
    """A node, or a leaf ``~leaf``, and the steps to it.

    A step is a node with the side that is taken there, 0 for left and 1 for right.
    """

    child: int
    steps: tuple[tuple[int, int], ...] = ()


def visits(
    topology: Topology, root: int = 0, is_open: Container[int] | None = None
) -> Iterator[Visit]:
    """Visit nodes and leaves below ``root`` depth first, left first; none below closed nodes."""
    waiting = [Visit(root if topology.n_nodes else ~0)]
    while waiting:
        here = waiting.pop()
        yield here
        if here.child >= 0 and (is_open is None or here.child in is_open):
            left, right = topology.children[here.child].tolist()
            below = ((1, right), (0, left))
            waiting += [Visit(child, (*here.steps, (here.child, side))) for side, child in below]


class HalfSpace(NamedTuple):
    """A facet as the inequality ``left limit``, such as ``age - 4 height <= -2``.

    It is divided by the coefficient of its first term, which belongs to the feature ``first``, or
    by the weight of a point, with the sign of this coefficient (``divisor``). ``bound`` is the
    unrounded limit. Both texts are empty if the facet has no coefficient. ``age is missing`` has
    no limit.
    """

    expert: int
    left: str
    limit: str
    bound: float
    first: int
    divisor: float = 1.0
    otherwise: str = ""
    only: str = ""  # name of the feature whose limit it is, unless it is a sum

    @property
    def terms(self) -> str:
        """The left side without its relation."""
        return self.left.rpartition(" ")[0] if self.limit else self.left

    def __str__(self) -> str:
        if not self.left:
            return "always" if self.bound >= 0 else "never"
        return f"{self.left} {self.limit}".rstrip()


class TreeDescription:
    """Names, counts, conditions and predictions of the nodes and leaves of one tree.

    A child is the number of a node, or ``~leaf``. ``max_terms`` limits the terms of a sum and the
    classes of a leaf, ``digits`` the significant digits; None shows all. Sparse facets are written
    in their own digits, with at least ``sparse_terms`` terms, and equations have at least
    ``leaf_terms``. ``features`` and ``classes`` replace the names of the tree, and ``separator``
    joins the terms of a half-space.
    """

    def __init__(
        self,
        tree: RoutedTree,
        max_terms: int | None = None,
        digits: int | None = None,
        *,
        features: Sequence[str] = (),
        classes: Sequence[str] = (),
        separator: str = " ",
        sparse_terms: int = SPARSE_TERMS,
        leaf_terms: int = 0,
    ) -> None:
        self.tree, self.sparse_terms, self.leaf_terms = tree, sparse_terms, leaf_terms
        self.max_terms, self.digits, self.separator = max_terms, digits, separator
        self.features = tuple(features or map(one_line, tree.feature_labels))
        self.classifies = tree.classifies
        self.classes: tuple[str, ...] = ()
        if self.classifies:
            self.classes = tuple(classes or map(one_line, tree.class_labels))

    @cached_property
    def linear(self) -> Tree | None:
        """The tree if its splits are half-spaces or polytopes."""
        return self.tree if isinstance(self.tree, Tree) else None

    @cached_property
    def has_polytopes(self) -> bool:
        """Whether any node has several facets."""
        return self.linear is not None and bool((self.linear.n_facets > 1).any())

    @cached_property
    def adds_votes(self) -> bool:
        """Whether the votes of several facets add up at any node."""
        tree = self.linear
        return tree is not None and bool(((tree.n_facets > 1) & ~tree.is_conjunction).any())

    @cached_property
    def is_sparse(self) -> bool:
        """Whether all nodes are lists of short inequalities that must all hold."""
        return self.linear is not None and bool(self.linear.is_conjunction.all())

    @cached_property
    def node_rows(self) -> FloatArray:
        """Weighted training rows that reach each node, shape (V,)."""
        return self.tree.topology.sum_below(self.tree.leaf_rows)

    @cached_property
    def node_value(self) -> FloatArray:
        """Mean of the leaf values below each node, weighted by rows, shape (V, C) or (V, 1)."""
        value = self.tree.value.reshape(self.tree.n_leaves, -1)
        sums = self.tree.topology.sum_below(self.tree.leaf_rows[:, None] * value)
        return sums / np.maximum(self.node_rows, TINY)[:, None]

    @cached_property
    def _strength(self) -> FloatArray:
        """Absolute coefficients per unit of each feature, shape (E, d)."""
        assert self.linear is not None
        return np.abs(self.linear.standardised_hyperplane)

    @property
    def rule(self) -> str:
        """How several facets decide at a node."""
        return POLYTOPE_RULE if self.adds_votes else CONJUNCTION_RULE

    def path(self, child: int) -> str:
        """Return the path from the root: "root", "L", "LR", ..."""
        topology = self.tree.topology
        return topology.node_labels[child] if child >= 0 else topology.leaf_labels[~child]

    def rows(self, child: int) -> float:
        """Return the weighted training rows that reach a node or leaf."""
        return float(self.node_rows[child] if child >= 0 else self.tree.leaf_rows[~child])

    def share(self, child: int) -> float:
        """Share of the training rows that reach a node or leaf."""
        return self.rows(child) / max(float(self.tree.leaf_rows.sum()), TINY)

    def value(self, child: int) -> FloatArray:
        """Return the shares of the classes (C,), or the mean (1,), at a node or leaf."""
        return self.node_value[child] if child >= 0 else np.atleast_1d(self.tree.value[~child])

    def position(self, mean: float) -> float:
        """Return the position of a mean between the smallest and the largest leaf, from 0 to 1."""
        low, high = float(self.tree.value.min()), float(self.tree.value.max())
        return (mean - low) / (high - low) if high > low else 0.5

    def n_facets(self, node: int) -> int:
        """Return the facets of a node; 0 for splits of other kinds, such as networks."""
        return 0 if self.linear is None else int(self.linear.n_facets[node])

    def sides(self, node: int) -> tuple[str, str]:
        """Return the names of the left and the right side of a node."""
        return ("yes", "no") if self.n_facets(node) == 1 else self.tree.side_names

    @property
    def common_sides(self) -> tuple[str, str]:
        """Names of the sides that fit every node."""
        single = self.linear is not None and not self.has_polytopes
        return ("yes", "no") if single else self.tree.side_names

    def half_space(self, expert: int, max_terms: int | None = None) -> HalfSpace:
        """Put a facet into words, with other ``max_terms`` than usual if they are given."""
        assert self.linear is not None
        strength, threshold = self._strength[expert], float(self.linear.facet_limit[expert])
        if not strength.any():
            return HalfSpace(expert, "", "", threshold, 0)
        node = int(np.searchsorted(self.linear.expert_start, expert, side="right")) - 1
        plane, border = self.linear.hyperplane[expert], bool(self.linear.is_conjunction[node])
        n_terms, most = np.count_nonzero(plane), max_terms or self.max_terms
        if border:
            threshold -= INSIDE if self.n_facets(node) > 1 else 0.0
            most = most if most is None else max(most, self.sparse_terms)
        if self.linear.unit is not None and n_terms > 1:
            points, weight = self.linear.points(expert)
            left, first = score(
                points,
                self.linear.unit,
                strength,
                self.features,
                max_features=most,
                separator=self.separator,
            )
            divisor = float(np.copysign(weight, plane[first]))
            # Of a decimal limit, the product with the weight was rounded, behind the 15th digit.
            bound = float(f"{threshold / divisor:.15g}") + 0.0
            return HalfSpace(expert, left, plain(bound, None), bound, first, divisor)
        if border:
            # The coefficient 1 has become a power of two, by which the others are divided without
            # rounding errors (see fitting.projection.facets).
            exact = np.where(np.frexp(np.abs(plane))[0] == HALF, strength, 0.0)
            strength = np.where(np.arange(len(plane)) == exact.argmax(), np.inf, strength)
        left, first = inequality(
            plane,
            strength,
            self.features,
            max_features=most,
            decimals=None if border else self.digits,  # rounded numbers are written as they are
            separator=self.separator,
        )
        divisor = float(plane[first])
        bound = threshold / divisor + 0.0  # no negative zero
        if border or n_terms == 1:
            stated = in_levels(plane, threshold, self.features, most)
            if stated is not None:
                return HalfSpace(expert, stated[0], "", bound, first, divisor, stated[1])
        spread, digits = float(self.linear.scale[first]), None if border else self.digits
        only = self.features[first] if n_terms == 1 else ""
        text = limit(bound, spread, digits, only, up=divisor < 0)
        return HalfSpace(expert, left, text, bound, first, divisor, only=only)

    def half_spaces(self, node: int, most: int | None = None) -> list[HalfSpace]:
        """Return the facets of a node, the nearest to the mean first; none for other splits."""
        if self.linear is None:
            return []
        return [self.half_space(expert) for expert in self.linear.nearest_experts(node)[:most]]

    def condition(self, node: int) -> str:
        """Describe the split in a line: its nearest facet and the number of others, or its kind."""
        if self.linear is None:
            return self.tree.split_name
        (nearest,) = self.half_spaces(node, 1)
        others = self.n_facets(node) - 1
        return f"{nearest} and {others} more" if others else str(nearest)

    def bounds(self, node: int) -> list[str]:
        """Say how the facets listed below decide; return no lines for a single facet."""
        if self.n_facets(node) == 1:
            return []
        if self.linear is not None and self.linear.is_conjunction[node]:
            return ["each of these holds:"]
        return [
            f"the votes of {counted(self.n_facets(node), 'facet')} add up to at most log 2",
            "each line below is necessary, but not sufficient:",
        ]

    def leaf(self, leaf: int) -> str:
        """Describe the shares of the classes of a leaf, or its prediction."""
        if not self.classifies:
            return self.prediction(leaf)
        value = self.tree.value[leaf]
        order = np.argsort(-value, kind="stable")[: np.count_nonzero(value)]
        text = self._some([f"{self.classes[c]}: {100 * value[c]:.1f} %" for c in order])
        if self.linear is None or self.linear.slope is None:
            return text
        slope, first = self.linear.slope[leaf], self.classes[0]
        equations = []
        for c in range(1, len(value)):
            of = f"log-odds of {self.classes[c]}" + f" against {first}" * (len(value) > 2)
            odds = math.log(value[c]) - math.log(value[0])
            equations.append(self._equation(of, odds, self._strongest(slope[c] - slope[0])))
        return f"{text} at the means, {'; '.join(equations)}" if slope.any() else text

    def _some(self, parts: list[str]) -> str:
        """Join the first parts of a list, and the number of the others."""
        shown = parts[: self.max_terms]
        more = [f"… {len(parts) - len(shown)} more"] if len(parts) > len(shown) else []
        return ", ".join(shown + more)

    def slopes(self, leaf: int) -> list[tuple[int, float]]:
        """Return the features of a linear leaf, the strongest first, and their slopes.

        For class probabilities, a slope is that of the log-odds of the second of two classes, or
        the largest change of log-odds between two of more classes.
        """
        slope = None if self.linear is None else self.linear.slope
        if slope is None:
            return []
        own = slope[leaf]
        if self.classifies:
            own = own[1] - own[0] if len(own) == 2 else np.ptp(own, axis=0)
        return self._strongest(own)

    def _strongest(self, slope: FloatArray) -> list[tuple[int, float]]:
        strength = np.abs(slope * self.tree.scale)
        order = np.argsort(-strength, kind="stable")[: np.count_nonzero(strength)]
        return [(j, float(slope[j])) for j in order.tolist()]

    def prediction(self, leaf: int) -> str:
        """Describe the mean, means or rate of a leaf, or its linear function of the features."""
        if self.tree.several_outputs:
            means = [plain(value, self.digits) for value in self.tree.value[leaf].tolist()]
            return f"{self.tree.quantity} {self._some(means)}"
        return self._equation(self.tree.quantity, float(self.tree.value[leaf]), self.slopes(leaf))

    def _equation(self, quantity: str, value: float, found: list[tuple[int, float]]) -> str:
        """Write a quantity, of this value at the center, as a linear function of features."""
        if not found:
            return f"{quantity} {plain(value, self.digits)}"
        shown = found[: self.max_terms and max(self.max_terms, self.leaf_terms)]
        spread = sum(abs(one) * float(self.tree.scale[j]) for j, one in shown)
        origin = {j: self._origin(j, one, spread) for j, one in shown}
        constant = value + sum(one * (origin[j] - float(self.tree.center[j])) for j, one in shown)
        terms = [signed(one, self.digits, self._from(j, origin[j])) for j, one in shown]
        more = [f"+ … {len(found) - len(shown)} more"] if len(found) > len(shown) else []
        start = f"{quantity} = {limit(constant, spread, self.digits)}"
        return " ".join([start, *terms, *more])

    def _origin(self, feature: int, slope: float, spread: float) -> float:
        """Return the value of a feature from which an equation counts it: 0, or the center.

        Where 0 is far from all rows, the rounding of a slope to ``digits`` digits would shift
        predictions by more than that of the constant to as many digits of their spread.
        """
        center, scale = float(self.tree.center[feature]), float(self.tree.scale[feature])
        if isinstance(self.features[feature], Days):
            return float(math.floor(center))
        digit = 10.0 ** math.floor(math.log10(abs(slope)))  # the first of each
        if self.digits is None or abs(center) * digit / 2 <= 10.0 ** math.floor(math.log10(spread)):
            return 0.0
        return float(limit(center, scale, self.digits))

    def _from(self, feature: int, origin: float) -> str:
        """Return a feature minus its origin."""
        name = self.features[feature]
        if isinstance(name, Days):
            return name.since(name.date(origin, up=False))
        name = in_sum(name)
        return f"({name} {signed(-origin, None)})" if origin else name


class FittedPosterior(Protocol):
    """The result of an inference: its draws, settings and statistics."""

    @property
    def inference(self) -> str: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def stats(self) -> Mapping[str, Any]: ...
    @property
    def model(self) -> Any: ...
    @property
    def n_chains(self) -> int: ...
    @property
    def n_draws(self) -> int: ...


class FittedModel(Protocol):
    """A fitted estimator: what plots, reports and exports read of every kind."""

    @property
    def n_features_in_(self) -> int: ...
    @property
    def tree_(self) -> RoutedTree: ...
    @property
    def posterior_(self) -> FittedPosterior: ...
    def predict(self, X: Any) -> AnyArray: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


def features_of(model: object, X: Any) -> FloatArray:
    """Encode rows as the deterministic trees of a tree or fitted estimator take them, (n, d)."""
    encoding = getattr(model, "encoding_", None)
    if encoding is None:
        try:
            return np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{error}; a tree takes the numbers of its features: encode X by "
                "estimator.encoding_.encode(X), or pass the estimator instead of its tree."
            ) from error
    if encoding.is_plain:
        return encoding.filled(np.asarray(X, dtype=np.float64))
    return encoding.encode(X).to_numpy()


def trees_of(tree: object, *, several_outputs: bool = False) -> list[RoutedTree]:
    """Return the trees of a tree, fitted estimator or forest; refuse several outputs by default."""
    members = getattr(tree, "estimators_", [tree])
    found = [getattr(member, "tree_", member) for member in members]
    if found and all(isinstance(one, RoutedTree) for one in found):
        if not several_outputs and any(one.several_outputs for one in found):
            n_outputs = found[0].value.shape[1]
            raise ValueError(
                f"the tree has {n_outputs} outputs, of which one can be shown here: "
                f"pass output(0) of the tree or of its estimator, or another up to "
                f"output({n_outputs - 1})."
            )
        return found
    if hasattr(tree, "fit"):
        check_is_fitted(tree)
    raise TypeError(
        f"tree must be a Tree or a fitted estimator of this package, got {kind_of(tree)}."
    )


def kind_of(model: object) -> str:
    """Name the type of what is not a fitted tree, and where a meta-estimator has one."""
    name = type(model).__name__
    if hasattr(model, "steps"):
        return (
            f"{name}; pass its last step, [-1], and rows that the steps before it have transformed"
        )
    inside = ("best_estimator_", "estimator_", "regressor_")
    return next((f"{name}; pass its {one}" for one in inside if hasattr(model, one)), name)


def tree_of(estimator: object) -> RoutedTree:
    """Return the deterministic tree of a tree or of a fitted estimator, but not of a forest."""
    found = trees_of(estimator)
    if hasattr(estimator, "estimators_"):
        raise TypeError(
            f"one tree is needed, got {type(estimator).__name__}; pass a single tree of a forest, "
            "such as estimators_[0]."
        )
    return found[0]


def has_draws(estimator: object) -> bool:
    """Return whether an estimator has a posterior of more than one draw."""
    posterior: FittedPosterior | None = getattr(estimator, "posterior_", None)
    return posterior is not None and posterior.n_chains * posterior.n_draws > 1


def has_evidence(estimator: object) -> bool:
    """Return whether the posterior is over topologies, with its evidence."""
    posterior: FittedPosterior | None = getattr(estimator, "posterior_", None)
    return posterior is not None and "log_evidence" in posterior.stats


class Mode(NamedTuple):
    """One of the trees of a mixture: its number from 1, its weight, and the fitted estimator."""

    number: int
    weight: float
    estimator: Any


def modes_of(estimator: object) -> list[Mode]:
    """Return the trees of an estimator with several modes, the most probable first."""
    found = getattr(estimator, "modes_", ())
    if len(found) < 2:
        return []
    weights: Any = estimator.mode_weights_  # type: ignore[attr-defined]
    modes = [Mode(number, float(weights[number - 1]), one) for number, one in enumerate(found, 1)]
    return sorted(modes, key=lambda mode: -mode.weight)


def shown_mode(estimator: object) -> Mode | None:
    """Return the mode whose tree is the ``tree_`` of an estimator with several modes."""
    tree = getattr(estimator, "tree_", None)
    return next((mode for mode in modes_of(estimator) if mode.estimator.tree_ is tree), None)


def sparsity_of(estimator: object) -> Any:
    """Return how the sparse facets of an estimator's tree were chosen; None if they are full."""
    shown = getattr(getattr(estimator, "fitted_", None), "shown", None)
    return getattr(shown, "sparsity", None)


def words_of_mode(estimator: object) -> str:
    """Describe the tree of an estimator with several modes; return "" for others."""
    mode, modes = shown_mode(estimator), modes_of(estimator)
    if mode is None:
        return ""
    sloping = [one for one in modes if getattr(one.estimator.tree_, "slope", None) is not None]
    weight = sum(one.weight for one in sloping)
    differ = 0 < len(sloping) < len(modes)
    kind = "logistic" if mode.estimator.tree_.value.ndim == 2 else "linear"
    linear = f"; all with {kind} leaves have a weight of {weight:.2f}" if differ else ""
    return (
        f"mode {mode.number} of {len(modes)} (weight {mode.weight:.2f}), the most typical tree; "
        f"predict() averages over all of them, and can differ from it{linear}"
    )


def check_limits(**limits: int | None) -> None:
    """Refuse a limit below 1, by its name; None means no limit."""
    for name, value in limits.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}; None shows all.")
