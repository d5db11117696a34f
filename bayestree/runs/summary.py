"""What a run found, as a table of the nodes of its tree."""

from typing import Any

import numpy as np
import pandas as pd

from bayestree.description import TreeDescription
from bayestree.report import splits
from bayestree.report.rows import Rows, rows_of
from bayestree.routed_tree import RoutedTree
from bayestree.runs.disk import few
from bayestree.runs.folder import FACETS
from bayestree.runs.outputs import has_draws, sizes_of
from bayestree.runs.store import Run
from bayestree.tree import Tree

TERMS, DIGITS = 3, 3  # of a half-space in words
SIZES = ("facets_median", "facets_low", "facets_high", "prior_mean")
ASKED = "asked"  # attribute of the table: the rows that splits were judged on, in words


def summary(run: Run, *, rows: bool = True) -> pd.DataFrame:
    """The nodes of a run's tree: what they ask, how many facets they need, how sure they are.

    Parameters
    ----------
    run : Run
    rows : bool
        Read the rows of the run again, to say which features matter to the splits and how sure
        these are: of the held-out rows or, where there are none, of those of the fit, of at most
        2,000 evenly spread ones. ``attrs["asked"]`` of the table says which rows these were.

    Returns
    -------
    DataFrame
        A row for each node, by its path from the root; of a forest by number of tree and path.

        - ``rows``: weighted training rows that reach the node;
        - ``facets_point``: how many facets its polytope has in the point estimate, which is the
          tree of ``tree.txt`` and of every export;
        - ``facets``: the most probable number by the posterior, with its median
          (``facets_median``), an interval that holds it with probability 0.9 (``facets_low``,
          ``facets_high``), and ``prior_mean``, what the prior expects; without a posterior the
          same as ``facets_point``;
        - ``unsure``: of the rows asked that reach the node, the share for which the posterior
          gives the side that the point estimate does not take a chance above 10 %;
          ``disagreement``, the mean of these chances; ``sd``, the mean of the standard
          deviations of P(right); missing where none of the rows reaches the node;
        - ``features``: a list of the names that hold 90 % of the importance at the node, the most
          important first. A feature's importance is the share of the rows asked that change
          sides when it is shuffled among them (:func:`bayestree.report.splits.importance`);
        - ``split``: the split of the point estimate in words, which holds on the left side; of
          several facets that which cuts off most.

        There are no columns of a posterior where there is none, and neither the doubt nor the
        features with ``rows=False``.

    Raises
    ------
    InputError
        If the run has no model yet, or its rows cannot be read or are others by now.
    """
    estimator = run.estimator
    asked = _asked(run) if rows else None
    members = getattr(estimator, "estimators_", None)
    if members is not None:
        each = {number: _plain(one.tree_, asked) for number, one in enumerate(members, start=1)}
        table = pd.concat(each, names=["tree"])
    else:
        table = _of_posterior(run, asked)
    table.attrs[ASKED] = "" if asked is None else asked.counted
    return table


def _asked(run: Run) -> Rows | None:
    """The rows of the run that the splits are judged on."""
    rows = few(run.rows())
    train, held = (
        rows_of(run.estimator, X, held_out=held_out)
        for X, held_out in ((rows.X, False), (rows.X_held, True))
    )
    return splits.evaluation_rows(train, held if rows.held_out else None)


def _of_posterior(run: Run, asked: Rows | None) -> pd.DataFrame:
    """The nodes of one tree, with its posterior where it has one."""
    estimator = run.estimator
    table = _plain(estimator.tree_, asked)
    if not has_draws(estimator) or (sizes := _sizes(run)) is None:
        return table
    table["facets"] = sizes["facets"].astype(np.int64)
    parts = [sizes.reindex(columns=[name for name in SIZES if name in sizes])]
    found = None if asked is None else splits.split_uncertainty(estimator, asked)
    if found is not None:
        parts.append(found.to_frame("node")[["unsure", "disagreement", "sd"]])
    said = [name for name in ("features", "split") if name in table]
    return pd.concat([table.drop(columns=said), *parts, table[said]], axis="columns")


def _plain(tree: RoutedTree, asked: Rows | None) -> pd.DataFrame:
    """What the point estimate alone says."""
    described = TreeDescription(tree, TERMS, DIGITS)
    columns: dict[str, Any] = {"rows": described.node_rows}
    if isinstance(tree, Tree):
        columns["facets_point"] = columns["facets"] = tree.n_facets
        if asked is not None:
            (share,) = splits.importance([tree], asked).nodes
            columns["features"] = [
                [tree.feature_labels[j] for j in splits.most_important(one)] for one in share
            ]
    columns["split"] = [described.condition(node) for node in range(tree.n_nodes)]
    labels = pd.Index(tree.topology.node_labels, name="node", dtype=object)
    return pd.DataFrame(columns, index=labels)


def _sizes(run: Run) -> pd.DataFrame | None:
    """Facets of each node, from the run's own table where it has one."""
    path, labels = run.folder / FACETS, list(run.estimator.tree_.topology.node_labels)
    if path.is_file():
        found = pd.read_csv(path, index_col="node")
        if list(found.index) == labels and {"facets", "facets_median"} <= set(found):
            return found
    sizes = sizes_of(run.estimator)
    return None if sizes is None else sizes.to_frame()
