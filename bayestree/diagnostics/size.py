"""Posterior of the number of facets of each node's polytope, and of the size of the whole tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Any, Literal

import numpy as np
import pandas as pd

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.progress import steps_of
from bayestree.diagnostics.draws import (
    SHARE,
    VARIATIONAL,
    Draws,
    effective_number,
    flat,
    kept_draws,
    node_index,
    size_table,
    split_of,
    spread,
    tails,
)
from bayestree.diagnostics.polytopes import Reach, cuts_off, needed, node_reach
from bayestree.tree import LOG2

Measure = Literal["cutting", "facets", "weights", "effective"]
#: The possible main measures, in words.
MEANINGS: dict[Measure, str] = {
    "cutting": f"facets that alone cut off at least {100 * SHARE:.0f} % of the node's rows",
    "facets": "facets in the box of the node's rows",
}
REFIT = "the estimator was fitted by a version that did not store this; fit it again"


@dataclass(frozen=True, eq=False)
class TreeSize:
    """Posterior probabilities of numbers that trees of different topologies have in common.

    Attributes
    ----------
    facets : array, shape (largest number + 1,)
        The probability of each number of facets of the root, by the main measure of
        ``PolytopeSize``; a tree without a split has 0.
    splits : array, shape (largest number + 1,)
        The probability of each total number of facets of all splits.
    leaves : array, shape (largest number + 1,), or None
        The probability of each number of leaves in use by a draw; None if they were not counted.
    depth : array, shape (largest depth + 1,)
        The probability of each depth of the deterministic trees, of which each mode has one.
    """

    facets: FloatArray
    splits: FloatArray
    leaves: FloatArray | None
    depth: FloatArray

    def __str__(self) -> str:
        named = {
            "facets of the root": self.facets,
            "of all splits": self.splits,
            "leaves in use by a draw": self.leaves,
            "depth of the deterministic trees": self.depth,
        }
        parts = [f"{name} {_summary(p)}" for name, p in named.items() if p is not None]
        return fill(f"Over all modes: {', '.join(parts)}", 100)


def number_probabilities(counts: Sequence[IntArray], weights: FloatArray) -> FloatArray:
    """Compute the probability of each number from the draws of each mode and its weight."""
    table = np.zeros(max(int(one.max()) for one in counts) + 1)
    for one, weight in zip(counts, weights, strict=True):
        table += weight * np.bincount(one.ravel(), minlength=len(table)) / one.size
    return table


def _summary(probabilities: FloatArray, level: float = 0.9) -> str:
    """Write the most probable number and a central interval."""
    below = np.cumsum(probabilities)
    # rounding must not leave the upper end without mass above it
    low, high = (int(np.argmax(below >= p - 1e-9)) for p in tails(level))
    return f"{int(probabilities.argmax())} ({low} to {high})"


def no_split(n_leaves: IntArray | None) -> str:
    """Describe a tree without a split by the leaves in use of its draws, (chain, draw), if known.

    A draw may split rows whose predictions differ too little for the deterministic tree.
    """
    if n_leaves is None or (n_leaves == 1).all():
        return "a tree without a split"
    share = float((n_leaves > 1).mean())
    found = _summary(number_probabilities([n_leaves], np.ones(1)))
    return (
        f"a tree without a split; {share:.0%} of the draws split\n"
        f"Leaves in use by a draw: {found}, the most probable number and its 90 % interval"
    )


@dataclass(frozen=True, eq=False)
class PriorSize:
    """Prior sizes of each node in its box, computed on demand.

    ``draws`` describe one node, (prior draw, K, ...) by site, because every node has the same
    prior. ``largest`` and ``cut`` (prior draw, V, K) have the largest votes of the draws, and the
    shares of the node's rows that each expert alone sends right.
    """

    draws: Draws
    low: FloatArray
    high: FloatArray
    largest: AnyArray | None = None
    cut: AnyArray | None = None

    @property
    def facets(self) -> IntArray:
        """Number of irredundant half-spaces in each node's box, shape (prior draw, V)."""
        return self.counts[0]

    @property
    def cutting(self) -> IntArray:
        """Number of these that alone cut off at least 1 % of the rows, shape (prior draw, V)."""
        self._known(self.cut)
        return self.counts[1]

    @property
    def weights(self) -> IntArray:
        """Number of experts whose largest vote is at least 1 % of log 2, (prior draw, V)."""
        return (self._known(self.largest) >= SHARE * LOG2).sum(axis=-1)

    @property
    def effective(self) -> FloatArray:
        """Effective number of the largest votes, shape (prior draw, V)."""
        return effective_number(self._known(self.largest))

    @cached_property
    def counts(self) -> tuple[IntArray, IntArray]:
        """``facets``, and ``cutting`` or, where this is unknown, zeros."""
        sizes = np.zeros((2, len(self.draws["intercept"]), len(self.low)), dtype=np.int64)
        for draw, node in np.ndindex(sizes.shape[1:]):
            box, cut = (self.low[node], self.high[node]), self.cut
            share = None if cut is None else cut[draw, node]
            sizes[:, draw, node] = _counts(self.draws, draw, *box, share)
        return sizes[0], sizes[1]

    def _known(self, measured: AnyArray | None) -> FloatArray:
        if measured is None:
            raise ValueError(
                f"the prior of this measure needs votes over training rows, but {REFIT}."
            )
        return measured.astype(np.float64)


@dataclass(frozen=True, eq=False)
class PolytopeSize:
    """Posterior of the number of facets of each node.

    Attributes
    ----------
    weights : array of int, shape (chain, draw, V)
        Number of experts whose largest vote over the node's rows is at least 1 % of log 2.
    facets : array of int, shape (chain, draw, V)
        Number of irredundant half-spaces of the enclosing polytope inside the bounding box of the
        node's rows. Experts that share a hyperplane count once. The border of the split lies inside
        this polytope, at some distance where several experts vote together, and may cross the box
        even if no facet does. A polytope that excludes the whole box counts as one facet. Most
        draws of a prior with large weights (``concentration=10``) do so: "one facet" then does not
        mean a split by one hyperplane.
    effective : array, shape (chain, draw, V)
        The effective number of votes, (sum c)^2 / sum c^2 for the largest votes c. ``shrinkage()``
        has the effective number of weights.
    labels : tuple of str
        Path of each node from the root.
    rows : array, shape (V,)
        Number of rows that reach each node.
    prior : PriorSize, optional
        The same quantities under the prior, inside the same boxes.
    n_leaves : array of int, shape (chain, draw), optional
        Number of leaves that training rows reach under the hard splits of each draw. There may be
        more than in ``tree_``, which keeps only those that its own splits reach.
    cutting : array of int, shape (chain, draw, V), optional
        Number of ``facets`` that alone cut off, and so send right, at least 1 % of the node's rows,
        which others do not; the main measure. Boxes of many features have corners far from any row;
        unlike ``facets``, this number counts neither facets that cut off only such corners nor
        those whose rows others cut off, too. Unknown for models that were saved by an earlier
        version; ``facets`` is then the main measure.
    variational : bool
        Whether the draws come from a single variational fit, whose numbers of facets are too
        certain.
    over_modes : TreeSize, optional
        The sizes of the trees of all modes; everything else refers to the tree of one mode.
    """

    weights: IntArray
    facets: IntArray
    effective: FloatArray
    labels: tuple[str, ...]
    rows: FloatArray
    prior: PriorSize | None = None
    n_leaves: IntArray | None = None
    cutting: IntArray | None = None
    variational: bool = False
    over_modes: TreeSize | None = None

    @property
    def headline(self) -> Measure:
        """The main measure, which methods use by default: ``"cutting"`` if it is known."""
        return "facets" if self.cutting is None else "cutting"

    @property
    def meaning(self) -> str:
        """The main measure in words."""
        return MEANINGS[self.headline]

    def sizes(self, measure: Measure | None = None) -> AnyArray:
        """Return a measure, by default the main one, shape (chain * draw, V).

        Raises
        ------
        ValueError
            If the measure is unknown.
        """
        found: AnyArray | None = getattr(self, measure or self.headline)
        if found is None:
            raise ValueError(f"the rows that each facet cuts off were not counted: {REFIT}.")
        return flat(found)

    def probabilities(self, measure: Measure | None = None) -> FloatArray:
        """Compute the posterior probability of each size, shape (V, largest size + 1).

        ``effective`` is rounded to integers.
        """
        return size_table(self.sizes(measure))

    def prior_probabilities(self, measure: Measure | None = None) -> FloatArray:
        """Compute the prior probability of each size, shape (V, largest size + 1).

        The first call for facets solves more linear programs than a posterior needs.

        Raises
        ------
        ValueError
            If the prior is unknown, or was not measured by ``measure``.
        """
        return size_table(getattr(self._known_prior(), measure or self.headline))

    def leaf_probabilities(self) -> FloatArray:
        """Compute the posterior of the number of leaves in use, shape (largest number + 1,).

        Raises
        ------
        ValueError
            If the leaves were not counted.
        """
        if self.n_leaves is None:
            raise ValueError(f"the leaves in use were not counted: {REFIT}.")
        return size_table(self.n_leaves.reshape(-1, 1))[0]

    def mode(self, measure: Measure | None = None) -> IntArray:
        """Return the most probable size of each node, shape (V,); the smaller one in a tie."""
        return self.probabilities(measure).argmax(axis=1)

    def median(self, measure: Measure | None = None) -> IntArray:
        """Return the median size of each node, shape (V,); ``effective`` is rounded to integers."""
        middle = np.quantile(self.sizes(measure), 0.5, axis=0, method="inverted_cdf")
        return np.rint(middle).astype(np.int64)

    def interval(self, level: float = 0.9, measure: Measure | None = None) -> FloatArray:
        """Compute the central interval of probability ``level`` of the size, shape (V, 2).

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1.
        """
        return _interval(self.sizes(measure), level, integer=measure != "effective")

    def to_frame(self, level: float = 0.9, *, prior: bool | None = None) -> pd.DataFrame:
        """Tabulate nodes: mode, mean, median and interval of the facets, means of the others.

        ``facets`` is the main measure, and ``box_mean`` the mean of the attribute ``facets`` if
        that is another measure.

        Parameters
        ----------
        level : float
            Probability of the intervals.
        prior : bool, optional
            Add mean and interval of the facets under the prior; by default if it is known.

        Raises
        ------
        ValueError
            If ``level`` is not between 0 and 1, or the prior is requested but unknown.
        """
        facets = self.sizes()
        interval = self.interval(level).astype(np.int64)
        columns: dict[str, Any] = {
            "rows": self.rows,
            "facets": self.mode(),
            "facets_mean": facets.mean(axis=0),
            "facets_median": self.median(),
            "facets_low": interval[:, 0],
            "facets_high": interval[:, 1],
            **({} if self.cutting is None else {"box_mean": flat(self.facets).mean(axis=0)}),
            "weights_mean": flat(self.weights).mean(axis=0),
            "effective_mean": flat(self.effective).mean(axis=0),
        }
        if prior or (prior is None and self.has_prior):
            expected = getattr(self._known_prior(), self.headline)
            bounds = _interval(expected, level, integer=True).astype(np.int64)
            columns |= {
                "prior_mean": expected.mean(axis=0),
                "prior_low": bounds[:, 0],
                "prior_high": bounds[:, 1],
            }
        return pd.DataFrame(columns, index=node_index(self.labels))

    def __str__(self) -> str:
        n_chains, n_draws, n_nodes = self.facets.shape
        over_modes = [] if self.over_modes is None else [str(self.over_modes)]
        if n_nodes == 0:
            return "\n".join([f"Polytope size: {no_split(self.n_leaves)}", *over_modes])
        lines = [*over_modes, *(["The tree that is shown:"] if over_modes else [])]
        lines += [VARIATIONAL] if self.variational else []
        lines.append(f"Polytope size: {n_chains} x {n_draws} draws (chain x draw), 90 % intervals")
        lines.append(f"Counted: {self.meaning};\neffective: number of votes, (sum c)^2 / sum c^2")
        if self.n_leaves is not None:
            low, high = _interval(self.n_leaves.reshape(-1, 1), 0.9, integer=True)[0]
            mode = self.leaf_probabilities().argmax()
            lines.append(f"Leaves in use by a draw: {mode} ({low:.0f} to {high:.0f})")
        frame = self.to_frame(prior=False)
        return "\n".join([*lines, frame.to_string(float_format="{:.1f}".format)])

    @property
    def has_prior(self) -> bool:
        """Whether the main measure is known under the prior, too."""
        counted = self.cutting is None or (self.prior is not None and self.prior.cut is not None)
        return self.prior is not None and counted

    def _known_prior(self) -> PriorSize:
        if self.prior is None:
            raise ValueError("the prior of the sizes is unknown: it was not given, or is improper.")
        return self.prior


def polytope_size(
    draws: Draws,
    X: FloatArray,
    rows: Sequence[IntArray],
    *,
    labels: Sequence[str] | None = None,
    prior: Draws | None = None,
    max_draws: int = 100,
    max_prior_draws: int = 1000,
) -> PolytopeSize:
    """Measure the posterior of the number of facets of each node.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, V, K, d), ``intercept`` and, unless every weight is 1,
        ``log_weight`` (chain, draw, V, K).
    X : array, shape (n, d)
        Rows on the scale of the draws.
    rows : sequence of V arrays of int
        Rows of ``X`` that reach each node, at least one per node.
    labels : sequence of V str, optional
        Names of the nodes; their numbers by default.
    prior : mapping of arrays, optional
        Prior draws of one node: the same sites, (prior draw, K, ...).
    max_draws : int
        Maximum number of draws measured, over all chains, evenly spaced within each. Every draw
        of every node takes one to ten milliseconds for its linear programs. A probability p
        estimated from S independent draws has standard error sqrt(p (1 - p) / S).
    max_prior_draws : int
        The same for the prior, which is measured on demand.

    Raises
    ------
    ValueError
        If a node has no rows, or the numbers of nodes, features or labels disagree.
    """
    n_nodes = draws["intercept"].shape[2]
    if len(rows) != n_nodes:
        raise ValueError(f"rows must hold one array for each of {n_nodes} nodes, got {len(rows)}.")
    names = [str(node) for node in range(n_nodes)] if labels is None else labels
    reach = node_reach(draws, X, rows, np.arange(n_nodes), prior=prior)
    return size_of(
        draws, reach, names, prior=prior, max_draws=max_draws, max_prior_draws=max_prior_draws
    )


def size_of(
    draws: Draws,
    reach: Reach,
    labels: Sequence[str],
    *,
    prior: Draws | None = None,
    max_draws: int = 100,
    max_prior_draws: int = 1000,
    variational: bool = False,
) -> PolytopeSize:
    """Measure sizes as :func:`polytope_size`, from the :class:`Reach` of the nodes."""
    kept = kept_draws(draws, max_draws)
    if len(labels) != len(reach.nodes):
        raise ValueError(f"labels must name {len(reach.nodes)} nodes, got {len(labels)}.")
    votes = reach.largest[:, kept].astype(np.float64)
    facets, cutting = np.zeros((2, *votes.shape[:3]), dtype=np.int64)
    for chain, place, node in steps_of(np.ndindex(facets.shape), "facets of draws"):
        one, box = (chain, kept[place], reach.nodes[node]), (reach.low[node], reach.high[node])
        cut = None if reach.cut is None else reach.cut[chain, kept[place], node]
        found = _counts(draws, one, *box, cut)
        facets[chain, place, node], cutting[chain, place, node] = found
    return PolytopeSize(
        weights=(votes >= SHARE * LOG2).sum(axis=-1),
        facets=facets,
        effective=effective_number(votes),
        labels=tuple(labels),
        rows=reach.rows,
        prior=None if prior is None else _prior_size(prior, reach, max_prior_draws),
        n_leaves=None if reach.leaves is None else reach.leaves[:, kept],
        cutting=None if reach.cut is None else cutting,
        variational=variational,
    )


def _counts(
    draws: Draws, one: Any, low: FloatArray, high: FloatArray, cut: AnyArray | None
) -> tuple[int, int]:
    """Count the irredundant half-spaces of a node in a draw, and how many of them cut off rows."""
    weight, plane, intercept = split_of(draws, one)
    found = needed(weight, plane, intercept, low, high)
    return len(found), 0 if cut is None else int(cuts_off(cut[found]).sum())


def _prior_size(prior: Draws, reach: Reach, max_draws: int) -> PriorSize:
    if max_draws < 1:
        raise ValueError(f"max_prior_draws must be 1 or more, got {max_draws}.")
    kept = spread(len(prior["intercept"]), max_draws)
    some = {site: values[kept] for site, values in prior.items()}
    # draws differ from the fit's draws if another version of torch drew them
    same = reach.prior_intercept is not None and np.allclose(
        prior["intercept"], reach.prior_intercept, rtol=1e-4
    )
    cut = reach.prior_cut[kept] if same and reach.prior_cut is not None else None
    return PriorSize(some, reach.low, reach.high, reach.prior_largest, cut)


def _interval(sizes: AnyArray, level: float, *, integer: bool) -> FloatArray:
    """Compute the central interval of each column, shape (columns, 2)."""
    method: Any = "inverted_cdf" if integer else "linear"
    return np.quantile(sizes, tails(level), axis=0, method=method).T.astype(np.float64)
