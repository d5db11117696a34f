"""The page: the sections in one file with its style and script, and nothing from outside."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike

from bayestree._version import __version__
from bayestree.diagnostics import PolytopeSize
from bayestree.plots import _style
from bayestree.report.html import words
from bayestree.report.html.findings import findings
from bayestree.report.html.scores import scores_of
from bayestree.report.html.sections import sections
from bayestree.report.html.study import Study
from bayestree.report.rows import rows_of


def html_report(
    estimator: Any,
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
    """Report of a fitted tree as one HTML page.

    The page loads nothing from elsewhere and can be sent by mail. It shows the tree, in which
    every node and leaf can be chosen, and whatever the fit allows: facets and their number with
    their posteriors, how sure the splits are, scores, calibration, convergence in plain words,
    and how to repeat the fit. Of rows that are not given it shows nothing.

    Parameters
    ----------
    estimator : fitted estimator
        Of any tree or forest of the package.
    X : array or DataFrame, shape (n, d), optional
        Rows of the fit.
    y : array, shape (n,), optional
        Their classes or values.
    weights : array, shape (n,), optional
    X_held, y_held, weights_held : arrays, optional
        Rows that the fit has not seen, by which it is scored; without them, those of the fit are.
    title, question : str
        Head of the page, and what the fit is to answer.
    data : mapping, optional
        Of the table: ``path``, ``target``, ``task``, ``weights`` and ``sha256`` are shown.
    metrics : mapping, optional
        Scores by name, shown where there are no rows to score.
    command : str
        What makes the same fit again.
    run_file : str
        Text of the run file that says all of it.
    manifest : mapping, optional
        Of the run: ``versions`` by package, ``seconds`` by stage, ``seed``, ``started``.
    sizes : PolytopeSize, optional
        What ``estimator.polytope_size()`` returned, so that it is not measured twice.

    Returns
    -------
    str
        UTF-8 text of the page.

    Raises
    ------
    ValueError
        If rows, y and weights do not fit each other or the estimator.
    TypeError
        If the estimator is not one of the package, or is not fitted.
    """
    if not hasattr(estimator, "tree_") and not hasattr(estimator, "estimators_"):
        raise TypeError(
            f"estimator must be a fitted tree or forest, got {type(estimator).__name__}; call fit "
            "first."
        )
    study = Study(
        estimator=estimator,
        train=rows_of(estimator, X, y, weights, held_out=False),
        held=rows_of(estimator, X_held, y_held, weights_held, held_out=True),
        title=title,
        question=question,
        command=command,
        run_file=run_file,
        data=dict(data or {}),
        metrics=dict(metrics or {}),
        manifest=dict(manifest or {}),
        measured=sizes,
    )
    return _rendered(study)


def _rendered(study: Study) -> str:
    environment = Environment(
        loader=PackageLoader("bayestree.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = words.percent
    source = environment.loader
    assert source is not None
    script = source.get_source(environment, "report.js")[0]
    style = source.get_source(environment, "report.css")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        title=study.title or _name_of(study),
        study=study,
        subtitle=_subtitle(study),
        findings=findings(study, scores_of(study)),
        sections=sections(study),
        style=Markup(style),  # a file of the package, as the script
        script=Markup(script),
        digest=digest,
        colours=[to_hex(colour) for colour in _style.class_colours(len(study.classes))]
        if study.classes
        else [],
        version=__version__,
    )


def _name_of(study: Study) -> str:
    target = study.data.get("target")
    kind = "forest" if study.is_forest else "tree"
    return f"A {kind} for {target}" if target else f"A fitted {kind}"


def _subtitle(study: Study) -> str:
    """What was fitted to what, in a line."""
    parts = [
        type(study.estimator).__name__,
        *([f"a forest of {words.count(len(study.trees), 'tree')}"] if study.is_forest else []),
        f"fitted to {words.count(study.training_rows, 'row')} of "
        f"{words.count(len(study.features), 'feature')}",
    ]
    if study.inference:
        parts.insert(1, f"inference {study.inference}")
    if study.drawn:
        parts.append(words.count(study.n_draws, "posterior draw"))
    return " \N{MIDDLE DOT} ".join(parts)
