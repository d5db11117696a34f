"""Studies of the same rows that are compared: their settings, scores and predictions."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray, class_numbers
from bayestree._utils.wording import counted, in_words, isolated, quantity
from bayestree.diagnostics.draws import spread
from bayestree.plots import _style
from bayestree.plots._predictions import Scale, draw_classes, draw_values
from bayestree.report import figures
from bayestree.report.rows import LabelledRows
from bayestree.report.scores import (
    ScoreLine,
    Scores,
    is_recorded,
    mean_error,
    root_error,
    row_scores,
    scores_of,
    with_error,
)
from bayestree.report.study import SPACE, Study, number, percent

NEAR = 0.1  # standard deviations of y, or share of the ranks, up to which predictions agree
PLOT = (3.9, 3.6)  # inches


def differences(one: Study, other: Study, scores: tuple[Scores, Scores]) -> dict[str, str]:
    """Write how far each score of the other study is from that of the first, by its key."""
    base, own = scores
    errors = _errors(one, other)
    return {
        line.key: _difference(line, first, errors.get(line.key))
        for line in own.each
        if line.key != "baseline" and (first := base.get(line.key)) is not None
    }


def _difference(own: ScoreLine, first: ScoreLine, error: float | None) -> str:
    unit, end = (100, f"{SPACE}points") if own.is_share else (1, "")
    gap = unit * (own.value - first.value)
    text = with_error(gap, None if error is None else unit * error)
    return f"{'+' if gap > 0 else ''}{text}{end}"


def _errors(one: Study, other: Study) -> dict[str, float | None]:
    """Return the standard errors of the differences of scores that are means over rows."""
    rows = one.scored
    if rows is None or one.survives:
        return {}
    weights = rows.weights
    first, own = (row_scores(study, rows) for study in (one, other))
    apart = {key: own[key] - first[key] for key in own}
    found = {key: mean_error(gap, weights) for key, gap in apart.items()}
    if not one.classifies:
        y = rows.target.astype(np.float64)
        variance = float(np.average((y - np.average(y, weights=weights)) ** 2, weights=weights))
        total = sum(
            float(np.sqrt(np.average(each["rmse"], weights=weights))) for each in (first, own)
        )
        squares = found["rmse"]
        found["rmse"] = root_error(apart["rmse"], weights, total)
        found["r2"] = None if squares is None or variance == 0 else squares / variance
    if not is_recorded(one):
        return found
    # The scores are those of more rows than these.
    shrink = np.sqrt(len(rows) / int(one.metrics["scored_rows"]))
    return {key: None if error is None else shrink * error for key, error in found.items()}


@dataclass(frozen=True, eq=False)
class Agreement:
    """The predictions of the same rows by two studies.

    ``values`` are the probabilities of the true class by both, predicted numbers, or for survival
    the shares of rows of less risk, each (n,). ``apart`` (n,) is the distance of the
    predictions: of class probabilities, the total variation. ``alike`` (n,) tells where they agree.
    """

    studies: tuple[Study, Study]
    rows: LabelledRows
    values: tuple[FloatArray, FloatArray]
    apart: FloatArray
    alike: BoolArray

    @property
    def counts(self) -> list[float]:
        """Weight of rows whose class both, only the first, only the other, and neither predict."""
        one, other = (study.predicted == self.rows.target for study in self.studies)
        return [
            float(self.rows.weights @ both)
            for both in (one & other, one & ~other, ~one & other, ~one & ~other)
        ]

    @property
    def share(self) -> float:
        """Share of the rows on which the predictions agree."""
        return float(np.average(self.alike, weights=self.rows.weights))

    @property
    def correlation(self) -> float:
        """Correlation of the predictions; not finite if those of one are all equal."""
        (one, both), (_, other) = np.cov(*self.values, aweights=self.rows.weights, ddof=0)
        with np.errstate(invalid="ignore"):
            return float(both / np.sqrt(one * other))

    def sentence(self, names: tuple[str, str]) -> str:
        """Say on how many rows the studies agree, and which is right where they do not."""
        both, study, total = " and ".join(names), self.studies[0], float(self.rows.weights.sum())
        rows = counted(total, self.rows.kind.removesuffix("s"))
        on = f"for {quantity(self.share * total)} of {rows} ({percent(self.share)})"
        if not study.classifies:
            what = f"The predictions of {both} differ by at most {NEAR} standard deviations of y"
            if study.survives:
                what = f"The ranks of the risks by {both} differ by at most {percent(NEAR)}"
            return f"{what} {on}; their correlation is {number(self.correlation, 3)}."
        said = f"{both} predict the same class {on}"
        _, *single, _ = self.counts
        right = zip(names, single, strict=True)
        others = " and ".join(f"{name} is right for {quantity(rows)}" for name, rows in right)
        return f"{said}. Of the others, {others}." if self.share < 1 else f"{said}."

    def picture(self, names: tuple[str, str]) -> Markup:
        """Draw the predictions of the other study against those of the first."""
        kept = spread(len(self.rows), figures.POINTS)
        rows = self.rows.taken(kept)
        what = f"predicted {self.studies[0].target}"
        if self.studies[0].classifies:
            what = "P(true class)"
        elif self.studies[0].survives:
            what = "rank of the risk"
        x, y = (
            Scale(f"{what}, {name}", values[kept])
            for name, values in zip(names, self.values, strict=True)
        )
        alt = f"Predictions of {counted(len(rows), 'row')} by {' and '.join(names)}"
        draw = partial(self._draw, rows=rows, kept=kept, x=x, y=y)
        return figures.picture(draw, PLOT, alt)

    def _draw(self, ax: Axes, *, rows: LabelledRows, kept: IntArray, x: Scale, y: Scale) -> None:
        study = self.studies[0]
        if study.classifies:
            labels = np.full(len(rows), -1)
            known = np.isin(rows.target, study.labels)
            labels[known] = class_numbers(rows.target[known], study.labels)
            draw_classes(ax, x, y, labels, ~self.alike[kept], len(study.classes))
        else:
            draw_values(ax, x, y, rows.target.astype(np.float64), study.target)
        line: dict[str, Any] = {"color": _style.INK, "linewidth": 1.0, "linestyle": "--"}
        ax.axline((0.5, 0.5), slope=1, zorder=1, **line)


def agreement_of(one: Study, other: Study) -> Agreement | None:
    """Compare the predictions of the scored rows, if there are any."""
    rows = one.scored
    if rows is None or other.scored is None:
        return None
    studies = one, other
    if one.probability is not None and other.probability is not None:
        truth = rows.target[:, None] == one.labels
        values = tuple((study.probability * truth).sum(axis=1) for study in studies)
        apart = np.abs(one.probability - other.probability).sum(axis=1) / 2
        return Agreement(studies, rows, values, apart, one.predicted == other.predicted)
    values = tuple(study.predicted.astype(np.float64) for study in studies)
    unit = float(np.sqrt(np.cov(rows.target.astype(np.float64), aweights=rows.weights, ddof=0)))
    if one.survives:
        values, unit = tuple(_ranks(each, rows.weights) for each in values), 1.0
    apart = np.abs(values[0] - values[1])
    return Agreement(studies, rows, values, apart, apart <= NEAR * unit)


def _ranks(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the share of the rows (n,) of smaller values, and half of those of equal ones."""
    _, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, weights) / weights.sum()
    return (np.cumsum(mass) - mass / 2)[place]


def prediction_texts(study: Study, rows: IntArray) -> list[str]:
    """Write the predictions of some of the scored rows, as probabilities or with intervals."""
    predicted = study.predicted
    if study.probability is not None:
        sure = study.probability[rows].max(axis=1)
        return [f"{isolated(str(y))} ({p:.2f})" for y, p in zip(predicted[rows], sure, strict=True)]
    assert study.scored is not None
    if study.survives:
        return [percent(share) for share in _ranks(predicted, study.scored.weights)[rows]]
    texts = [number(float(value)) for value in predicted[rows]]
    if not study.has_draws:
        return texts
    ends = zip(*study.interval(study.scored.taken(rows), 0.9), strict=True)
    spans = [f"{number(float(low), 3)} to {number(float(high), 3)}" for low, high in ends]
    return [f"{text} ({span})" for text, span in zip(texts, spans, strict=True)]


def value_texts(study: Study, rows: LabelledRows, column: int) -> list[str]:
    """Write the values of a column as numbers, times or categories."""
    encoding = study.encoding
    found = figures.column_scale(encoding.columns[column], rows.matrix[:, encoding.places[column]])
    if found.levels:
        return [found.levels[place] for place in found.places]
    return [number(x) if isinstance(x, float) else in_words(x, 4) for x in found.places.tolist()]


NOT_SETTINGS = ("title", "question", "output")  # keys and tables of a run file


@dataclass(frozen=True, eq=False)
class Compared:
    """Studies of the same rows by their names, and the comparison of their runs.

    ``numbers`` (n,) are those of the scored rows in their table. ``table``, ``caveats`` and
    ``conclusions`` are those of ``bayestree.runs.compare``; its first run is the best.
    """

    by_name: Mapping[str, Study]
    numbers: IntArray | None = None
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    caveats: Sequence[str] = ()
    conclusions: Sequence[str] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(isolated, self.by_name))

    @property
    def studies(self) -> tuple[Study, ...]:
        return tuple(self.by_name.values())

    @property
    def pairs(self) -> tuple[tuple[str, Study], ...]:
        return tuple(zip(self.names, self.studies, strict=True))

    @property
    def question(self) -> str:
        """The question of the studies, if it is the same."""
        return common([study.question for study in self.studies])

    @cached_property
    def reference(self) -> int:
        """Place of the study from which differences are measured: the best, or else the first."""
        return list(self.by_name).index(self.table.index[0]) if len(self.table) else 0

    @property
    def others(self) -> tuple[int, ...]:
        """Places of the other studies."""
        return tuple(place for place in range(len(self.studies)) if place != self.reference)

    @property
    def base(self) -> Study:
        return self.studies[self.reference]

    @cached_property
    def scores(self) -> tuple[Scores | None, ...]:
        return tuple(map(scores_of, self.studies))

    @cached_property
    def differences(self) -> list[dict[str, str]]:
        """Differences of the scores of each of the others from the reference, by score."""
        first, found = self.scores[self.reference], []
        for place in self.others:
            own = self.scores[place]
            both = None if first is None or own is None else (first, own)
            found.append({} if both is None else differences(self.base, self.studies[place], both))
        return found

    @cached_property
    def agreements(self) -> list[tuple[tuple[str, str], Agreement]]:
        """How far the predictions of the others agree with the reference, with both names."""
        each = [(place, agreement_of(self.base, self.studies[place])) for place in self.others]
        first = self.names[self.reference]
        return [((first, self.names[place]), one) for place, one in each if one is not None]

    def settings(self, study: Study) -> dict[str, Any]:
        """Return the values of a run file by table and key, or else the parameters."""
        if not study.run_file:
            kind = {"estimator": type(study.estimator).__name__}
            return kind | study.estimator.get_params(deep=False)
        found: dict[str, Any] = {}
        for table, values in tomllib.loads(study.run_file).items():
            if table in NOT_SETTINGS:
                continue
            own = values.items() if isinstance(values, dict) else [("", values)]
            found |= {f"{table}.{key}".rstrip("."): value for key, value in own}
        return found

    @cached_property
    def different(self) -> dict[str, list[Any]]:
        """Settings that differ, with the values of all; None where there is no such setting."""
        each = [self.settings(study) for study in self.studies]
        keys = dict.fromkeys(key for one in each for key in one)
        found = {key: [one.get(key) for one in each] for key in keys}
        return {key: own for key, own in found.items() if any(one != own[0] for one in own)}


def common(texts: Sequence[str]) -> str:
    """Return the text that all have, or else none."""
    return texts[0] if len(set(texts)) == 1 else ""
