"""The page: its findings and sections in one file, with its style and script, and nothing else."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike

from bayestree._utils.progress import fitting
from bayestree._utils.state import in_usual_state
from bayestree._utils.wording import CONTROL, counted, quantity
from bayestree._version import __version__
from bayestree.description import modes_of
from bayestree.diagnostics import PolytopeSize
from bayestree.diagnostics.draws import VARIATIONAL
from bayestree.estimators._estimator import Estimator
from bayestree.plots import _style
from bayestree.report.figures import PAGE, most_probable
from bayestree.report.findings import Answer, Finding, answer_of, findings_of
from bayestree.report.rows import IMPORTANCE_DEFINITION, UNCERTAIN_DEFINITION
from bayestree.report.scores import scores_of
from bayestree.report.sections import Section, sections
from bayestree.report.study import Study, number, percent, study_of, with_minus
from bayestree.report.trees import DOT

SCRIPTS = ("what_if_model.js", "what_if_search.js", "what_if.js")


@in_usual_state
def html_report(
    estimator: Estimator,
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
    example_rows: bool = True,
) -> str:
    """Write the report of a fitted tree or forest as one HTML page without external resources.

    The page shows the tree with a description of each node and leaf, and how to reproduce the fit.
    Depending on the fit and the given rows, it also shows facets, uncertainty, scores, calibration
    and convergence.

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
    example_rows : bool
        Whether the page carries up to 30 of the rows, with all of their values, to choose from in
        the section *What if*, which otherwise begins with the means of the columns, and lists the
        rows with the largest errors.

    Raises
    ------
    ValueError
        If X, y and weights do not match each other or the estimator, or are not those of the fit:
        give other rows as X_held.
    TypeError
        If the estimator is not a fitted one of this package.
    """
    study = study_of(
        estimator,
        X=X,
        y=y,
        weights=weights,
        X_held=X_held,
        y_held=y_held,
        weights_held=weights_held,
        title=title,
        question=question,
        command=command,
        run_file=run_file,
        data=data or {},
        metrics=metrics or {},
        manifest=manifest or {},
        known_sizes=sizes,
        example_rows=example_rows,
    )
    with fitting(estimator.verbose):
        shown = sections(study)  # first, because it shows the progress of most computations
        scores = scores_of(study)
        findings = findings_of(study, scores)
        return rendered(
            study,
            shown,
            title=study.title or _default_title(study),
            subtitle=subtitle_of(study),
            findings=findings,
            answer=answer_of(study, scores, findings),
            classes=study.classes,
        )


@cache
def _environment() -> Environment:
    """Return the templates, each compiled once: that takes as long as to write a page."""
    environment = Environment(
        loader=PackageLoader("bayestree.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (percent, number, with_minus, counted, quantity, most_probable)
    environment.filters |= {one.__name__: one for one in filters}
    environment.globals |= {
        "uncertain_definition": UNCERTAIN_DEFINITION,
        "importance_definition": IMPORTANCE_DEFINITION,
        "variational": VARIATIONAL,
    }
    return environment


def rendered(
    subject: Any,
    shown: Sequence[Section],
    *,
    title: str,
    subtitle: str,
    findings: Sequence[Finding],
    classes: Sequence[str],
    answer: Answer | None = None,
    macros: str = "sections.html",
) -> str:
    """Write a page: its findings, and its sections by the ``macros`` of their names.

    The macros take the variables of a section and the ``subject``, which has a ``question``.
    """
    environment = _environment()
    source = environment.loader
    assert source is not None
    extra = SCRIPTS if any(one.name == "what_if" for one in shown) else ()
    script, style = (
        "".join(source.get_source(environment, name)[0] for name in names)
        for names in (("report.js", *extra), ("report.css", "what_if.css"))
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    colours = map(to_hex, _style.class_colours(len(classes)))
    written = environment.get_template("report.html").render(
        title=title,
        study=subject,
        subtitle=subtitle,
        findings=findings,
        answer=answer,
        sections=shown,
        macros=macros,
        style=Markup(style),  # a file of the package, as is the script
        script=Markup(script),
        digest=digest,
        colours=[PAGE.get(one, one) for one in colours],
        version=__version__,
    )
    return CONTROL.sub(" ", written)


def _default_title(study: Study) -> str:
    target = study.data.get("target")
    kind = "forest" if study.is_forest else "tree"
    return f"A {kind} for {target}" if target else f"A fitted {kind}"


def subtitle_of(study: Study) -> str:
    """Write the estimator, inference, data and draws in a line."""
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
