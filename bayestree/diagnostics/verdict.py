"""The verdict on an inference: which results can be used, the checks, and what to do."""

from dataclasses import dataclass
from textwrap import fill
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree.diagnostics.evidence import Evidence
from bayestree.diagnostics.scores import Calibration

Verdict = Literal["ok", "doubtful", "failed", "info"]
Settled = Literal["yes", "doubtful", "no", "not known", "nothing to judge"]
Kind = Literal["chains", "variational", "moved", "exact", "point"]

K_LIMIT = 0.7  # above this Pareto k, importance weights fail for any number of draws
GAIN = "unseen_gain"  # the check whether unseen rows are predicted better than by a constant
TOLERATED = 0.05  # deviations of probabilities and coverage that do not matter, however certain
ERRORS = 2.0  # larger deviations, in standard errors, are not put down to chance
WIDTH = 84  # line width of printed text, before indentation
INDENT = "    "
NOT_CONVERGED = {
    "no": "not usable yet: the inference has not converged.",
    "not known": "not usable yet: too little was recorded to judge convergence.",
}
GIVEN_TREE = "can be used: the draws represent the posterior, given this tree."
OVER_TREES = (
    "can be used for predictions and sizes; splits and leaves of a node differ between the "
    "topologies of the draws."
)
ADVICE = "check their calibration: check_convergence(X_new, y_new)."
# docs/posterior/coverage.md has the shares of these intervals that hold the truth.
NODES = "Do not rely on intervals of nodes: fit a small tree with inference='nuts' for these."
VARIATIONAL = f"approximate, from one variational fit: somewhat narrow for P(y | x). {NODES}"
VARIATIONAL_MODES = (
    f"approximate, from variational fits: about right or somewhat narrow for P(y | x). {NODES}"
)
MOVED = (
    "approximate, from variational fits whose draws a few sweeps of a sampler have moved: about "
    "right or somewhat narrow for P(y | x) and P(right) of nodes. For exact ones fit a small tree "
    "with inference='mcmc'."
)
NO_BETTER = "no better than a constant, as far as the rows of the fit can tell:"
FOUND_NOTHING = (
    "the tree found nothing: it has a single leaf, and predictions hardly depend on the row."
)


@dataclass(frozen=True)
class HeldOut:
    """The calibration of predictions on held-out rows.

    Attributes
    ----------
    holds : bool
        Whether the rows are consistent with calibrated probabilities or intervals.
    says : str
        The figures, in a sentence or two.
    constant : str
        The best constant prediction, in words; empty if predictions were not compared with it.
    better : bool
        Whether predictions are better than the constant one by more than chance.
    """

    holds: bool
    says: str
    constant: str = ""
    better: bool = True


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes
    ----------
    name : str
    about : {"convergence", "approximation"}
        Whether it checks convergence or the quality of the approximation.
    value, threshold : float
        The value, and the upper limit (lower if ``at_least``) for "ok".
    verdict : {"ok", "doubtful", "failed", "info"}
        ``"info"`` marks a figure that cannot fail: the Pareto k of a variational fit usually
        exceeds its limit, whether the fit is good or not.
    says : str
        The finding, in a sentence.
    remedy : str
        What to do; empty if nothing.
    at_least : bool
        Whether ``threshold`` is a lower limit.
    unit : str
        The unit of the value and the limit; empty if they have none.
    """

    name: str
    about: Literal["convergence", "approximation"]
    value: float
    threshold: float
    verdict: Verdict
    says: str
    remedy: str
    at_least: bool = False
    unit: str = ""

    def amount(self, digits: int) -> str:
        """Format the value to a given number of significant digits, with its unit."""
        return f"{self.value:,.{digits}g} {self.unit}".rstrip()

    @property
    def figure(self) -> str:
        """Name, value and limit, if there is one."""
        found = f"{self.name} = {self.amount(4)}"
        if self.verdict == "info":
            return found
        return f"{found} ({'at least' if self.at_least else 'at most'} {self.threshold:,.4g})"

    def __str__(self) -> str:
        found = f"[{self.verdict}] {self.figure}: {self.says}"
        return f"\n{INDENT}".join(
            [_wrapped(found), *([_wrapped(f"What to do: {self.remedy}")] if self.remedy else [])]
        )


@dataclass(frozen=True, eq=False)
class Convergence:
    """Verdict on an inference.

    Attributes
    ----------
    checks : tuple of Check
    not_judged : tuple of str
        Questions that these draws cannot answer, and why.
    quantities : DataFrame
        One row per kind of label-free quantity: how many vary, the worst ``r_hat``,
        ``ess_bulk`` and ``ess_tail`` among them, and the quantity with the worst R-hat.
        Empty if chains cannot be compared.
    kind : {"chains", "variational", "moved", "exact", "point"}
        Origin of the draws: a sampler, a variational fit, one whose draws a sampler has moved
        (``Vi(n_sweeps=30)``), independent draws of a posterior in closed form, or a single draw.
    held_out : HeldOut, optional
        Calibration of the predictions on held-out rows.
    evidence : Evidence, optional
        Log evidence, and posterior of the size of the tree, by sequential Monte Carlo.
    single_leaf : bool
        Whether every tree has a single leaf, and so predicts the same for all rows.
    """

    checks: tuple[Check, ...]
    not_judged: tuple[str, ...]
    quantities: pd.DataFrame
    kind: Kind = "chains"
    held_out: HeldOut | None = None
    evidence: Evidence | None = None
    single_leaf: bool = False

    @property
    def settled(self) -> Settled:
        """Whether the inference has converged.

        ``"doubtful"`` if no convergence check failed but one is doubtful; ``"not known"`` if too
        little was recorded for the main check; ``"nothing to judge"`` for a point estimate.
        """
        if self.kind == "point":
            return "nothing to judge"
        verdicts = {check.verdict for check in self.checks if check.about == "convergence"}
        if "failed" in verdicts:
            return "no"
        # Independent draws of a posterior in closed form need not converge.
        closed = self.kind == "exact" and bool(self.checks)
        if not (closed or "r_hat" in self or "elbo" in self):
            return "not known"
        return "doubtful" if "doubtful" in verdicts else "yes"

    @property
    def converged(self) -> bool:
        """Whether the main check was possible and no convergence check failed."""
        return self.settled in ("yes", "doubtful")

    @property
    def faithful(self) -> bool | None:
        """Whether the draws represent the exact posterior; None if unknown.

        True for a converged sampler; None for modes, which are weighted by their predictions, and
        for a single run of sequential Monte Carlo. For a variational fit, Pareto k decides: None
        if it is unreliable or was not recorded.
        """
        if self.settled == "no":
            return False
        if "modes" in self or (self.evidence is not None and "log_evidence" not in self):
            return None
        if "pareto_k" not in self:
            return True if self.kind == "chains" and self.converged else None
        k = self["pareto_k"]
        if k.value > K_LIMIT:
            return False
        return True if k.verdict == "ok" and self.converged else None

    @property
    def no_better_than_constant(self) -> bool:
        """Whether scores of unseen rows do not show that predictions are better than a constant."""
        return GAIN in self and self[GAIN].value <= self[GAIN].threshold

    @property
    def predictions(self) -> str:
        """Whether the predictions can be used, with advice or the held-out figures."""
        if self.held_out is not None:
            return self._validated(self.held_out)
        if self.single_leaf:
            return FOUND_NOTHING
        if self.kind == "point":
            return ADVICE
        if self.settled in NOT_CONVERGED:
            return NOT_CONVERGED[self.settled]
        if self.no_better_than_constant:
            return f"{NO_BETTER} {self[GAIN].says}"
        apart = ""
        if "modes" in self:
            apart = f" the modes' predictions differ by {self['modes'].amount(3)} on average;"
        return f"can be used;{apart} {ADVICE}"

    def _validated(self, known: HeldOut) -> str:
        """Judge by held-out rows whether predictions can be used."""
        if not known.holds:
            verdict = "use with care: they are not calibrated."
        elif known.better:
            verdict = "can be used, judging by held-out rows."
        elif self.single_leaf:
            verdict = f"the tree found nothing: they are no better than {known.constant}."
        else:
            verdict = f"no better than {known.constant}, as far as the held-out rows can tell."
        return f"{verdict} {known.says}"

    @property
    def intervals(self) -> str:
        """Whether the intervals of facets, splits and leaves can be used, with advice."""
        if self.kind == "point":
            return (
                "none: this is a point estimate. "
                "For intervals use inference='svi' or 'nuts', if the tree supports them."
            )
        if self.settled in NOT_CONVERGED:
            return NOT_CONVERGED[self.settled]
        if self.faithful and self.settled == "yes":
            return GIVEN_TREE if self.evidence is None else OVER_TREES
        if self.kind == "chains":
            doubtful = [check.name for check in self.checks if check.verdict == "doubtful"]
            if self.evidence is not None and "log_evidence" not in self:
                doubtful.append("a single run")
            if doubtful:
                return f"can be used as rough figures: {', '.join(doubtful)} left some doubt."
            return (
                "can be used for each mode, given its tree. The modes are weighted by their "
                "predictions, not by how probable they are."
            )
        fits = VARIATIONAL_MODES if "modes" in self else VARIATIONAL
        return MOVED if self.kind == "moved" else fits

    def __contains__(self, name: str) -> bool:
        return any(check.name == name for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check {name!r} among {[check.name for check in self.checks]}.")

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the checks."""
        columns = ["about", "value", "threshold", "verdict", "says", "remedy"]
        rows = [[getattr(check, name) for name in columns] for check in self.checks]
        names = pd.Index([check.name for check in self.checks], name="check", dtype=object)
        return pd.DataFrame(rows, index=names, columns=columns)

    def __str__(self) -> str:
        head = [
            f"Predictions: {self.predictions}",
            f"Intervals: {self.intervals}",
            f"Converged: {self.settled}",
        ]
        details = [str(check) for check in self.checks]
        details += [_wrapped(f"[not assessed] {sentence}") for sentence in self.not_judged]
        lines = map(_wrapped, "\n".join(head).replace(". ", f".\n{INDENT}").split("\n"))
        sizes = [] if self.evidence is None else ["", str(self.evidence)]
        return "\n".join([*lines, *([""] if details else []), *details, *sizes])


def _wrapped(text: str) -> str:
    return fill(text, WIDTH, subsequent_indent=INDENT)


def held_out_classes(found: Calibration) -> HeldOut:
    """Judge class probabilities by their calibration error, and compare them with frequencies.

    An error of up to .05 above that of calibrated ones does not matter, however certain it is.

    Parameters
    ----------
    found : Calibration
        Calibration of held-out rows.
    """
    ece = found.ece
    error = max(ERRORS * ece.error, TOLERATED)
    holds = found.n_zero == 0 and ece.value <= ece.if_calibrated + error
    says = (
        f"On {_rows(found.n_rows)}, accuracy is {found.accuracy.value:.1%} and the expected "
        f"calibration error {ece.value:.3f} ({ece.if_calibrated:.3f} if calibrated)."
    )
    if found.n_zero:
        says += f" {_rows(found.n_zero)} had a class that was given probability 0."
    gain = found.gain
    says += (
        f" Their Brier score is {_apart(gain.value)} the score of the class frequencies, by "
        f"{abs(gain.value):.3f} (standard error {gain.error:.3f})."
    )
    return HeldOut(holds, says, "the class frequencies", _found(gain.value, gain.error))


def held_out_values(y: ArrayLike, low: ArrayLike, high: ArrayLike, level: float) -> HeldOut:
    """Judge predictive intervals by their coverage.

    Parameters
    ----------
    y, low, high : arrays, shape (n,)
        Values of held-out rows, and the ends of their intervals.
    level : float
        Nominal probability of the intervals.

    Raises
    ------
    ValueError
        If there are no rows, or the numbers of values and intervals differ.
    """
    values, ends = np.asarray(y, dtype=np.float64), (np.asarray(low), np.asarray(high))
    if values.shape != ends[0].shape or values.size == 0:
        raise ValueError(
            f"y must have shape {ends[0].shape} with one row or more, got {values.shape}."
        )
    return held_out_intervals((values >= ends[0]) & (values <= ends[1]), level)


def held_out_intervals(
    inside: ArrayLike,
    level: float,
    *,
    at_least: bool = False,
    residual: tuple[FloatArray, FloatArray] | None = None,
    weights: ArrayLike | None = None,
) -> HeldOut:
    """Judge predictive intervals by the rows inside them, and compare predictions with the mean.

    A share within .05 of the level is accepted, however certain the deviation is.

    Parameters
    ----------
    inside : array, shape (n,)
        Whether each held-out row is inside its interval, or the probability that it is.
    level : float
        Nominal probability of the intervals.
    at_least : bool
        Whether more rows than this may be inside, as with intervals of whole numbers.
    residual : pair of arrays, shape (n,), optional
        From ``residuals``.
    weights : array, shape (n,), optional
        Weights of the rows.
    """
    found = np.asarray(inside, dtype=np.float64)
    mass = np.ones(len(found)) if weights is None else np.asarray(weights, dtype=np.float64)
    of_row, n = mass / mass.sum(), int(np.count_nonzero(mass))
    share = float(of_row @ found)
    apart = share - level
    error = max(ERRORS * float(np.sqrt(level * (1 - level) * (of_row @ of_row))), TOLERATED)
    holds = abs(apart) <= error or (at_least and apart > 0)
    says = f"On {_rows(n)}, {share:.1%} of the values lie inside their {level:.0%} intervals."
    if residual is None or not np.any(residual[1]):  # nothing can beat the mean of equal values
        return HeldOut(holds, says)
    own, constant = map(np.square, residual)
    whole = float(of_row @ constant)
    ratio = float(of_row @ own) / whole
    gain = 1 - ratio
    # The standard error of a ratio of means, by the delta method.
    spread = float(np.sqrt(of_row**2 @ (own - ratio * constant) ** 2) / whole)
    says += (
        f" The mean squared error is {_apart(gain)} the error of the mean of y, by {abs(gain):.1%} "
        f"(standard error {spread:.1%})."
    )
    return HeldOut(holds, says, "the mean", _found(gain, spread))


def residuals(
    y: ArrayLike, predicted: ArrayLike, exposure: Any = None, weights: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Subtract from values (n,) their predictions, and their weighted mean rate times exposure."""
    values = np.asarray(y, dtype=np.float64)
    scale, mass = (
        np.ones(len(values)) if one is None else np.asarray(one, dtype=np.float64)
        for one in (exposure, weights)
    )
    return values - np.asarray(predicted), values - scale * ((mass @ values) / (mass @ scale))


def _found(gain: float, error: float) -> bool:
    """Tell whether a gain over a constant prediction is more than chance."""
    return gain > ERRORS * error


def _apart(gain: float) -> str:
    return "below" if gain > 0 else "above"


def _rows(n: int) -> str:
    return f"{n:,} held-out row{'' if n == 1 else 's'}"
