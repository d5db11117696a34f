"""The facets of a node as tables: those of the point estimate, and those of the posterior."""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import FloatArray
from bayestree._utils.inequality import inequality, limit
from bayestree.diagnostics import Facets
from bayestree.report.html import images, words
from bayestree.report.html.labels import condition
from bayestree.report.html.study import Study
from bayestree.report.words import FacetWords
from bayestree.tree import Tree

MEASURED = 24  # nodes whose facets are matched across the draws: those of the most rows
TERMS, DIGITS = 4, 3  # of a facet, as in export_text
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
    image: Markup | None


class FacetTable(NamedTuple):
    """The facets of a node.

    Attributes
    ----------
    rows : tuple of FacetRow
    hidden : int
        Facets that are not shown.
    n_draws : int
        Draws that were measured; 1 for the point estimate.
    """

    rows: tuple[FacetRow, ...]
    hidden: int
    n_draws: int

    @property
    def size(self) -> str:
        """How many facets there are."""
        return words.count(len(self.rows) + self.hidden, "facet")


def posterior_facets(study: Study, tree: Tree, node: int) -> FacetTable | None:
    """The facets that draws share, with probabilities and intervals; None if they share none."""
    found: Facets = study.estimator.facets(tree.topology.node_labels[node])
    common = np.flatnonzero(found.probability >= RARE)[:MOST]
    if len(common) == 0:
        return None
    rows = tuple(_row(study, found, int(facet)) for facet in common)
    return FacetTable(rows, len(found.counts) - len(rows), found.n_draws)


def point_facets(study: Study, tree: Tree, node: int, *, brief: bool) -> FacetTable:
    """The facets of the point estimate, in the order of ``export_text``: the nearest first.

    A brief table has no coefficients.
    """
    nearest = FacetWords(tree, TERMS, DIGITS).nearest(node).tolist()
    rows = []
    for expert in nearest[:MOST]:
        left, bound, _ = condition(tree, expert, study.features, TERMS)
        coefficients = () if brief else _coefficients(study, tree, expert)
        image = None if brief else _image(study, tree.standardised_hyperplane[expert])
        rows.append(FacetRow(None, left, _minus(bound), "", coefficients, image))
    return FacetTable(tuple(rows), len(nearest) - len(rows), 1)


def _row(study: Study, found: Facets, facet: int) -> FacetRow:
    left, first = inequality(
        found.normal[facet], found.strength[facet], study.features, max_features=TERMS
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
            study.features[j],
            float(found.strength[facet, j] ** 2),
            words.number(float(found.normal[facet, j]), 3),
            _interval(found.normal_interval[facet, j]),
        )
        for j in order.tolist()
    )
    probability = float(found.probability[facet])
    interval = f"{_minus(low)} to {_minus(high)}"
    image = _image(study, found.strength[facet])
    left = words.relation(left)
    return FacetRow(probability, left, _minus(middle), interval, coefficients, image)


def _image(study: Study, strength: FloatArray) -> Markup | None:
    """Coefficients per unit of each feature as an image, where rows are images."""
    if study.image_shape is None:
        return None
    spoken = "Coefficients as an image: red pixels point out of the polytope, blue ones into it"
    return images.signed(strength, study.image_shape, spoken)


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
