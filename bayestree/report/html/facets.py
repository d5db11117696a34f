"""Tables of the facets of a node, in the point estimate and in the posterior."""

from typing import Any

import numpy as np
from markupsafe import Markup

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import counted
from bayestree.description import POLYTOPE_RULE, TreeDescription
from bayestree.diagnostics import Facets
from bayestree.report.html import svg, text
from bayestree.report.html.labels import printed
from bayestree.report.html.study import Study
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

MAX_MATCHED = 24  # nodes whose facets are matched across the draws: those of the most rows
TERMS, DIGITS = 4, 3  # of a facet, as in export_text
MAX_FACETS = 8  # maximum number of facets of a node
RARE = 0.05  # share of the draws below which a facet is not shown
WEIGHTS = 6  # maximum number of coefficients of a facet
ALT_TEXT = "Coefficients as an image: red pixels point out of the polytope, blue pixels into it"

Table = dict[str, Any]  # rows, number of hidden facets, size and rule in words, number of draws


def posterior_facets(study: Study, tree: RoutedTree, node: int) -> Table | None:
    """The facets that draws share, with probabilities and intervals; None if they share none."""
    found: Facets = study.bayesian.facets(tree.topology.node_labels[node])
    common = np.flatnonzero(found.probability >= RARE)[:MAX_FACETS]
    if len(common) == 0:
        return None
    rows = [_posterior_row(study, found, int(facet)) for facet in common]
    return {"rows": rows, "hidden": len(found.counts) - len(rows), "n_draws": found.n_draws}


def point_facets(study: Study, tree: Tree, node: int, *, brief: bool) -> Table:
    """The facets of the point estimate in the order of ``export_text``, the nearest first.

    A brief table has no coefficients.
    """
    described = TreeDescription(tree, TERMS, DIGITS, features=study.features)
    rows = []
    for facet in described.half_spaces(node, MAX_FACETS):
        left, bound = printed(facet)
        strength: FloatArray = tree.standardised_hyperplane[facet.expert]
        coefficients: list[Table] = []
        if not brief and np.count_nonzero(strength) > 1:
            plane = tree.hyperplane[facet.expert]
            shares = strength**2 / (strength**2).sum()
            coefficients = _coefficients(study, plane / np.linalg.norm(plane), shares)
        image = None if brief else _image(study, strength)
        row = {"left": left, "limit": text.with_minus(bound), "coefficients": coefficients}
        rows.append(row | {"image": image, "probability": None, "interval": ""})
    n_facets = described.n_facets(node)
    size = counted(n_facets, "facet")
    return {"rows": rows, "hidden": n_facets - len(rows), "size": size, "rule": POLYTOPE_RULE}


def _posterior_row(study: Study, found: Facets, facet: int) -> Table:
    left, *limits = found.terms(facet, study.features, TERMS)
    middle, low, high = map(text.with_minus, limits)
    shares = found.strength[facet] ** 2
    intervals = found.normal_interval[facet]
    return {
        "left": text.relation(left),
        "limit": middle,
        "coefficients": _coefficients(study, found.normal[facet], shares, intervals),
        "image": _image(study, found.strength[facet]),
        "probability": float(found.probability[facet]),
        "interval": f"{low} to {high}",
    }


def _coefficients(
    study: Study, normal: FloatArray, shares: FloatArray, intervals: FloatArray | None = None
) -> list[Table]:
    """The largest coefficients of a unit normal (d,), with their intervals (d, 2) if any."""
    most = min(WEIGHTS, np.count_nonzero(shares)) if intervals is None else WEIGHTS
    return [
        {
            "name": study.features[j],
            "strength": float(shares[j]),
            "value": text.number(float(normal[j]), 3),
            "interval": ""
            if intervals is None
            else " to ".join(text.number(float(end), 3) for end in intervals[j]),
        }
        for j in np.argsort(-shares, kind="stable")[:most].tolist()
    ]


def _image(study: Study, strength: FloatArray) -> Markup | None:
    """Coefficients per unit of each feature as an image, if rows are images."""
    if study.image_shape is None:
        return None
    return svg.signed_image(strength, study.image_shape, ALT_TEXT)
