"""How the steps of a fit by natural gradients are taken, one after the other."""

from dataclasses import dataclass
from typing import NamedTuple


class StepRule(NamedTuple):
    """How a step is taken."""

    rate: float  # its length
    prior: float  # power of the prior of the splits, which rises to 1 early in a fit
    steepness: float
    exact: bool  # whether by the curvature, or by its Gauss-Newton approximation


@dataclass(frozen=True)
class StepSchedule:
    """The rules of ``n_steps`` steps."""

    n_steps: int
    rate: float
    steepness: float
    rising: float = 0.3  # share of the steps in which the power of the prior rises
    constant: float = 0.6  # share of the steps after which they become shorter
    annealed: float = 0.7  # share of the steps after which the steepness is reached

    def rule(self, number: int) -> StepRule:
        """Return the rule of a step."""
        share = (number + 1) / self.n_steps
        late = max(0.0, number - self.constant * self.n_steps)
        return StepRule(
            rate=self.rate / (1 + 0.1 * late),
            prior=min(1.0, share / self.rising),
            steepness=self.steepness ** min(1.0, share / self.annealed),
            exact=number >= self.n_steps / 2,
        )
