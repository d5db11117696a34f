"""What a run found, as a table of the nodes of its tree."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree.diagnostics.draws import spread
from bayestree.report.words import FacetWords, words_of
from bayestree.routed_tree import RoutedTree
from bayestree.runs.folder import FACETS
from bayestree.runs.outputs import has_draws, sizes_of
from bayestree.runs.store import Run
from bayestree.tree import Tree

MATTERS = 0.9  # of the squared strength of a node, that its named features hold
MOST_ROWS = 2000  # of the data, evenly spread, of which splits are asked how sure they are
MOST_DRAWS, FEWEST_DRAWS = 50, 10  # of each node, in which facets are looked for
WORK = 1500  # such draws of all nodes: each takes milliseconds
TERMS = 3  # of a half-space in words
SIZES = ("facets_low", "facets_high", "prior_mean")

Floats = NDArray[np.float64]


def summary(run: Run, *, rows: bool = True) -> pd.DataFrame:
    """The nodes of a run's tree: what they ask, how many facets they need, how sure they are.

    Parameters
    ----------
    run : Run
    rows : bool
        Read the rows of the run again, to say how sure the splits are of them (of at most 2,000,
        evenly spread over the table).

    Returns
    -------
    DataFrame
        A row for each node, by its path from the root; of a forest by number of tree and path.

        - ``rows``: weighted training rows that reach the node;
        - ``facets``: how many facets its polytope has: of a posterior the most probable number,
          with ``facets_low`` and ``facets_high``, an interval that holds it with probability 0.9,
          and ``prior_mean``, what the prior expects;
        - ``unsure``: share of its rows for which the posterior gives the other side a chance above
          10 %; ``disagreement``, the mean of these chances; ``sd``, the mean one of P(right);
        - ``features``: those that hold 90 % of the squared coefficients (per unit of each feature)
          of its facets, the strongest first, with commas;
        - ``split``: the deterministic split in words, of which the left side holds; of several
          facets that which cuts off most.

        There are no columns of a posterior where there is none, and none about the splits of rows
        with ``rows=False``.

    Raises
    ------
    InputError
        If the run has no model yet, or its rows cannot be read or are others by now.
    """
    estimator = run.estimator
    members = getattr(estimator, "estimators_", None)
    if members is not None:
        each = {number: _plain(one.tree_) for number, one in enumerate(members, start=1)}
        return pd.concat(each, names=["tree"])
    table = _plain(estimator.tree_)
    sizes = _sizes(run)
    if sizes is not None:
        table["facets"] = sizes["facets"].astype(np.int64)
    if sizes is None or not has_draws(estimator):
        return table
    table["features"] = [", ".join(names) for names in _features(estimator)]
    parts = [sizes.reindex(columns=[name for name in SIZES if name in sizes])]
    parts += [_doubt(run)] if rows else []
    measured = pd.concat([table[["rows", "facets"]], *parts], axis="columns")
    return measured.join(table[["features", "split"]])


def _plain(tree: RoutedTree) -> pd.DataFrame:
    """What the deterministic tree alone says."""
    words = words_of(tree, max_features=TERMS, decimals=3)
    nodes = range(tree.n_nodes)
    columns: dict[str, Any] = {"rows": tree.topology.sum_below(tree.leaf_rows)}
    if isinstance(tree, Tree):
        columns["facets"] = tree.n_facets
        strength = _strength(tree)
        columns["features"] = [", ".join(_strongest(one, words.names)) for one in strength]
    columns["split"] = [_split(words, node) for node in nodes]
    labels = pd.Index(tree.topology.node_labels, name="node", dtype=object)
    return pd.DataFrame(columns, index=labels)


def _split(words: Any, node: int) -> str:
    """A split in words: the facet that cuts off most, and how many others there are."""
    if not isinstance(words, FacetWords):
        return str(words.tree.split_name)
    nearest = words.nearest(node).tolist()
    others = f" and {len(nearest) - 1} more" if len(nearest) > 1 else ""
    return words.facet(nearest[0]) + others


def _strength(tree: Tree) -> Iterator[Floats]:
    """Squared coefficients of each node, per unit of each feature; every facet counts alike."""
    plane = tree.standardised_hyperplane**2
    total = plane.sum(axis=1, keepdims=True)
    share = np.divide(plane, total, out=np.zeros_like(plane), where=total > 0)
    return (share[tree.experts(node)].sum(axis=0) for node in range(tree.n_nodes))


def _strongest(strength: Floats, names: Sequence[str]) -> list[str]:
    """Names of the fewest features that hold 90 % of the squared strength (d,)."""
    if not strength.any():
        return []
    order = np.argsort(-strength, kind="stable")
    held = np.cumsum(strength[order]) / strength.sum()
    return [names[j] for j in order[: int(np.searchsorted(held, MATTERS)) + 1]]


def _sizes(run: Run) -> pd.DataFrame | None:
    """Facets of each node, from the run's own table where it has one."""
    path, labels = run.folder / FACETS, list(run.estimator.tree_.topology.node_labels)
    if path.is_file():
        found = pd.read_csv(path, index_col="node")
        if list(found.index) == labels and "facets" in found:
            return found
    sizes = sizes_of(run.estimator)
    return None if sizes is None else sizes.to_frame()


def _doubt(run: Run) -> pd.DataFrame:
    """How sure the splits are of the rows of the run."""
    X = run.rows().X
    found = run.estimator.split_uncertainty(X.iloc[spread(len(X), MOST_ROWS)])
    table: pd.DataFrame = found.to_frame("node")
    return table[["unsure", "disagreement", "sd"]]


def _features(estimator: Any) -> Iterator[list[str]]:
    """The features that matter to each node, by the facets of its draws."""
    labels = estimator.tree_.topology.node_labels
    draws = min(max(WORK // max(len(labels), 1), FEWEST_DRAWS), MOST_DRAWS)
    for label in labels:
        facets = estimator.facets(label, max_draws=draws)
        strength = (facets.probability[:, None] * facets.strength**2).sum(axis=0)
        yield _strongest(strength, facets.feature_names)
