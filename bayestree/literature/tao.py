"""Tree alternating optimisation (Carreira-Perpinan and Tavallali, 2018)."""

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree.inference import Data, Posterior
from bayestree.inference.stage import Stage, as_function
from bayestree.literature.tao_solvers import (
    NodeSplit,
    ReducedSolver,
    reduced_loss,
    sites_of,
    solver_for,
    splits_of,
)
from bayestree.models import SoftTree
from bayestree.models.likelihoods import LeafRule
from bayestree.topology import Topology
from bayestree.tree import Tree

SPARSE = 4  # splits using fewer than 1 / SPARSE of the features are scored on those only


@declare
class Sweeps:
    """Settings of alternating optimisation that estimators pass on."""

    sweeps: Annotated[Count, Inference("Maximum number of passes over all nodes.")] = 40
    patience: Annotated[Count, Inference("Passes without a better tree after which to stop.")] = 5
    strict: Annotated[
        bool,
        Inference(
            "Reject updates of a node that would raise the objective. By default they are accepted "
            "and the best tree seen is returned, which usually has a lower objective."
        ),
    ] = False
    ridge: Annotated[
        Positive,
        Inference(
            "Penalty on |w|^2 / 2 where l1 is 0, which keeps oblique splits finite; it is not part "
            "of the objective."
        ),
    ] = 0.1
    n_jobs: Annotated[
        int | None,
        Inference("Threads for the nodes of a level, -1 for one per core; results are the same."),
    ] = None


@declare
class Tao(Sweeps, Stage):
    """Settings of tree alternating optimisation.

    {parameters}
    """

    refines = False  # of soft trees; it starts from a deterministic one

    leaf_ridge: Annotated[
        Positive | None,
        Inference(
            "Under squared loss, makes leaves linear, each with penalty leaf_ridge |slope|^2 on "
            "the features of the data. By default leaves are constant."
        ),
    ] = None

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Tree | Posterior,
        solver: ReducedSolver | None = None,
        progress: bool = False,
    ) -> Posterior:
        """Optimise all splits and leaves of a deterministic tree in turn.

        Each sweep visits the nodes from the deepest to the root. A node becomes a binary
        classifier of the rows that reach it, each labelled with the child whose current subtree
        predicts it better; rows that both predict equally well are left out. Minimising a
        surrogate loss can raise the loss of the tree: such updates are accepted, and the best tree
        seen is returned, or, if ``strict``, they are rejected, and the objective never rises.

        Under a penalty the initial tree is not a candidate: the penalty on its hyperplanes depends
        on their scale, which does not affect the loss.

        Parameters
        ----------
        model : SoftTree
            With the likelihood ``"misclassification"`` or ``"squared-error"`` (see
            ``bayestree.models.named.alternating``). Split and prior determine the solver of a
            node; the prior is the penalty. ``init`` determines the topology.
        data : Data
            n rows.
        init : Tree or Posterior
            The start, on the features of ``data``.
        solver : ReducedSolver, optional
            For the problem of a node, instead of the one chosen by split and prior.
        {parameters}

        Returns
        -------
        Posterior
            One draw: the best tree, without dead branches, pure subtrees and siblings of one
            label, with class shares or means of the rows in its leaves (even if these are
            linear). ``stats`` holds ``loss`` of the training rows and ``objective`` (loss, and
            penalties of splits that separate rows, or of all if ``strict``), before the first
            sweep and after each, of the tree before pruning; ``source`` is the number in ``init``
            of each remaining node.

        Raises
        ------
        ValueError
            For invalid settings, another likelihood, a split and prior without a solver, or an
            ``init`` that the splits cannot express.
        """
        self.check(model)
        data = data.for_leaf(model.leaf)
        tree = _start(model, data, init, self.leaf_ridge)
        solver = solver or solver_for(model, self.ridge)
        descent = _TreeDescent(tree, solver, self.strict)
        with threadpool_limits(1, user_api="blas"):  # the same summation order for any n_jobs
            trace = descent.run(self.sweeps, self.patience, self.n_jobs, progress=progress)
        best = descent.best
        reach = replace(tree, splits=best.splits).reach()
        bypass = redundant_nodes(tree.topology, reach, best.values)
        topology, nodes, _ = tree.topology.collapse(bypass)
        splits = [best.splits[node] for node in nodes]
        leaf = replace(tree, topology=topology, splits=splits).reach().leaf
        loss, objective = np.array(trace).T
        settings = vars(self) | {"solver": type(solver).__name__}
        statistics = model.leaf.statistics(data.y, data.weights).double()
        sums = statistics.new_zeros(topology.n_leaves, statistics.shape[1])
        place = torch.as_tensor(leaf, device=statistics.device)
        return Posterior.from_point(
            model.with_(topology=topology),
            sites_of(splits, data.X.shape[1])
            | model.leaf.estimate(sums.index_add_(0, place, statistics)),
            "tao",
            stats={"loss": loss, "objective": objective, "source": nodes},
            settings={name: value for name, value in settings.items() if name != "n_jobs"},
        )


tao = as_function(Tao, "tao")


class RowRouting(NamedTuple):
    """Routing of all rows (the reduced sets)."""

    rows: list[IntArray]  # rows that reach each node
    right: list[BoolArray]  # their sides at the node
    leaf: IntArray  # (n,)


@dataclass
class Alternation:
    """A tree during its optimisation; ``values`` are the leaves' parameters under ``rule``."""

    X: AnyArray
    weights: FloatArray
    topology: Topology
    splits: list[NodeSplit]
    rule: LeafRule
    values: AnyArray

    def sides(self, split: NodeSplit, rows: IntArray) -> BoolArray:
        """Return the mask of the rows that a split sends right."""
        used = np.flatnonzero(split.hyperplane)
        if len(used) == 0:
            return np.full(rows.shape, split.intercept > 0)
        if len(used) * SPARSE < len(split.hyperplane):
            part = split._replace(hyperplane=split.hyperplane[used])
            return part.goes_right(self.X[rows[:, None], used])
        return split.goes_right(self.X if len(rows) == len(self.X) else self.X[rows])

    def reach(self) -> RowRouting:
        """Route all rows through the tree."""
        n_nodes, every = self.topology.n_nodes, np.arange(len(self.X))
        none = every[:0]
        found = RowRouting([none] * n_nodes, [none.astype(bool)] * n_nodes, np.empty_like(every))
        found.leaf[:] = self.leaves_below(0 if n_nodes else ~0, every, found)
        return found

    def leaves_below(
        self, child: int, rows: IntArray, routing: RowRouting | None = None
    ) -> IntArray:
        """Return the leaf that each of ``rows`` reaches from a child, a node or ``~leaf``.

        The rows and sides of each node below it are entered in ``routing``.
        """
        leaf = np.empty(len(rows), dtype=np.int64)
        waiting = [(child, np.arange(len(rows)))]
        while waiting:
            node, places = waiting.pop()
            if node < 0:
                leaf[places] = ~node
            elif len(places):
                right = self.sides(self.splits[node], rows[places])
                if routing is not None:
                    routing.rows[node], routing.right[node] = rows[places], right
                left, other = self.topology.children[node].tolist()
                waiting += [(left, places[~right]), (other, places[right])]
        return leaf

    def losses(self, leaf: IntArray, rows: IntArray) -> FloatArray:
        """Compute the unweighted loss of each row in a leaf."""
        return self.rule.loss(self.values, leaf, rows)


def redundant_nodes(topology: Topology, reach: RowRouting, values: AnyArray) -> IntArray:
    """Return the side that replaces each redundant node, or -1 if the node is needed, shape (V,).

    A node whose training rows all go one way is replaced by that child, and one whose children
    are leaves with equal ``values`` by either of them. Proceeding upwards, this turns subtrees
    of one class into leaves.
    """
    bypass = np.full(topology.n_nodes, -1, dtype=np.int64)
    for node in range(topology.n_nodes - 1, -1, -1):
        right = reach.right[node]
        if not right.any() or right.all():
            bypass[node] = int(right.any())
            continue
        ends = [_resolve(topology, bypass, int(child)) for child in topology.children[node]]
        if max(ends) < 0 and np.array_equal(values[~ends[0]], values[~ends[1]]):
            bypass[node] = 0
    return bypass


def _resolve(topology: Topology, bypass: IntArray, child: int) -> int:
    """Find the node or leaf that replaces a child after redundant nodes are removed."""
    while child >= 0 and bypass[child] >= 0:
        child = int(topology.children[child, bypass[child]])
    return child


class ReducedProblem(NamedTuple):
    """The losses of a node's rows on either side, with all other nodes fixed."""

    rows: IntArray  # (m,): rows that reach the node
    left: FloatArray  # (m,): unweighted loss of each row below the left child
    right: FloatArray  # (m,): the same below the right child

    @property
    def cares(self) -> BoolArray:
        """The care set: rows for which the side matters."""
        return self.left != self.right


def reduced_problem(
    tree: Alternation, reach: RowRouting, cost: FloatArray, node: int
) -> ReducedProblem:
    """Return the reduced problem of a node, given the current subtrees below it.

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
    reach: RowRouting,
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

    changed, depth = False, tree.topology.node_depth
    for level in reversed(range(tree.topology.depth)):
        each = np.flatnonzero(depth == level).tolist()
        nodes = [node for node in each if len(reach.rows[node])]  # others are unchanged
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
    """Find a split for a node's reduced problem; ``current`` if nothing can be gained."""
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


class _BestTree(NamedTuple):
    objective: float
    splits: list[NodeSplit]
    values: NDArray[Any]


class _TreeDescent:
    """Sweeps over one tree, remembering the best tree seen."""

    def __init__(self, tree: Alternation, solver: ReducedSolver, strict: bool) -> None:
        self.tree, self.solver, self.strict = tree, solver, strict
        self.trace: list[tuple[float, float]] = []
        self.since = 0  # number of sweeps since the best tree

    def state_dict(self) -> dict[str, Any]:
        tree, best = self.tree, self.best
        return {
            "trace": list(self.trace),
            "since": self.since,
            "splits": [tuple(split) for split in tree.splits],
            "values": tree.values,
            "best": (best.objective, [tuple(split) for split in best.splits], best.values),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        tree = self.tree
        self.trace, self.since = state["trace"], state["since"]
        objective, splits, values = state["best"]
        self.best = _BestTree(objective, [NodeSplit(*split) for split in splits], values)
        tree.splits = [NodeSplit(*split) for split in state["splits"]]
        tree.values = state["values"]
        self.reach = tree.reach()

    def run(
        self, sweeps: int, patience: int, n_jobs: int | None, *, progress: bool
    ) -> list[tuple[float, float]]:
        """Sweep until nothing changes or improves; the loss and objective of each sweep."""
        tree, solver = self.tree, self.solver
        loss, objective = self._refit()
        penalised = any(solver.penalty(split) > 0 for split in tree.splits)
        first = math.inf if penalised and not self.strict else objective
        self.best = _BestTree(first, list(tree.splits), tree.values)
        self.trace.append((loss, objective))
        track = Track(range(sweeps), "tao", show=progress, parts={"descent": self})
        # Always threads: updates of nodes are too short for processes or a cluster.
        pool = Parallel(n_jobs=n_jobs, require="sharedmem")
        with nullcontext() if pool.n_jobs == 1 else pool as parallel:
            for _ in track:
                changed = sweep(tree, self.reach, solver, strict=self.strict, parallel=parallel)
                loss, objective = self._refit()
                self.trace.append((loss, objective))
                track.note(f"loss {loss:.6g}")
                self.since += 1
                if objective < self.best.objective:
                    self.best = _BestTree(objective, list(tree.splits), tree.values)
                    self.since = 0
                if not changed or self.since >= patience:
                    track.finish()
                    break
        return self.trace

    def _refit(self) -> tuple[float, float]:
        """Route the rows and refit the leaves; loss and objective."""
        tree = self.tree
        self.reach = reach = tree.reach()
        tree.values = tree.rule.fit(tree.values, reach.leaf)
        loss = float(tree.weights @ tree.losses(reach.leaf, np.arange(len(tree.X))))
        # Splits that do not separate rows are finally removed, so their penalty does not count.
        # With strict it does, because the objective would rise if rows returned to one.
        penalty = sum(
            self.solver.penalty(split)
            for split, right in zip(tree.splits, reach.right, strict=True)
            if self.strict or (right.any() and not right.all())
        )
        return loss, loss + penalty + tree.rule.penalty(tree.values)


def _start(
    model: SoftTree, data: Data, init: Tree | Posterior, leaf_ridge: float | None
) -> Alternation:
    topology, splits = splits_of(init, model)
    X = data.X.numpy(force=True)
    if splits and len(splits[0].hyperplane) != X.shape[1]:
        raise ValueError(
            f"init has splits on {len(splits[0].hyperplane)} features, but the rows have "
            f"{X.shape[1]}."
        )
    weights = data.weights.double().numpy(force=True)
    y = data.y.numpy(force=True)
    rule = model.likelihood.rule(model.leaf, (X, y, weights), leaf_ridge)
    splits = [split.cast(X.dtype) for split in splits]
    return Alternation(X, weights, topology, splits, rule, rule.start(topology.n_leaves))
