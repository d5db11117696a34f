"""What a fitted tree says of itself: sizes, facets, shrinkage and the uncertainty of its splits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.facets import Facets, node_facets
from bayestree.diagnostics.reach import Reach, leaves_in_use, node_reach
from bayestree.diagnostics.shrinkage import Shrinkage, node_shrinkage
from bayestree.diagnostics.size import PolytopeSize, size_of
from bayestree.diagnostics.uncertainty import Splits, SplitUncertainty, split_uncertainty
from bayestree.estimators._fitted import FittedTree
from bayestree.inference import Posterior
from bayestree.models import InverseGammaScale, Laplace, SoftTree
from bayestree.models.prior_draws import improper_priors, sample_prior
from bayestree.routed_tree import RowSource
from bayestree.topology import Topology
from bayestree.tree import Tree

SIZE_ROWS = 1000  # rows of each node on which the votes of its experts are measured
VOTE_DRAWS = 100  # prior draws whose votes are measured on these rows
PRIOR_DRAWS = 200
PRIOR_SIZES = 1000  # prior draws whose facets are counted, where they are cheap
PRIOR_WORK = 1_000_000  # coefficients of all nodes in these draws, at most
PRIOR_SEED = 0  # the prior of a model is the same at every call


class TreeDiagnostics(FittedTree):
    """Methods of every fitted tree; the estimators inherit them."""

    def polytope_size(self, max_draws: int = 100) -> PolytopeSize:
        """Posterior of the number of facets of each node of ``tree_``, by three measures.

        Parameters
        ----------
        max_draws : int
            Most draws that are measured, of all chains together, spread evenly over each. A draw
            takes one to ten milliseconds for each node: fewer are faster on large trees, more
            tell small probabilities better (of S draws, to sqrt(p (1 - p) / S)). The prior is
            counted when it is asked for, in ten times as many draws, but at most 1,000, and 200
            of large models.

        Returns
        -------
        PolytopeSize
            ``print`` shows it; see ``mode``, ``interval``, ``probabilities``, the same under the
            prior as ``prior_probabilities``, the leaves in use as ``leaf_probabilities``, and
            ``to_frame``.
        """
        check_is_fitted(self)
        posterior, tree = self.posterior_, self.tree_
        work = tree.n_nodes * posterior.model.split.n_experts * tree.n_features
        n_prior = min(max(PRIOR_WORK // max(work, 1), PRIOR_DRAWS), PRIOR_SIZES)
        return size_of(
            posterior.draws,
            self._reach,
            tree.topology.node_labels,
            prior=prior_of_node(posterior.model, tree.n_features, n_prior),
            max_draws=max_draws,
            max_prior_draws=10 * max_draws,
        )

    def facets(
        self, node: str | int = "root", *, level: float = 0.9, max_draws: int = 100
    ) -> Facets:
        """Where the facets of a node lie: their half-spaces, matched across draws.

        Parameters
        ----------
        node : str or int
            Path from the root in ``tree_`` (``"root"``, ``"L"``, ``"LR"``, ...), or number.
        level : float
            Probability of the intervals.
        max_draws : int
            Most draws that are measured, of all chains together, spread evenly over each.

        Returns
        -------
        Facets
            In the units of the data; ``print`` shows it, see also ``to_frame``.

        Raises
        ------
        ValueError
            If there is no such node, or ``level`` is not between 0 and 1.
        """
        check_is_fitted(self)
        tree, reach = self.tree_, self._reach
        place = _place_of(node, tree.topology)
        return node_facets(
            self.posterior_.draws,
            int(reach.nodes[place]),
            reach.low[place],
            reach.high[place],
            center=tree.center,
            scale=tree.scale,
            factor=float(reach.factor[place]),
            label=tree.topology.node_labels[place],
            feature_names=tree.feature_names,
            level=level,
            max_draws=max_draws,
        )

    def shrinkage(self) -> Shrinkage:
        """What the priors shrank: weights of the experts, and coefficients of their hyperplanes.

        Returns
        -------
        Shrinkage
            ``print`` shows it; see also ``to_frame("node")``, ``to_frame("expert")`` and
            ``to_frame("coefficient")``.
        """
        check_is_fitted(self)
        posterior, tree = self.posterior_, self.tree_
        plane = posterior.model.priors.hyperplane
        return node_shrinkage(
            posterior.draws,
            posterior.point,
            self._reach,
            scale_shape=plane.shape if isinstance(plane, InverseGammaScale) else None,
            l1=plane.rate if isinstance(plane, Laplace) else None,
            prior=prior_of_node(posterior.model, tree.n_features, PRIOR_DRAWS),
            prior_power=float(posterior.settings.get("kl_weight", 1.0)),
            labels=tree.topology.node_labels,
            feature_names=tree.feature_names,
        )

    def split_uncertainty(self, X: ArrayLike, *, level: float = 0.9) -> SplitUncertainty:
        """How sure the splits of ``tree_`` are of some rows, by the posterior.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Rows, or the points of a grid.
        level : float
            Probability of the intervals.

        Returns
        -------
        SplitUncertainty
            ``print`` shows it; see also ``to_frame("node")`` and ``to_frame("row")``. The
            ``outside`` of a grid is the posterior probability that each point lies outside the
            polytope of each node; its level lines are credible borders.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1, or for rows that ``predict`` refuses.
        """
        rows = self._check_rows(X)
        tree, model = self.tree_, self.posterior_.model
        right = [tree.goes_right(node, rows) for node in range(tree.n_nodes)]
        return split_uncertainty(
            self.posterior_.draws,
            self._standardise(rows),
            np.array(right, dtype=bool).reshape(tree.n_nodes, len(rows)).T,
            topology=model.topology,
            steepness=model.steepness,
            splits=Splits(tree.topology, self._reach.nodes, self._reach.factor),
            y_scale=self._units.y_scale,
            level=level,
        )


def _place_of(node: str | int, topology: Topology) -> int:
    """Number of a node that is named by its path or by its number."""
    labels = topology.node_labels
    if not labels:
        raise ValueError("the tree has no split, and so no node to look at.")
    if isinstance(node, str) and node in labels:
        return labels.index(node)
    if isinstance(node, int | np.integer) and 0 <= node < len(labels):
        return int(node)
    shown = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
    raise ValueError(f"node must be one of {shown}, or a number below {len(labels)}, got {node!r}.")


def prior_of_node(model: SoftTree, n_features: int, n_draws: int) -> dict[str, Any] | None:
    """Draws of the sites of one node's split from the prior; None where it is improper.

    Returns
    -------
    dict
        ``log_weight`` and ``intercept`` (n_draws, K), ``hyperplane`` (n_draws, K, d); the first
        only where the split has weights.
    """
    if improper_priors(model):
        return None
    drawn = sample_prior(
        model.with_(topology=Topology.stump()), n_features, n_draws, random_state=PRIOR_SEED
    )
    splits = ("hyperplane", "intercept", "log_weight")
    return {site: drawn[site][:, 0].numpy() for site in splits if site in drawn}


def measure_nodes(
    posterior: Posterior,
    tree: Tree,
    X: RowSource,
    standardised: RowSource,
    nodes: NDArray[np.int64],
    levels: FloatArray,
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
        (rows for _, rows, _ in tree.walk(X)),
        nodes,
        level=levels,
        prior=prior_of_node(posterior.model, tree.n_features, VOTE_DRAWS),
        max_rows=SIZE_ROWS,
    )
    return reach._replace(
        rows=tree.topology.sum_below(tree.leaf_rows),
        leaves=leaves_in_use(posterior.draws, posterior.model.topology, standardised),
    )
