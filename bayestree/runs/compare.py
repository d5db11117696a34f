"""Several runs on the same rows: which predicts better, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayestree._utils import arviz_compat
from bayestree.diagnostics import Loo
from bayestree.runs.held_out import Gap, HeldOut, held_out_scores
from bayestree.runs.outputs import MOST_NUMBERS, has_draws
from bayestree.runs.rows import Prepared
from bayestree.runs.store import Run
from bayestree.tables import InputError

SMALL = 4.0  # nats: differences of which nothing follows (Sivula, Magnusson and Vehtari 2020)
CLEAR = 2.0  # standard errors
MOST_BAD = 0.1  # of the rows, whose k may be too large
WIDTH = 88  # of a line of text
LOO, HELD_OUT, NONE = "leave-one-out", "held-out rows", "none"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs on the same rows, the best first.

    Attributes
    ----------
    table : DataFrame
        A row for each run, by its name, the best first:

        - ``elpd`` and ``se``: sum over the training rows of log p(y_i | the other rows), in nats,
          and its standard error; ``p_loo``, the effective number of parameters;
        - ``difference`` and ``difference_se``: by how much this is below the best, and the
          standard error of that, row by row; a negative difference is worse;
        - ``weight``: by which the predictions of the runs, averaged, would predict best;
        - ``bad_k``: share of the rows whose Pareto k is too large to be trusted;
        - ``held_out``: sum over the held-out rows of log p(y_i | the training rows), in nats, or
          minus the squared errors where a run gives y no density; ``held_out_difference`` and
          ``held_out_difference_se``: by how much this is below the first run, row by row;
        - scores on held-out rows: ``accuracy`` and ``log_loss``, or ``rmse`` and ``r2``;
        - ``leaves``.

        Differences and weights by ``elpd`` are missing unless that is the ``basis``.
    basis : {"leave-one-out", "held-out rows", "none"}
        What the runs are compared by: leave-one-out scores, if those of two runs or more are there
        and none of them has more than 10 % of its rows with a k too large.
    scored_on : str
        Of which rows the scores are.
    remarks : tuple of str
        What speaks against a figure, and what follows from the differences.
    """

    table: pd.DataFrame
    basis: str
    scored_on: str
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        table = (
            self.table if self.basis == LOO else self.table.drop(columns=["elpd", "se", "p_loo"])
        )
        shown = table.dropna(axis="columns", how="all").astype(object)
        text = shown.map(_plain)
        if "bad_k" in text:
            text["bad_k"] = [_percent(share) for share in shown["bad_k"]]
        remarks = [fill(one, WIDTH, subsequent_indent="  ") for one in self.remarks]
        legend = [f"scores on {self.scored_on}"]
        if self.basis != NONE:
            legend.append("differences are from the first run: a negative one is worse")
        return "\n".join([text.to_string(), *legend, "", *remarks]).rstrip()


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs by leave-one-out cross-validation or, where that fails, by held-out rows.

    PSIS-LOO (Vehtari, Gelman and Gabry 2017) by ArviZ's smoothing of importance ratios, on the
    rows that all were fitted to; stacking weights are those of ``arviz.compare``. Where it cannot
    be trusted, and for point estimates, the scores of the held-out rows are compared row by row.

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
        else:
            remarks.append(f"{name}: no leave-one-out score: {found}")
    held = held_out_scores({name: run.estimator for name, run in named.items()}, rows)
    basis = _basis(scores, held)
    remarks += _reasons(basis, scores, held)
    if basis == HELD_OUT and held is not None:
        order = sorted(named, key=lambda name: -held.rows[name].sum())
    else:
        order = sorted(scores, key=lambda name: -scores[name].elpd)
        order += [name for name in named if name not in scores]
    weights = _weights(named, rows, scores) if basis == LOO else {}
    each = {name: _line(named[name], name, order[0], scores, held, weights) for name in order}
    table = pd.DataFrame.from_dict(each, orient="index").rename_axis("run")
    remarks += _told(order[0], _gaps(order, basis, scores, held), basis, held)
    if basis == LOO and held is not None and len(scores) < len(named):
        ranked = sorted(named, key=lambda name: -held.rows[name].sum())
        gaps = _gaps(ranked, HELD_OUT, scores, held)
        remarks += _told(ranked[0], gaps, HELD_OUT, held)
    sources = sorted({str(run.metrics["scored_on"]) for run in named.values()})
    return Comparison(table, basis, " or ".join(sources), tuple(remarks))


def _basis(scores: Mapping[str, Loo], held: HeldOut | None) -> str:
    """What the runs are compared by."""
    if len(scores) > 1 and all(_bad(loo) <= MOST_BAD for loo in scores.values()):
        return LOO
    return NONE if held is None else HELD_OUT


def _bad(loo: Loo) -> float:
    """Share of the rows whose k is too large."""
    return len(loo.bad_rows) / len(loo.k)


def _reasons(basis: str, scores: Mapping[str, Loo], held: HeldOut | None) -> Iterator[str]:
    """Why the runs are compared by this."""
    if basis == LOO:
        yield from (f"{name}: {loo.warning}" for name, loo in scores.items() if loo.warning)
        return
    untrusted = [
        f"{name} ({len(loo.bad_rows)} of {len(loo.k)} rows above {loo.good_k:.2f})"
        for name, loo in scores.items()
        if _bad(loo) > MOST_BAD
    ]
    if untrusted:
        yield (
            "Leave-one-out scores and stacking weights are not used, because Pareto k is too large "
            f"for {', '.join(untrusted)}."
        )
    if held is None:
        yield (
            "Nothing tells the runs apart: no rows were held out. Fit them again with the same "
            "test_fraction and seed, or with a test table."
        )
    else:
        yield (
            f"The runs are compared by the {held.measure}, of the {held.n_rows} held-out rows: "
            "held_out is the sum, and differences are taken row by row."
        )


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
                f"{names[0]} and {name} were fitted to different rows and cannot be compared: "
                f"{reason}."
            )
    rows = {name: run.rows() for name, run in named.items()}
    one = rows[names[0]]
    for name in names[1:]:
        other = rows[name]
        same = np.array_equal(one.rows_held, other.rows_held)
        if not (same and np.array_equal(one.weights, other.weights)):
            raise InputError(
                f"{names[0]} and {name} were fitted to different rows and cannot be compared: "
                "they hold out or weigh others; give both the same seed and test_fraction, or a "
                "test table."
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
        terms = arviz_compat.group(made, "log_likelihood")["obs"]
        each = terms.isel(chain=0, draw=0, drop=True)
        given[name] = made, xr.DataArray(loo.elpd_row, coords=each.coords, dims=each.dims)
    return arviz_compat.stacking_weights(given)


def _line(
    run: Run,
    name: str,
    best: str,
    scores: Mapping[str, Loo],
    held: HeldOut | None,
    weights: Mapping[str, float],
) -> dict[str, Any]:
    """What the table says of a run; ``weights`` are there if leave-one-out scores are compared."""
    line = dict.fromkeys(
        ("elpd", "se", "p_loo", "difference", "difference_se", "weight", "bad_k"), np.nan
    )
    if name in scores:
        loo = scores[name]
        line |= {"elpd": loo.elpd, "se": loo.se, "p_loo": loo.p_loo, "bad_k": _bad(loo)}
        if weights:
            behind = Gap.of(loo.elpd_row - scores[best].elpd_row)
            line |= {"difference": behind.total, "difference_se": behind.se}
            line |= {"weight": weights[name]}
    if held is not None:
        behind = Gap.of(held.rows[name] - held.rows[best])
        line |= {"held_out": float(held.rows[name].sum())}
        line |= {"held_out_difference": behind.total, "held_out_difference_se": behind.se}
    metrics = run.metrics
    own = ("accuracy", "log_loss") if run.task == "classification" else ("rmse", "r2")
    return line | {key: metrics.get(key, np.nan) for key in own} | {"leaves": metrics["leaves"]}


def _gaps(
    order: Sequence[str], basis: str, scores: Mapping[str, Loo], held: HeldOut | None
) -> dict[str, Gap]:
    """How far each run is behind the first, by the basis."""
    best, *others = order
    if basis == LOO:
        own = scores[best].elpd_row
        return {name: Gap.of(own - scores[name].elpd_row) for name in others if name in scores}
    if held is None:
        return {}
    return {name: Gap.of(held.rows[best] - held.rows[name]) for name in others}


def _told(
    best: str, gaps: Mapping[str, Gap], basis: str, held: HeldOut | None = None
) -> Iterator[str]:
    """What follows from the differences."""
    nats = basis == LOO or held is None or held.measure.endswith("nats")
    rows = "" if basis == LOO else " on the held-out rows"
    for name, gap in gaps.items():
        unit = "nats" if nats else "in squared error"
        by = f"{gap.total:.4g} {unit} (standard error {gap.se:.2g})"
        if (nats and gap.total < SMALL) or not gap.total >= CLEAR * gap.se:
            yield f"{best} and {name} cannot be told apart{rows}: they differ by {by}."
        else:
            yield f"{best} predicts better than {name}{rows}, by {by}."


def _percent(share: float) -> str:
    """A share for a person; empty where there is none."""
    return "" if np.isnan(share) else f"{100 * share:.0f} %"


def _plain(value: Any) -> str:
    """A number for a person; empty where there is none."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)
