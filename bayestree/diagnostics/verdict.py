"""The verdict on an inference: which results can be used, the checks, and what to do."""

from dataclasses import dataclass
from textwrap import fill
from typing import Literal

import pandas as pd

from bayestree.diagnostics.calibration import HeldOut
from bayestree.diagnostics.evidence import Evidence

Verdict = Literal["ok", "doubtful", "failed", "info"]
Settled = Literal["yes", "doubtful", "no", "not known", "nothing to judge"]
Kind = Literal["chains", "variational", "exact", "point"]

K_LIMIT = 0.7  # above this Pareto k, importance weights fail for any number of draws
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
# docs/convergence.md has the shares of these intervals that hold the truth.
NODES = "Do not rely on those of nodes: for these, fit a small tree with inference='nuts'."
VARIATIONAL = f"approximate, from one variational fit: somewhat narrow for P(y | x). {NODES}"
VARIATIONAL_MODES = f"approximate, from variational fits: about right for P(y | x). {NODES}"
FOUND_NOTHING = (
    "the tree found nothing: it has a single leaf, and predictions hardly depend on the row."
)
DISTILLED = (
    " The nodes are those of the distilled tree, whose draws are variational: use "
    "mode_tree='medoid' for those of a mode."
)


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
        Of the value and the limit; empty if they have none.
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
        """The value to so many significant digits, with its unit."""
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
    kind : {"chains", "variational", "exact", "point"}
        Origin of the draws: a sampler, a variational fit, independent draws of a posterior in
        closed form, or a single draw.
    held_out : HeldOut, optional
        Calibration of the predictions on held-out rows.
    evidence : Evidence, optional
        Log evidence, and posterior of the size of the tree, by sequential Monte Carlo.
    distilled : bool
        Whether the tree that is shown was fitted to the predictions of a mixture.
    single_leaf : bool
        Whether every tree has a single leaf, and so predicts the same for all rows.
    """

    checks: tuple[Check, ...]
    not_judged: tuple[str, ...]
    quantities: pd.DataFrame
    kind: Kind = "chains"
    held_out: HeldOut | None = None
    evidence: Evidence | None = None
    distilled: bool = False
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
        apart = ""
        if "modes" in self:
            apart = f" those of the modes differ by {self['modes'].amount(3)} on average;"
        return f"can be used;{apart} {ADVICE}"

    def _validated(self, known: HeldOut) -> str:
        """Whether predictions can be used, judging by held-out rows."""
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
                "predictions, not by how probable they are." + (DISTILLED if self.distilled else "")
            )
        return VARIATIONAL_MODES if "modes" in self else VARIATIONAL

    def __contains__(self, name: str) -> bool:
        return any(check.name == name for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check {name!r} among {[check.name for check in self.checks]}.")

    def to_frame(self) -> pd.DataFrame:
        """One row per check."""
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
        lines = [_wrapped(line) for text in head for line in _sentences(text)]
        sizes = [] if self.evidence is None else ["", str(self.evidence)]
        return "\n".join([*lines, *([""] if details else []), *details, *sizes])


def _sentences(text: str) -> list[str]:
    """The sentences of a text, all but the first indented."""
    return text.replace(". ", f".\n{INDENT}").split("\n")


def _wrapped(text: str) -> str:
    return fill(text, WIDTH, subsequent_indent=INDENT)
