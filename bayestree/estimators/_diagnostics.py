"""Diagnostics of a fitted tree: sizes, facets, shrinkage and uncertainty of its splits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.progress import fitting
from bayestree._utils.seed import RandomState
from bayestree.diagnostics.draws import SHARE
from bayestree.diagnostics.facets import Facets, node_facets
from bayestree.diagnostics.polytopes import Reach, leaves_in_use, node_reach
from bayestree.diagnostics.shrinkage import Shrinkage, node_shrinkage
from bayestree.diagnostics.size import PolytopeSize, size_of
from bayestree.diagnostics.uncertainty import Splits, SplitUncertainty, split_uncertainty
from bayestree.estimators._fitted import FittedTree
from bayestree.estimators._numbers import fitted_rows
from bayestree.inference import Posterior
from bayestree.models import SoftTree
from bayestree.models.soft_tree import improper_priors, sample_prior
from bayestree.routed_tree import RowSource
from bayestree.topology import Topology
from bayestree.tree import Tree

SIZE_ROWS = 1000  # rows of each node on which the votes of its experts are measured
PRIOR_DRAWS = 200  # prior draws of a node; their votes are measured on these rows
PRIOR_SEED = 0  # the same draws at every call


class TreeDiagnostics(FittedTree):
    """Diagnostics that fitted soft trees inherit."""

    def polytope_size(self, max_draws: int = 100) -> PolytopeSize:
        """Posterior of the number of facets of each node of ``tree_``, by four measures.

        After inference="svi" it is that of a single variational fit, whose counts are too
        certain and may be wrong; inference="nuts" samples them.

        Parameters
        ----------
        max_draws : int
            Maximum number of draws measured, over all chains, evenly spaced within each. A
            draw takes one to ten milliseconds for each node; the standard error of a probability
            p from S draws is sqrt(p (1 - p) / S). Sizes under the prior are computed on first
            use, from ten times as many draws, but at most 200.

        Returns
        -------
        PolytopeSize
            Can be printed; see ``mode``, ``interval``, ``probabilities`` (under the prior
            ``prior_probabilities``), ``leaf_probabilities`` of the number of leaves in use, and
            ``to_frame``. With several modes the nodes are those of ``tree_``, and ``over_modes``
            has the facets of the root and of all splits, the leaves and the depth over all modes.
        """
        check_is_fitted(self)
        posterior, tree = self.posterior_, self.tree_
        measured = self._reach.prior_largest
        n_prior = PRIOR_DRAWS if measured is None else len(measured)
        with fitting(self.verbose):
            return size_of(
                posterior.draws,
                self._reach,
                tree.topology.node_labels,
                prior=prior_of_node(posterior.model, tree.n_features, n_prior),
                max_draws=max_draws,
                max_prior_draws=10 * max_draws,
                variational=posterior.inference == "svi",
            )

    def facets(
        self,
        node: str | int = "root",
        *,
        level: float = 0.9,
        max_draws: int = 100,
        min_share: float = SHARE,
    ) -> Facets:
        """The half-spaces of a node's facets, matched across draws.

        After inference="svi" they are those of a single variational fit, whose probabilities are
        too close to 0 and 1; inference="nuts" samples them.

        Parameters
        ----------
        node : str or int
            Path from the root in ``tree_`` (``"root"``, ``"L"``, ``"LR"``, ...), or number.
        level : float
            Probability of the intervals.
        max_draws : int
            Maximum number of draws measured, over all chains, evenly spaced within each.
        min_share : float
            Facets that alone cut off a smaller share of the node's rows are left out; 0 lists all
            facets in the box of these rows. Models saved by earlier versions have not recorded
            the shares, and list all.

        Returns
        -------
        Facets
            In the units of the data. Can be printed; see also ``to_frame``.

        Raises
        ------
        ValueError
            If there is no such node, or ``level`` or ``min_share`` is not between 0 and 1.
        """
        check_is_fitted(self)
        tree, reach = self.tree_, self._reach
        place = _node_number(node, tree.topology)
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
            cut=None if reach.cut is None else reach.cut[:, :, place],
            min_share=min_share,
            variational=self.posterior_.inference == "svi",
        )

    def shrinkage(self) -> Shrinkage:
        """Shrinkage of the weights of the experts and of the coefficients of their hyperplanes.

        Returns
        -------
        Shrinkage
            Can be printed; see also ``to_frame("node")``, ``to_frame("expert")`` and
            ``to_frame("coefficient")``.
        """
        check_is_fitted(self)
        posterior, tree = self.posterior_, self.tree_
        return node_shrinkage(
            posterior.draws,
            posterior.point,
            self._reach,
            **posterior.model.priors.hyperplane.shrinkage_settings,
            prior=prior_of_node(posterior.model, tree.n_features, PRIOR_DRAWS),
            prior_power=float(posterior.settings.get("kl_weight", 1.0)),
            labels=tree.topology.node_labels,
            feature_names=tree.feature_names,
        )

    def split_uncertainty(self, X: ArrayLike, *, level: float = 0.9) -> SplitUncertainty:
        """Posterior uncertainty of the splits of ``tree_`` at given rows.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Rows, or the points of a grid.
        level : float
            Probability of the intervals.

        Returns
        -------
        SplitUncertainty
            Can be printed; see also ``to_frame("node")`` and ``to_frame("row")``. For a grid,
            ``outside`` is the posterior probability that each point lies outside the polytope of
            each node; its contours are credible borders. With several modes, what refers to nodes
            and leaves is that of the mode of ``tree_`` (for another one, see
            ``modes_[m].split_uncertainty``), and the decomposition of the uncertainty of y is that
            of their mixture.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1, or for rows that ``predict`` refuses.
        """
        self._one_output("split_uncertainty")
        rows = fitted_rows(self, X)
        tree, model = self.tree_, self.posterior_.model
        right = [tree.goes_right(node, rows) for node in range(tree.n_nodes)]
        return split_uncertainty(
            self.posterior_.described_draws,
            self._standardise(rows),
            np.array(right, dtype=bool).reshape(tree.n_nodes, len(rows)).T,
            topology=model.topology,
            steepness=model.steepness,
            splits=Splits(tree.topology, self._reach.nodes, self._reach.factor),
            y_scale=self._units.y_scale,
            y_center=self._units.y_center,
            level=level,
        )


def _node_number(node: str | int, topology: Topology) -> int:
    """Number of a node that is given by its path or by its number."""
    labels = topology.node_labels
    if not labels:
        raise ValueError("the tree is a single leaf; it has no node with a split.")
    if isinstance(node, str) and node in labels:
        return labels.index(node)
    if isinstance(node, int | np.integer) and 0 <= node < len(labels):
        return int(node)
    if len(labels) == 1:
        raise ValueError(f"node must be 'root' or 0, the only split of the tree, got {node!r}.")
    shown = ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")
    raise ValueError(
        f"node must be one of {shown}, or its number from 0 to {len(labels) - 1}, got {node!r}."
    )


def prior_of_node(model: SoftTree, n_features: int, n_draws: int) -> dict[str, Any] | None:
    """Prior draws of the sites of one split, (n_draws, K, ...); None if the prior is improper."""
    if improper_priors(model):
        return None
    return splits_of_prior(model, n_features, n_draws, PRIOR_SEED)


def splits_of_prior(
    model: SoftTree, n_features: int, n_draws: int, random_state: RandomState
) -> dict[str, Any]:
    """Prior draws of the sites of one split, (n_draws, K, ...); ValueError if it is improper."""
    drawn = sample_prior(
        model.with_(topology=Topology.stump()), n_features, n_draws, random_state=random_state
    )
    splits = ("hyperplane", "intercept", "log_weight")
    return {site: drawn[site][:, 0].numpy() for site in splits if site in drawn}


def measure_nodes(
    posterior: Posterior,
    tree: Tree,
    X: RowSource,
    standardised: RowSource,
    nodes: IntArray,
    levels: FloatArray | None,
) -> Reach:
    """The statistics of the training rows that the diagnostics need.

    ``nodes`` (V,) are the posterior's numbers of the nodes of ``tree``, and ``levels`` (V,) the
    scores at which they split; ``standardised`` are the rows on the scale of the draws.
    """
    reach = node_reach(
        posterior.draws,
        standardised,
        (rows for _, rows, _ in tree.walk(X)),
        nodes,
        level=levels,
        prior=prior_of_node(posterior.model, tree.n_features, PRIOR_DRAWS),
        max_rows=SIZE_ROWS,
    )
    return reach._replace(
        rows=tree.topology.sum_below(tree.leaf_rows),
        leaves=leaves_in_use(posterior.draws, posterior.model.topology, standardised),
    )
