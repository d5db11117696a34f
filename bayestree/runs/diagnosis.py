"""Whether the inference of a run is to be trusted, in plain words."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Literal

from bayestree.diagnostics import Convergence
from bayestree.report.words import counted
from bayestree.runs.outputs import has_draws
from bayestree.runs.store import Run

Answer = Literal["yes", "doubtful", "no", "not known", "nothing to judge"]

WIDTH = 88  # of a line of text

MEANS: dict[Answer, str] = {
    "yes": "The inference has ended where it was going.",
    "doubtful": "The inference has nearly ended where it was going: what is wanted to more than "
    "a digit deserves a longer run.",
    "no": "The inference has not ended where it was going: do not rely on its intervals and "
    "probabilities.",
    "not known": "Too little was recorded to tell whether the inference has ended: take it for "
    "one that has not.",
    "nothing to judge": "This is a point estimate. There is no posterior that could converge: "
    "judge the fit by its scores on held-out rows, or take an inference with draws, such as "
    "'svi' or 'nuts' of the tree 'cpt'.",
}


@dataclass(frozen=True)
class Diagnosis:
    """A verdict on the inference of a run.

    Attributes
    ----------
    converged : {"yes", "doubtful", "no", "not known", "nothing to judge"}
        ``"doubtful"`` where no check failed, but one is in doubt; ``"nothing to judge"`` of a
        point estimate.
    how : str
        What was done, as in ``"nuts, 4 chains of 200 draws"``.
    checks : Convergence, optional
        The checks that were made; none of a point estimate.
    """

    converged: Answer
    how: str
    checks: Convergence | None

    @property
    def passes(self) -> bool:
        """Whether nothing speaks against the inference: what the exit code says."""
        return self.converged in ("yes", "doubtful", "nothing to judge")

    def __str__(self) -> str:
        lines = [self.how, f"Converged: {self.converged}", fill(MEANS[self.converged], WIDTH)]
        if self.checks is not None:
            _, *told = str(self.checks).splitlines()  # the first says whether it has converged
            lines += ["", *told]
        return "\n".join(lines)


def diagnose(run: Run) -> Diagnosis:
    """Judge the inference of a run by its draws and by what it recorded.

    Parameters
    ----------
    run : Run
        Its rows are not needed.

    Returns
    -------
    Diagnosis
        ``print`` shows it; see :func:`bayestree.diagnostics.check_convergence` for the checks.

    Raises
    ------
    InputError
        If the run has no model yet.
    """
    estimator = run.estimator
    if not (has_draws(estimator) and hasattr(estimator, "check_convergence")):
        return Diagnosis("nothing to judge", _how(run), None)
    found = estimator.check_convergence()
    return Diagnosis(_answer(found, estimator.posterior_.stats), _how(run), found)


def _answer(found: Convergence, stats: Mapping[str, Any]) -> Answer:
    """One word for all checks; a few good signs do not make up for the main one."""
    verdicts = {check.verdict for check in found.checks if check.about == "convergence"}
    if "failed" in verdicts:
        return "no"
    # a posterior in closed form, of a tree without a split, has nothing that could converge
    closed = "elbo" not in stats and not verdicts and bool(found.checks)
    if not (closed or "r_hat" in found or "elbo" in found):
        return "not known"
    return "doubtful" if "doubtful" in verdicts else "yes"


def _how(run: Run) -> str:
    """The inference, and what it drew."""
    posterior = getattr(run.estimator, "posterior_", None)
    if posterior is None:
        return f"{run.file.tree}: a forest of {len(run.estimator.estimators_)} trees"
    chains, draws = posterior.n_chains, posterior.n_draws
    name = f"{run.file.tree}, {posterior.inference}"
    if chains * draws == 1:
        return f"{name}: a point estimate"
    return f"{name}: {counted(chains, 'chain')} of {draws:,} draws"
