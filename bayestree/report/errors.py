"""The rows that a tree predicts worst, and its residuals."""

from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.wording import counted, in_words, isolated
from bayestree.plots import _style
from bayestree.report import figures
from bayestree.report.scores import row_scores
from bayestree.report.study import Study, number, percent

WORST = 8  # rows in the table
COLUMNS = 4  # of each
DIGITS = 4  # of values of columns
BINS = 10  # of the residuals, by their predictions
IN_BIN = 8  # minimum number of rows of a bin


def worst_errors(study: Study) -> dict[str, Any] | None:
    """List the rows with the largest errors, if rows may be shown and there are errors."""
    rows, found = study.scored, study.predicted
    if not study.example_rows or study.survives or rows is None or found is None or rows.y is None:
        return None
    loss = row_scores(study, rows.y, found)["log_loss" if study.classifies else "mae"]
    wrong = (found != rows.y) & (rows.weights > 0)
    order = np.argsort(-np.where(wrong, loss, -np.inf), kind="stable")
    order = order[: min(WORST, np.count_nonzero(wrong))]
    if not len(order):
        return None
    columns = [] if study.image_shape else _columns(study)
    return {
        "columns": [study.columns[j] for j in columns],
        "rows": [
            {
                "number": int(row),
                "cells": cells,
                **_outcome(study, int(row)),
                **_image(study, int(row)),
            }
            for row, cells in zip(order, _cells(study, order, columns), strict=True)
        ],
        "wrong": int(np.count_nonzero(wrong)),
    }


def _columns(study: Study) -> list[int]:
    """Choose the columns that matter most."""
    if study.effects:
        return [one.column for one in study.effects[:COLUMNS]]
    if study.importance is None:
        return [*range(min(COLUMNS, len(study.columns)))]
    order = np.argsort(-study.importance.total, kind="stable")[:COLUMNS]
    return [j for j in order.tolist() if study.importance.total[j] > 0]


def _cells(study: Study, order: IntArray, columns: list[int]) -> list[list[str]]:
    """Write the values of some rows, as they are in the table."""
    assert study.scored is not None
    shown = study.encoding.shown(study.scored.taken(order).X)
    return [[isolated(in_words(shown[j][k], DIGITS)) for j in columns] for k in range(len(order))]


def _outcome(study: Study, row: int) -> dict[str, str]:
    """Write the true and the predicted value of a row, and how sure the prediction was."""
    assert study.scored is not None
    assert study.scored.y is not None
    assert study.predicted is not None
    true, guess = study.scored.y[row], study.predicted[row]
    if study.probability is None:
        error = number(float(true) - float(guess), 3)
        return {"true": number(float(true)), "predicted": number(float(guess)), "error": error}
    known = dict(zip(study.labels.tolist(), study.classes, strict=True))
    return {
        "true": known.get(true, str(true)),
        "predicted": known[guess],
        "error": percent(float(study.probability[row].max())),
    }


def _image(study: Study, row: int) -> dict[str, Markup]:
    """Show a row as an image, if it is one."""
    if study.image_shape is None or study.scored is None:
        return {}
    values = study.scored.taken(np.array([row])).matrix[0]
    alt = f"Row {row} as an image"
    low, high = float(values.min()), float(values.max())
    return {"image": figures.grey_image(values, low, high, study.image_shape, alt)}


def residuals(study: Study) -> Markup | None:
    """Draw the residuals of a regression against its predictions, with their means in bins."""
    rows, found = study.scored, study.predicted
    if study.classifies or study.survives or rows is None or rows.y is None or found is None:
        return None
    kept = np.flatnonzero(rows.weights > 0)
    guess = found[kept].astype(np.float64)
    residual = rows.y[kept].astype(np.float64) - guess
    alt = f"Residuals of {counted(len(kept), 'row')} against their predictions"
    draw = partial(_draw_residuals, guess=guess, residual=residual, target=study.target)
    return figures.picture(draw, (4.2, 4.0), alt, legend=False)


def _draw_residuals(ax: Axes, *, guess: FloatArray, residual: FloatArray, target: str) -> None:
    first = slice(None, None, max(1, -(-len(guess) // figures.POINTS)))
    ax.axhline(0.0, color=_style.INK, linewidth=0.8, linestyle="--")
    ax.plot(guess[first], residual[first], "o", color=_style.POSTERIOR, markersize=3, alpha=0.5)
    order = np.argsort(guess, kind="stable")
    for part in np.array_split(order, min(BINS, max(1, len(order) // IN_BIN))):
        if len(part) > 1:
            middle, error = residual[part].mean(), residual[part].std(ddof=1) / len(part) ** 0.5
            at = guess[part].mean()
            ax.plot([at, at], [middle - 2 * error, middle + 2 * error], color=_style.INK)
            ax.plot(at, middle, "s", color=_style.INK, markersize=4)
    ax.set_xlabel(f"predicted {target}")
    ax.set_ylabel("observed minus predicted")
    _style.open_frame(ax)
