"""The result of a run as a table of the nodes of its tree."""

from typing import Any

import numpy as np
import pandas as pd

from bayestree.description import TreeDescription
from bayestree.diagnostics.size import MEANINGS
from bayestree.protocols import has_draws
from bayestree.report import splits
from bayestree.report.rows import Rows, rows_of
from bayestree.routed_tree import RoutedTree
from bayestree.runs.folder import FACETS
from bayestree.runs.outputs import sizes_of
from bayestree.runs.store import Run
from bayestree.tables import Encoding
from bayestree.tree import Tree

TERMS, DIGITS = 3, 3  # shown of a half-space
SIZES = ("facets_median", "facets_low", "facets_high", "prior_mean", "box_mean")


def summary(run: Run, *, rows: bool = True) -> pd.DataFrame:
    """The nodes of a run's tree: their splits, numbers of facets, and uncertainty.

    Parameters
    ----------
    run : Run
    rows : bool
        Read the rows of the run again to compute feature importance and split uncertainty, on at
        most 2,000 evenly spaced held-out rows or, if there are none, training rows.
        ``attrs["asked"]`` of the table describes these rows.

    Returns
    -------
    DataFrame
        A row for each node, by its path from the root; for a forest by number of tree and path.

        - ``rows``: weighted training rows that reach the node;
        - ``facets_point``: number of facets of its polytope in the point estimate, which is the
          tree of ``tree.txt`` and of every export;
        - ``facets``: the posterior mode of the number of facets that alone cut off at least 1 %
          of the node's rows, with the median (``facets_median``), an interval of probability 0.9
          (``facets_low``, ``facets_high``), and the prior mean (``prior_mean``); without a
          posterior the same as ``facets_point``;
        - ``box_mean``: the posterior mean of the number of all facets in the box of the node's
          rows. Runs of earlier versions lack it: their ``facets`` are those in the box.
          ``attrs["counted"]`` of the table says which are counted;
        - ``unsure``: share of the rows reaching the node for which the posterior probability of
          the side not taken by the point estimate exceeds 10 %; ``disagreement``, the mean of
          these probabilities; ``sd``, the mean standard deviation of P(right); missing if no row
          reaches the node;
        - ``features``: list of the names that account for 90 % of the importance at the node, the
          most important first. A feature's importance is the share of the rows that change
          sides when it is shuffled among them (:func:`bayestree.report.splits.importance`);
        - ``split``: the split of the point estimate as a condition that holds on the left side; of
          several facets the one nearest to the mean of the data, which is necessary for the left
          side, but not sufficient.

        The columns of the posterior are absent without a posterior, and those of features and
        uncertainty with ``rows=False``.
    """
    estimator = run.estimator
    evaluated = _evaluation_rows(run) if rows else None
    members = getattr(estimator, "estimators_", None)
    if members is not None:
        each = {
            number: _point_estimate(one.tree_, run.encoding, evaluated)
            for number, one in enumerate(members, start=1)
        }
        table = pd.concat(each, names=["tree"])
    else:
        table = _with_posterior(run, evaluated)
    table.attrs["asked"] = "" if evaluated is None else evaluated.counted
    return table


def _evaluation_rows(run: Run) -> Rows | None:
    """The rows on which features and uncertainty are measured."""
    rows = run.rows().thinned()
    train, held = (
        rows_of(run.estimator, X, held_out=held_out)
        for X, held_out in ((rows.X, False), (rows.X_held, True))
    )
    return splits.evaluation_rows(train, held if rows.held_out else None)


def _with_posterior(run: Run, evaluated: Rows | None) -> pd.DataFrame:
    """The nodes of one tree, with its posterior if it has one."""
    estimator = run.estimator
    table = _point_estimate(estimator.tree_, run.encoding, evaluated)
    if not has_draws(estimator) or (sizes := _sizes(run)) is None:
        return table
    table["facets"] = sizes["facets"].astype(np.int64)
    parts = [sizes.reindex(columns=[name for name in SIZES if name in sizes])]
    uncertainty = None if evaluated is None else splits.split_uncertainty(estimator, evaluated)
    if uncertainty is not None:
        parts.append(uncertainty.to_frame("node")[["unsure", "disagreement", "sd"]])
    last = [name for name in ("features", "split") if name in table]
    joined = pd.concat([table.drop(columns=last), *parts, table[last]], axis="columns")
    joined.attrs["counted"] = MEANINGS["cutting" if "box_mean" in sizes else "facets"]
    return joined


def _point_estimate(tree: RoutedTree, encoding: Encoding, evaluated: Rows | None) -> pd.DataFrame:
    """The columns of the point estimate."""
    described = TreeDescription(tree, TERMS, DIGITS)
    columns: dict[str, Any] = {"rows": described.node_rows}
    if isinstance(tree, Tree):
        columns["facets_point"] = columns["facets"] = tree.n_facets
        if evaluated is not None:
            (share,) = splits.importance([tree], evaluated, encoding).nodes
            names = encoding.names
            columns["features"] = [[names[j] for j in splits.most_important(one)] for one in share]
    columns["split"] = [described.condition(node) for node in range(tree.n_nodes)]
    labels = pd.Index(tree.topology.node_labels, name="node", dtype=object)
    return pd.DataFrame(columns, index=labels)


def _sizes(run: Run) -> pd.DataFrame | None:
    """Facets of each node, from the run's table if it has one."""
    path, labels = run.folder / FACETS, list(run.estimator.tree_.topology.node_labels)
    if path.is_file():
        found = pd.read_csv(path, index_col="node")
        if list(found.index) == labels and {"facets", "facets_median"} <= set(found):
            return found
    sizes = sizes_of(run.estimator)
    return None if sizes is None else sizes.to_frame()
