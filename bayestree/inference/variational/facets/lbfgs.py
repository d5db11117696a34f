"""Batched L-BFGS: many small smooth problems minimised at once.

Every problem has its own curvature memory and its own weak-Wolfe line search (the bisection of
Lewis and Overton, 2013): for a step t along a direction p of slope s = g . p < 0,

- if f(x + t p) > f(x) + c1 t s (no sufficient descent), t is too long: high = t;
- else if g(x + t p) . p < c2 s (slope still steep), t is too short: low = t;
- else t is accepted. The next t is 2 t while high is infinite, then (low + high) / 2.

The searches are asynchronous: each call of the objective evaluates the next point of every
running problem, so no problem waits for the line search of another.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

DESCENT, CURVATURE = 1e-4, 0.9  # c1 and c2 of the Wolfe conditions
MIN_CURVATURE = 1e-10  # minimum cosine between step and gradient change of a stored pair
ROUNDING = 1e-13  # relative increases of the value below this are ignored
MEMORY = 12  # pairs that are stored
PATIENCE = 5  # steps whose gains together tell whether a problem has converged
MAX_TRIALS = 20  # points of a line search
#: ``objective(points, which) -> (values, gradients)`` for the problems ``which``.
Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Minima(NamedTuple):
    """Best points found, and the number of calls of the objective."""

    point: Tensor  # (problem, parameter)
    value: Tensor  # (problem,)
    converged: Tensor  # (problem,)
    evaluations: int


def minimise(
    objective: Objective,
    start: Tensor,
    *,
    max_iterations: int = 100,
    tolerance: float = 1e-3,
) -> Minima:
    """Minimize one function per row of ``start`` (problem, parameter).

    A problem takes up to ``max_iterations`` steps, and has converged when its last five steps
    together gained less than ``tolerance``; non-finite values are failed trials. After 20 points
    of a line search its memory of curvature pairs is cleared, or, if it is empty, the problem is
    abandoned.
    """
    run = _Run(objective, start)
    while bool(run.running.any()):
        run.advance(max_iterations, tolerance)
    return Minima(run.point, run.value, run.converged, run.evaluations)


class _Memory:
    """Curvature pairs (s, y) of each problem, newest last; ``inverse`` is 1 / s.y (0: empty)."""

    def __init__(self, like: Tensor) -> None:
        problems, parameters = like.shape
        self.steps = like.new_zeros(problems, MEMORY, parameters)
        self.changes = torch.zeros_like(self.steps)
        self.inverse = like.new_zeros(problems, MEMORY)
        self.scale = like.new_ones(problems)

    def append(self, which: Tensor, step: Tensor, change: Tensor) -> None:
        """Store pairs of the problems ``which``, except those without curvature."""
        curvature = (step * change).sum(-1)
        squared = change.square().sum(-1)
        good = curvature > MIN_CURVATURE * (squared * step.square().sum(-1)).sqrt()
        rows, curvature = which[good], curvature[good]
        for store, new in ((self.steps, step[good]), (self.changes, change[good])):
            store[rows] = torch.cat([store[rows, 1:], new[:, None]], 1)
        self.inverse[rows] = torch.cat([self.inverse[rows, 1:], 1 / curvature[:, None]], 1)
        self.scale[rows] = curvature / squared[good]

    def forget(self, which: Tensor) -> None:
        """Clear the pairs of the problems ``which``."""
        self.inverse[which] = 0.0

    def empty(self) -> Tensor:
        """Return whether the memory is empty, shape (problem,)."""
        return self.inverse[:, -1] == 0

    def direction(self, which: Tensor, gradient: Tensor) -> Tensor:
        """Run the two-loop recursion; steepest descent of length <= 1 if the memory is empty."""
        steps, changes, inverse = self.steps[which], self.changes[which], self.inverse[which]
        q, shares = gradient, []
        for i in reversed(range(inverse.shape[1])):
            share = inverse[:, i] * (steps[:, i] * q).sum(-1)
            q = q - share[:, None] * changes[:, i]
            shares.append(share)
        cold = 1 / gradient.norm(dim=-1).clamp_min(1.0)
        q = q * torch.where(self.empty()[which], cold, self.scale[which])[:, None]
        for i in range(inverse.shape[1]):
            back = inverse[:, i] * (changes[:, i] * q).sum(-1)
            q = q + (shares.pop() - back)[:, None] * steps[:, i]
        return -q


class _Run:
    """All problems, each in a line search with the bracket (``low``, ``high``)."""

    def __init__(self, objective: Objective, start: Tensor) -> None:
        self.objective = objective
        self.point = start.detach().clone()
        self.everyone = torch.arange(len(start), device=start.device)
        self.value, self.gradient = objective(self.point, self.everyone)
        self.evaluations = 1
        self.pairs = _Memory(self.point)
        self.direction = self.pairs.direction(self.everyone, self.gradient)
        self.low, self.step = torch.zeros_like(self.value), torch.ones_like(self.value)
        self.high = torch.full_like(self.value, torch.inf)
        self.trials = torch.zeros_like(self.everyone)
        self.iterations = torch.zeros_like(self.everyone)
        self.recent = self.value[:, None].repeat(1, PATIENCE)
        self.running = torch.isfinite(self.value)
        self.converged = torch.zeros_like(self.running)

    def advance(self, max_iterations: int, tolerance: float) -> None:
        """Evaluate one trial point of every running problem."""
        which = self.everyone[self.running]
        move = self.step[which, None] * self.direction[which]
        value, gradient = self.objective(self.point[which] + move, which)
        self.evaluations += 1
        self.trials[which] += 1
        done = self._judge(which, value, gradient)
        taken = which[done]
        if len(taken):
            self._accept(taken, move[done], value[done], gradient[done])
            self._stop(taken, max_iterations, tolerance)
        self._renew(taken)

    def _judge(self, which: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """Mask of the trials that end their line search; narrows the brackets of the others."""
        direction, step = self.direction[which], self.step[which]
        slope = (self.gradient[which] * direction).sum(-1)
        new_slope = (gradient * direction).sum(-1)
        usable = torch.isfinite(value) & torch.isfinite(new_slope)
        rise = value - self.value[which] - DESCENT * step * slope
        low_enough = usable & (rise <= ROUNDING * self.value[which].abs())
        flat_enough = new_slope >= CURVATURE * slope
        done = low_enough & (flat_enough | (self.trials[which] >= MAX_TRIALS))
        too_long, too_short = which[~low_enough], which[low_enough & ~done]
        self.high[too_long], self.low[too_short] = self.step[too_long], self.step[too_short]
        rest = which[~done]
        low, high = self.low[rest], self.high[rest]
        self.step[rest] = torch.where(torch.isinf(high), 2 * self.step[rest], (low + high) / 2)
        return done

    def _accept(self, taken: Tensor, move: Tensor, value: Tensor, gradient: Tensor) -> None:
        self.pairs.append(taken, move, gradient - self.gradient[taken])
        self.point[taken] += move
        self.value[taken], self.gradient[taken] = value, gradient
        self.iterations[taken] += 1

    def _stop(self, taken: Tensor, max_iterations: int, tolerance: float) -> None:
        value = self.value[taken]
        gained = self.recent[taken, 0] - value
        self.recent[taken] = torch.cat([self.recent[taken, 1:], value[:, None]], 1)
        settled = (gained < tolerance) & (self.iterations[taken] >= PATIENCE)
        self.converged[taken[settled]] = True
        self.running[taken[settled | (self.iterations[taken] >= max_iterations)]] = False

    def _renew(self, taken: Tensor) -> None:
        """Start new line searches after an accepted step, or a failure with a memory to clear."""
        failed = self.running & (self.trials >= MAX_TRIALS)
        failed[taken] = False
        abandoned = failed & self.pairs.empty()
        self.running &= ~abandoned
        self.pairs.forget(self.everyone[failed & ~abandoned])
        failed[taken] = True
        which = self.everyone[failed & self.running]
        if len(which):
            self.direction[which] = self.pairs.direction(which, self.gradient[which])
            self.low[which], self.high[which] = 0.0, torch.inf
            self.step[which], self.trials[which] = 1.0, 0
