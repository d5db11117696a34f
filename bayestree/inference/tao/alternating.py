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

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.settings import Stage, as_function
from bayestree.inference.tao.leaves import LeafRule, LinearLeaves, MajorityLeaves, MeanLeaves
from bayestree.inference.tao.pruning import redundant_nodes
from bayestree.inference.tao.solvers import NodeSplit, ReducedSolver
from bayestree.inference.tao.starts import sites_of, splits_of
from bayestree.inference.tao.state import Alternation, Reach
from bayestree.inference.tao.sweep import sweep
from bayestree.inference.tao.table import solver_for
from bayestree.models.leaves import Categorical
from bayestree.models.likelihoods import DETERMINISTIC
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology
from bayestree.tree import Tree


class _Best(NamedTuple):
    """The best tree seen."""

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
            "Refuse updates of a node that would raise the objective. By default they "
            "are accepted and the best tree seen is returned, which ends lower."
        ),
    ] = False
    ridge: Annotated[
        Positive,
        Inference(
            "Penalty on |w|^2 / 2 where l1 is 0, which keeps oblique splits finite; "
            "it is not part of the objective."
        ),
    ] = 0.1
    n_jobs: Annotated[
        int | None,
        Inference(
            "Threads for the nodes of a depth; -1 for one per core. The tree does not depend on it."
        ),
    ] = None


@declare
class Tao(Sweeps, Stage):
    """Settings of tree alternating optimisation.

    {parameters}
    """

    leaf_ridge: Annotated[
        Positive | None,
        Inference(
            "Under squared loss: leaves are linear, and the objective has leaf_ridge "
            "|slope|^2 for each, on the features of the data. By default leaves are constant."
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

        Each sweep visits the nodes from the deepest to the root. A node receives the rows that
        reach it, each labelled with the child whose present subtree predicts it better, and
        becomes a binary classifier of those; rows that both children predict equally well are
        left out. A surrogate loss can raise the loss of the tree: updates are accepted
        nevertheless and the best tree seen is returned, or, if ``strict``, such updates are
        refused, and the objective never rises.

        Under a penalty the best tree is the best after a whole sweep: the penalty on the size of
        the initial hyperplanes depends on a scale that does not affect the loss.

        Parameters
        ----------
        model : SoftTree
            With the likelihood ``"misclassification"`` or ``"squared-error"`` (see
            ``bayestree.models.named.alternating``). Split and prior decide how a node is solved;
            the prior is the penalty. The topology is that of ``init``.
        data : Data
            n rows; the weights count.
        init : Tree or Posterior
            The start, on the features of ``data``.
        solver : ReducedSolver, optional
            For the reduced problems, instead of the one chosen by split and prior.
        progress : bool
            Show a progress bar.
        {parameters}

        Returns
        -------
        Posterior
            One draw: the best tree, pruned of dead branches, pure subtrees and siblings of one
            label, with shares or means of the rows in its leaves (means even if these are
            linear). ``stats``: ``loss`` of the training rows and ``objective`` (loss, and
            penalties of splits that separate rows; if ``strict`` of all), before the first sweep
            and after each, of the tree before it is pruned; ``source`` is the number in the start
            of each node that is left.

        Raises
        ------
        ValueError
            For invalid settings, another likelihood, a model whose reduced problems no solver is
            known for, or a start that its splits cannot express.
        """
        self.check(model)
        solver = solver or solver_for(model, self.ridge)
        tree = _start(model, data, init, self.leaf_ridge)
        descent = _Descent(tree, solver, self.strict)
        with threadpool_limits(1, user_api="blas"):  # sums in one order, for any number of threads
            trace = descent.run(self.sweeps, self.patience, self.n_jobs, progress=progress)
        best = descent.best
        bypass = redundant_nodes(tree.topology, best.reach, best.values)
        topology, nodes, _ = tree.topology.collapse(bypass)
        splits = [best.splits[node] for node in nodes]
        leaf = replace(tree, topology=topology, splits=splits).reach().leaf
        loss, objective = np.array(trace).T
        settings = {name: value for name, value in vars(self).items() if name != "n_jobs"}
        return Posterior.from_point(
            model.with_(topology=topology),
            sites_of(splits, model, data.X.shape[1]) | _leaf_sites(model, data, topology, leaf),
            "tao",
            stats={"loss": loss, "objective": objective, "source": nodes},
            settings=settings | {"solver": type(solver).__name__},
        )

    def check(self, model: SoftTree) -> None:
        super().check(model)
        if model.likelihood not in DETERMINISTIC:
            raise ValueError(
                "tao minimises the loss of a deterministic tree: likelihood must be one of "
                f"{DETERMINISTIC}, got {model.likelihood!r}; see "
                "bayestree.models.named.alternating."
            )
        if self.leaf_ridge is not None and isinstance(model.leaf, Categorical):
            raise ValueError("leaf_ridge is for linear leaves under squared loss, not for classes.")


tao = as_function(Tao, "tao")


def _leaf_sites(
    model: SoftTree, data: Data, topology: Topology, leaf: IntArray
) -> dict[str, torch.Tensor]:
    """Sites of constant leaves, given the leaf (n,) of each row."""
    statistics = model.leaf.statistics(data.y, data.weights).double()
    sums = statistics.new_zeros(topology.n_leaves, statistics.shape[1])
    place = torch.as_tensor(leaf, device=statistics.device)
    return model.leaf.estimate(sums.index_add_(0, place, statistics))


class _Descent:
    """Sweeps over one tree, and the best tree seen."""

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
        """Sweep until nothing changes or improves; loss and objective by sweep."""
        tree, solver = self.tree, self.solver
        loss, objective = self._refit()
        penalised = any(solver.penalty(split) > 0 for split in tree.splits)
        first = math.inf if penalised and not self.strict else objective
        self.best = _Best(first, list(tree.splits), tree.values, self.reach)
        self.trace.append((loss, objective))
        track = Track(range(sweeps), "tao", show=progress, parts={"descent": self})
        # threads, also where all else goes to a cluster: the updates of nodes are short
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
        """Route the rows, refit the leaves; the loss and the objective."""
        tree = self.tree
        self.reach = reach = tree.reach()
        tree.values = tree.rule.fit(tree.values, reach.leaf)
        loss = float(tree.weights @ tree.losses(reach.leaf, np.arange(len(tree.X))))
        # Splits that part no rows go in the end. Strict descent counts them, or rows that come
        # back to one would raise the objective.
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
            f"init has splits on {splits[0].n_features} features, and the rows have {X.shape[1]}."
        )
    weights = data.weights.double().numpy(force=True)
    rule = _leaf_rule(model, X, data.y.numpy(force=True), weights, leaf_ridge)
    splits = [split.cast(X.dtype) for split in splits]
    return Alternation(X, weights, topology, splits, rule, rule.start(topology.n_leaves))


def _leaf_rule(
    model: SoftTree,
    X: NDArray[np.floating],
    y: NDArray[Any],
    weights: FloatArray,
    leaf_ridge: float | None,
) -> LeafRule:
    """The leaves that the model's likelihood asks for."""
    if isinstance(model.leaf, Categorical):
        return MajorityLeaves(y, weights, model.leaf.n_classes)
    target = y.astype(np.float64)
    if leaf_ridge is not None:
        return LinearLeaves(X, target, weights, leaf_ridge)
    return MeanLeaves(target, weights)
