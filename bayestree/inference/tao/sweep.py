"""One sweep of TAO: all nodes once, from the deepest to the root."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from joblib import delayed

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.inference.tao.solvers import NodeSplit, ReducedSolver, reduced_loss
from bayestree.inference.tao.state import Alternation, Reach


class ReducedProblem(NamedTuple):
    """What a node can do for its rows while all other nodes stay.

    Attributes
    ----------
    rows : array of int, shape (m,)
        Rows that reach the node.
    left, right : arrays, shape (m,)
        Loss of each row, without its weight, below the left child and below the right one.
    """

    rows: IntArray
    left: FloatArray
    right: FloatArray

    @property
    def cares(self) -> BoolArray:
        """Rows for which the side matters: both children may be right, or both wrong."""
        return self.left != self.right


def reduced_problem(tree: Alternation, reach: Reach, cost: FloatArray, node: int) -> ReducedProblem:
    """The reduced problem of a node, by the subtrees below it as they stand.

    ``cost`` holds the loss of each row from the child of the node that it goes to now, on.
    """
    rows, goes_right = reach.rows[node], reach.right[node]
    left, right = cost[rows], cost[rows]
    for child, taken, loss in zip(
        tree.topology.children[node].tolist(), (goes_right, ~goes_right), (left, right), strict=True
    ):
        others = rows[taken]  # those that go to the other child now
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
    """Update the splits of all nodes in reverse breadth-first order.

    Updates of a node leave its ancestors' rows as they were, so that one pass of the rows
    (``reach``) holds for all nodes; the nodes of a depth share no rows and are updated together.

    Parameters
    ----------
    tree : Alternation
        Its splits are replaced.
    reach : Reach
        Where its rows go now.
    solver : ReducedSolver
    strict : bool
        Keep a split whose successor would raise the objective.
    parallel : joblib.Parallel, optional
        Its workers, threads, share the nodes of a depth.

    Returns
    -------
    bool
        Whether any row has changed sides at a node, or any penalty has changed.
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
        # one that no row reaches stays as it is, should rows come back to it
        nodes = [node for node in level if len(reach.rows[node])]
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
    """A split for a node's reduced problem; ``current`` itself where there is nothing to gain."""
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
