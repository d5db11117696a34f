"""Several runs on the same rows: which predicts better, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayestree import _arviz
from bayestree.diagnostics import Loo
from bayestree.runs.outputs import MOST_NUMBERS, has_draws
from bayestree.runs.rows import Prepared
from bayestree.runs.store import Run
from bayestree.tables import InputError

SMALL = 4.0  # nats: differences of which nothing follows (Sivula, Magnusson and Vehtari 2020)
CLEAR = 2.0  # standard errors
MOST_BAD = 0.1  # of the rows, whose k may be too large
WIDTH = 88  # of a line of text


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs on the same rows, the best first.

    Attributes
    ----------
    table : DataFrame
        A row for each run, by its name, those with a leave-one-out score first:

        - ``elpd`` and ``se``: sum over the training rows of log p(y_i | the other rows), in nats,
          and its standard error; ``p_loo``, the effective number of parameters;
        - ``difference`` and ``difference_se``: by how much this is below the best, and the
          standard error of that, row by row;
        - ``weight``: by which the predictions of the runs, averaged, would predict best;
        - ``bad_k``: share of the rows whose Pareto k is too large to be trusted;
        - scores on held-out rows: ``accuracy`` and ``log_loss``, or ``rmse`` and ``r2``;
        - ``leaves``.
    scored_on : str
        Of which rows the scores are.
    remarks : tuple of str
        What speaks against a figure, and what follows from the differences.
    """

    table: pd.DataFrame
    scored_on: str
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        shown = self.table.dropna(axis="columns", how="all").astype(object)
        text = shown.map(_plain)
        if "bad_k" in text:
            text["bad_k"] = [_percent(share) for share in shown["bad_k"]]
        remarks = [fill(one, WIDTH, subsequent_indent="  ") for one in self.remarks]
        return "\n".join([text.to_string(), f"scores on {self.scored_on}", "", *remarks]).rstrip()


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs by leave-one-out cross-validation, with held-out scores beside it.

    PSIS-LOO (Vehtari, Gelman and Gabry 2017) by ArviZ's smoothing of importance ratios, on the
    rows that all were fitted to; stacking weights are those of ``arviz.compare``. Point estimates
    have held-out scores only.

    Parameters
    ----------
    runs : sequence of Run
        Two or more, finished, of the same rows: the same table and target, the same rows held
        out. Columns that are left out may differ.

    Returns
    -------
    Comparison
        ``print`` shows it; see ``table``.

    Raises
    ------
    InputError
        If there are fewer than two runs, one is not finished, their rows are not the same, or
        cannot be read.
    """
    named = _named(runs)
    rows = _same_rows(named)
    remarks: list[str] = []
    scores: dict[str, Loo] = {}
    for name, run in named.items():
        found = _loo(run, rows[name])
        if isinstance(found, Loo):
            scores[name] = found
            remarks += [f"{name}: {found.warning}"] if found.warning else []
        else:
            remarks.append(f"{name}: no leave-one-out score: {found}")
    order = sorted(scores, key=lambda name: -scores[name].elpd)
    order += [name for name in named if name not in scores]
    weights = _weights(named, rows, scores)
    best = order[0] if scores else None
    each = {name: _line(named[name], name, best, scores, weights) for name in order}
    if best is not None:
        remarks += _told(best, [name for name in order[1:] if name in scores], scores)
    table = pd.DataFrame.from_dict(each, orient="index").rename_axis("run")
    sources = sorted({str(run.metrics["scored_on"]) for run in named.values()})
    return Comparison(table, " or ".join(sources), tuple(remarks))


def _named(runs: Sequence[Run]) -> dict[str, Run]:
    """Runs by the shortest ends of their paths that tell them apart."""
    places = [run.folder for run in runs]
    if len(set(places)) < len(places):
        raise InputError("a run is compared with itself; name each folder once.")
    if len(runs) < 2:
        raise InputError("one run cannot be compared; name two folders or more.")
    for n_parts in range(1, max(len(place.parts) for place in places) + 1):
        names = ["/".join(place.parts[-n_parts:]) for place in places]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, runs, strict=True))


# The same rows.


def _same_rows(named: Mapping[str, Run]) -> dict[str, Prepared]:
    """The rows of each run, once it is known that they are the same."""
    names = [*named]
    first = named[names[0]]
    for name in names[1:]:
        reason = _other_table(first, named[name])
        if reason:
            raise InputError(
                f"{names[0]} and {name} are of other rows, and cannot be compared: {reason}."
            )
    rows = {name: run.rows() for name, run in named.items()}
    one = rows[names[0]]
    for name in names[1:]:
        other = rows[name]
        same = np.array_equal(one.rows_held, other.rows_held)
        if not (same and np.array_equal(one.weights, other.weights)):
            raise InputError(
                f"{names[0]} and {name} are of other rows, and cannot be compared: they hold out "
                "or weigh others; give both the same seed and test_fraction, or a test table."
            )
    return rows


def _other_table(one: Run, other: Run) -> str:
    """How the tables of two runs differ; empty if they do not."""
    prints = [
        {name: found["sha256"] for name, found in run.manifest["data"].items()}
        for run in (one, other)
    ]
    if prints[0] != prints[1]:
        return "their tables differ"
    if one.target != other.target:
        return f"one predicts {one.target!r}, the other {other.target!r}"
    if one.task != other.task:
        return f"one is {one.task}, the other {other.task}"
    return ""


# Scores.


def _loo(run: Run, rows: Prepared) -> Loo | str:
    """The leave-one-out score of a run, or why there is none."""
    estimator = run.estimator
    if not (has_draws(estimator) and hasattr(estimator, "loo")):
        return "a point estimate has no posterior."
    n_draws = estimator.posterior_.n_chains * estimator.posterior_.n_draws
    if len(rows.X) * n_draws > MOST_NUMBERS:
        return (
            f"{len(rows.X):,} rows of {n_draws} draws are too many for it; of so many rows those "
            "that were held out tell enough."
        )
    try:
        found: Loo = estimator.loo(rows.X, rows.y, rows.weights)
    except ValueError as error:
        return str(error)
    return found


def _weights(
    named: Mapping[str, Run], rows: Mapping[str, Prepared], scores: Mapping[str, Loo]
) -> dict[str, float]:
    """Stacking weights of the runs that have leave-one-out scores."""
    if len(scores) < 2:
        return {}
    given = {}
    for name, loo in scores.items():
        own = rows[name]
        made = named[name].estimator.to_arviz(
            own.X, own.y, own.weights, groups=["posterior", "log_likelihood"]
        )
        terms = _arviz.group(made, "log_likelihood")["obs"]
        each = terms.isel(chain=0, draw=0, drop=True)
        given[name] = made, xr.DataArray(loo.elpd_row, coords=each.coords, dims=each.dims)
    return _arviz.stacking_weights(given)


def _line(
    run: Run,
    name: str,
    best: str | None,
    scores: Mapping[str, Loo],
    weights: Mapping[str, float],
) -> dict[str, Any]:
    """What the table says of a run."""
    line = dict.fromkeys(
        ("elpd", "se", "p_loo", "difference", "difference_se", "weight", "bad_k"), np.nan
    )
    if best is not None and name in scores:
        loo = scores[name]
        behind = loo.compare(scores[best])
        line |= {"elpd": loo.elpd, "se": loo.se, "p_loo": loo.p_loo}
        line |= {"difference": behind.elpd, "difference_se": behind.se}
        line |= {"weight": weights.get(name, 1.0), "bad_k": len(loo.bad_rows) / len(loo.k)}
    metrics = run.metrics
    own = ("accuracy", "log_loss") if run.task == "classification" else ("rmse", "r2")
    return line | {key: metrics.get(key, np.nan) for key in own} | {"leaves": metrics["leaves"]}


def _told(best: str, others: Sequence[str], scores: Mapping[str, Loo]) -> Iterator[str]:
    """What follows from the differences."""
    for name in others:
        behind = scores[best].compare(scores[name])
        by = f"{behind.elpd:.1f} nats (standard error {behind.se:.1f})"
        if behind.n_bad > MOST_BAD * len(scores[best].k):
            yield (
                f"{best} and {name} differ by {by}, from which nothing follows: too many rows have "
                "scores that are not to be trusted. Go by held-out rows, or cross-validate."
            )
        elif behind.elpd < SMALL or not behind.elpd >= CLEAR * behind.se:
            yield f"{best} and {name} cannot be told apart: they differ by {by}."
        else:
            yield f"{best} predicts better than {name}, by {by}."


def _percent(share: float) -> str:
    """A share for a person; empty where there is none."""
    return "" if np.isnan(share) else f"{100 * share:.0f} %"


def _plain(value: Any) -> str:
    """A number for a person; empty where there is none."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)
