"""Convergence checks, each with a verdict in words.

They need only the quantities of :func:`bayestree.diagnostics.label_free` and the statistics that
the inference recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import FloatArray
from bayestree._utils.monte_carlo import MIN_DRAWS as MIN_RATIOS
from bayestree._utils.monte_carlo import bfmi, ess, good_k, pareto_k, r_hat
from bayestree._utils.wording import counted
from bayestree.diagnostics.evidence import Evidence, evidence
from bayestree.diagnostics.label_free import label_free_of, recorded
from bayestree.diagnostics.verdict import GAIN, K_LIMIT, Check, Convergence, HeldOut, Kind, Verdict

if TYPE_CHECKING:
    import xarray as xr

Grade = tuple[float, float]  # "ok" up to the first limit, "failed" beyond the second

R_HAT: Grade = (1.01, 1.05)
ESS: Grade = (100, 25)  # per chain
E_BFMI: Grade = (0.3, 0.2)
DIVERGENT: Grade = (0.0, 0.01)
SATURATED: Grade = (0.01, 0.25)
EVIDENCE: Grade = (0.3, 0.7)  # standard error in nats; it is 1 where one run dominates
ENOUGH_RATIOS = 200  # with fewer draws, k is often small by chance
MIN_NATS = 2.0  # a gain of the ELBO by two nats is accepted: a facet costs about sixteen
LEAST_GAIN = 5.0  # over a constant; of noise it has been at most 4.4 (benchmarks/results/nodes.md)
MIN_SHARE = 1e-3  # so is one by this share of the ELBO
N_ERRORS = 2.0  # and one by this multiple of its Monte Carlo error
MUCH = 2.0  # multiple of the accepted gain that fails, if it is also more than this for each row:
ROW_NATS = 0.03  # benchmarks/results/elbo.md has the tables on which this was measured
MIN_SPREAD = 1e-3  # probabilities and means that vary by less, or by this share, count as constant
MAX_TIMES = 10  # largest factor by which longer runs are recommended
MIN_DRAWS = 8  # draws per chain needed for a comparison
MORE_TRANSITIONS = "Run longer, with more warm-up (n_draws, n_warmup)."
MORE_PARTICLES = "Use more particles (n_draws, or n_particles of bayestree.inference.Smc)."
RUNS_DIFFER = (
    "If the runs still differ, do not compare models by this evidence, and predict by the default "
    "method."
)
MIN_WEIGHT = 0.01  # of a mode that is judged
SEVERITY: tuple[Verdict, ...] = ("info", "ok", "doubtful", "failed")
#: The least exact first.
KINDS: tuple[Kind, ...] = ("point", "variational", "moved", "chains", "exact")
SINGLE_CHAIN = (
    "a single chain can only be compared with itself; run four or more to find out whether "
    "there are other modes."
)


def check_convergence(
    quantities: xr.Dataset | None,
    stats: Mapping[str, Any],
    *,
    held_out: HeldOut | None = None,
    single_leaf: bool = False,
) -> Convergence:
    """Judge an inference by its draws and recorded statistics.

    The available data determine the checks: R-hat and effective sample size of label-free
    quantities for chains; divergences, tree depth and E-BFMI for Hamiltonian samplers; the
    agreement about the evidence for sequential Monte Carlo;
    the gain of the ELBO by further steps, and Pareto k, for variational fits.

    Parameters
    ----------
    quantities : xarray.Dataset, optional
        From :func:`label_free`: variables [chain, draw, ...]. If None, chains are not compared.
    stats : mapping of arrays
        Recorded statistics, as in ``Posterior.stats`` or ArviZ's ``sample_stats``:
        ``unseen_gain`` and ``unseen_gain_error``; ``log_evidence`` by chain, with ``n_leaves`` and
        ``depth``; ``diverging``, ``reached_max_treedepth``, ``energy``, ``log_p``, ``log_q`` of
        shape (chain, draw); ``elbo`` by step, with ``elbo_gain`` and ``elbo_gain_error``.
    held_out : HeldOut, optional
        Calibration of the predictions on held-out rows.
    single_leaf : bool
        Whether the tree that is shown predicts the same for all rows.

    Returns
    -------
    Convergence
        Can be printed; see also ``predictions``, ``intervals``, ``settled`` and ``to_frame``.

    Raises
    ------
    ValueError
        If draws or statistics are not finite.
    """
    kind = _kind(quantities, stats)
    independent = kind in ("variational", "moved", "exact")
    for name, values in () if quantities is None else quantities.items():
        if not np.isfinite(values).all():
            raise ValueError(f"quantities[{name!r}] must be finite, but some draws are not.")
    known = evidence(stats) if "log_evidence" in stats else None
    more = MORE_TRANSITIONS if known is None else MORE_PARTICLES
    table, checks, not_judged = _chains(quantities, more, independent=independent)
    if not independent:
        checks += _hamiltonian(stats)
    if known is not None and len(known.runs) > 1:
        checks.append(_evidence(known))
    found = [_elbo_gain(stats, single_leaf)] if "elbo" in stats else []
    found += [_importance_tail(stats)] if independent and kind != "moved" else []
    checks += [one for one in found if isinstance(one, Check)]
    not_judged += [one for one in found if isinstance(one, str)]
    checks += [_unseen_gain(stats)] if "unseen_gain" in stats else []
    return Convergence(
        tuple(checks), tuple(not_judged), table, kind, held_out, known, single_leaf=single_leaf
    )


def mixed_convergence(
    each: Sequence[Convergence],
    weights: FloatArray,
    quantities: xr.Dataset | None,
    *,
    means: FloatArray | None = None,
    unit: str = "",
    held_out: HeldOut | None = None,
) -> Convergence:
    """Judge a mixture of several modes by the worst of them, and compare them.

    Parameters
    ----------
    each : sequence of M Convergence
    weights : array, shape (M,)
        Modes with a weight below 1 %, or with many modes below half of an equal share, are left
        out: they hardly matter.
    quantities : xarray.Dataset, optional
        ``prediction`` [chain, draw, row(, class)], and others to compare, with the modes as chains
        (coordinate ``mode``).
    means : array, shape (M, n) or (M, n, C), optional
        Mean predictions of each mode, to be compared in this ``unit``; by default those of
        ``quantities``.
    unit : str
    held_out : HeldOut, optional
        Calibration of the predictions of the mixture on held-out rows.

    Returns
    -------
    Convergence
        The check ``modes`` has the mean distance between the largest and the smallest prediction
        of the modes. It cannot fail: modes may differ. ``quantities`` has R-hat across modes.
    """
    least = min(MIN_WEIGHT, 0.5 / len(each))
    kept = [number for number, weight in enumerate(weights) if weight >= least]
    found = [each[number] for number in kept]
    checks = []
    for name in dict.fromkeys(check.name for one in found for check in one.checks):
        by_mode = {m: each[m][name] for m in kept if name in each[m]}
        worst = max(by_mode, key=lambda m: _severity(by_mode[m]))
        among = f", the worst of {len(found)}" if len(found) > 1 else ""
        of_all = len({one[name].says for one in each if name in one}) == 1  # of the mixture itself
        says = "" if of_all else f"mode {worst + 1}{among}: "
        checks.append(replace(by_mode[worst], says=f"{says}{by_mode[worst].says}"))
    table = _chains(None, MORE_TRANSITIONS, independent=False)[0]
    if quantities is not None:
        some = quantities.isel(chain=np.isin(quantities["mode"], kept))
        table = _chains(some, MORE_TRANSITIONS, independent=False)[0]
        if means is None:
            means = quantities["prediction"].mean("draw").groupby("mode").mean().to_numpy()
        checks.append(_differences(means[kept], unit, table, kept))
    kinds = [one.kind for one in found]
    not_judged = dict.fromkeys(text for one in found for text in one.not_judged)
    return Convergence(
        tuple(checks),
        tuple(text for text in not_judged if text != SINGLE_CHAIN),
        table,
        next(kind for kind in KINDS if kind in kinds),
        held_out,
        single_leaf=all(each[number].single_leaf for number in kept),
    )


def _severity(check: Check) -> tuple[int, float]:
    """Return verdict and value, in the order of increasing concern."""
    return SEVERITY.index(check.verdict), -check.value if check.at_least else check.value


def _differences(means: FloatArray, unit: str, table: pd.DataFrame, kept: Sequence[int]) -> Check:
    """Measure how far the predictions of the modes differ, at n rows."""
    apart = np.ptp(means, axis=0)
    says = (
        f"the distance between the smallest and the largest mean prediction of {len(kept)} modes, "
        f"on average over {counted(len(apart), 'row')}; the largest of these is {apart.max():.3g}"
    )
    if not unit.startswith("in "):  # a probability has a known scale
        says += f", where predictions range from {means.min():.4g} to {means.max():.4g}"
    if len(kept) == 1:
        says = f"mode {kept[0] + 1} has nearly all of the weight, so that no predictions differ"
    elif "prediction" in table.index:
        worst = float(table["r_hat"]["prediction"])
        says += f" (largest R-hat of predictions: {worst:.3g})"
    says += "."
    return Check("modes", "approximation", float(apart.mean()), 0.0, "info", says, "", unit=unit)


def _kind(quantities: xr.Dataset | None, stats: Mapping[str, Any]) -> Kind:
    """Infer the origin of the draws from the recorded statistics."""
    if "elbo" in stats:
        return "moved" if "log_likelihood" in stats else "variational"
    if quantities is not None and _size(quantities) == (1, 1):
        return "point"
    return "exact" if "log_q" in stats else "chains"


def _size(quantities: xr.Dataset) -> tuple[int, int]:
    """Number of chains and of draws per chain."""
    n_chains, n_draws = (int(quantities.sizes.get(name, 1)) for name in ("chain", "draw"))
    return n_chains, n_draws


def _chains(
    quantities: xr.Dataset | None, more: str, *, independent: bool
) -> tuple[pd.DataFrame, list[Check], list[str]]:
    """Compare chains by R-hat and effective sample size of the worst quantities."""
    empty = pd.DataFrame(columns=["vary", "r_hat", "ess_bulk", "ess_tail", "worst"])
    if quantities is None:
        return empty, [], []
    n_chains, n_draws = _size(quantities)
    if (reason := _incomparable(n_chains, n_draws, independent=independent)) is not None:
        return empty, [], [reason] if reason else []
    table = pd.DataFrame.from_dict(
        {str(name): row for name, values in quantities.items() if (row := _worst(values))},
        orient="index",
        columns=empty.columns,
    )
    if table.empty:
        return table, [], ["R-hat and effective sample size: no quantity varies."]
    checks = [_agreement(table, n_chains, more)]
    if not independent:
        checks += [_effective(table, kind, n_chains, more) for kind in ("bulk", "tail")]
    return table, checks, [SINGLE_CHAIN] if n_chains == 1 else []


def _incomparable(n_chains: int, n_draws: int, *, independent: bool) -> str | None:
    """Return why R-hat and effective sample size would be meaningless, or None.

    Independent draws from one guide agree by construction, which need not be said of every fit.
    """
    if n_chains * n_draws == 1:
        return "a single draw is a point estimate: there is no posterior to check."
    if independent and n_chains == 1:
        return ""
    if n_draws < MIN_DRAWS:
        return f"R-hat and effective sample size need at least {MIN_DRAWS} draws per chain."
    return None


def _worst(values: xr.DataArray) -> list[Any]:
    """Number of varying entries, worst R-hat and effective sizes, and the worst entry's label."""
    stacked = values.transpose("chain", "draw", ...)
    entries = stacked.to_numpy().reshape(*stacked.shape[:2], -1).astype(np.float64)
    min_spread = 0.0
    if values.name in ("p_right", "prediction"):  # rates may be small in any unit of time
        min_spread = MIN_SPREAD * min(1.0, np.abs(entries).max())
    varies = np.flatnonzero(np.ptp(entries, axis=(0, 1)) > min_spread)
    if len(varies) == 0:
        return []
    varying = entries[:, :, varies]
    reduction = np.nan_to_num(r_hat(varying), nan=np.inf, posinf=np.inf)  # NaN: constant chains
    worst = np.unravel_index(varies[reduction.argmax()], stacked.shape[2:])
    return [
        len(varies),
        reduction.max(),
        ess(varying, "bulk").min(),
        ess(varying, "tail").min(),
        _label(values, worst),
    ]


def _label(values: xr.DataArray, index: tuple[Any, ...]) -> str:
    dims = [d for d in values.dims if d not in ("chain", "draw")]
    at = [f"{d} {values[d].to_numpy()[i]}" for d, i in zip(dims, index, strict=True)]
    return f"{values.name}[{', '.join(at)}]" if at else str(values.name)


def _agreement(table: pd.DataFrame, n_chains: int, more: str) -> Check:
    worst = table.iloc[int(table["r_hat"].astype(float).argmax())]
    parts = f"the {n_chains} chains" if n_chains > 1 else "the quarters of the chain"
    verb = {"ok": "agree", "doubtful": "do not quite agree", "failed": "disagree"}
    value = float(worst["r_hat"])
    verdict = _grade(value, R_HAT)
    return Check(
        "r_hat", "convergence", value, R_HAT[0], verdict,
        f"{parts} {verb[verdict]}: the largest R-hat is {value:.4g}, for {worst['worst']}.",
        "" if verdict == "ok" else f"{more} Chains that still disagree are in different modes of "
        "the posterior: inspect arviz.plot_trace of label_free(), and use fewer experts or a "
        "smaller tree.",
    )  # fmt: skip


def _effective(table: pd.DataFrame, kind: str, n_chains: int, more: str) -> Check:
    values = table[f"ess_{kind}"].astype(float)
    value, grade = float(values.min()), (ESS[0] * n_chains, ESS[1] * n_chains)
    what = {"bulk": "means and medians", "tail": "the ends of intervals"}[kind]
    size = f"{value:,.0f} independent draws for {what}; {grade[0]:,.0f} are recommended"
    verdict = _grade(-value, (-grade[0], -grade[1]))
    times = np.ceil(grade[0] / max(value, 1.0))
    return Check(
        f"ess_{kind}", "convergence", value, grade[0], verdict,
        f"the draws are equivalent to at least {size} (the lowest is {values.idxmin()}).",
        "" if verdict == "ok"
        else more if more != MORE_TRANSITIONS
        else f"Run about {times:.0f} times as long (n_draws)." if times <= MAX_TIMES
        else "The chains hardly move, or do not mix: address R-hat first.",
        at_least=True,
    )  # fmt: skip


def _hamiltonian(stats: Mapping[str, Any]) -> Iterator[Check]:
    """Check what a Hamiltonian sampler recorded."""
    if "diverging" in stats:
        diverging = np.asarray(stats["diverging"], dtype=bool)
        share, count = float(diverging.mean()), int(diverging.sum())
        verdict = _grade(share, DIVERGENT)
        yield Check(
            "divergences", "convergence", count, 0.0, verdict,
            f"{count} of {diverging.size} transitions diverged"
            + (": no sign of regions that the sampler cannot enter." if count == 0 else
               ": the sampler may have missed part of the posterior."),
            "" if verdict == "ok" else "Raise target_acceptance (0.95, 0.99) and n_warmup; "
            "if divergences persist, use a prior with lighter tails (a larger scale_shape).",
        )  # fmt: skip
    if "reached_max_treedepth" in stats:
        share = float(np.asarray(stats["reached_max_treedepth"], dtype=bool).mean())
        verdict = _grade(share, SATURATED)
        yield Check(
            "tree_depth", "convergence", share, SATURATED[0], verdict,
            f"{share:.1%} of the trajectories reached the maximum tree depth"
            + ("." if verdict == "ok" else ": the draws are valid, but the chain moves slowly."),
            "" if verdict == "ok" else "Raise n_warmup for a better mass matrix, or "
            "max_tree_depth by one or two.",
        )  # fmt: skip
    if "energy" in stats and np.shape(stats["energy"])[1] >= MIN_DRAWS:
        value = float(bfmi(stats["energy"], stats.get("energy_change")).min())
        verdict = _grade(-value, (-E_BFMI[0], -E_BFMI[1]))
        yield Check(
            "e_bfmi", "convergence", value, E_BFMI[0], verdict,
            f"the energy of the worst chain has E-BFMI {value:.2f}: "
            + ("it mixes well." if verdict == "ok" else
               "it changes too slowly to explore the tails of the posterior."),
            "" if verdict == "ok" else "Raise n_warmup; if E-BFMI stays low, use priors with "
            "lighter tails (a larger scale_shape).",
            at_least=True,
        )  # fmt: skip


def _evidence(found: Evidence) -> Check:
    """Check whether the runs of sequential Monte Carlo agree about the evidence."""
    value = found.standard_error
    verdict = _grade(value, EVIDENCE)
    return Check(
        "log_evidence", "convergence", value, EVIDENCE[0], verdict,
        f"the {len(found.runs)} runs find a log evidence of {found.log_evidence:,.2f}, with a "
        f"standard error of {value:.2f}.",
        "" if verdict == "ok" else f"{MORE_PARTICLES} {RUNS_DIFFER}",
        unit="nats",
    )  # fmt: skip


def _elbo_gain(stats: Mapping[str, Any], single_leaf: bool) -> Check | str:
    """Check whether brief further steps at an undecayed learning rate raised the ELBO.

    In a tree with a ``single_leaf`` they cannot change what the fit found: it never fails.
    """
    if not np.isfinite(stats["elbo"]).all():
        raise ValueError("stats['elbo'] must be finite, but is not: the fit has diverged.")
    if "elbo_gain" not in stats:
        return (
            "ELBO: what further steps would gain was not recorded, and the trace alone cannot "
            "tell, since a decaying learning rate flattens it. Fit again with this version."
        )
    gain, error = float(stats["elbo_gain"]), float(stats["elbo_gain_error"])
    size = abs(float(stats.get("final_elbo", 0.0)))
    limit = max(MIN_NATS, MIN_SHARE * size, N_ERRORS * error)
    rows = float(stats.get("n_rows", 0.0))  # unknown in files of earlier versions
    verdict = _grade(gain, (limit, max(MUCH * limit, ROW_NATS * rows)))
    if single_leaf and verdict == "failed":
        verdict = "doubtful"
    each = f", {gain / rows:+.2g} for each row" if rows else ""
    remedy = "" if verdict == "ok" else _more_epochs(stats)
    if verdict == "doubtful" and single_leaf:
        remedy = "Nothing: the tree has no split that more steps could refine."
    elif verdict == "doubtful" and gain <= ROW_NATS * rows:
        remedy = f"Nothing for predictions. For posteriors of nodes: {remedy}"
    return Check(
        "elbo", "convergence", gain, limit, verdict,
        f"brief further steps at an undecayed learning rate change the ELBO by {gain:+,.1f} nats "
        f"(Monte Carlo error {error:,.1f}){each}.",
        remedy,
        unit="nats",
    )  # fmt: skip


def _unseen_gain(stats: Mapping[str, Any]) -> Check:
    """Compare the scores of rows that a fit has not seen with those of the best constant."""
    gain, error = float(stats["unseen_gain"]), float(stats["unseen_gain_error"])
    says = (
        f"predictions of rows that the draws have not seen are {abs(gain):,.1f} nats "
        f"{'better' if gain > 0 else 'worse'} than the best constant (standard error {error:,.1f})."
    )
    limit = max(LEAST_GAIN, N_ERRORS * error)
    return Check(GAIN, "approximation", gain, limit, "info", says, "", at_least=True, unit="nats")


def _more_epochs(stats: Mapping[str, Any]) -> str:
    """Say what to do about a variational fit that was too short."""
    if "n_steps" in stats:
        n_steps = int(stats["n_steps"])
        return (
            f"Double the steps: inference=bayestree.inference.Vi(n_steps={2 * n_steps}) "
            f"(the fit had {n_steps})."
        )
    if "more_epochs" not in stats:  # as in files of earlier versions
        return "Double the epochs, with the default learning_rate and batch_size."
    epochs, more = int(stats["epochs"]), int(stats["more_epochs"])
    return (
        f"Set epochs to {more} (the fit had {epochs}): inference=bayestree.inference."
        f"Svi(epochs={more}), with the default learning_rate and batch_size."
    )


def _importance_tail(stats: Mapping[str, Any]) -> Check | str:
    """Check Pareto k of the importance ratios of the draws (Yao et al. 2018)."""
    if "log_p" not in stats or "log_q" not in stats:
        return (
            "Pareto k: the log-densities of the draws under posterior and guide were not "
            "recorded (fits to more than 10,000 rows leave them out), so the quality of the "
            "approximation is unknown."
        )
    log_p, log_q = (np.asarray(stats[name], dtype=np.float64) for name in ("log_p", "log_q"))
    ratios = log_p - log_q
    if np.isnan(ratios).any():
        raise ValueError(
            "stats['log_p'] - stats['log_q'] must not be NaN, but is: the fit has diverged."
        )
    if ratios.size < MIN_RATIOS:
        return f"Pareto k needs at least {MIN_RATIOS} draws, got {ratios.size}."
    value, limit = pareto_k(ratios), good_k(ratios.size)
    reliable = ratios.size >= ENOUGH_RATIOS or not np.isfinite(value)
    verdict: Verdict = "info"
    if value <= limit and reliable:
        verdict = "ok"
        says = "the guide covers the posterior, at least in the region of its draws."
    elif value <= K_LIMIT:
        says = (
            f"{ratios.size} draws are too few to tell whether the guide covers the posterior; "
            "draw 400 or more (n_draws)."
        )
    else:
        says = (
            "the draws of the guide cannot be reweighted into exact ones, whether the fit is good "
            "or bad."
        )
    return Check("pareto_k", "approximation", value, limit, verdict, says, "")


def _grade(value: float, grade: Grade) -> Verdict:
    """Compare a value with its limits; smaller is better, and NaN fails."""
    if value <= grade[0]:
        return "ok"
    return "doubtful" if value <= grade[1] else "failed"


def convergence_of(container: Any, X: ArrayLike | None = None, *, n_rows: int = 20) -> Convergence:
    """Check whether the inference behind a stored posterior has converged.

    Parameters
    ----------
    container, X, n_rows
        As for :func:`label_free_of`. With more than one draw, ``sample_stats`` is required: it
        distinguishes a sampler from a variational fit.
    """
    quantities = label_free_of(container, X, n_rows=n_rows)
    point = quantities.sizes["chain"] * quantities.sizes["draw"] == 1
    # Without recorded statistics, a variational fit would be mistaken for a sampler.
    stats = recorded(container) if point else arviz_compat.group(container, "sample_stats")
    return check_convergence(quantities, {str(name): value for name, value in stats.items()})
