"""The page that puts several studies side by side: settings, scores, predictions and trees."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.progress import fitting, steps_of
from bayestree._utils.state import in_usual_state
from bayestree._utils.wording import counted, isolated
from bayestree.estimators._estimator import Estimator
from bayestree.report import sections as of_one
from bayestree.report.compared import Compared, common, prediction_texts, value_texts
from bayestree.report.findings import Finding, findings_of, listed
from bayestree.report.page import rendered, subtitle_of
from bayestree.report.rows import most_important
from bayestree.report.scores import with_error
from bayestree.report.sections import Section, importance_image
from bayestree.report.study import MINUS, Shown, Study, number, percent, study_of
from bayestree.report.trees import DOT
from bayestree.tree import Tree

MOST_NODES, MOST_LEAVES = 60, 60  # of the drawn trees of a run
FEW = 3  # columns named
MOST_KEYS = 5  # settings named in a sentence
MOST_ROWS = 10  # rows on which predictions differ
MOST_COLUMNS = 15  # in the table of their importance
BRIEF = 0.05  # seconds of stages that are not worth showing
TONES = {"yes": "ok", "doubtful": "doubtful", "not known": "doubtful", "no": "failed"}
#: Columns of the comparison of runs that the scores do not have, with those of their errors.
JUDGED = {
    "elpd": ("Leave-one-out log score (elpd)", "se"),
    "difference": ("Difference of elpd", "difference_se"),
    "p_loo": ("Effective number of parameters", ""),
    "weight": ("Stacking weight", ""),
    "bad_k": ("Rows whose Pareto k is too large", ""),
    "held_out": ("Sum over the held-out rows (held_out)", ""),
    "held_out_difference": ("Difference of held_out", "held_out_difference_se"),
    "log_evidence": ("Log evidence", "log_evidence_se"),
    "log_bayes_factor": ("Log Bayes factor", "log_bayes_factor_se"),
    "probability": ("Probability of the model", ""),
}
SHARES = ("bad_k", "weight", "probability")


@in_usual_state
def html_comparison(
    estimators: Mapping[str, Estimator],
    *,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    X_held: ArrayLike | None = None,
    y_held: ArrayLike | None = None,
    weights_held: ArrayLike | None = None,
    title: str = "",
    question: str = "",
) -> str:
    """Write fitted trees or forests side by side as one HTML page without external resources.

    The page shows which parameters differ; with rows also the scores with their differences,
    on which rows the predictions differ, and the importance of the columns for each; and the
    trees, with a description of each node and leaf. :func:`html_report` describes a single one.

    Parameters
    ----------
    estimators : mapping of str to fitted tree or forest
        Two or more by name, fitted to the same columns and classes. Differences are from the first.
    X, y, weights : arrays, shapes (n, d), (n,) and (n,), optional
        Rows of the fits with their classes or values and their weights.
    X_held, y_held, weights_held : arrays, optional
        Held-out rows to score; without them, the rows of the fits are scored.
    title, question : str
        Title of the page, and the question of the study.

    Raises
    ------
    ValueError
        If there are fewer than two, if they predict different classes, or if the rows do not match
        each other or the estimators.
    TypeError
        If an estimator is not a fitted one of this package.
    """
    if len(estimators) < 2:
        raise ValueError(f"estimators must be two or more by name, got {len(estimators)}.")
    rows: dict[str, Any] = {
        "X": X, "y": y, "weights": weights,
        "X_held": X_held, "y_held": y_held, "weights_held": weights_held,
    }  # fmt: skip
    studies = {
        name: study_of(one, **rows, title=title, question=question)
        for name, one in estimators.items()
    }
    (first, kind), *others = [(name, _kind(study)) for name, study in studies.items()]
    for name, other in others:
        if other != kind:
            raise ValueError(
                f"estimators must predict the same; {first!r} predicts {kind}, {name!r} {other}."
            )
    with fitting(any(one.verbose for one in estimators.values())):
        return page_of(Compared(studies))


def _kind(study: Study) -> str:
    """Describe what a study predicts."""
    if study.classifies:
        return f"the classes {', '.join(study.classes)}"
    return "survival times" if study.survives else "numbers"


def page_of(compared: Compared) -> str:
    """Write the page."""
    makers: tuple[Callable[[Compared], Shown], ...] = (
        summaries, settings, scores, predictions, trees, features, convergence, repeat,
    )  # fmt: skip
    made = [(make.__name__, make(compared)) for make in steps_of(makers, "sections")]
    title = common([study.title for study in compared.studies])
    subtitle = [title, f"{len(compared.names)} fits to the same rows, side by side"]
    return rendered(
        compared,
        [Section(name, *shown) for name, shown in made if shown is not None],
        title=f"Comparison of {listed(compared.names)}",
        subtitle=DOT.join(part for part in subtitle if part),
        findings=_findings(compared),
        classes=compared.base.classes,
        macros="comparison.html",
    )


def _findings(compared: Compared) -> list[Finding]:
    """Return all findings that apply."""
    found = []
    if said := compared.conclusions or compared.caveats[-1:]:
        tone = "" if compared.conclusions else "doubtful"
        found.append(Finding("Comparison", " ".join(said), tone))
    if headline := _headline(compared):
        found.append(Finding("Score", headline))
    if compared.agreements:
        said = [one.sentence(own) for own, one in compared.agreements]
        found.append(Finding("Agreement", " ".join(said)))
    found.append(Finding("What differs", _difference(compared)))
    sizes = [f"{name} has {_size(study)}" for name, study in compared.pairs]
    found.append(Finding("Trees", f"{listed(sizes)}."))
    used = [
        f"{_main_columns(study)} in {name}" for name, study in compared.pairs if study.importance
    ]
    if used:
        found.append(Finding("Features", f"The most important columns are {'; '.join(used)}."))
    answers = [_settled(study) for study in compared.studies]
    tones = [TONES.get(answer, "") for answer in answers]
    worst = max(tones, key=["", "ok", "doubtful", "failed"].index)
    said = [f"{name}: {answer}" for name, answer in zip(compared.names, answers, strict=True)]
    return [*found, Finding("Converged", f"{'; '.join(said)}.", worst)]


def _headline(compared: Compared) -> str:
    """Write the main score of each, the differences, and the scores of a linear model."""
    base = compared.base
    key = "concordance" if base.survives else "accuracy" if base.classifies else "rmse"
    lines = [None if one is None else one.get(key) for one in compared.scores]
    first = compared.scores[compared.reference]
    if first is None or not all(lines):
        return ""
    shown = [line for line in lines if line is not None]
    each = [f"{line.text} for {name}" for name, line in zip(compared.names, shown, strict=True)]
    said = f"{shown[0].name} on {first.rows}: {listed(each)}"
    best = compared.names[compared.reference]
    for other, gap in zip(compared.others, compared.differences, strict=True):
        said += f"; {compared.names[other]} {MINUS} {best}: {gap[shown[0].key]}"
    linear = dict.fromkeys(line.baseline_text for line in shown)
    if first.baseline and all(linear):
        said += f"; {first.baseline}: {' and '.join(linear)}"
    return f"{said}."


def _difference(compared: Compared) -> str:
    """Name the settings that differ, with their values."""
    shared = {key: own for key, own in compared.different.items() if None not in own}
    some = len(compared.different) - len(shared)
    each = [f"{key} ({', '.join(map(_written, own))})" for key, own in shared.items()]
    said = f"{counted(len(each), 'setting')}: {listed(each, MOST_KEYS)}." if each else "No setting."
    return f"{said} Of the others, {some} exist for some of them only." if some else said


def _size(study: Study) -> str:
    """Write the size of a tree, or of the trees of a forest."""
    leaves = counted(sum(tree.n_leaves for tree in study.trees), "leaf")
    if study.is_forest:
        return f"{leaves} in {counted(len(study.trees), 'tree')}"
    facets = int(study.tree.n_facets.sum()) if isinstance(study.tree, Tree) else 0
    return f"{leaves} and {counted(facets, 'facet')}" if facets else leaves


def _main_columns(study: Study) -> str:
    """List the most important columns."""
    assert study.importance is not None
    main = most_important(study.importance.total)[:FEW]
    return ", ".join(study.columns[j] for j in main)


def _settled(study: Study) -> str:
    found = study.convergence
    return "nothing to judge, as there is no posterior" if found is None else found.settled


def summaries(compared: Compared) -> Shown:
    """Show the findings about each, as its own report has them."""
    return "Summary of each", {
        "each": [
            {
                "name": name,
                "title": "" if common([one.title for one in compared.studies]) else study.title,
                "question": "" if compared.question else study.question,
                "subtitle": subtitle_of(study),
                "findings": findings_of(study, scores),
            }
            for (name, study), scores in zip(compared.pairs, compared.scores, strict=True)
        ]
    }


def settings(compared: Compared) -> Shown:
    """List the settings that differ; apart from them those that only some of the trees have."""
    shared: list[tuple[str, list[str]]] = []
    single: list[tuple[str, list[str]]] = []
    for key, values in compared.different.items():
        line = key, ["" if value is None else _written(value) for value in values]
        (single if None in values else shared).append(line)
    return "What differs", {"shared": shared, "single": single}


def _written(value: Any) -> str:
    """Write a value as in a run file."""
    return json.dumps(value, ensure_ascii=False, default=repr)


def scores(compared: Compared) -> Shown:
    """Show the scores, their differences, the linear model, and the comparison of the runs."""
    known = [one for one in compared.scores if one is not None]
    if len(known) < len(compared.scores):
        return None
    first = known[compared.reference]
    lines = []
    for line in first.each:
        each = [own for one in known if (own := one.get(line.key)) is not None]
        if len(each) < len(known):
            continue
        lines.append(
            {
                "name": line.name,
                "values": [one.text for one in each],
                "gaps": [gap.get(line.key, "") for gap in compared.differences],
                "baselines": [one.baseline_text for one in each],
                "reference": line.reference,
            }
        )
    alike = all(len(set(line["baselines"])) == 1 for line in lines)
    return "Scores", {
        "lines": lines,
        "rows": first.rows,
        "held_out": first.held_out,
        "baseline": first.baseline,
        "fits": first.baseline_fit,
        "linear": [""] if alike else list(compared.names),
        "judged": _judged(compared),
    }


def _judged(compared: Compared) -> list[tuple[str, list[str]]]:
    """Return the columns of the comparison of the runs, each with the values of the studies."""
    table, found = compared.table, []
    for key, (label, error) in JUDGED.items():
        if key in table and table[key].notna().any():
            own = table.reindex([*compared.by_name])
            errors = own[error] if error else [None] * len(own)
            pairs = zip(own[key], errors, strict=True)
            texts = [percent(x) if key in SHARES else with_error(x, se) for x, se in pairs]
            known = zip(own[key], texts, strict=True)
            found.append((label, ["" if np.isnan(x) else text for x, text in known]))
    return found


def predictions(compared: Compared) -> Shown:
    """Show on how many rows the predictions agree, and the rows on which they differ most."""
    if not compared.agreements:
        return None
    base = compared.base
    apart = np.max([one.apart for _, one in compared.agreements], axis=0)
    order = np.argsort(-apart, kind="stable")[:MOST_ROWS]
    order = order[apart[order] > 0]
    return "Predictions", {
        "agreements": [
            {
                "names": names,
                "sentence": one.sentence(names),
                "counts": one.counts if base.classifies else [],
                "distance": number(float(np.average(one.apart, weights=one.rows.weights)), 3),
                "picture": one.picture(names),
            }
            for names, one in compared.agreements
        ],
        "rows": _rows(compared, order, apart),
        "n_rows": len(apart),
    }


def _rows(compared: Compared, order: IntArray, apart: FloatArray) -> dict[str, Any]:
    """Describe some rows: number, target, the predictions and the most important columns."""
    base = compared.base
    assert base.scored is not None
    rows = base.scored.taken(order)
    main: list[int] = []
    if base.importance is not None:
        main = most_important(base.importance.total)[:FEW].tolist()
    numbers = order if compared.numbers is None else compared.numbers[order]
    truth = [isolated(str(y)) if base.classifies else number(float(y)) for y in rows.target]
    cells = [
        *(prediction_texts(study, order) for study in compared.studies),
        [number(float(one), 3) for one in apart[order]],
        *(value_texts(base, rows, column) for column in main),
    ]
    return {
        "heads": [*compared.names, "Distance", *(base.columns[column] for column in main)],
        "lines": [*zip(numbers.tolist(), truth, zip(*cells, strict=True), strict=True)],
    }


def trees(compared: Compared) -> Shown:
    """Draw the trees, with a description of each node and leaf."""
    each = []
    for place, (name, study) in enumerate(compared.pairs, start=1):
        limits = {"most_nodes": MOST_NODES, "most_leaves": MOST_LEAVES}
        _, shown = of_one.tree(study, f"r{place}-", **limits)
        for drawn in shown["trees"]:
            drawn["beside"] = False  # there is another tree beside this one
        each.append({"name": name, "size": _size(study), "study": study, "shown": shown})
    return "Trees", {"each": each}


def features(compared: Compared) -> Shown:
    """Show the importance of the columns for each."""
    each: list[dict[str, float]] = []
    for study in compared.studies:
        total = study.importance.total.tolist() if study.importance else [0.0] * len(study.columns)
        each.append(dict(zip(study.columns, total, strict=True)))
    names = dict.fromkeys(name for one in each for name in one)
    size = {name: sum(one.get(name, 0.0) for one in each) for name in names}
    used = sorted((name for name in names if size[name] > 0), key=lambda name: -size[name])
    if not used:
        return None
    images = [
        importance_image(study, study.importance.total) if study.importance else None
        for study in compared.studies
    ]
    return "Features", {
        "lines": [(name, [one.get(name) for one in each]) for name in used[:MOST_COLUMNS]],
        "top": max(max(one.values()) for one in each),
        "hidden": len(used) - MOST_COLUMNS,
        "images": [pair for pair in zip(compared.names, images, strict=True) if pair[1]],
        "rows": "" if compared.base.evaluated is None else compared.base.evaluated.counted,
    }


def convergence(compared: Compared) -> Shown:
    """Show the verdicts on the inference of each, and their checks."""
    each = []
    for name, study in compared.pairs:
        shown = of_one.convergence(study)
        each.append(
            {
                "name": name,
                "answer": _settled(study),
                "tone": TONES.get(_settled(study), ""),
                "study": study,
                "shown": None if shown is None else shown[1],
            }
        )
    return "Convergence", {"each": each}


def repeat(compared: Compared) -> Shown:
    """Show how long each took, which versions differ, and the run files."""
    seconds = [dict(study.manifest.get("seconds", {})) for study in compared.studies]
    versions = [dict(study.manifest.get("versions", {})) for study in compared.studies]
    files = [(name, study.run_file) for name, study in compared.pairs if study.run_file]
    if not any(seconds) and not files:
        return None
    stages = [
        (stage, [f"{one[stage]:,.1f}" if stage in one else "" for one in seconds])
        for stage in dict.fromkeys(stage for one in seconds for stage in one)
        if any(one.get(stage, 0) >= BRIEF for one in seconds)
    ]
    if stages:
        stages.append(("together", [f"{sum(one.values()):,.1f}" for one in seconds]))
    packages = dict.fromkeys(name for one in versions for name in one)
    each = {name: [one.get(name, "") for one in versions] for name in packages}
    other = [(name, own) for name, own in each.items() if len(set(own)) > 1]
    return "Time and run files", {"stages": stages, "versions": other, "files": files}
