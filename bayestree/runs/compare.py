"""Comparison of several runs on the same rows: which predicts better, and how certain that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import InputError
from bayestree.description import has_draws, has_evidence
from bayestree.diagnostics import Loo, compare_evidence, stacking_weights
from bayestree.diagnostics.convergence import EVIDENCE as EVIDENCE_LIMITS
from bayestree.estimators._estimator import Estimator
from bayestree.estimators._tree import StagedTree
from bayestree.runs.outputs import MAX_NUMBERS, TINY, predict_rows, report_arguments, sizes_of
from bayestree.runs.rows import RunRows
from bayestree.runs.store import Run


class _Gap(NamedTuple):
    """Total difference between the scores of two runs, and its standard error."""

    total: float
    se: float

    @classmethod
    def of(cls, differences: FloatArray) -> "_Gap":
        n = len(differences)
        se = float(np.sqrt(n) * differences.std(ddof=1)) if n > 1 else np.nan
        return cls(float(differences.sum()), se)


class _HeldOutScores(NamedTuple):
    """Scores of the held-out rows by run (higher is better), and their kind."""

    in_nats: bool
    rows: Mapping[str, FloatArray]

    @property
    def measure(self) -> str:
        return "log score, in nats" if self.in_nats else "squared error"

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.rows.values())))


def held_out_scores(
    estimators: Mapping[str, Estimator], prepared: Mapping[str, RunRows]
) -> _HeldOutScores | None:
    """Return the log scores of the held-out rows, or squared errors if a run has no density of y.

    None if no rows were held out, or for rates without densities.
    """
    if not all(rows.held_out for rows in prepared.values()):
        return None
    scores = {name: _log_scores(one, prepared[name]) for name, one in estimators.items()}
    logs = {name: rows for name, rows in scores.items() if rows is not None}
    if len(logs) == len(scores):
        return _HeldOutScores(True, logs)
    if any(rows.y.ndim > 1 or rows.task == "survival" for rows in prepared.values()):
        return None  # predictions are rates, not values of y
    errors: dict[str, FloatArray] = {
        name: -_row_weights(rows) * (estimators[name].predict(rows.X_held) - rows.y_held) ** 2
        for name, rows in prepared.items()
    }
    return _HeldOutScores(False, errors)


def _log_scores(estimator: Estimator, rows: RunRows) -> FloatArray | None:
    """Return the weighted log p(y) of each held-out row, given the training rows."""
    mixture = estimator.fitted_
    if mixture.response.classifies:
        _, probability = predict_rows(estimator, rows.X_held, rows.y_held)
        return _row_weights(rows) * np.log(np.maximum(probability, TINY))
    if not isinstance(estimator, StagedTree):
        return None
    plug_in, n_draws = mixture.shown.posterior.model.likelihood.plug_in, mixture.shown.n_draws
    if plug_in or len(rows.X_held) * n_draws > MAX_NUMBERS:
        return None
    return _row_weights(rows) * estimator.log_score(rows.X_held, rows.y_held)


def _row_weights(rows: RunRows) -> FloatArray:
    """Return the weights of the held-out rows; 1 if all are zero."""
    weights = rows.weights_held
    return weights if weights.any() else np.ones_like(weights)


SMALL = 4.0  # nats: smaller differences are inconclusive (Sivula, Magnusson and Vehtari 2020)
CLEAR = 2.0  # standard errors
WIDTH = 88  # characters per line of text
FOLDS = 5  # of refits
LOO, HELD_OUT, NONE, EVIDENCE = "leave-one-out", "held-out rows", "none", "evidence"
UNSETTLED = {
    "no": "the inference has not converged",
    "doubtful": "some checks of the inference are doubtful",
}
POSITIVE = 1.0  # log Bayes factors below are "not worth more than a bare mention" (Kass, Raftery)
#: Scores of each task that the table shows.
SCORES = {
    "classification": ("accuracy", "log_loss"),
    "regression": ("rmse", "r2"),
    "survival": ("concordance",),
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs on the same rows, the best first.

    ``table`` has a row for each run, by its name:

    - ``elpd`` and ``se``: sum over the training rows of log p(y_i | the other rows), in nats, and
      its standard error; ``p_loo``, the effective number of parameters;
    - ``difference`` and ``difference_se``: difference of elpd from the best run (negative is
      worse), and its standard error, computed row by row;
    - ``weight``: stacking weight of the run's predictions in the best average of all runs;
    - ``bad_k``: share of the rows whose Pareto k is too large for a reliable score;
    - ``held_out``: sum over the held-out rows of log p(y_i | the training rows), in nats, or the
      negative squared errors if a run has no density of y; ``held_out_difference`` and
      ``held_out_difference_se``: difference from the first run, row by row;
    - ``accuracy`` and ``log_loss``, ``rmse`` and ``r2``, or ``concordance`` of the rows that
      ``scored_on`` names; ``leaves``;
    - ``log_evidence`` and ``log_evidence_se`` of runs by sequential Monte Carlo, in nats;
      ``log_bayes_factor`` and ``log_bayes_factor_se``, the difference from the most probable run;
      ``probability`` of the run's model given the training rows and equal prior probabilities.

    The ``basis`` is the evidence if all runs have it. It is leave-one-out if at least two runs have
    scores that can be trusted: k is good for nine rows of ten, or no rows were held out, so that
    the runs were refitted without each of five parts. ``difference`` and ``weight``
    are missing unless it is "leave-one-out", and the last three columns unless it is "evidence".
    ``remarks`` are the ``caveats`` about the figures, and the ``conclusions`` from the differences.
    """

    table: pd.DataFrame
    basis: str
    scored_on: str
    caveats: tuple[str, ...]
    conclusions: tuple[str, ...]

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.caveats + self.conclusions

    def __str__(self) -> str:
        hidden = [] if self.basis == LOO else ["elpd", "se", "p_loo"]
        shown = self.table.drop(columns=hidden).dropna(axis="columns", how="all").astype(object)
        text = shown.map(_format)
        if "bad_k" in text:
            text["bad_k"] = [
                "" if np.isnan(share) else f"{100 * share:.0f} %" for share in shown["bad_k"]
            ]
        remarks = [fill(one, WIDTH, subsequent_indent="  ") for one in self.remarks]
        legend = [f"scores on {self.scored_on}"]
        if self.basis != NONE:
            legend.append("differences are from the first run: a negative one is worse")
        return "\n".join([text.to_string(), *legend, "", *remarks]).rstrip()


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs by their evidence, by leave-one-out cross-validation, or by held-out rows.

    Runs by sequential Monte Carlo are compared by their evidence: how probable each model is given
    the training rows. Others are compared by how well they predict these rows, if PSIS-LOO
    (Vehtari, Gelman and Gabry 2017) is reliable, with weights by stacking; otherwise, and for point
    estimates, by the scores of the held-out rows, row by row. If no rows were held out, the runs
    are refitted without each of five parts of the training rows instead.

    The runs, two or more, must be finished and have the same table, target and held-out rows, else
    an InputError names the difference. Dropped columns may differ.
    """
    named = named_runs(runs)
    return compare_named(named, same_rows(named))


def compare_named(named: Mapping[str, Run], rows: Mapping[str, RunRows]) -> Comparison:
    """Compare runs by their names, given the rows that :func:`same_rows` has read."""
    evidence = _evidence(named)
    held = held_out_scores({name: run.estimator for name, run in named.items()}, rows)
    results = {name: _loo(run, rows[name]) for name, run in named.items()}
    scores = {name: found for name, found in results.items() if isinstance(found, Loo)}
    if held is None and len(scores) < 2 and "probability" not in evidence:
        results = {name: _loo(run, rows[name], "kfold") for name, run in named.items()}
        scores = {name: found for name, found in results.items() if isinstance(found, Loo)}
    caveats = [
        f"{name}: no leave-one-out score: {found}"
        for name, found in results.items()
        if isinstance(found, str)
    ]
    caveats += [
        f"{name}: {doubt}, so that a longer fit may score otherwise; see bayestree diagnose."
        for name, run in named.items()
        if has_draws(run.estimator)
        and isinstance(run.estimator, StagedTree)
        and (doubt := UNSETTLED.get(run.estimator.check_convergence().settled))
    ]
    other = HELD_OUT if held is not None else NONE
    basis = EVIDENCE if "probability" in evidence else LOO if len(scores) > 1 else other
    caveats += _reasons(basis, scores, held)
    ranked = [] if held is None else sorted(named, key=lambda name: -held.rows[name].sum())
    order = ranked
    if basis == EVIDENCE:
        order = [*evidence.index]
    elif basis != HELD_OUT:
        order = sorted(scores, key=lambda name: -scores[name].elpd)
        order += [name for name in named if name not in scores]
    weights = _weights(scores) if basis == LOO else {}
    lines = {name: _line(named[name], name, order[0], scores, held, weights) for name in order}
    conclusions = list(_favoured(evidence)) if basis == EVIDENCE else []
    if basis != EVIDENCE and len(evidence) > 1:
        caveats.append(f"Compare {' and '.join(evidence.index)} alone for their Bayes factors.")
    if basis == LOO:
        by_row = {name: scores[name].elpd_row for name in order if name in scores}
        conclusions += _conclusions(by_row, in_nats=True)
    if held is not None and (basis == HELD_OUT or len(scores) < len(named)):
        by_row = {name: held.rows[name] for name in ranked}
        conclusions += _conclusions(by_row, in_nats=held.in_nats, where=" on the held-out rows")
    return Comparison(
        table=pd.DataFrame.from_dict(lines, orient="index").join(evidence).rename_axis("run"),
        basis=basis,
        scored_on=" or ".join(sorted({str(run.metrics["scored_on"]) for run in named.values()})),
        caveats=tuple(caveats),
        conclusions=tuple(conclusions),
    )


def _evidence(named: Mapping[str, Run]) -> pd.DataFrame:
    """Return the log evidence of the runs that have it; if all do, with Bayes factors, sorted."""
    found = {
        name: run.estimator.evidence() for name, run in named.items() if has_evidence(run.estimator)
    }
    columns = {"se": "log_evidence_se"}
    if len(found) == len(named):
        try:
            return compare_evidence(found).rename(columns=columns)
        except ValueError as error:
            raise InputError(str(error)) from error
    lines = {name: (one.log_evidence, one.standard_error) for name, one in found.items()}
    names = ["log_evidence", "log_evidence_se"] if lines else []
    return pd.DataFrame.from_dict(lines, orient="index", columns=names)


def _favoured(evidence: pd.DataFrame) -> Iterator[str]:
    """Yield conclusions from the Bayes factors of the first run against the others."""
    certain = evidence["log_evidence_se"] <= EVIDENCE_LIMITS[0]
    for name, error in evidence["log_evidence_se"][~certain].items():  # of a single run NaN
        single = "it comes from a single run"
        why = single if np.isnan(error) else f"its standard error is {error:.2g}"
        yield (
            f"The evidence of {name} is uncertain: {why}. Use more particles (n_draws), and four "
            "runs (n_chains)."
        )
    best = evidence.index[0]
    for name, line in evidence.iloc[1:].iterrows():
        gap, error = -line["log_bayes_factor"], line["log_bayes_factor_se"]
        known = "unknown: n_chains is 1" if np.isnan(error) else f"{error:.2g}"
        size = f"the log Bayes factor is {gap:.3g} (standard error {known})"
        useful = max(evidence.loc[[best, name], "log_evidence_se"]) <= EVIDENCE_LIMITS[1]
        if gap >= POSITIVE and gap >= CLEAR * error and useful:  # not if the error is unknown
            yield f"The rows favour {best} over {name}: {size}."
        else:
            yield f"The rows do not decide between {best} and {name}: {size}."


def _reasons(basis: str, scores: Mapping[str, Loo], held: _HeldOutScores | None) -> Iterator[str]:
    """Yield reasons why the runs are compared on this basis."""
    if basis == EVIDENCE:
        yield (
            "The runs are compared by their evidence, the density of the training y under each "
            "model as a whole: it judges the model with its prior, not the predictions."
        )
        return
    if basis == LOO:
        yield from (f"{name}: {loo.warning}" for name, loo in scores.items() if loo.warning)
        if n_folds := max(loo.n_folds for loo in scores.values()):
            yield (
                f"No rows were held out. The runs were refitted without each of {n_folds} parts of "
                "the training rows, and are compared by their log scores of these parts."
            )
        return
    if held is None:
        yield (
            "The runs cannot be compared because no rows were held out. Fit them again with the "
            "same test_fraction and seed, or with a test table."
        )
    else:
        yield (
            f"The runs are compared by the {held.measure}, of the {held.n_rows} held-out rows: "
            "held_out is the sum, and differences are taken row by row."
        )


def named_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """Return runs of one target by the shortest ends of their paths that differ."""
    places = [run.folder for run in runs]
    for place in places:
        if places.count(place) > 1:
            raise InputError(
                f"the run in {str(place)!r} is compared with itself; specify each folder once."
            )
    for run in runs:
        run.columns.check_single("compare")
    if len(runs) < 2:
        raise InputError("one run cannot be compared; specify two or more.")
    for n_parts in range(1, max(len(place.parts) for place in places) + 1):
        names = ["/".join(place.parts[-n_parts:]) for place in places]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, runs, strict=True))


def same_rows(named: Mapping[str, Run]) -> dict[str, RunRows]:
    """Read the rows of each run, which must be the same."""

    def refuse(name: str, reason: str) -> InputError:
        return InputError(
            f"{first} and {name} were fitted to different rows and cannot be compared: {reason}."
        )

    first, *others = named
    for name in others:
        if reason := _table_difference(named[first], named[name]):
            raise refuse(name, reason)
    rows = {name: run.rows() for name, run in named.items()}
    for name in others:
        same = np.array_equal(rows[first].rows_held, rows[name].rows_held)
        if not (same and np.array_equal(rows[first].weights, rows[name].weights)):
            raise refuse(
                name,
                "their held-out rows or weights differ; use the same seed and test_fraction for "
                "both, or a test table",
            )
    return rows


def _table_difference(one: Run, other: Run) -> str:
    """Return the description of how the tables of two runs differ; empty if they do not."""
    digests = [
        {name: table["sha256"] for name, table in run.manifest["data"].items()}
        for run in (one, other)
    ]
    if digests[0] != digests[1]:
        paths = [run.manifest["data"]["data"]["path"] for run in (one, other)]
        where = " and ".join(dict.fromkeys(repr(Path(path).name) for path in paths))
        return f"their tables differ ({where}, by SHA-256); fit both to the same table"
    if one.columns.target != other.columns.target:
        targets = f"one predicts {one.columns.target!r}, the other {other.columns.target!r}"
        return f"{targets}; specify runs of one target"
    if one.columns.task != other.columns.task:
        tasks = f"one is {one.columns.task}, the other {other.columns.task}"
        return f"{tasks}; set the same task for both"
    return ""


def _loo(run: Run, rows: RunRows, method: Literal["psis", "kfold"] = "psis") -> Loo | str:
    """Return the score of a run by importance sampling or by refits, or why there is none."""
    estimator = run.estimator
    if not isinstance(estimator, StagedTree) or (method == "psis" and not has_draws(estimator)):
        return "a point estimate has no posterior."
    n_draws = estimator.fitted_.shown.n_draws * len(estimator.fitted_.trees)
    if len(rows.X) * n_draws > MAX_NUMBERS:
        return (
            f"{len(rows.X):,} rows times {n_draws} draws are too many; with this many rows the "
            "held-out rows are sufficient."
        )
    try:
        return estimator.loo(rows.X, rows.y, rows.weights, method=method, n_folds=FOLDS)
    except ValueError as error:
        return str(error)


def _weights(scores: Mapping[str, Loo]) -> dict[str, float]:
    """Return the stacking weights of the runs that have leave-one-out scores."""
    found = stacking_weights(np.stack([one.elpd_row for one in scores.values()], axis=1))
    return dict(zip(scores, found.tolist(), strict=True))


def _line(
    run: Run,
    name: str,
    best: str,
    scores: Mapping[str, Loo],
    held: _HeldOutScores | None,
    weights: Mapping[str, float],
) -> dict[str, Any]:
    """Return the row of a run; ``weights`` are empty unless the basis is leave-one-out."""
    line = dict.fromkeys(
        ("elpd", "se", "p_loo", "difference", "difference_se", "weight", "bad_k"), np.nan
    )
    if name in scores:
        loo = scores[name]
        line |= {"elpd": loo.elpd, "se": loo.se, "p_loo": loo.p_loo}
        line["bad_k"] = len(loo.bad_rows) / len(loo.k)
        if weights:
            gap = _Gap.of(loo.elpd_row - scores[best].elpd_row)
            line |= {"difference": gap.total, "difference_se": gap.se, "weight": weights[name]}
    if held is not None:
        gap = _Gap.of(held.rows[name] - held.rows[best])
        line |= {"held_out": float(held.rows[name].sum())}
        line |= {"held_out_difference": gap.total, "held_out_difference_se": gap.se}
    metrics = run.metrics
    keys = SCORES[run.columns.task]
    return line | {key: metrics.get(key, np.nan) for key in keys} | {"leaves": metrics["leaves"]}


def _conclusions(
    by_row: Mapping[str, FloatArray], *, in_nats: bool, where: str = ""
) -> Iterator[str]:
    """Yield conclusions from the differences between the first run's scores and the others'."""
    best, *others = by_row
    for name in others:
        gap = _Gap.of(by_row[best] - by_row[name])
        unit = "nats" if in_nats else "in squared error"
        size = f"{gap.total:.4g} {unit} (standard error {gap.se:.2g})"
        small = in_nats and gap.total < SMALL
        if small or not gap.total >= CLEAR * gap.se:
            rule = f"; below {SMALL:g} nats, standard errors are too small" if small else ""
            yield f"{best} and {name} cannot be distinguished{where}: they differ by {size}{rule}."
        else:
            yield f"{best} predicts better than {name}{where}, by {size}."


def _format(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)


def comparison_page(named: Mapping[str, Run], rows: Mapping[str, RunRows]) -> str:
    """Return the page of runs by their names, given the rows that ``same_rows`` has read."""
    from bayestree.report.compared import Compared  # noqa: PLC0415 - importing it takes seconds
    from bayestree.report.comparison import page_of  # noqa: PLC0415
    from bayestree.report.study import study_of  # noqa: PLC0415

    widest = max(rows.values(), key=lambda one: one.X.shape[1])
    studies = {}
    for name, run in named.items():
        told = report_arguments(run, rows[name].thinned(widest))
        studies[name] = study_of(run.estimator, **told, known_sizes=sizes_of(run.estimator))
    found = compare_named(named, rows)
    numbers = widest.thinned().rows_held
    return page_of(Compared(studies, numbers, found.table, found.caveats, found.conclusions))
