"""The deterministic tree in words: as text, and as rules."""

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np

from bayestree._utils.wording import (
    Indicator,
    counted,
    in_sum,
    leading,
    limit,
    plain,
    quantity,
    signed,
    weighted_sum,
)
from bayestree.description import SPARSE_TERMS, Visit, tree_of, trees_of
from bayestree.diagnostics.printed import TreeIntervals
from bayestree.export import Visitor, notes_on_numbers
from bayestree.tree import LOG2, Tree

WIDTH = 100  # characters of a line of notes


def export_text(
    tree: object,
    *,
    max_features: int | Literal["auto"] | None = "auto",
    max_facets: int | None = 6,
    decimals: int | None = 3,
    intervals: TreeIntervals | None = None,
) -> str:
    """Write a tree as text, each facet by its largest weights and in the units of the data.

    For trees with other splits, such as networks, only the structure is shown.

    A facet is divided by the coefficient of its first term, so that the others are relative to
    it. The inequality of a node with one facet is the split itself: rounded and shortened to its
    largest terms, or exact with ``max_features=None, decimals=None``. In a sparse tree (see the
    parameter ``sparsity``) numbers are rounded already, and a row goes left if it satisfies every
    facet of the node. Full facets of a polytope only bound it: a row that violates any of them
    goes right. A row that satisfies all of them may go right too, because the votes of several
    experts add up (see :class:`bayestree.tree.Tree`). :func:`bayestree.export_rules` and
    :func:`bayestree.export_json` write that sum.

    Parameters
    ----------
    tree : a deterministic tree, or a fitted estimator
        The trees of a forest are written one after the other. All numbers are those of the
        deterministic tree; if the estimator also has posterior draws, a line at the top notes it.
    max_features : int or "auto", optional
        Maximum number of terms of a facet, those of the largest weight per standard deviation, and
        of classes of a leaf, the most frequent. "auto" shows 6, or 12 of a sparse facet or of an
        equation; None shows all.
    max_facets : int, optional
        Maximum number of facets of a node: those nearest to the mean of the data, which cut off
        most. None shows all.
    decimals : int, optional
        Significant digits; for a threshold, relative to the standard deviation of the first term.
        None shows all.
    intervals : TreeIntervals, optional
        What ``tree_intervals(X)`` of the estimator returned; intervals of limits and leaves are
        then written behind them, in parentheses.

    Returns
    -------
    str
        At least one line for each node and leaf, left branches first.

    Raises
    ------
    NotFittedError, TypeError
        If ``tree`` is not a tree or a fitted estimator of this package.
    ValueError
        If a limit is less than 1, or the intervals belong to another tree.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import ConvexPolytopeTreeClassifier, export_text
    >>> iris = load_iris(as_frame=True)
    >>> clf = ConvexPolytopeTreeClassifier(max_depth=1, inference="map", random_state=0)
    >>> text = export_text(clf.fit(iris.data, iris.target))
    """
    members = getattr(tree, "estimators_", [tree])
    texts = []
    for one, member in zip(trees_of(tree, several_outputs=True), members, strict=True):
        writer = _Text(one, max_features=max_features, max_facets=max_facets, decimals=decimals)
        if not isinstance(intervals, TreeIntervals | None):
            raise TypeError(f"intervals must be those of tree_intervals(X), got {intervals!r}.")
        if intervals is not None and intervals.tree is not one:
            raise ValueError("intervals belong to another tree: compute them by tree_intervals(X).")
        writer.intervals = intervals
        written = list(writer.written())
        notes = [*notes_on_numbers(member, decimals), *writer.key(written)]
        lines = [writer.heading(), *(line for note in notes for line in wrap(note, WIDTH)), ""]
        texts.append("\n".join([*lines, *written]) + "\n")
    if not hasattr(tree, "estimators_"):
        return texts[0]
    return "\n".join(f"tree {t} of {len(texts)}: {text}" for t, text in enumerate(texts, start=1))


class _Text(Visitor[str]):
    terms: ClassVar[int | None] = 6
    leaf_terms: ClassVar[int] = SPARSE_TERMS
    intervals: TreeIntervals | None = None

    def heading(self) -> str:
        """Return the size of the tree."""
        tree = self.described.tree
        return (
            f"{counted(tree.n_nodes, 'node')}, {counted(tree.n_leaves, 'leaf')}, "
            f"depth {tree.depth}, {counted(tree.leaf_rows.sum(), 'row')}"
        )

    def key(self, written: list[str]) -> list[str]:
        """Explain intervals, brackets, L and R, and the facets of a polytope, if there are any."""
        known, found = self.intervals, []
        if known is not None:
            found += [f"In parentheses: {100 * known.level:g} % intervals of limits and leaves."]
        names = (in_sum(one) for one in self.described.features if isinstance(one, Indicator))
        if bracket := next((one for one in names if one in "\n".join(written)), ""):
            found += [f"A bracket such as {bracket} is 1 where it holds, and 0 elsewhere."]
        if self.described.tree.n_nodes:
            shown = f" {self.described.rule}" if self.described.has_polytopes else ""
            votes = " export_rules writes the votes." if self.described.adds_votes else ""
            found += [f"L is left, R is right.{shown}{votes}"]
        return found

    def node(self, at: Visit) -> Iterator[str]:
        """Write the first line of a node, and the lines that state its split."""
        described, node = self.described, at.child
        head = f"{self._head(at)}{counted(described.rows(node), 'row')}"
        if described.linear is None:
            yield f"{head}, {described.tree.split_name}"
            return
        known, (half_spaces, hidden) = self.intervals, self.facets(node)
        facets = [
            f"{one}{known.of_limit(one.expert, self.decimals) if known else ''}"
            for one in half_spaces
        ]
        n_facets = described.n_facets(node)
        yield f"{head}, {counted(n_facets, 'facet')}" if described.has_polytopes else head
        if n_facets == 1:
            lines = [f"left if  {facets[0]}"]
        else:
            more = [f"  … {hidden} more, farther out"] if hidden else []
            bounds = f"left if {'; '.join(described.bounds(node))}"
            lines = [bounds, *(f"  {facet}" for facet in facets), *more]
        yield from (f"{_indent(at.steps)}│    {line}" for line in lines)

    def leaf(self, at: Visit) -> Iterator[str]:
        """Write the line of a leaf."""
        rows = counted(self.described.rows(at.child), "row")
        known = self.intervals
        around = known.of_leaf(~at.child, self.decimals) if known else ""
        first, *terms = re.split(" (?=[+-] )", f"{self.described.leaf(~at.child)}{around}")
        line = f"{self._head(at)}leaf, {rows}, {first}"
        for term in terms:
            if len(line) + len(term) >= WIDTH:
                yield line
                line = f"{_indent(at.steps)}    "
            line = f"{line} {term}"
        yield line

    def _head(self, at: Visit) -> str:
        """Return the branch that leads to a node or leaf, and its path."""
        above = ""
        if at.steps:
            above = _indent(at.steps[:-1]) + ("├─ ", "└─ ")[at.steps[-1][1]]
        return f"{above}{self.described.path(at.child)}: "


def _indent(steps: Sequence[tuple[int, int]]) -> str:
    """Return the branches that go on below the node or leaf at the end of these steps."""
    return "".join(("│  ", "   ")[side] for _, side in steps)


SAME = 15  # significant digits to which two conditions on the same quantity agree


def export_rules(
    tree: object,
    *,
    group: bool = False,
    max_features: int | None = None,
    max_facets: int | None = None,
    decimals: int | None = None,
) -> str:
    """Write a tree as rules IF ... THEN ..., in the units of the data.

    A rule is the path from the root to a leaf. Conditions on the same quantity are merged, and
    those that others imply are omitted. Exactly one rule holds for each row, so the last is
    written as ELSE.

    By default the rules are equivalent to the tree: every term is written in full precision, and
    only rows within rounding error of a border (1e-16 relative to its terms) may take another
    rule. Limits make the rules shorter but not equivalent; a first line, marked ``#``, then
    states what is missing.

    The rules refer to a polytope of several facets by the path of its node, as ``inside(root)`` and
    ``outside(root)``, and its condition is written once before them: that each of its facets holds
    in a sparse tree (see the parameter ``sparsity``), and otherwise a limit on the sum of the votes
    of its facets, which is not the intersection of half-spaces.

    Parameters
    ----------
    tree : Tree, or a fitted estimator
        With linear splits.
    group : bool
        Write the rules class by class, and replace those of the class with the most rules by one
        ELSE. This gives fewer rules but loses the probabilities of that class's leaves.
    max_features : int, optional
        Maximum number of terms of a facet and of a linear leaf, those of the largest weight per
        standard deviation. None shows all.
    max_facets : int, optional
        Maximum number of votes of a polytope. None shows all.
    decimals : int, optional
        Significant digits; for a limit, relative to the standard deviation of the first term. None
        shows all. Probabilities always have two decimals.

    Returns
    -------
    str
        One line for each rule: the class or mean, the probability p of the class and the training
        rows n of the leaf. Comments (``#``) and the conditions of polytopes come first.

    Raises
    ------
    NotFittedError, TypeError
        If ``tree`` is not a tree with linear splits or a fitted estimator of one.
    ValueError
        If ``group`` is used with a regression tree, or a limit is less than 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier, export_rules
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2, pair_penalty=20).fit(X, y)
    >>> print(export_rules(clf, decimals=3), end="")
    # Not equivalent to the tree: numbers are rounded to 3 significant digits.
    1: IF (x2 <= 2.45) THEN class 0 (p = 0.99, n = 50)
    2: IF (x2 > 2.45) AND (x3 <= 1.750) THEN class 1 (p = 0.90, n = 54)
    3: ELSE class 2 (p = 0.96, n = 46)
    """
    found = tree_of(tree)
    if not isinstance(found, Tree):
        raise TypeError(
            f"rules need linear splits, but the splits of this tree are of the kind "
            f"{found.split_name!r}; use export_text instead."
        )
    if group and found.value.ndim == 2 and found.slope is not None:
        raise ValueError(
            "group needs one class for each leaf, but the probabilities of these leaves depend on "
            "the features; use group=False."
        )
    if group and found.value.ndim == 1:
        raise ValueError("group needs classes, but this is a regression tree; use group=False.")
    rules = _Rules(found, max_features=max_features, max_facets=max_facets, decimals=decimals)
    lines = [
        *(f"# {note}" for note in (*rules.missing(), *notes_on_numbers(tree, decimals))),
        *rules.polytopes(),
        *(rules.by_class() if group else rules.by_leaf()),
    ]
    return "\n".join(lines) + "\n"


class Bound(NamedTuple):
    """Low and high limits of a quantity, each excluded where it is open."""

    low: float = -np.inf
    high: float = np.inf
    low_open: bool = True
    high_open: bool = True

    def both(self, other: Self) -> "Bound":
        """Return the intersection of two bounds."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        # of equal limits the open one is stricter
        high, closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        return Bound(low, high, low_open, not closed)

    @classmethod
    def of(cls, value: float, *, above: bool, is_open: bool) -> "Bound":
        """Make a bound on one side."""
        return cls(low=value, low_open=is_open) if above else cls(high=value, high_open=is_open)


class Quantity(NamedTuple):
    """The weighted sum of features in a condition, divided by its first coefficient.

    ``spread`` is the standard deviation of the first feature, of whose digits ``decimals`` are
    shown; the ``ratios`` of the coefficients, by feature, distinguish sums whose texts are equal.
    """

    text: str
    spread: float
    decimals: int | None
    ratios: tuple[tuple[int, float], ...]
    of: str  # name of the only feature; empty for a sum


class _Rules(Visitor[Visit]):
    def __init__(self, tree: Tree, **limits: int | None) -> None:
        super().__init__(tree, **limits)
        self.tree = tree
        self.known: dict[tuple[int, bool], tuple[Quantity | str, Bound]] = {}  # by expert and side

    def missing(self) -> list[str]:
        """Say how the rules differ from the tree; nothing if they are equivalent."""
        tree, found = self.tree, []
        sums = [tree.hyperplane]
        if tree.slope is not None:
            sums.append(tree.slope.reshape(-1, tree.n_features))
        terms = np.concatenate([np.count_nonzero(one, axis=1) for one in sums])
        as_printed = tree.n_nodes and tree.is_conjunction.all() and tree.slope is None
        if self.max_features is not None and (terms > self.max_features).any():
            found.append(f"sums have only their {self.max_features} largest terms (max_features)")
        if self.max_facets is not None and (tree.n_facets > self.max_facets).any():
            found.append(f"polytopes have only {self.max_facets} of their votes (max_facets)")
        if self.decimals is not None and not as_printed:
            found.append(f"numbers are rounded to {self.decimals} significant digits")
        return [f"Not equivalent to the tree: {'; '.join(found)}."] if found else []

    def polytopes(self) -> Iterator[str]:
        """Write the exact condition of each node with several facets."""
        several = np.flatnonzero(self.tree.n_facets > 1).tolist()
        if several:
            softplus = "softplus(z) = log(1 + exp(z)); " if self.described.adds_votes else ""
            yield f"# {softplus}outside(...) is where inside(...) is false."
        for node in several:
            yield f"{self.side(node, right=False)} where"
            experts = self.tree.nearest_experts(node).tolist()
            shown = experts[: self.max_facets]
            if self.tree.is_conjunction[node]:
                yield from self.conjunction(shown, len(experts))
                continue
            for expert in shown:
                yield f"  {'+' if expert != experts[0] else ' '} {self.vote(expert)}"
            if len(shown) < len(experts):
                yield f"  + … {len(experts) - len(shown)} more"
            yield f"  <= {plain(LOG2, self.decimals)}"
        if several:
            yield ""

    def conjunction(self, experts: list[int], n_facets: int) -> Iterator[str]:
        """Write the facets that must all hold."""
        for place, expert in enumerate(experts):
            yield f"  {'AND ' if place else '    '}{self.described.half_space(expert)}"
        if len(experts) < n_facets:
            yield f"  AND … {n_facets - len(experts)} more"

    def vote(self, expert: int) -> str:
        """Write a vote, such as ``0.8 softplus(2 age - 0.5 height - 4)``."""
        plane = self.tree.hyperplane[expert]
        total = weighted_sum(
            plane,
            plane * self.tree.scale,
            self.described.features,
            max_features=self.max_features,
            decimals=self.decimals,
        )
        constant = signed(float(self.tree.intercept[expert]), self.decimals)
        weight = plain(float(self.tree.weight[expert]), self.decimals)
        return f"{weight} softplus({leading(f'{total} {constant}'.strip())})"

    def side(self, node: int, *, right: bool) -> str:
        """Name the inside or the outside of a polytope."""
        return f"{self.tree.side_names[right]}({self.described.path(node)})"

    def leaf(self, at: Visit) -> Iterator[Visit]:
        """Leave a leaf to its rule."""
        yield at

    def by_leaf(self) -> Iterator[str]:
        """Write a rule for each leaf, left branches first; the last covers all other rows."""
        found = list(self.written())
        for number, at in enumerate(found, start=1):
            last = number == len(found)
            yield self.rule(number, "" if last else self.conditions(at), self.outcome(~at.child))

    def by_class(self) -> Iterator[str]:
        """Write rules class by class, fewest first; one ELSE for the class with the most."""
        of_class: dict[int, list[Visit]] = {}
        for at in self.written():
            of_class.setdefault(int(self.tree.value[~at.child].argmax()), []).append(at)
        order = sorted(of_class, key=lambda label: (len(of_class[label]), label))
        first = [at for label in order[:-1] for at in of_class[label]]
        for number, at in enumerate(first, start=1):
            yield self.rule(number, self.conditions(at), self.outcome(~at.child))
        leaves = [~at.child for at in of_class[order[-1]]]
        yield self.rule(len(first) + 1, "", self.outcomes(order[-1], leaves))

    def rule(self, number: int, conditions: str, then: str) -> str:
        if conditions:
            return f"{number}: IF {conditions} THEN {then}"
        return f"{number}: {'ELSE ' if number > 1 else 'ALWAYS '}{then}"

    def outcome(self, leaf: int) -> str:
        """Write the prediction of a leaf, and its rows."""
        if self.described.classifies and self.tree.slope is not None:
            return f"{self.described.leaf(leaf)} (n = {quantity(self.described.rows(~leaf))})"
        if self.described.classifies:
            return self.outcomes(int(self.tree.value[leaf].argmax()), [leaf])
        mean = re.sub(f"^{self.tree.quantity} (= )?", "", self.described.prediction(leaf))
        return f"{mean} (n = {quantity(self.described.rows(~leaf))})"

    def outcomes(self, label: int, leaves: list[int]) -> str:
        """Write a class with its probability and rows in some leaves together."""
        rows = self.tree.leaf_rows[leaves]
        weights = rows if rows.sum() > 0 else None
        share = float(np.average(self.tree.value[leaves, label], weights=weights))
        n_rows = quantity(float(rows.sum()))
        return f"{self.described.classes[label]} (p = {share:.2f}, n = {n_rows})"

    def conditions(self, at: Visit) -> str:
        """Write the conditions along a path, merged by quantity, in the order of first use."""
        bounds: dict[Quantity | str, Bound] = {}
        for node, side in at.steps:
            if self.tree.n_facets[node] == 1:
                key = self.tree.experts(node).start, bool(side)
                what, bound = self.known[key] = self.known.get(key) or self.facet(*key)
                bounds[what] = bounds.get(what, Bound()).both(bound)
            else:
                bounds[self.side(node, right=bool(side))] = Bound()
        return " AND ".join(self.condition(what, bound) for what, bound in bounds.items())

    def condition(self, what: Quantity | str, bound: Bound) -> str:
        """Write a condition, such as ``(2 < x3 <= 5)``."""
        if isinstance(what, str):
            return what
        number = what.spread, what.decimals, what.of
        low = limit(bound.low, *number, up=not bound.low_open)
        high = limit(bound.high, *number, up=bound.high_open)
        below, above = ("<" if is_open else "<=" for is_open in bound[2:])
        if bound.high == np.inf:
            return f"({what.text} {'>' if bound.low_open else '>='} {low})"
        if bound.low == -np.inf:
            return f"({what.text} {above} {high})"
        return f"({low} {below} {what.text} {above} {high})"

    def facet(self, expert: int, right: bool) -> tuple[Quantity | str, Bound]:
        """Return the quantity of a facet, and the bound that one side sets on it."""
        facet, plane = self.described.half_space(expert), self.tree.hyperplane[expert]
        if not facet.left:
            return ("(always)" if (facet.bound < 0) == right else "(never)"), Bound()
        if not facet.limit:
            return f"({facet.otherwise if right else facet.left})", Bound()
        rises = facet.divisor > 0
        ratios = tuple(
            (int(j), float(f"{plane[j] / facet.divisor:.{SAME}g}")) for j in np.flatnonzero(plane)
        )
        shown = None if self.tree.is_conjunction.all() else self.decimals  # sparse limits are round
        spread = float(self.tree.scale[facet.first])
        what = Quantity(facet.terms, spread, shown, ratios, facet.only)
        # right is plane . x > limit, whose relation flips when divided by a negative number
        return what, Bound.of(facet.bound, above=rises == right, is_open=right)
