"""The facets of a node as a table: from the posterior, or of the deterministic tree."""

from typing import NamedTuple

import numpy as np

from bayestree._inequality import inequality, limit
from bayestree.diagnostics import Facets
from bayestree.report.html import words
from bayestree.report.html.labels import condition
from bayestree.report.html.study import Study
from bayestree.tree import FloatArray, Tree

MEASURED = 24  # nodes whose facets are matched across the draws: those of the most rows
TERMS = 4  # of a facet
MOST = 8  # facets of a node
RARE = 0.05  # facets of fewer draws are not shown
WEIGHTS = 6  # coefficients of a facet that are listed


class Coefficient(NamedTuple):
    """A feature in a facet: its share of the squared strength, and the unit normal's part."""

    name: str
    strength: float
    value: str
    interval: str


class FacetRow(NamedTuple):
    """A facet in words: ``left limit``, with an interval of the limit where there are draws."""

    probability: float | None
    left: str
    limit: str
    interval: str
    coefficients: tuple[Coefficient, ...]


class FacetTable(NamedTuple):
    """The facets of a node.

    Attributes
    ----------
    rows : tuple of FacetRow
    hidden : int
        Facets that are not shown.
    n_draws : int
        Draws that were measured; 1 of the deterministic tree.
    """

    rows: tuple[FacetRow, ...]
    hidden: int
    n_draws: int


def facet_table(
    study: Study, tree: Tree, node: int, *, measured: bool, brief: bool = False
) -> FacetTable:
    """The facets of a node: with probabilities and intervals where these are measured.

    A brief table has no coefficients.
    """
    if not measured:
        return _of_tree(study, tree, node, brief=brief)
    found: Facets = study.estimator.facets(tree.topology.node_labels[node])
    common = np.flatnonzero(found.probability >= RARE)[:MOST]
    if len(common) == 0:
        return _of_tree(study, tree, node, brief=brief)
    rows = tuple(_row(found, int(facet)) for facet in common)
    return FacetTable(rows, len(found.counts) - len(rows), found.n_draws)


def _row(found: Facets, facet: int) -> FacetRow:
    left, first = inequality(
        found.normal[facet], found.strength[facet], found.feature_names, max_features=TERMS
    )
    limits = np.append(found.offset[facet], found.offset_interval[facet])
    limits = limits / found.normal[facet, first]
    spread = float(found.scale[first])
    middle, low, high = (
        limit(float(one), spread) for one in (limits[0], limits[1:].min(), limits[1:].max())
    )
    order = np.argsort(-np.abs(found.strength[facet]), kind="stable")[:WEIGHTS]
    coefficients = tuple(
        Coefficient(
            found.feature_names[j],
            float(found.strength[facet, j] ** 2),
            words.number(float(found.normal[facet, j]), 3),
            _interval(found.normal_interval[facet, j]),
        )
        for j in order.tolist()
    )
    probability = float(found.probability[facet])
    interval = f"{_minus(low)} to {_minus(high)}"
    return FacetRow(probability, words.relation(left), _minus(middle), interval, coefficients)


def _of_tree(study: Study, tree: Tree, node: int, *, brief: bool) -> FacetTable:
    own = tree.experts(node)
    rows = []
    for expert in range(own.start, min(own.stop, own.start + MOST)):
        left, bound, _ = condition(tree, expert, study.features, TERMS)
        coefficients = () if brief else _coefficients(study, tree, expert)
        rows.append(FacetRow(None, left, _minus(bound), "", coefficients))
    return FacetTable(tuple(rows), own.stop - own.start - len(rows), 1)


def _coefficients(study: Study, tree: Tree, expert: int) -> tuple[Coefficient, ...]:
    """The largest coefficients of a facet, divided as a unit normal."""
    strength: FloatArray = tree.standardised_hyperplane[expert]
    if np.count_nonzero(strength) < 2:
        return ()
    shares = strength**2 / (strength**2).sum()
    normal = tree.hyperplane[expert] / np.linalg.norm(tree.hyperplane[expert])
    order = np.argsort(-shares, kind="stable")[: min(WEIGHTS, np.count_nonzero(strength))]
    return tuple(
        Coefficient(study.features[j], float(shares[j]), words.number(float(normal[j]), 3), "")
        for j in order.tolist()
    )


def _interval(ends: FloatArray) -> str:
    return " to ".join(words.number(float(end), 3) for end in ends)


def _minus(text: str) -> str:
    """A number with a true minus sign."""
    return text.replace("-", words.MINUS)
