"""The verdict on an inference: what can be trusted, the checks behind it, and what to do."""

from dataclasses import dataclass
from textwrap import fill
from typing import Literal

import pandas as pd

from bayestree.diagnostics.held_out import HeldOut

Verdict = Literal["ok", "doubtful", "failed", "info"]
Settled = Literal["yes", "doubtful", "no", "not known", "nothing to judge"]
Kind = Literal["chains", "variational", "exact", "point"]

K_LIMIT = 0.7  # Pareto k above which importance weights are of no use, however many the draws
WIDTH = 84  # of a line of text, before a remedy is indented
INDENT = "    "
UNSETTLED = {
    "no": "not usable yet: the inference has not converged.",
    "not known": "not usable yet: too little was recorded to judge convergence.",
}
ADVICE = "check their calibration: check_convergence(X_new, y_new)."


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    name : str
    about : {"convergence", "approximation"}
        Whether it checks convergence or the quality of the approximation.
    value, threshold : float
        What was found, and the limit up to which (or from which, see ``at_least``) it is "ok".
    verdict : {"ok", "doubtful", "failed", "info"}
        ``"info"`` marks a figure that is worth knowing but cannot fail: the Pareto k of a
        variational fit is usually above its limit, whether the fit is good or not.
    says : str
        What was found, in a sentence.
    remedy : str
        What to do; empty if nothing.
    at_least : bool
        Whether ``threshold`` is a lower limit.
    """

    name: str
    about: Literal["convergence", "approximation"]
    value: float
    threshold: float
    verdict: Verdict
    says: str
    remedy: str
    at_least: bool = False

    @property
    def figure(self) -> str:
        """Name and value, and the limit if there is one to pass."""
        found = f"{self.name} = {self.value:,.4g}"
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
        What these draws cannot tell, and why.
    quantities : DataFrame
        One row for each kind of label-free quantity: how many vary, and the worst ``r_hat``,
        ``ess_bulk`` and ``ess_tail`` among them, with the quantity that has the worst R-hat.
        Empty where chains cannot be compared.
    kind : {"chains", "variational", "exact", "point"}
        What the draws are: those of a sampler, those of a variational fit, independent draws of
        a posterior in closed form, or a single draw.
    held_out : HeldOut, optional
        Calibration of the predictions on held-out rows, where it is known.
    """

    checks: tuple[Check, ...]
    not_judged: tuple[str, ...]
    quantities: pd.DataFrame
    kind: Kind = "chains"
    held_out: HeldOut | None = None

    @property
    def settled(self) -> Settled:
        """Whether the inference has converged.

        ``"doubtful"`` where no check of convergence failed but one is in doubt; ``"not known"``
        where too little was recorded for the main check; ``"nothing to judge"`` of a point
        estimate.
        """
        if self.kind == "point":
            return "nothing to judge"
        verdicts = {check.verdict for check in self.checks if check.about == "convergence"}
        if "failed" in verdicts:
            return "no"
        # Independent draws of a posterior in closed form have nothing that could converge.
        closed = self.kind == "exact" and bool(self.checks)
        if not (closed or "r_hat" in self or "elbo" in self):
            return "not known"
        return "doubtful" if "doubtful" in verdicts else "yes"

    @property
    def converged(self) -> bool:
        """Whether the main check could be made and no check of convergence failed."""
        return self.settled in ("yes", "doubtful")

    @property
    def faithful(self) -> bool | None:
        """Whether the draws may stand for the exact posterior; None if nothing tells.

        True for a sampler that has converged. For a variational fit the Pareto k decides: None
        if it is in doubt or was not recorded.
        """
        if self.settled == "no":
            return False
        if "pareto_k" not in self:
            return True if self.kind == "chains" and self.converged else None
        k = self["pareto_k"]
        if k.value > K_LIMIT:
            return False
        return True if k.verdict == "ok" and self.converged else None

    @property
    def predictions(self) -> str:
        """Whether the predictions can be used, and what to do or the held-out figures."""
        known = self.held_out
        if known is not None and not known.holds:
            return f"use with care: they are not calibrated. {known.says}"
        if known is not None and self.settled in ("no", "not known"):
            return f"can be used, but a longer run may change them. {known.says}"
        if known is not None:
            return f"can be used, as far as held-out rows can tell. {known.says}"
        if self.kind == "point":
            return ADVICE
        return UNSETTLED.get(self.settled, f"can be used; {ADVICE}")

    @property
    def intervals(self) -> str:
        """Whether the intervals of facets, splits and leaves can be used, and what to do."""
        if self.kind == "point":
            return (
                "none: this is a point estimate. "
                "Use inference='svi' or 'nuts', where the tree has them, for intervals."
            )
        if self.settled in UNSETTLED:
            return UNSETTLED[self.settled]
        if self.faithful and self.settled == "yes":
            return "can be used: the draws may stand for the posterior, given this tree."
        if self.kind == "chains":
            doubted = ", ".join(check.name for check in self.checks if check.verdict == "doubtful")
            return f"can be used as rough figures: {doubted} left some doubt."
        return (
            "approximate, from a variational fit whose error cannot be checked. "
            "Confirm important ones on a small tree with inference='nuts'."
        )

    def __contains__(self, name: str) -> bool:
        return any(check.name == name for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        """A check by name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"no check {name!r} among {[check.name for check in self.checks]}.")

    def to_frame(self) -> pd.DataFrame:
        """One row for each check."""
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
        details += [_wrapped(f"[not judged] {sentence}") for sentence in self.not_judged]
        lines = [_wrapped(line) for text in head for line in _sentences(text)]
        return "\n".join([*lines, *([""] if details else []), *details])


def _sentences(text: str) -> list[str]:
    """The sentences, those after the first indented."""
    return text.replace(". ", f".\n{INDENT}").split("\n")


def _wrapped(text: str) -> str:
    return fill(text, WIDTH, subsequent_indent=INDENT)
