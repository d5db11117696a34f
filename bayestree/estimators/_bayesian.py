"""Trees whose posterior is worth looking at: soft trees, with all diagnostics."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayestree import inference
from bayestree.estimators._base import BaseTree
from bayestree.estimators._checks import TreeChecks
from bayestree.estimators._diagnostics import TreeDiagnostics, measure_nodes
from bayestree.estimators._file_rows import FileRows
from bayestree.inference import Data
from bayestree.inference.harden import Hardened
from bayestree.inference.unsplit import warn_single_leaf
from bayestree.models import named
from bayestree.tree import Tree


class BayesianTree(TreeDiagnostics, TreeChecks, BaseTree):
    """A soft tree: its deterministic form, and what its posterior says beside it."""

    extend: bool = False
    prediction: Literal["auto", "tree", "posterior"] = "auto"
    refine: str | None = None

    def _read_off(
        self,
        X: NDArray[np.float64] | FileRows,
        y: NDArray[Any],
        weights: NDArray[np.float64],
        data: Data,
        class_names: tuple[str, ...],
    ) -> None:
        hard = inference.harden(self.posterior_, data, limits=self._limits(), extend=self.extend)
        if self.refine == "tao":
            hard = self._polished(hard, data)
        found = self._splits(hard.posterior, class_names)
        if not isinstance(found, Tree):
            raise TypeError(
                "the diagnostics of a posterior are of linear experts, got the split "
                f"{self.posterior_.model.split!r}."
            )
        tree = found.drop_experts(X)
        bypass = tree.one_way(X)
        self.tree_ = tree.collapse(bypass).fill(X, y, weights, len(class_names), self.smoothing)
        _, kept, _ = tree.topology.collapse(bypass)
        self._reach = measure_nodes(
            self.posterior_,
            self.tree_,
            X,
            self._standardise(X),
            hard.sources[kept],
            hard.levels[kept],
        )

    def _polished(self, hard: Hardened, data: Data) -> Hardened:
        """The deterministic form with its splits and leaves optimised for its own loss."""
        model = hard.posterior.model
        if model.topology.n_nodes == 0:
            return hard
        loss = named.alternating(model.leaf, split=model.split).with_(topology=model.topology)
        found = inference.tao(loss, data, init=hard.posterior)
        if found.model.topology.n_nodes == 0:
            reason = "refine='tao' found that no split lowers the loss; fit without refine"
            warn_single_leaf(data.y, self._limits(), reason)
        kept = found.stats["source"]
        return Hardened(found, hard.sources[kept], hard.levels[kept])

    def _weighs_evidence(self) -> bool:
        return True

    def _averages(self) -> bool:
        if self.prediction == "auto":
            return self.posterior_.n_chains * self.posterior_.n_draws > 1
        return self.prediction == "posterior"
