"""A section in which readers choose or edit a row, and see its path, prediction and nearest change.

The page holds the numbers (``embedded_model``), some rows, and how columns become features; the
scripts ``what_if_model.js``, ``what_if_search.js`` and ``what_if.js`` do the rest in the browser.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, class_numbers
from bayestree._utils.wording import counted, isolated
from bayestree.diagnostics.draws import Matches, flat, spread, tails
from bayestree.models.leaves import Survival
from bayestree.report.embedded_model import (
    DOUBLE,
    SINGLE,
    EmbeddedModel,
    Part,
    embedded_model,
    packed,
    why_not,
)
from bayestree.report.rows import LabelledRows
from bayestree.report.study import SPACE, Shown, Study, number
from bayestree.report.trees import LabelledTree, printed
from bayestree.tables import Column, Dates, Numbers
from bayestree.tables.column_types import EXACT, Ordered
from bayestree.tree import Tree

LEVEL = 0.9  # of the intervals
SPACED, WORST = 20, 10  # rows to choose from: evenly spaced ones, and those of the largest errors
ROW_BYTES = 200_000  # of all rows together
FIELDS = 60  # columns that can be edited
FIRST = 8  # columns that are not folded
TIMES = 25  # at which the survival is drawn
MOST_FACETS = 2_000  # that are put into words


@dataclass(frozen=True, eq=False)
class Field:
    """A column that can be edited, and how its values become features."""

    name: str
    kind: str  # "number", "options" or "date"
    features: list[int]  # numbers of its features
    #: Values of the rows: numbers, days since 1970 of dates, or numbers of options; None if the
    #: value is missing.
    cells: list[Any]
    about: dict[str, Any]  # what the script needs to know of this kind

    @classmethod
    def of(
        cls, column: Column, own: IntArray, X: FloatArray, center: float, scale: float
    ) -> "Field | None":
        """Describe a column with its values in rows X (n, d); None if it cannot be edited."""
        values, about = X[:, own], dict[str, Any](missing=None)
        absent = np.zeros(len(X), dtype=bool)
        cells: AnyArray
        if column.gaps:
            about["missing"] = _encoded(column, [None])[0].tolist()
            absent = values[:, -1] == 1.0
        if column.options:
            kind, (cells, more) = "options", _options(column, values, absent)
            about |= more
        elif isinstance(column, Numbers):
            low, high = column.limits(center, scale)
            kind, cells = "number", values[:, 0]
            about |= {"low": low, "high": high, "scale": scale, "whole": column.whole}
            about["places"] = column.places(scale)
        elif isinstance(column, Dates) and "days" in column.parts:
            kind, cells = "date", values[:, column.parts.index("days")]
            about |= {"parts": column.parts, "timed": "hour" in column.parts}
        else:
            return None
        known = [None if gone else one for one, gone in zip(cells.tolist(), absent, strict=True)]
        return cls(isolated(column.name), kind, own.tolist(), known, about)

    @property
    def described(self) -> dict[str, Any]:
        own = {"kind": self.kind, "name": self.name, "at": self.features, "cells": self.cells}
        return own | self.about


def _options(
    column: Column, values: FloatArray, absent: BoolArray
) -> tuple[IntArray, dict[str, Any]]:
    """Return the number of the option of each row, and the features (k, c) of all options.

    Categories that the fit does not know are another option.
    """
    options = [*column.options]
    features = _encoded(column, options)
    apart = np.abs(values[:, None] - features).max(axis=2)
    cells = np.where(apart.min(axis=1) < EXACT, apart.argmin(axis=1), len(options))
    if (unknown := (cells == len(options)) & ~absent).any():
        features = np.vstack([features, values[unknown.argmax()]])
        options.append("another value")
    return cells, {
        "options": [isolated(str(one)) for one in options],
        "features": features.tolist(),
        "ordered": isinstance(column, Ordered),
        "known": len(column.options),
    }


def _encoded(column: Column, values: Sequence[Any]) -> FloatArray:
    return column.encode(pd.Series(values, dtype=object))


class Choice(NamedTuple):
    """Rows to choose from, and the numbers among all rows of those in each named group."""

    rows: LabelledRows | None
    groups: list[tuple[str, IntArray]]


def what_if(study: Study) -> Shown:
    """Carry what a browser needs to predict other rows, or say why this is not possible."""
    if all(tree.is_constant for tree in study.trees):
        return None
    if reason := why_not(study.estimator):
        return "What if", {"reason": reason}
    found, times, choice = embedded_model(study.estimator), _times(study), _choice(study)
    X = study.tree.center[None] if choice.rows is None else choice.rows.matrix
    fields, about = _fields(study, found, X)
    if choice.rows is None:  # the means of the columns, or the nearest values that they may have
        fields = [_typical(one, study.tree.center) for one in fields]
    belief, (some, total) = _belief(study, found), found.n_draws
    weights, error, side_error = None, 0.0, 0.0
    if some < total:
        weights, error, side_error = found.balanced(X, belief)
    payload = {
        "weights": None if weights is None else packed(weights, DOUBLE),
        "classes": list(study.classes),
        "quantity": _quantity(study),
        "levels": tails(LEVEL),
        "interval": found.has_draws,
        "parts": [one.described(found.dtype) for one in found.with_hazards(times).parts],
        "shown": _shown_tree(study, found),
        "belief": None if belief is None else _nodes(found, belief),
        "fields": [one.described for one in fields],
        "rows": packed(X, DOUBLE),
        "features": X.shape[1],
        "target": _target(study),
        "times": None if times is None else times.tolist(),
    }
    # No parser of HTML takes the text for markup.
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return "What if", {
        "reason": "",
        "fields": fields,
        "first": FIRST,
        "groups": _labelled(study, choice),
        "predictor": _predictor(study, found, believed=belief is not None),
        "interval": found.has_draws,
        "kind": "" if choice.rows is None else choice.rows.kind,
        "notes": _notes(study, found, error, side_error if belief else None),
        "level": f"{100 * LEVEL:.0f}{SPACE}%",
        "payload": Markup(
            text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        ),
        **about,
    }


def _choice(study: Study) -> Choice:
    """Choose rows: evenly spaced ones, and those of the largest errors."""
    rows = study.scored or study.evaluated
    if not rows or not study.example_rows:
        return Choice(None, [])
    most = max(1, ROW_BYTES // (DOUBLE.itemsize * len(study.features)))
    worst = np.zeros(0, dtype=np.int64)
    if (loss := _loss(study, rows)) is not None and most > SPACED:
        order = np.argsort(-loss, kind="stable")[:WORST]
        worst = order[loss[order] > 0]
    even = np.setdiff1d(spread(len(rows), min(SPACED, most)), worst)
    groups = [("Evenly spaced rows", even), ("Rows with the largest errors", worst)]
    return Choice(rows.taken(np.concatenate([even, worst])), [one for one in groups if len(one[1])])


def _loss(study: Study, rows: LabelledRows) -> FloatArray | None:
    """Return how wrong each prediction is, (n,): 0 if the class is predicted."""
    if rows is not study.scored or study.survives:
        return None
    if study.probability is None:
        return np.abs(rows.target.astype(np.float64) - study.predicted)
    known = np.isin(rows.target, study.labels)
    own = class_numbers(np.where(known, rows.target, study.labels[0]), study.labels)
    missed = study.probability.max(axis=1) - study.probability[np.arange(len(own)), own]
    return np.where(known, missed, 0.0)


def _fields(
    study: Study, found: EmbeddedModel, X: FloatArray
) -> tuple[list[Field], dict[str, int]]:
    """Describe the columns by importance; count those without a field, and those without effect."""
    tree, pairs = study.tree, [*zip(study.encoding.columns, study.encoding.places, strict=True)]
    used = np.sum([part.used for part in found.parts], axis=0) * tree.scale
    strength = np.array([used[own].sum() for _, own in pairs])
    importance = study.importance.total if study.importance is not None else np.zeros(len(pairs))
    order = [j for j in np.lexsort((-strength, -importance)).tolist() if strength[j] > 0]
    described = []
    for j in order[:FIELDS]:
        column, own = pairs[j]
        center, scale = float(tree.center[own[0]]), float(tree.scale[own[0]])
        described.append(Field.of(column, own, X, center, scale))
    fields = [one for one in described if one is not None]
    return fields, {"fixed": len(order) - len(fields), "unused": len(pairs) - len(order)}


def _typical(field: Field, center: FloatArray) -> Field:
    """Give a field the value nearest to the means of its features."""
    if field.kind == "options":
        apart = np.abs(np.array(field.about["features"]) - center[field.features]).sum(axis=1)
        return replace(field, cells=[int(apart[: field.about["known"]].argmin())])
    if field.kind == "date":
        days = float(center[field.features[field.about["parts"].index("days")]])
        return replace(field, cells=[float(np.floor(days))])
    return replace(field, cells=[round(float(center[field.features[0]]), field.about["places"])])


def _quantity(study: Study) -> str:
    """Name what is predicted, if it is a number."""
    if study.classifies:
        return ""
    if study.survives:
        return "risk score, the expected number of events per unit of time"
    return f"{study.tree.quantity} of {study.target}"


def _target(study: Study) -> float | None:
    """Return the mean prediction of the training rows, as a level to reach, of a regression."""
    if study.classifies:
        return None
    trees = study.trees
    means = [tree.leaf_rows @ tree.value / tree.leaf_rows.sum() for tree in trees]
    return float(f"{np.mean(means):.3g}")


def _times(study: Study) -> FloatArray | None:
    """Return times at which survival is predicted: from 0 to the last of the training rows."""
    leaf = study.estimator.fitted_.response.leaf
    if not isinstance(leaf, Survival):
        return None
    rows = study.train or study.scored
    last = 2 * leaf.unit if rows is None or rows.y is None else float(np.max(rows.y))
    return np.linspace(0.0, last, TIMES)


def _shown_tree(study: Study, found: EmbeddedModel) -> dict[str, Any]:
    """Describe the tree that is shown: its arrays, what its nodes ask, and where they are drawn.

    It has no arrays of its own if it is what predicts.
    """
    tree = study.tree
    assert isinstance(tree, Tree)
    labelled = LabelledTree(study, tree, "t1-" if study.is_forest else "")
    facets = []
    if tree.n_experts_total <= MOST_FACETS:
        spaces = map(labelled.half_space, range(tree.n_experts_total))
        texts = ((*printed(one), one) for one in spaces)
        facets = [
            # JSON has no infinity, the bound of a vote that never decides alone
            [left, limit, float(np.nan_to_num(one.bound)), one.divisor]
            for left, limit, one in texts
        ]
    leaves = [~leaf for leaf in range(tree.n_leaves)]
    return {
        "part": None if found.is_tree(tree) else Part.of_tree(tree).described(DOUBLE),
        "anchors": [labelled.anchor(node) for node in range(tree.n_nodes)],
        "sides": labelled.side_names,
        "all": tree.is_conjunction.tolist(),
        "facets": facets,
        "leaves": [[labelled.anchor(leaf), labelled.label(leaf)] for leaf in leaves],
    }


def _belief(study: Study, found: EmbeddedModel) -> list[Matches] | None:
    """Return the nodes of the tree that is shown among the draws of each part, if it has some."""
    mixture = study.estimator.fitted_
    if study.is_forest or mixture.shown.reach is None or min(map(len, found.kept)) < 2:
        return None
    of_tree = {id(one): own for one, own in zip(mixture.trees, mixture.matches, strict=True)}
    return [of_tree[id(one)] for one in found.members]


def _nodes(found: EmbeddedModel, belief: Sequence[Matches]) -> list[dict[str, Any]]:
    """Write the matched nodes of the carried draws of each part, by node."""
    each = []
    for matches, kept in zip(belief, found.kept, strict=True):
        own = (matches.node, matches.exchanged.astype(int), matches.alike.astype(int))
        node, exchanged, alike = (flat(part)[kept].T.tolist() for part in own)
        each.append({"node": node, "exchanged": exchanged, "alike": alike})
    return each


def _labelled(study: Study, choice: Choice) -> list[tuple[str, list[tuple[int, str]]]]:
    """Name the rows: their numbers, what was observed, and what was predicted."""
    if choice.rows is None:
        return [("", [(0, "The means of the columns")])]
    texts = iter(
        enumerate(
            _row_label(study, choice.rows, k, place)
            for k, place in enumerate(np.concatenate([own for _, own in choice.groups]).tolist())
        )
    )
    named = [(name, [next(texts) for _ in own]) for name, own in choice.groups]
    return named if len(named) > 1 else [("", named[0][1])]


def _row_label(study: Study, rows: LabelledRows, k: int, place: int) -> str:
    text = f"{rows.kind.removesuffix('s').capitalize()} {place}"
    if rows.y is None:
        return text

    def words(value: Any) -> str:
        return isolated(str(value)) if study.classifies else number(float(value))

    if study.survives:
        observed = rows.extra is None or rows.extra[k]
        return f"{text}: {'event' if observed else 'censored'} at {words(rows.y[k])}"
    return f"{text}: {words(rows.y[k])} (predicted {words(study.predicted[place])})"


def _predictor(study: Study, found: EmbeddedModel, *, believed: bool) -> str:
    """Say how the path and the prediction belong together."""
    if study.is_forest:
        return f"The prediction is the mean over {len(study.trees)} trees, of which this is one."
    if all(math.isinf(part.steepness) for part in found.parts):
        if len(found.parts) == 1:
            return "The leaf at the end of the path predicts."
        return f"The prediction is the mean over the trees of {len(found.parts)} modes."
    beliefs = ", with the posterior probability of each side" if believed else ""
    averages = "over draws, which may send the row to other leaves"
    return (
        f"The path is that in the tree shown above{beliefs}. The prediction averages "
        f"{averages if found.has_draws else 'over all leaves, by the probabilities of the row'}."
    )


def _notes(study: Study, found: EmbeddedModel, error: float, side_error: float | None) -> list[str]:
    """Say what is carried, and which errors of predictions and of sides it causes."""
    some, total = found.n_draws
    notes = []
    if found.has_draws:
        of = f" of {counted(len(found.parts), 'mode')}" if len(found.parts) > 1 else ""
        notes.append(f"This page carries all {counted(total, 'draw')}{of}.")
        if some < total:
            what = "probability of a class" if study.classifies else "prediction"
            sides = ""
            if side_error is not None:
                sides = f", and none of a side by more than {number(side_error, 2)}"
            notes = [
                f"This page carries {some:,} evenly spaced draws of {total:,}{of}, weighted to "
                f"predict the chosen row as all of them do: for the rows listed here, no {what} "
                f"differs by more than {number(error, 2)} from that of all draws"
                f"{sides}. After edits the differences may be larger."
            ]
    if found.dtype == SINGLE:
        notes.append("Its numbers are rounded to single precision, seven digits.")
    return notes
