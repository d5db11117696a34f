"""One sweep of TAO over all nodes, from the deepest to the root."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from joblib import delayed

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.tao.solvers import NodeSplit, ReducedSolver, reduced_loss
from bayestree.inference.tao.state import Alternation, Reach


class ReducedProblem(NamedTuple):
    """The losses of a node's rows on either side, with all other nodes fixed."""

    rows: IntArray  # (m,): rows that reach the node
    left: FloatArray  # (m,): unweighted loss of each row below the left child
    right: FloatArray  # (m,): the same below the right child

    @property
    def cares(self) -> BoolArray:
        """The care set: rows for which the side matters."""
        return self.left != self.right


def reduced_problem(tree: Alternation, reach: Reach, cost: FloatArray, node: int) -> ReducedProblem:
    """The reduced problem of a node, given the current subtrees below it.

    ``cost`` is the loss of each row below the child it currently goes to.
    """
    rows, goes_right = reach.rows[node], reach.right[node]
    left, right = cost[rows], cost[rows]
    for child, taken, loss in zip(
        tree.topology.children[node].tolist(), (goes_right, ~goes_right), (left, right), strict=True
    ):
        others = rows[taken]  # rows that currently go to the other child
        loss[taken] = tree.losses(tree.leaves_below(child, others), others)
    return ReducedProblem(rows, left, right)


def sweep(
    tree: Alternation,
    reach: Reach,
    solver: ReducedSolver,
    *,
    strict: bool = False,
    parallel: Callable[[Iterable[Any]], Any] | None = None,
) -> bool:
    """Update the splits of all nodes in place, in reverse breadth-first order.

    Updating a node does not affect the rows of its ancestors, so the routing ``reach`` is valid
    throughout; nodes of equal depth share no rows and are updated together, by the threads of a
    ``joblib.Parallel`` if given. If ``strict``, a split is kept where its replacement would raise
    the objective. Returns whether any row has changed sides, or any penalty has changed.
    """
    cost = tree.losses(reach.leaf, np.arange(len(tree.X)))

    def update(node: int) -> tuple[NodeSplit, FloatArray, bool]:
        problem = reduced_problem(tree, reach, cost, node)
        current = tree.splits[node]
        split = solve(tree, problem, solver, current, strict=strict)
        goes_right = reach.right[node] if split is current else tree.sides(split, problem.rows)
        moved = not np.array_equal(goes_right, reach.right[node])
        moved = moved or solver.penalty(split) != solver.penalty(current)
        return split, np.where(goes_right, problem.right, problem.left), moved

    changed = False
    for level in reversed(tree.levels()):
        nodes = [node for node in level if len(reach.rows[node])]  # others are unchanged
        if parallel is None or len(nodes) == 1:
            found = [update(node) for node in nodes]
        else:
            found = parallel(delayed(update)(node) for node in nodes)
        for node, (split, loss, moved) in zip(nodes, found, strict=True):
            tree.splits[node] = split
            cost[reach.rows[node]] = loss
            changed |= moved
    return changed


def solve(
    tree: Alternation,
    problem: ReducedProblem,
    solver: ReducedSolver,
    current: NodeSplit,
    *,
    strict: bool = False,
) -> NodeSplit:
    """A split for a node's reduced problem; ``current`` if nothing can be gained."""
    care = problem.cares
    penalised = solver.penalty(current) > 0
    rows = problem.rows[care]
    weights = tree.weights[rows] * np.abs(problem.left - problem.right)[care]
    right = (problem.right < problem.left)[care]
    if not care.any():
        if not penalised:
            return current
        goes_right = current.goes_right(tree.X[problem.rows])
        return NodeSplit.constant(current, right=2 * int(goes_right.sum()) > len(goes_right))
    if right.all() or not right.any():
        return NodeSplit.constant(current, right=bool(right.all()))
    X = tree.X[rows]
    split = solver(X, right, weights, current).cast(X.dtype)
    if strict:
        old = reduced_loss(current, X, right, weights) + solver.penalty(current)
        if reduced_loss(split, X, right, weights) + solver.penalty(split) > old:
            return current
    return split
