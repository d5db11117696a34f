"""The No-U-Turn sampler on a vector: transitions, step size and mass matrix.

Hoffman and Gelman (2014), with the multinomial choice of a state and the checks across subtrees
that Stan uses (Betancourt 2017). NumPy only: a transition costs little more than its gradients.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from bayestree._utils.arrays import FloatArray

DIVERGENT = 1000.0  # loss of log-density at which a trajectory is given up
LONGEST_START = 50  # doublings or halvings in search of a first step size


class Density(Protocol):
    """A log-density on vectors."""

    def value_and_gradient(self, vector: FloatArray) -> tuple[float, FloatArray]:
        """Log-density and gradient."""


class Place(NamedTuple):
    """A position with what is known there."""

    position: FloatArray
    value: float
    gradient: FloatArray


class Move(NamedTuple):
    """What a transition recorded; the names are those of ArviZ."""

    energy: float
    diverging: bool
    tree_depth: int
    reached_max_treedepth: bool
    n_steps: int
    acceptance_rate: float
    step_size: float


class _Point(NamedTuple):
    place: Place
    momentum: FloatArray
    velocity: FloatArray
    joint: float


class _Span(NamedTuple):
    """A stretch of trajectory, ``first`` and ``last`` in the direction in which it was built."""

    first: _Point
    last: _Point
    chosen: Place
    chosen_joint: float
    log_weight: float
    momentum: FloatArray  # summed
    accepted: float
    steps: int
    goes_on: bool
    diverges: bool


def transition(
    density: Density,
    start: Place,
    *,
    step_size: float,
    variance: FloatArray,
    max_depth: int,
    generator: np.random.Generator,
) -> tuple[Place, Move]:
    """One transition; ``variance`` (D,) is the inverse of the diagonal mass matrix."""
    momentum = generator.standard_normal(len(start.position)) / np.sqrt(variance)
    origin = _point(start, momentum, variance)
    walk = _Walk(density, step_size, variance, origin.joint, generator)
    span = _Span(
        origin, origin, start, origin.joint, 0.0, momentum, 0.0, 0, goes_on=True, diverges=False
    )
    depth = 0
    while span.goes_on and depth < max_depth:
        forward = bool(generator.random() < 0.5)
        if not forward:
            span = _reversed(span)
        other = walk.build(span.last, depth, 1 if forward else -1)
        span = walk.join(span, other, biased=True)
        if not forward:
            span = _reversed(span)
        depth += 1
    move = Move(
        energy=-span.chosen_joint,
        diverging=span.diverges,
        tree_depth=depth,
        reached_max_treedepth=span.goes_on and depth == max_depth,
        n_steps=span.steps,
        acceptance_rate=span.accepted / max(span.steps, 1),
        step_size=step_size,
    )
    return span.chosen, move


class _Walk:
    """Builds a trajectory by doubling."""

    def __init__(
        self,
        density: Density,
        step_size: float,
        variance: FloatArray,
        joint: float,
        generator: np.random.Generator,
    ) -> None:
        self.density, self.step_size, self.variance = density, step_size, variance
        self.joint, self.generator = joint, generator

    def build(self, point: _Point, depth: int, sign: int) -> _Span:
        """A span of 2**depth steps beyond a point."""
        if depth == 0:
            return self._step(point, sign)
        near = self.build(point, depth - 1, sign)
        if not near.goes_on:
            return near
        return self.join(near, self.build(near.last, depth - 1, sign), biased=False)

    def _step(self, point: _Point, sign: int) -> _Span:
        step = sign * self.step_size
        half = point.momentum + 0.5 * step * point.place.gradient
        position = point.place.position + step * self.variance * half
        value, gradient = self.density.value_and_gradient(position)
        place = Place(position, value, gradient)
        new = _point(place, half + 0.5 * step * gradient, self.variance)
        gain = new.joint - self.joint
        diverges = not gain > -DIVERGENT  # also where it is not a number
        gain = -math.inf if diverges else gain
        return _Span(
            new,
            new,
            place,
            new.joint,
            gain,
            new.momentum,
            math.exp(min(gain, 0.0)),
            1,
            goes_on=not diverges,
            diverges=diverges,
        )

    def join(self, near: _Span, far: _Span, *, biased: bool) -> _Span:
        """Two neighbouring spans as one; ``biased`` prefers the newer one (whole trajectory)."""
        total = np.logaddexp(near.log_weight, far.log_weight)
        log_chance = far.log_weight - (near.log_weight if biased else total)
        # a stretch that turned back or diverged is not sampled from
        moves = far.goes_on and math.log(1 - self.generator.random()) < log_chance
        momentum = near.momentum + far.momentum
        return _Span(
            near.first,
            far.last,
            far.chosen if moves else near.chosen,
            far.chosen_joint if moves else near.chosen_joint,
            float(total),
            momentum,
            near.accepted + far.accepted,
            near.steps + far.steps,
            goes_on=far.goes_on and _goes_on(near, far, momentum),
            diverges=near.diverges or far.diverges,
        )


def _goes_on(near: _Span, far: _Span, momentum: FloatArray) -> bool:
    """Whether no end of the joined span, nor of its overlaps, has turned back."""
    return (
        _apart(near.first, far.last, momentum)
        and _apart(near.first, far.first, near.momentum + far.first.momentum)
        and _apart(near.last, far.last, far.momentum + near.last.momentum)
    )


def _apart(first: _Point, last: _Point, momentum: FloatArray) -> bool:
    return bool(first.velocity @ momentum > 0 and last.velocity @ momentum > 0)


def _reversed(span: _Span) -> _Span:
    """The same span seen from its other end; signs of the momenta cancel in every check."""
    return span._replace(first=span.last, last=span.first)


def _point(place: Place, momentum: FloatArray, variance: FloatArray) -> _Point:
    velocity = variance * momentum
    return _Point(place, momentum, velocity, place.value - 0.5 * float(momentum @ velocity))


def first_step_size(
    density: Density, start: Place, variance: FloatArray, generator: np.random.Generator
) -> float:
    """A step size at which one step is accepted with a chance of about 0.8."""
    momentum = generator.standard_normal(len(start.position)) / np.sqrt(variance)
    origin = _point(start, momentum, variance)

    def gain(step_size: float) -> float:
        walk = _Walk(density, step_size, variance, origin.joint, generator)
        return walk.build(origin, 0, 1).log_weight

    step_size = 0.1
    grows = gain(step_size) > math.log(0.8)
    for _ in range(LONGEST_START):
        if (gain(step_size) > math.log(0.8)) != grows:
            break
        step_size *= 2.0 if grows else 0.5
    return step_size


@dataclass
class StepSize:
    """Dual averaging of the logarithm of the step size (Hoffman and Gelman 2014, section 3.2)."""

    target: float
    center: float  # log of ten times the start
    log_step: float
    log_mean: float = 0.0
    error: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, start: float, target: float) -> "StepSize":
        """From a first guess."""
        return cls(target, math.log(10 * start), math.log(start))

    @property
    def during(self) -> float:
        """Step size while it is tuned."""
        return math.exp(self.log_step)

    @property
    def after(self) -> float:
        """Step size to keep."""
        return math.exp(self.log_mean if self.count else self.log_step)

    def update(self, acceptance: float) -> None:
        """Take in the acceptance of a transition."""
        self.count += 1
        share = 1 / (self.count + 10)
        self.error += share * (self.target - acceptance - self.error)
        self.log_step = self.center - math.sqrt(self.count) / 0.05 * self.error
        decay = self.count**-0.75
        self.log_mean += decay * (self.log_step - self.log_mean)
