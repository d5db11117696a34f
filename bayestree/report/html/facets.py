"""Tables of the facets of a node, in the point estimate and in the posterior."""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import FloatArray
from bayestree._utils.inequality import inequality, limit
from bayestree._utils.wording import counted
from bayestree.description import TreeDescription
from bayestree.diagnostics import Facets
from bayestree.report.html import svg, text
from bayestree.report.html.labels import printed
from bayestree.report.html.study import Study
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

MEASURED = 24  # nodes whose facets are matched across the draws: those of the most rows
TERMS, DIGITS = 4, 3  # of a facet, as in export_text
MOST = 8  # maximum number of facets of a node
RARE = 0.05  # share of the draws below which a facet is not shown
WEIGHTS = 6  # maximum number of coefficients of a facet
SPOKEN = "Coefficients as an image: red pixels point out of the polytope, blue pixels into it"


class Coefficient(NamedTuple):
    """A feature of a facet: its share of the squared strength, and its part of the unit normal."""

    name: str
    strength: float
    value: str
    interval: str


class FacetRow(NamedTuple):
    """A facet as ``left limit``; with a probability and intervals if there are draws."""

    left: str
    limit: str
    coefficients: tuple[Coefficient, ...]
    image: Markup | None
    probability: float | None = None
    interval: str = ""


class FacetTable(NamedTuple):
    """The facets of a node.

    Attributes
    ----------
    rows : tuple of FacetRow
    hidden : int
        Number of facets that are not shown.
    n_draws : int
        Number of measured draws; 1 for the point estimate.
    """

    rows: tuple[FacetRow, ...]
    hidden: int
    n_draws: int

    @property
    def size(self) -> str:
        """As in ``"3 facets"``."""
        return counted(len(self.rows) + self.hidden, "facet")


def posterior_facets(study: Study, tree: RoutedTree, node: int) -> FacetTable | None:
    """The facets that draws share, with probabilities and intervals; None if they share none."""
    found: Facets = study.bayesian.facets(tree.topology.node_labels[node])
    common = np.flatnonzero(found.probability >= RARE)[:MOST]
    if len(common) == 0:
        return None
    rows = tuple(_posterior_row(study, found, int(facet)) for facet in common)
    return FacetTable(rows, len(found.counts) - len(rows), found.n_draws)


def point_facets(study: Study, tree: Tree, node: int, *, brief: bool) -> FacetTable:
    """The facets of the point estimate in the order of ``export_text``, the nearest first.

    A brief table has no coefficients.
    """
    described = TreeDescription(tree, TERMS, DIGITS, features=study.features)
    rows = []
    for facet in described.half_spaces(node, MOST):
        left, bound = printed(facet)
        strength: FloatArray = tree.standardised_hyperplane[facet.expert]
        coefficients: tuple[Coefficient, ...] = ()
        if not brief and np.count_nonzero(strength) > 1:
            plane = tree.hyperplane[facet.expert]
            shares = strength**2 / (strength**2).sum()
            coefficients = _coefficients(study, plane / np.linalg.norm(plane), shares)
        image = None if brief else _image(study, strength)
        rows.append(FacetRow(left, text.with_minus(bound), coefficients, image))
    return FacetTable(tuple(rows), described.n_facets(node) - len(rows), 1)


def _posterior_row(study: Study, found: Facets, facet: int) -> FacetRow:
    left, first = inequality(
        found.normal[facet], found.strength[facet], study.features, max_features=TERMS
    )
    limits = np.append(found.offset[facet], found.offset_interval[facet])
    limits = limits / found.normal[facet, first]
    middle, low, high = (
        text.with_minus(limit(float(value), float(found.scale[first]), DIGITS))
        for value in (limits[0], limits[1:].min(), limits[1:].max())
    )
    shares = found.strength[facet] ** 2
    intervals = found.normal_interval[facet]
    return FacetRow(
        text.relation(left),
        middle,
        _coefficients(study, found.normal[facet], shares, intervals),
        _image(study, found.strength[facet]),
        float(found.probability[facet]),
        f"{low} to {high}",
    )


def _coefficients(
    study: Study, normal: FloatArray, shares: FloatArray, intervals: FloatArray | None = None
) -> tuple[Coefficient, ...]:
    """The largest coefficients of a unit normal (d,), with their intervals (d, 2) if any."""
    most = min(WEIGHTS, np.count_nonzero(shares)) if intervals is None else WEIGHTS
    return tuple(
        Coefficient(
            study.features[j],
            float(shares[j]),
            text.number(float(normal[j]), 3),
            ""
            if intervals is None
            else " to ".join(text.number(float(end), 3) for end in intervals[j]),
        )
        for j in np.argsort(-shares, kind="stable")[:most].tolist()
    )


def _image(study: Study, strength: FloatArray) -> Markup | None:
    """Coefficients per unit of each feature as an image, if rows are images."""
    if study.image_shape is None:
        return None
    return svg.signed_image(strength, study.image_shape, SPOKEN)
