"""What a fitted tree says of itself: sizes, facets, shrinkage and the uncertainty of its splits."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayestree._seed import seeded
from bayestree.diagnostics.reach import Reach, leaves_in_use, node_reach
from bayestree.diagnostics.size import PolytopeSize, size_of
from bayestree.inference import Posterior
from bayestree.models import GammaProcess, InverseGammaScale, SoftTree
from bayestree.tree import Tree

SIZE_ROWS = 1000  # rows of each node on which the votes of its experts are measured
VOTE_DRAWS = 100  # prior draws whose votes are measured on these rows
PRIOR_DRAWS = 200
PRIOR_SEED = 0  # the prior of a model is the same at every call

Floats = NDArray[np.float64]


class TreeDiagnostics:
    """Methods of every fitted tree; the estimators inherit them."""

    tree_: Tree
    posterior_: Posterior
    _reach: Reach

    def polytope_size(self, max_draws: int = 50) -> PolytopeSize:
        """Posterior of the number of facets of each node of ``tree_``, by three measures.

        Parameters
        ----------
        max_draws : int
            Most draws that are measured; fewer make it faster on large trees.

        Returns
        -------
        PolytopeSize
            ``print`` shows it; see ``mode``, ``interval``, ``probabilities``, the same under the
            prior as ``prior_probabilities``, the leaves in use as ``leaf_probabilities``, and
            ``to_frame``.
        """
        check_is_fitted(self)
        posterior = self.posterior_
        return size_of(
            posterior.draws,
            self._reach,
            self.tree_.topology.node_labels,
            prior=prior_of_node(posterior.model, self.tree_.n_features, PRIOR_DRAWS),
            max_draws=max_draws,
        )


def prior_of_node(model: SoftTree, n_features: int, n_draws: int) -> dict[str, Any] | None:
    """Draws of the sites of one node's split from the prior; None where it is improper.

    Returns
    -------
    dict
        ``log_weight`` and ``intercept`` (n_draws, K), ``hyperplane`` (n_draws, K, d); the first
        only where the split has weights.
    """
    weight, plane = model.priors.weight, model.priors.hyperplane
    weighted = model.split.weighted
    if not isinstance(plane, InverseGammaScale):
        return None
    if weighted and not isinstance(weight, GammaProcess):
        return None
    like = torch.zeros((), dtype=torch.float64)
    shape = (n_draws, model.split.n_experts)
    with seeded(PRIOR_SEED):
        b = plane.shrinkage_law(like).sample(shape)
        law = torch.distributions.StudentT(2 * plane.shape, 0.0, (b / plane.shape).sqrt())
        found = {
            "hyperplane": law.sample((n_features,)).movedim(0, -1),
            "intercept": law.sample(),
        }
        if weighted:
            assert isinstance(weight, GammaProcess)
            found["log_weight"] = weight.law(model.split.n_experts, like).sample(shape)
    return {site: values.numpy() for site, values in found.items()}


def measure_nodes(
    posterior: Posterior,
    tree: Tree,
    X: Floats,
    standardised: Floats,
    nodes: NDArray[np.int64],
    levels: Floats,
) -> Reach:
    """What the diagnostics need of the training rows.

    Parameters
    ----------
    posterior : Posterior
    tree : Tree
        The deterministic tree, with its leaves filled.
    X, standardised : arrays, shape (n, d)
        Training rows, in the units of the data and on the scale of the draws.
    nodes : array of int, shape (V,)
        Number in the posterior of each node of ``tree``.
    levels : array, shape (V,)
        The score at which each of them splits.
    """
    reach = node_reach(
        posterior.draws,
        standardised,
        [rows for _, rows, _ in tree.walk(X)],
        nodes,
        level=levels,
        prior=prior_of_node(posterior.model, X.shape[1], VOTE_DRAWS),
        max_rows=SIZE_ROWS,
    )
    return reach._replace(
        rows=tree.topology.turns.any(axis=0) @ tree.leaf_rows,
        leaves=leaves_in_use(posterior.draws, posterior.model.topology, standardised),
    )
