"""The deterministic tree as rules: one for each leaf."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from bayestree._inequality import inequality, limit
from bayestree.tree import Tree, facet_threshold

SAME = 9  # significant digits in which two conditions must agree to be of one quantity


def export_rules(
    tree: object,
    *,
    group: bool = False,
    max_features: int = 4,
    max_facets: int = 6,
    decimals: int = 3,
) -> str:
    """A tree as rules IF ... THEN ..., in the units of the data.

    A rule is the way from the root to a leaf. Conditions on one quantity are merged, and those
    that others imply left out. Exactly one rule holds for each row; the last is therefore written
    as ELSE. A polytope of several facets is written as all of them, joined by AND, and its
    outside as the negation: its facets bound it, and inside are the rows on which their votes add
    up to at most log 2 (see :class:`bayestree.tree.Tree`).

    Parameters
    ----------
    tree : Tree, or a fitted estimator
        With linear splits.
    group : bool
        Write the rules class by class, and those of the class that has most of them as one ELSE:
        fewer rules, but without the probabilities of single leaves there.
    max_features : int
        Terms shown of each facet, those of the largest weight per standard deviation.
    max_facets : int
        Facets shown of each polytope.
    decimals : int
        Significant digits; of a limit, relative to the standard deviation of the first term.

    Returns
    -------
    str
        A line for each rule: the class, its probability p and the training rows n of the leaf;
        or the mean.

    Raises
    ------
    TypeError
        If ``tree`` is neither a Tree with linear splits nor a fitted estimator that has one.
    ValueError
        If ``group`` is asked of a regression tree, or ``max_features``, ``max_facets`` or
        ``decimals`` is less than 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier, export_rules
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2, pair_penalty=20).fit(X, y)
    >>> print(export_rules(clf), end="")
    1: IF (x2 <= 2.45) THEN 0 (p = 1.00, n = 50)
    2: IF (x2 > 2.45) AND (x3 <= 1.750) THEN 1 (p = 0.91, n = 54)
    3: ELSE 2 (p = 0.98, n = 46)
    """
    given = {"max_features": max_features, "max_facets": max_facets, "decimals": decimals}
    for name, value in given.items():
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")
    found = getattr(tree, "tree_", tree)
    if not isinstance(found, Tree):
        raise TypeError(
            f"tree must be a Tree with linear splits or a fitted estimator that has one, got "
            f"{type(found).__name__}; fit first, give one tree of a forest, such as "
            "estimators_[0], or use export_text for other splits."
        )
    if group and found.value.ndim == 1:
        raise ValueError("group is for classes; a regression tree has a mean in each leaf.")
    rules = _Rules(found, max_features, max_facets, decimals)
    lines = rules.by_class() if group else rules.by_leaf()
    return "\n".join(lines) + "\n"


class Bound(NamedTuple):
    """Low and high limits of a quantity: low < or <= quantity < or <= high.

    Attributes
    ----------
    low, high : float
    low_open, high_open : bool
        Whether the limit itself is left out.
    """

    low: float = -np.inf
    high: float = np.inf
    low_open: bool = True
    high_open: bool = True

    def both(self, other: Self) -> "Bound":
        """Where both hold."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        # of equal limits the open one is the stricter
        high, closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        return Bound(low, high, low_open, not closed)

    @classmethod
    def of(cls, value: float, *, above: bool, is_open: bool) -> "Bound":
        """One limit."""
        return cls(low=value, low_open=is_open) if above else cls(high=value, high_open=is_open)


class Quantity(NamedTuple):
    """A sum of features that conditions are about, divided by the coefficient of its first.

    Attributes
    ----------
    text : str
    spread : float
        Standard deviation of its first feature.
    ratios : tuple of (int, float)
        Features with their coefficients: sums that only look alike are not one quantity.
    """

    text: str
    spread: float
    ratios: tuple[tuple[int, float], ...]


class _Rules:
    """Writes the rules of one tree."""

    def __init__(self, tree: Tree, max_features: int, max_facets: int, decimals: int) -> None:
        self.tree = tree
        self.max_features, self.max_facets, self.decimals = max_features, max_facets, decimals
        self.names = tree.feature_names or tuple(f"x{j}" for j in range(tree.n_features))
        self.strength = np.abs(tree.standardised_hyperplane)
        self.threshold = facet_threshold(tree.weight) - tree.intercept

    def by_leaf(self) -> Iterator[str]:
        """A rule for each leaf, left branches first; the last is the rest."""
        ways = list(self.ways())
        for number, (leaf, steps) in enumerate(ways, start=1):
            last = number == len(ways)
            yield self.rule(number, "" if last else self.conditions(steps), self.leaf(leaf))

    def by_class(self) -> Iterator[str]:
        """Rules of all classes but that which has most; the most frequent class first."""
        of_class: dict[int, list[tuple[int, list[tuple[int, int]]]]] = {}
        for leaf, steps in self.ways():
            of_class.setdefault(int(self.tree.value[leaf].argmax()), []).append((leaf, steps))
        order = sorted(of_class, key=lambda label: (len(of_class[label]), label))
        number = 1
        for label in order[:-1]:
            for leaf, steps in of_class[label]:
                yield self.rule(number, self.conditions(steps), self.leaf(leaf))
                number += 1
        leaves = [leaf for leaf, _ in of_class[order[-1]]]
        yield self.rule(number, "", self.leaves(order[-1], leaves))

    def ways(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Each leaf with the nodes on its way and the side taken at each."""
        waiting: list[tuple[int, list[tuple[int, int]]]] = [(0 if self.tree.n_nodes else ~0, [])]
        while waiting:
            child, steps = waiting.pop()
            if child < 0:
                yield ~child, steps
                continue
            left, right = self.tree.topology.children[child].tolist()
            waiting += [(right, [*steps, (child, 1)]), (left, [*steps, (child, 0)])]

    def rule(self, number: int, conditions: str, then: str) -> str:
        if conditions:
            return f"{number}: IF {conditions} THEN {then}"
        return f"{number}: {'ELSE ' if number > 1 else 'ALWAYS '}{then}"

    def leaf(self, leaf: int) -> str:
        if self.tree.value.ndim == 1:
            mean = f"{self.tree.value[leaf]:.{self.decimals}g}"
            text = f"{mean} + a linear term" if self.tree.slope is not None else mean
            return f"{text} (n = {_count(self.tree.leaf_rows[leaf])})"
        return self.leaves(int(self.tree.value[leaf].argmax()), [leaf])

    def leaves(self, label: int, leaves: list[int]) -> str:
        """A class, its probability in some leaves together, and their rows."""
        names = self.tree.class_names or tuple(str(c) for c in range(self.tree.value.shape[1]))
        rows = self.tree.leaf_rows[leaves]
        weights = rows if rows.sum() > 0 else None
        share = float(np.average(self.tree.value[leaves, label], weights=weights))
        return f"{names[label]} (p = {share:.2f}, n = {_count(rows.sum())})"

    def conditions(self, steps: list[tuple[int, int]]) -> str:
        """Conditions of a way, those on one quantity merged, in the order of their first."""
        bounds: dict[Quantity | str, Bound] = {}
        for node, side in steps:
            own = self.tree.experts(node)
            if own.stop - own.start == 1:
                what, bound = self.facet(own.start, right=bool(side))
                bounds[what] = bounds.get(what, Bound()).both(bound)
            else:
                bounds[self.polytope(node, right=bool(side))] = Bound()
        return " AND ".join(self.condition(what, bound) for what, bound in bounds.items())

    def condition(self, what: Quantity | str, bound: Bound) -> str:
        """As in ``(2 < x3 <= 5)``."""
        if isinstance(what, str):
            return what
        low = limit(bound.low, what.spread, self.decimals)
        high = limit(bound.high, what.spread, self.decimals)
        below, above = ("<" if is_open else "<=" for is_open in bound[2:])
        if bound.high == np.inf:
            return f"({what.text} {'>' if bound.low_open else '>='} {low})"
        if bound.low == -np.inf:
            return f"({what.text} {above} {high})"
        return f"({low} {below} {what.text} {above} {high})"

    def facet(self, expert: int, *, right: bool) -> tuple[Quantity | str, Bound]:
        """What a facet is about, and the limit that one of its sides sets."""
        plane, threshold = self.tree.hyperplane[expert], float(self.threshold[expert])
        if not self.strength[expert].any():
            return ("(always)" if (threshold < 0) == right else "(never)"), Bound()
        text, first = inequality(
            plane,
            self.strength[expert],
            self.names,
            max_features=self.max_features,
            decimals=self.decimals,
        )
        lead = float(plane[first])
        ratios = tuple(
            (int(j), float(f"{plane[j] / lead:.{SAME}g}")) for j in np.flatnonzero(plane)
        )
        quantity = Quantity(text.rsplit(" ", 1)[0], float(self.tree.scale[first]), ratios)
        # right is plane . x > threshold, turned round where it is divided by a negative number
        return quantity, Bound.of(threshold / lead, above=(lead > 0) == right, is_open=right)

    def polytope(self, node: int, *, right: bool) -> str:
        """All facets of a node, the nearest to the mean of the data first, or their negation."""
        own = self.tree.experts(node)
        norm = np.maximum(np.linalg.norm(self.strength[own], axis=1), np.finfo(np.float64).tiny)
        distance = (self.threshold[own] - self.tree.hyperplane[own] @ self.tree.center) / norm
        nearest = own.start + np.argsort(distance, kind="stable")
        facets = [
            self.condition(*self.facet(int(expert), right=False))
            for expert in nearest[: self.max_facets]
        ]
        if len(nearest) > self.max_facets:
            facets.append(f"… {len(nearest) - self.max_facets} more")
        inside = f"({' AND '.join(facets)})"
        return f"NOT {inside}" if right else inside


def _count(rows: float) -> str:
    return f"{round(float(rows), 1):,.10g}"
