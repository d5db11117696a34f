"""Tree alternating optimisation (Carreira-Perpinan and Tavallali, 2018)."""

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import IntArray
from bayestree._utils.progress import Track
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.tao.solvers import NodeSplit, ReducedSolver
from bayestree.inference.tao.starts import sites_of, splits_of
from bayestree.inference.tao.state import Alternation, Reach, redundant_nodes
from bayestree.inference.tao.sweep import sweep
from bayestree.inference.tao.table import solver_for
from bayestree.inference.training import check_counts
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree


class _Best(NamedTuple):
    objective: float
    splits: list[NodeSplit]
    values: NDArray[Any]
    reach: Reach


def tao(
    model: SoftTree,
    data: Data,
    *,
    init: Tree | Posterior,
    sweeps: int = 40,
    patience: int = 5,
    strict: bool = False,
    ridge: float = 0.1,
    leaf_ridge: float | None = None,
    solver: ReducedSolver | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Posterior:
    """Optimise all splits and leaves of a deterministic tree in turn.

    Each sweep visits the nodes from the deepest to the root. The rows that reach a node are
    labelled with the child whose current subtree has the smaller loss, and the split is refitted
    as a binary classifier of these labels; rows for which both children are equally good are
    ignored. A decrease of the surrogate loss can increase the loss of the tree. Such updates are
    accepted and the best tree seen is returned, or, if ``strict``, rejected, so that the
    objective never rises.

    With a penalty, the initial tree is not a candidate for the best tree, because the scale of
    its hyperplanes, which affects the penalty but not the loss, is arbitrary.

    Parameters
    ----------
    model : SoftTree
        With the likelihood ``"misclassification"`` or ``"squared-error"`` (see
        ``bayestree.models.named.alternating``). Split and prior determine the solver of a node;
        the prior is the penalty. The topology is that of ``init``.
    data : Data
        n weighted rows.
    init : Tree or Posterior
        The initial tree, on the features of ``data``.
    sweeps : int
        Maximum number of sweeps.
    patience : int
        Number of sweeps without improvement after which to stop.
    strict : bool
        Reject node updates that would raise the objective.
    ridge : float
        Penalty on |w|^2 / 2 that keeps surrogate losses finite; not part of the objective.
    leaf_ridge : float, optional
        For squared loss: leaves are linear, and ``leaf_ridge`` |slope|^2 of each, on the features
        of ``data``, is added to the objective. By default leaves are constant.
    solver : ReducedSolver, optional
        Solver of the reduced problems; by default determined by split and prior.
    n_jobs : int, optional
        Threads for the nodes of a depth; -1 for one per core. The result does not depend on it.
    progress : bool

    Returns
    -------
    Posterior
        One draw: the best tree without dead branches, pure subtrees and siblings with equal
        labels, with class shares or means of the rows in its leaves (means also if leaves are
        linear). ``stats``: training ``loss`` and ``objective`` (loss plus the penalties of splits
        that separate rows, or of all splits if ``strict``) of the unpruned tree before the first
        sweep and after each; ``source``, the number of each remaining node in the initial tree.

    Raises
    ------
    ValueError
        If the likelihood or the combination of split and prior is not supported, the model's
        splits cannot represent the initial tree, or a number is out of range.
    """
    check_counts(sweeps=sweeps, patience=patience)
    _check(ridge, leaf_ridge)
    tree = _start(model, data, init, leaf_ridge)
    solver = solver or solver_for(model, ridge)
    descent = _Descent(tree, solver, strict)
    with threadpool_limits(1, user_api="blas"):  # the same summation order for any n_jobs
        trace = descent.run(sweeps, patience, n_jobs, progress=progress)
    best = descent.best
    bypass = redundant_nodes(tree.topology, best.reach, best.values)
    topology, nodes, _ = tree.topology.collapse(bypass)
    splits = [best.splits[node] for node in nodes]
    leaf = replace(tree, topology=topology, splits=splits).reach().leaf
    loss, objective = np.array(trace).T
    return Posterior.from_point(
        model.with_(topology=topology),
        sites_of(splits, model, data.X.shape[1]) | _leaf_sites(model, data, topology, leaf),
        "tao",
        stats={"loss": loss, "objective": objective, "source": nodes},
        settings={
            "sweeps": sweeps,
            "patience": patience,
            "strict": strict,
            "ridge": ridge,
            "leaf_ridge": leaf_ridge,
            "solver": type(solver).__name__,
        },
    )


def _leaf_sites(
    model: SoftTree, data: Data, topology: Topology, leaf: IntArray
) -> dict[str, torch.Tensor]:
    statistics = model.leaf.statistics(data.y, data.weights).double()
    sums = statistics.new_zeros(topology.n_leaves, statistics.shape[1])
    place = torch.as_tensor(leaf, device=statistics.device)
    return model.leaf.estimate(sums.index_add_(0, place, statistics))


class _Descent:
    """Sweeps over one tree, remembering the best tree seen."""

    def __init__(self, tree: Alternation, solver: ReducedSolver, strict: bool) -> None:
        self.tree, self.solver, self.strict = tree, solver, strict
        self.trace: list[tuple[float, float]] = []
        self.since = 0  # sweeps since the best tree

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
        tree.splits, tree.values = [NodeSplit(*split) for split in splits], values
        self.best = _Best(objective, list(tree.splits), values, tree.reach())
        tree.splits = [NodeSplit(*split) for split in state["splits"]]
        tree.values = state["values"]
        self.reach = tree.reach()

    def run(
        self, sweeps: int, patience: int, n_jobs: int | None, *, progress: bool
    ) -> list[tuple[float, float]]:
        """Sweep until nothing changes or improves; returns loss and objective by sweep."""
        tree, solver = self.tree, self.solver
        loss, objective = self._refit()
        penalised = any(solver.penalty(split) > 0 for split in tree.splits)
        first = math.inf if penalised and not self.strict else objective
        self.best = _Best(first, list(tree.splits), tree.values, self.reach)
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
                    self.best = _Best(objective, list(tree.splits), tree.values, self.reach)
                    self.since = 0
                if not changed or self.since >= patience:
                    track.finish()
                    break
        return self.trace

    def _refit(self) -> tuple[float, float]:
        """Route the rows and refit the leaves; returns loss and objective."""
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


def _check(ridge: float, leaf_ridge: float | None) -> None:
    for name, value in (("ridge", ridge), ("leaf_ridge", leaf_ridge)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}.")


def _start(
    model: SoftTree, data: Data, init: Tree | Posterior, leaf_ridge: float | None
) -> Alternation:
    topology, splits = splits_of(init, model)
    X = data.X.numpy(force=True)
    if splits and splits[0].n_features != X.shape[1]:
        raise ValueError(
            f"init has splits on {splits[0].n_features} features, but the rows have {X.shape[1]}."
        )
    weights = data.weights.double().numpy(force=True)
    y = data.y.numpy(force=True)
    rule = model.likelihood.rule(model.leaf, (X, y, weights), leaf_ridge)
    splits = [split.cast(X.dtype) for split in splits]
    return Alternation(X, weights, topology, splits, rule, rule.start(topology.n_leaves))
