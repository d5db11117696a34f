"""The smallest change of a row that takes it to another leaf of a deterministic tree.

The left side of a node, {s <= log 2}, is convex: cutting planes describe it as closely as needed,
one at each solution that violates it (Kelley's method). The right side is the complement: the union
of the half-spaces beyond the facets and, where the votes of several experts add up, a little more.
By convexity s(x) >= s(w) + g(w) . (x - w) with the gradient g, so that for any w the half-space
{s(w) + g(w) . (x - w) >= log 2} lies inside the right side. The largest of K votes is at least s /
K, so the right side lies in the union of K half-spaces on which a vote is at least (log 2) / K. For
one expert all of these are the same. The former give changes, the latter bounds: branch and bound
over the leaves and, at a right turn, the expert with the largest vote.

Categories change from one level to another: each such option is a variable that is 0 or 1, by which
all of the above is linear as well, and the programs are mixed-integer ones.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.special import expit

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, softplus
from bayestree.tree import LOG2, Tree, facet_threshold

BEYOND = 1e-6  # distance past a border, in units of ``scale``: ten times HiGHS's tolerance
NEGLIGIBLE = 1e-9  # smaller changes of a feature are rounding errors of the linear program
CUTS = 50  # cutting planes for one problem, at most
TAKEN = 0.5  # an option is a variable that is 0 or 1
CLOSER = 1e-4  # relative gain below which moving the half-spaces again is not worth a program

Chosen = tuple[tuple[int, int], ...]  # right turns with the expert that has the largest vote


class Moves(NamedTuple):
    """Changes of a row (d,) as variables of a program: numbers, and options of other columns.

    ``low`` and ``high`` (d,) bound the features of numbers; equal bounds leave one as it is. Option
    m, of the column ``group[m]``, replaces the row by ``rows[m]`` at the cost ``cost[m]``, in units
    of ``scale``, and shows the column as ``labels[m]``. If ``gate[m]`` is 0 or more, this number
    was missing, and may change only with the option.
    """

    low: FloatArray
    high: FloatArray
    rows: FloatArray
    cost: FloatArray
    group: IntArray
    gate: IntArray
    labels: tuple[Any, ...] = ()

    @classmethod
    def of_numbers(cls, low: FloatArray, high: FloatArray) -> Self:
        """Return changes of numbers alone."""
        none = np.zeros(0, dtype=np.int64)
        return cls(low, high, np.zeros((0, len(low))), np.zeros(0), none, none)


@dataclass(frozen=True, eq=False)
class NearestRow:
    """The nearest row with another outcome, as far as the search went.

    ``row`` is None if there is none, or the search was cut off before one was found. ``distance``
    is the sum of absolute changes in units of ``scale`` and of the costs of the options, whose
    numbers are ``chosen``; no change below ``bound`` has the outcome. ``complete`` is False if the
    search was cut off after ``programs`` linear programs.
    """

    row: FloatArray | None
    distance: float
    bound: float
    complete: bool
    programs: int
    chosen: tuple[int, ...] = ()


class Outcome(NamedTuple):
    """The wanted outcome: leaves (L,), or a mean of at least (``sign`` 1) or most (-1) ``level``.

    The mean, or the number ``label`` of a class, matters in linear and logistic leaves only, where
    a part of the leaf may have it.
    """

    leaves: BoolArray
    sign: int = 0
    level: float = 0.0
    label: int | None = None

    @classmethod
    def beyond(cls, tree: Tree, level: float, *, below: bool) -> "Outcome":
        """Want a mean of at most ``level`` if ``below``, else of at least this."""
        sign = -1 if below else 1
        if tree.slope is not None:
            return cls(np.ones(tree.n_leaves, dtype=bool), sign, level)
        return cls(sign * (tree.value - level) >= 0, sign, level)

    @classmethod
    def of_class(cls, tree: Tree, label: int) -> "Outcome":
        """Want the class of largest probability."""
        if tree.slope is not None:
            return cls(np.ones(tree.n_leaves, dtype=bool), label=label)
        return cls(tree.value.argmax(axis=1) == label)

    def holds(self, tree: Tree, row: FloatArray) -> bool:
        """Tell whether the tree gives a row (1, d) this outcome."""
        if not self.leaves[tree.apply(row)[0]]:
            return False
        if self.label is not None:
            return int(tree.predict(row)[0].argmax()) == self.label
        return not self.sign or bool(self.sign * (tree.predict(row)[0] - self.level) >= 0)


def nearest_row(
    tree: Tree, x: FloatArray, outcome: Outcome, moves: Moves, *, max_programs: int = 500
) -> NearestRow:
    """Find the row with ``outcome`` nearest to ``x`` (d,) in L1, in units of ``scale``."""
    if outcome.holds(tree, x[None]):
        return NearestRow(x, 0.0, 0.0, True, 0)
    search = _Search(tree, x, outcome, moves, max_programs)
    try:
        search.run()
    except _CutOffError:
        return search.found(complete=False)
    return search.found(complete=True)


class _CutOffError(Exception):
    """The search has used all its linear programs."""


class _Search:
    """Branch and bound over leaves and experts.

    Moves z hold changes of the free numbers in units of ``scale``, then 1 for options that are
    taken and 0 for the others.
    """

    def __init__(
        self, tree: Tree, x: FloatArray, outcome: Outcome, moves: Moves, max_programs: int
    ) -> None:
        self.tree, self.x, self.outcome, self.max_programs = tree, x, outcome, max_programs
        used = np.any(tree.hyperplane != 0, axis=0)
        if tree.slope is not None:
            used |= np.any(tree.slope.reshape(-1, tree.n_features) != 0, axis=0)
        low, high, self.moves = moves.low, moves.high, moves
        self.free: IntArray = np.flatnonzero(used & (low < high))
        matter = ((moves.rows != x) & used).any(axis=1) | np.isin(moves.gate, self.free)
        self.options: IntArray = np.flatnonzero(matter)
        scale = self.scale = tree.scale[self.free]
        self.shift = moves.rows[self.options] - x
        self.plane = self._along(tree.hyperplane)
        self.cost = np.append(np.ones(len(self.free)), moves.cost[self.options])
        self.start = tree.hyperplane @ x + tree.intercept
        counts = np.repeat(tree.n_facets, tree.n_facets)
        self.alone = facet_threshold(tree.weight)  # activation at which an expert decides alone
        self.shared = facet_threshold(tree.weight * counts)  # and of the largest of K votes
        ends = ((low - x)[self.free] / scale, (high - x)[self.free] / scale)
        self.low, self.high = np.minimum(ends[0], 0.0), np.maximum(ends[1], 0.0)
        self.cuts = [[*self._facets(node)] for node in range(tree.n_nodes)]
        self.best: tuple[float, FloatArray | None] = (np.inf, None)
        self.heap: list[tuple[float, int, int, Chosen]] = []
        self.gap = np.inf  # least bound of a branch that was not resolved exactly
        self.now = np.inf  # bound of the branch in hand
        self.programs = 0

    def run(self) -> None:
        """Visit branches, the one with the least bound first, until none can be nearer."""
        for leaf in np.flatnonzero(self.outcome.leaves).tolist():
            self._add(0.0, leaf, ())
        while self.heap and self.heap[0][0] < self.best[0]:
            self.now, _, leaf, chosen = heapq.heappop(self.heap)
            self._visit(leaf, chosen)
            self.now = np.inf

    def found(self, *, complete: bool) -> NearestRow:
        distance, z = self.best
        waiting = self.heap[0][0] if self.heap else np.inf
        bound = min(distance, self.gap, self.now, waiting)
        if z is None:
            return NearestRow(None, distance, bound, complete, self.programs)
        chosen = tuple(self._chosen(z).tolist())
        return NearestRow(self._moved(z), distance, bound, complete, self.programs, chosen)

    def _add(self, bound: float, leaf: int, chosen: Chosen) -> None:
        heapq.heappush(self.heap, (bound, len(self.heap) + self.programs, leaf, chosen))

    def _visit(self, leaf: int, chosen: Chosen) -> None:
        """Bound a branch; split it at a right turn that its nearest row does not take."""
        rows = [self._side(k, self.shared[k]) for _, k in chosen]
        z = self._solved(leaf, rows)
        if z is None:
            return
        bound = self._size(z)
        if bound >= self.best[0]:
            return
        self.now = bound
        missed = [v for v in self._turns(leaf, right=True) if self._score(v, z) <= LOG2]
        if not missed:
            self._keep(z)
            self.gap = min(self.gap, bound)
            return
        settled = dict(chosen)
        open_nodes = [v for v in missed if v not in settled]
        if self.best[1] is None or not open_nodes:
            self._keep_near(leaf, settled, z)
        if not open_nodes:
            self.gap = min(self.gap, bound)
            return
        experts = self.tree.experts(open_nodes[0])
        for k in range(experts.start, experts.stop):
            self._add(bound, leaf, (*chosen, (open_nodes[0], k)))

    def _keep_near(self, leaf: int, settled: dict[int, int], z: FloatArray) -> None:
        """Find a row of the leaf near z: beyond a facet at each right turn, then ever closer."""
        turns = self._turns(leaf, right=True)
        rows = []
        for v in turns:
            if self._score(v, z) > LOG2:
                rows.append(self._tangent(v, z))
                continue
            k = settled.get(v, -1)
            k = k if k >= 0 and np.isfinite(self.alone[k]) else self._nearest_facet(v, z)
            rows.append(self._side(k, self.alone[k]))
        distance = np.inf
        while (moved := self._solved(leaf, rows)) is not None:
            self._keep(moved)
            before, distance = distance, self._size(moved)
            if not distance < before * (1 - CLOSER):
                return
            rows = [self._tangent(v, moved) for v in turns]

    def _keep(self, z: FloatArray) -> None:
        z = np.where(np.abs(z) < NEGLIGIBLE, 0.0, z)
        distance = self._size(z)
        if distance < self.best[0] and self.outcome.holds(self.tree, self._moved(z)[None]):
            self.best = distance, z

    def _moved(self, z: FloatArray) -> FloatArray:
        row, n_free = self.x.copy(), len(self.free)
        for option in self.moves.rows[self._chosen(z)]:
            row = np.where(option != self.x, option, row)
        moved = z[:n_free] != 0
        row[self.free[moved]] += (z[:n_free] * self.scale)[moved]
        return row

    def _chosen(self, z: FloatArray) -> IntArray:
        """Return the numbers of the options that a move takes."""
        return self.options[z[len(self.free) :] > TAKEN]

    def _size(self, z: FloatArray) -> float:
        return float(self.cost @ np.abs(z))

    def _along(self, planes: FloatArray) -> FloatArray:
        """Compute changes of linear functions (..., d) of the row per unit of each move."""
        return np.hstack([planes[:, self.free] * self.scale, planes @ self.shift.T])

    def _solved(self, leaf: int, rows: list[FloatArray]) -> FloatArray | None:
        """Find the smallest move with these rows, left turns and outcome; None if there is none."""
        left = self._turns(leaf, right=False)
        rows = [*rows, *self._level(leaf)]
        for _ in range(CUTS):
            every = [*rows, *(cut for v in left for cut in self.cuts[v])]
            z = self._program(np.array(every).reshape(len(every), len(self.cost) + 1))
            if z is None:
                return None
            outside = [v for v in left if self._score(v, z) > LOG2]
            if not outside:
                return z
            for v in outside:
                self.cuts[v].append(-self._tangent(v, z))
        return z

    def _program(self, rows: FloatArray) -> FloatArray | None:
        """Find the least z with a . z + c >= ``BEYOND`` |a| for rows [a, c]; None if infeasible."""
        if self.programs >= self.max_programs:
            raise _CutOffError
        self.programs += 1
        norm = np.linalg.norm(rows[:, :-1], axis=1)
        flat = (norm == 0) | ~np.isfinite(rows[:, -1])  # the same for every move
        if (rows[flat, -1] < 0).any():
            return None
        a = rows[~flat, :-1] / norm[~flat, None]
        c = rows[~flat, -1] / norm[~flat] - BEYOND
        if not len(self.cost):
            return np.zeros(0)
        n_numbers = 2 * len(self.free)  # z = up - down, each at least 0
        high = np.concatenate([self.high, -self.low, np.ones(len(self.options))])
        low = np.zeros_like(high)
        found = self._least(a, c, low, high)
        if found is not None and len(self.options):
            low[n_numbers:] = high[n_numbers:] = np.round(found[n_numbers:])
            found = self._least(a, c, low, high)  # the numbers, with options that are 0 or 1
        if found is None:
            return None
        up, down, taken = np.split(found, [len(self.free), n_numbers])
        return np.append(up - down, taken)

    def _least(
        self, a: FloatArray, c: FloatArray, low: FloatArray, high: FloatArray
    ) -> FloatArray | None:
        """Find the ups, downs and options of the least move within bounds; None if infeasible."""
        n_free, n_options = len(self.free), len(self.options)
        A, ends = self._exclusive()
        number, option = a[:, :n_free], a[:, n_free:]
        limits = np.vstack([np.hstack([-number, number, -option]), A])
        done = milp(
            np.append(self.cost[:n_free], self.cost),
            integrality=np.repeat([0, 1], [2 * n_free, n_options]),
            bounds=Bounds(low, high),
            constraints=LinearConstraint(limits, ub=np.append(c, ends)) if len(limits) else None,
            options={"mip_rel_gap": 0.0},
        )
        return None if done.x is None else np.asarray(done.x, dtype=np.float64)

    def _exclusive(self) -> tuple[FloatArray, FloatArray]:
        """Allow one option of a column, and moves of a missing number only with its own."""
        n_free = len(self.free)
        group, gate = self.moves.group[self.options], self.moves.gate[self.options]
        one = (np.unique(group)[:, None] == group).astype(float)
        of_group = np.hstack([np.zeros((len(one), 2 * n_free)), one])
        moves = np.eye(2 * n_free)
        feature = np.tile(self.free, 2)
        shut = np.isin(feature, gate)
        most = np.where(feature[:, None] == gate, np.append(self.high, -self.low)[:, None], 0.0)
        of_gate = np.hstack([moves[shut], -most[shut]])
        return np.vstack([of_group, of_gate]), np.repeat([1.0, 0.0], [len(one), shut.sum()])

    # Rows [a, c] of the inequality a . z + c >= 0.

    def _side(self, expert: int, limit: float) -> FloatArray:
        """Require an activation of at least ``limit``."""
        return np.append(self.plane[expert], self.start[expert] - limit)

    def _facets(self, node: int) -> Iterator[FloatArray]:
        """Bound the activations so that no expert of the node sends the row right alone."""
        experts = self.tree.experts(node)
        for k in range(experts.start, experts.stop):
            if np.isfinite(self.alone[k]):
                yield -self._side(k, self.alone[k])

    def _tangent(self, node: int, z: FloatArray) -> FloatArray:
        """Return a linear function that is at most s - log 2 everywhere, and equal to it at z."""
        experts = self.tree.experts(node)
        weight, activation = self.tree.weight[experts], self._activation(experts, z)
        slope = (weight * expit(activation)) @ self.plane[experts]
        return np.append(slope, weight @ softplus(activation) - LOG2 - slope @ z)

    def _level(self, leaf: int) -> list[FloatArray]:
        """Require the wanted mean or class in a linear or logistic leaf."""
        tree, outcome = self.tree, self.outcome
        if tree.slope is None:
            return []
        away, label = self.x - tree.center, outcome.label
        if label is not None:  # log-odds of at least 0 against every other class
            others = np.arange(tree.value.shape[1]) != label
            slopes = tree.slope[leaf, label] - tree.slope[leaf, others]
            logs = np.log(np.maximum(tree.value[leaf], np.finfo(np.float64).tiny))
            odds = logs[label] - logs[others] + slopes @ away
            return [*np.column_stack((self._along(slopes), odds))]
        if not outcome.sign:
            return []
        mean = tree.value[leaf] + tree.slope[leaf] @ away
        slope = self._along(tree.slope[leaf : leaf + 1])[0]
        return [outcome.sign * np.append(slope, mean - outcome.level)]

    def _activation(self, experts: slice, z: FloatArray) -> FloatArray:
        return self.start[experts] + self.plane[experts] @ z

    def _score(self, node: int, z: FloatArray) -> float:
        experts = self.tree.experts(node)
        return float(self.tree.weight[experts] @ softplus(self._activation(experts, z)))

    def _nearest_facet(self, node: int, z: FloatArray) -> int:
        experts = self.tree.experts(node)
        norm = np.linalg.norm(self.plane[experts], axis=1)
        away = self.alone[experts] - self._activation(experts, z)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.nan_to_num(away / norm, nan=np.inf)
        return experts.start + int(distance.argmin())

    def _turns(self, leaf: int, *, right: bool) -> list[int]:
        """Return the nodes above a leaf at which it is on the right, or on the left."""
        return np.flatnonzero(self.tree.topology.turns[int(right), :, leaf]).tolist()
