"""The data, and how to repeat the fit."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import numpy as np

from bayestree.report.html import words
from bayestree.report.html.sections._section import Section
from bayestree.report.html.study import Study


def data(study: Study) -> Section:
    """What the tree was fitted to."""
    tree = study.tree
    classes = []
    rows = study.train
    if study.classifies and rows is not None and rows.y is not None:
        label = np.searchsorted(study.estimator.classes_, rows.y)
        total = np.bincount(label, rows.weights, len(study.classes))
        classes = [
            (label, name, words.quantity(float(total[label])), float(total[label] / total.sum()))
            for label, name in enumerate(study.classes)
        ]
    span = None
    if not study.classifies and study.train is not None and study.train.y is not None:
        quartiles = np.quantile(study.train.y.astype(np.float64), [0, 0.25, 0.5, 0.75, 1])
        span = [words.number(float(quartile)) for quartile in quartiles]
    units = zip(study.features, tree.center.tolist(), tree.scale.tolist(), strict=True)
    shown = {
        "facts": _facts(study),
        "classes": classes,
        "span": span,
        "features": [(name, words.number(mean), words.number(unit)) for name, mean, unit in units],
    }
    return Section("data", "The data", shown)


def _facts(study: Study) -> list[tuple[str, str]]:
    """What is known of the table."""
    data = study.data
    facts = []
    if data.get("path"):
        facts.append(("File", Path(data["path"]).name))  # not where it lies on a machine
    named = {"target": "Predicted", "task": "Task", "weights": "Weights"}
    facts += [(name, str(data[key])) for key, name in named.items() if data.get(key)]
    facts.append(("Training rows", words.quantity(study.training_rows)))
    if study.held is not None and len(study.held):
        known = max(len(study.held), int(study.metrics.get("scored_rows", 0)))
        facts.append(("Held-out rows", words.quantity(known)))
    facts.append(("Features", str(len(study.features))))
    facts += [("Warning", text) for text in study.manifest.get("warnings", [])]
    return facts


def repeat(study: Study) -> Section:
    """The command, and all that the fit depends on."""
    manifest = study.manifest
    parameters = study.estimator.get_params(deep=False)
    return Section(
        "repeat",
        "How to repeat it",
        {
            "command": study.command,
            "estimator": type(study.estimator).__name__,
            "parameters": [(name, repr(value)) for name, value in sorted(parameters.items())],
            "versions": sorted(dict(manifest.get("versions", {})).items()),
            "run_file": study.run_file,
            "seconds": _seconds(manifest.get("seconds", {})),
            "sha256": study.data.get("sha256"),
            "started": _moment(manifest.get("started")),
            "seed": manifest.get("seed"),
        },
    )


def _seconds(stages: Mapping[str, float]) -> str:
    """How long each stage took, in a line."""
    return ", ".join(
        f"{name} {seconds:,.1f}" for name, seconds in stages.items() if seconds >= 0.05
    )


def _moment(text: str | None) -> str:
    """A time as a person writes it, to the minute."""
    return "" if text is None else f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M} UTC"
