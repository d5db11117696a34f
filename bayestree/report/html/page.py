"""The page: all sections in one file with its style and script, and without external resources."""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike

from bayestree._utils.progress import fitting
from bayestree._utils.wording import counted
from bayestree._version import __version__
from bayestree.diagnostics import PolytopeSize
from bayestree.plots import _style
from bayestree.protocols import FittedModel, kind_of, modes_of, trees_of
from bayestree.report.html import text
from bayestree.report.html.findings import findings
from bayestree.report.html.labels import DOT
from bayestree.report.html.scores import scores_of
from bayestree.report.html.sections import sections
from bayestree.report.html.study import Study
from bayestree.report.rows import rows_of


def html_report(
    estimator: FittedModel,
    *,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    X_held: ArrayLike | None = None,
    y_held: ArrayLike | None = None,
    weights_held: ArrayLike | None = None,
    title: str = "",
    question: str = "",
    data: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    command: str = "",
    run_file: str = "",
    manifest: Mapping[str, Any] | None = None,
    sizes: PolytopeSize | None = None,
) -> str:
    """Write the report of a fitted tree or forest as one HTML page without external resources.

    The page shows the tree with a description of each node and leaf and, as the fit and the given
    rows allow, facets, uncertainty, scores, calibration, convergence and how to reproduce the fit.

    Parameters
    ----------
    estimator : fitted tree or forest
    X, y, weights : arrays, shapes (n, d), (n,) and (n,), optional
        Rows of the fit with their classes or values and their weights.
    X_held, y_held, weights_held : arrays, optional
        Held-out rows to score; without them, the rows of the fit are scored.
    title, question : str
        Title of the page, and the question of the study.
    data, metrics, manifest : mapping, optional
        Records of a run, as in its folder: its table (``path``, ``target``, ``task``, ``weights``,
        ``sha256``), its scores, for use without rows, and its ``versions``, ``seconds``, ``seed``.
    command, run_file : str
        Command that reproduces the fit, and the content of its run file.
    sizes : PolytopeSize, optional
        The result of ``estimator.polytope_size()``, to avoid computing it again.

    Raises
    ------
    ValueError
        If X, y and weights do not match each other or the estimator.
    TypeError
        If the estimator is not a fitted one of this package.
    """
    if not hasattr(estimator, "tree_") and not hasattr(estimator, "estimators_"):
        raise TypeError(f"estimator must be a fitted tree or forest, got {kind_of(estimator)}.")
    trees_of(estimator)  # of one output
    train = rows_of(estimator, X, y, weights, held_out=False)
    held = rows_of(estimator, X_held, y_held, weights_held, held_out=True)
    texts = title, question, command, run_file
    records = data or {}, metrics or {}, manifest or {}
    with fitting(getattr(estimator, "verbose", False)):
        return _rendered(Study(estimator, train, held, *texts, *records, sizes))


@cache
def _environment() -> Environment:
    """The templates, each compiled once: that takes as long as to write a page."""
    environment = Environment(
        loader=PackageLoader("bayestree.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = text.percent
    return environment


def _rendered(study: Study) -> str:
    environment = _environment()
    source = environment.loader
    assert source is not None
    script = source.get_source(environment, "report.js")[0]
    style = source.get_source(environment, "report.css")[0]
    shown = sections(study)  # first, because it shows the progress of most computations
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        title=study.title or _default_title(study),
        study=study,
        subtitle=_subtitle(study),
        findings=findings(study, scores_of(study)),
        sections=shown,
        style=Markup(style),  # a file of the package, as is the script
        script=Markup(script),
        digest=digest,
        colours=[to_hex(colour) for colour in _style.class_colours(len(study.classes))],
        version=__version__,
    )


def _default_title(study: Study) -> str:
    target = study.data.get("target")
    kind = "forest" if study.is_forest else "tree"
    return f"A {kind} for {target}" if target else f"A fitted {kind}"


def _subtitle(study: Study) -> str:
    """The estimator, inference, data and draws in a line."""
    parts = [type(study.estimator).__name__]
    if study.inference:
        parts.append(f"inference {study.inference}")
    if several := len(modes_of(study.estimator)):
        parts.append(f"a mixture of {counted(several, 'tree')}")
    if study.is_forest:
        parts.append(f"a forest of {counted(len(study.trees), 'tree')}")
    rows = counted(study.training_rows, "row")
    parts.append(f"fitted to {rows} of {study.width}")
    if study.has_draws:
        parts.append(
            counted(study.n_draws, "posterior draw") + (" of the tree shown" if several else "")
        )
    return DOT.join(parts)
