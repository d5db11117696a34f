"""Tree alternating optimisation (Carreira-Perpinan and Tavallali, 2018)."""

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bayestree._utils.arrays import IntArray
from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.settings import Stage, as_function
from bayestree.inference.tao.solvers import NodeSplit, ReducedSolver
from bayestree.inference.tao.starts import sites_of, splits_of
from bayestree.inference.tao.state import Alternation, Reach, redundant_nodes
from bayestree.inference.tao.sweep import sweep
from bayestree.inference.tao.table import solver_for
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree


class _Best(NamedTuple):
    objective: float
    splits: list[NodeSplit]
    values: NDArray[Any]
    reach: Reach


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
            node; the prior is the penalty. The topology is that of ``init``.
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
        descent = _Descent(tree, solver, self.strict)
        with threadpool_limits(1, user_api="blas"):  # the same summation order for any n_jobs
            trace = descent.run(self.sweeps, self.patience, self.n_jobs, progress=progress)
        best = descent.best
        bypass = redundant_nodes(tree.topology, best.reach, best.values)
        topology, nodes, _ = tree.topology.collapse(bypass)
        splits = [best.splits[node] for node in nodes]
        leaf = replace(tree, topology=topology, splits=splits).reach().leaf
        loss, objective = np.array(trace).T
        settings = vars(self) | {"solver": type(solver).__name__}
        return Posterior.from_point(
            model.with_(topology=topology),
            sites_of(splits, model, data.X.shape[1]) | _leaf_sites(model, data, topology, leaf),
            "tao",
            stats={"loss": loss, "objective": objective, "source": nodes},
            settings={name: value for name, value in settings.items() if name != "n_jobs"},
        )


tao = as_function(Tao, "tao")


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
        tree.splits, tree.values = [NodeSplit(*split) for split in splits], values
        self.best = _Best(objective, list(tree.splits), values, tree.reach())
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
    if splits and splits[0].n_features != X.shape[1]:
        raise ValueError(
            f"init has splits on {splits[0].n_features} features, but the rows have {X.shape[1]}."
        )
    weights = data.weights.double().numpy(force=True)
    y = data.y.numpy(force=True)
    rule = model.likelihood.rule(model.leaf, (X, y, weights), leaf_ridge)
    splits = [split.cast(X.dtype) for split in splits]
    return Alternation(X, weights, topology, splits, rule, rule.start(topology.n_leaves))
