"""The No-U-Turn sampler on a vector: transitions, step size and mass matrix.

Hoffman and Gelman (2014), with Stan's multinomial sampling of states and checks across subtrees
(Betancourt 2017). NumPy only, so a transition costs little more than its gradients.

``joint`` is minus the Hamiltonian, log p(x) - p' p / 2, which exact trajectories conserve.

Trees are sampled in whitened coordinates, in which a posterior has about the same width in every
direction; the unit mass matrix is equivalent to the precision as mass matrix in the original ones.
The coefficients of an expert, which are as correlated as the features, are transformed jointly; all
other coordinates are scaled individually. Sites that the prior on hyperplanes can draw given the
others (the shrinkages of ``InverseGammaScale``) are fixed, and drawn between trajectories.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.samplers.density import Layout, TreeDensity

DIVERGENT = 1000.0  # decrease of the joint log-density that counts as a divergence
MAX_DOUBLINGS = 50  # maximum number of doublings or halvings of the initial step size
MAX_WIDTH = 64  # maximum number of coefficients of an expert that are transformed jointly
MIN_INFORMATION = 1e-3  # minimum information: without data, a coordinate has a scale of about 30
GUESS_COUNT = 5  # number of gradients to which a guess of one coordinate is equivalent


class Density(Protocol):
    """A log-density on vectors, with its gradient."""

    def value_and_gradient(self, vector: FloatArray) -> tuple[float, FloatArray]: ...


class EvaluatedPoint(NamedTuple):
    """A position with its log-density and gradient."""

    position: FloatArray
    value: float
    gradient: FloatArray


class Move(NamedTuple):
    """Statistics of a transition, by ArviZ's names."""

    energy: float
    diverging: bool
    tree_depth: int
    reached_max_treedepth: bool
    n_steps: int
    acceptance_rate: float
    step_size: float


class _Point(NamedTuple):
    place: EvaluatedPoint
    momentum: FloatArray
    joint: float


class _Span(NamedTuple):
    """A segment of a trajectory; ``first`` and ``last`` are in the direction of building."""

    first: _Point
    last: _Point
    chosen: EvaluatedPoint
    chosen_joint: float
    log_weight: float
    momentum: FloatArray  # sum over the points
    accepted: float
    steps: int
    valid: bool = True
    diverges: bool = False


def transition(
    density: Density,
    start: EvaluatedPoint,
    *,
    step_size: float,
    max_depth: int,
    generator: np.random.Generator,
) -> tuple[EvaluatedPoint, Move]:
    """Take a transition."""
    momentum = generator.standard_normal(len(start.position))
    origin = _point(start, momentum)
    walk = _Walk(density, step_size, origin.joint, generator)
    span = _Span(origin, origin, start, origin.joint, 0.0, momentum, accepted=0.0, steps=0)
    depth = 0
    while span.valid and depth < max_depth:
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
        reached_max_treedepth=span.valid and depth == max_depth,
        n_steps=span.steps,
        acceptance_rate=span.accepted / max(span.steps, 1),
        step_size=step_size,
    )
    return span.chosen, move


@dataclass
class _Walk:
    """Builds a trajectory by doubling from an origin, which has the density ``joint``."""

    density: Density
    step_size: float
    joint: float
    generator: np.random.Generator

    def build(self, point: _Point, depth: int, sign: int) -> _Span:
        """Build a span of 2**depth steps beyond a point."""
        if depth == 0:
            return self._step(point, sign)
        near = self.build(point, depth - 1, sign)
        if not near.valid:
            return near
        return self.join(near, self.build(near.last, depth - 1, sign), biased=False)

    def _step(self, point: _Point, sign: int) -> _Span:
        """Take a leapfrog step: half a step of momentum, a step of position, half of momentum."""
        step = sign * self.step_size
        half = point.momentum + 0.5 * step * point.place.gradient
        position = point.place.position + step * half
        value, gradient = self.density.value_and_gradient(position)
        place = EvaluatedPoint(position, value, gradient)
        new = _point(place, half + 0.5 * step * gradient)
        gain = new.joint - self.joint
        diverges = not gain > -DIVERGENT  # including NaN
        gain = -math.inf if diverges else gain
        accepted = math.exp(min(gain, 0.0))
        parts = (new, new, place, new.joint, gain, new.momentum, accepted)
        return _Span(*parts, steps=1, valid=not diverges, diverges=diverges)

    def join(self, near: _Span, far: _Span, *, biased: bool) -> _Span:
        """Merge two adjacent spans and sample a state of both.

        Within a subtree, the state of ``far`` is chosen in proportion to its weight. For the whole
        trajectory (``biased``) the probability min(1, far / near) favours distant states.
        """
        total = np.logaddexp(near.log_weight, far.log_weight)
        log_chance = far.log_weight - (near.log_weight if biased else total)
        # States of a span with a U-turn or a divergence are not sampled.
        moves = far.valid and math.log(1 - self.generator.random()) < log_chance
        momentum = near.momentum + far.momentum
        return (far if moves else near)._replace(
            first=near.first,
            last=far.last,
            log_weight=float(total),
            momentum=momentum,
            accepted=near.accepted + far.accepted,
            steps=near.steps + far.steps,
            valid=far.valid and _no_u_turn(near, far, momentum),
            diverges=near.diverges or far.diverges,
        )


def _no_u_turn(near: _Span, far: _Span, momentum: FloatArray) -> bool:
    """Return whether neither the merged span nor the spans across the seam make a U-turn.

    If either is a single point, the span across the seam is the merged span.
    """
    return (
        _apart(near.first, far.last, momentum)
        and (
            far.first is far.last
            or _apart(near.first, far.first, near.momentum + far.first.momentum)
        )
        and (
            near.first is near.last
            or _apart(near.last, far.last, far.momentum + near.last.momentum)
        )
    )


def _apart(first: _Point, last: _Point, momentum: FloatArray) -> bool:
    """Return whether the momenta of both ends point along the sum of all: no U-turn."""
    return bool(first.momentum @ momentum > 0 and last.momentum @ momentum > 0)


def _reversed(span: _Span) -> _Span:
    """Reverse a span; the signs of the momenta cancel in every check."""
    return span._replace(first=span.last, last=span.first)


def _point(place: EvaluatedPoint, momentum: FloatArray) -> _Point:
    return _Point(place, momentum, place.value - 0.5 * float(momentum @ momentum))


def first_step_size(
    density: Density, start: EvaluatedPoint, generator: np.random.Generator
) -> float:
    """Find a step size at which one step is accepted with a probability of about 0.8."""
    origin = _point(start, generator.standard_normal(len(start.position)))

    def gain(step_size: float) -> float:
        walk = _Walk(density, step_size, origin.joint, generator)
        return walk.build(origin, 0, 1).log_weight

    step_size = 0.1
    grows = gain(step_size) > math.log(0.8)
    for _ in range(MAX_DOUBLINGS):
        if (gain(step_size) > math.log(0.8)) != grows:
            break
        step_size *= 2.0 if grows else 0.5
    return step_size


@dataclass
class StepSize:
    """Dual averaging of the log step size (Hoffman and Gelman 2014, section 3.2).

    With gamma = 0.05, t0 = 10, kappa = 0.75 and mu = ``center``:
    error_m = (1 - 1 / (m + t0)) error_(m-1) + (target - acceptance) / (m + t0),
    log step_m = mu - sqrt(m) / gamma error_m, averaged with weights m^-kappa.
    """

    target: float
    center: float  # log of ten times the initial step size
    log_step: float
    log_mean: float = 0.0
    error: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, start: float, target: float) -> "StepSize":
        return cls(target, math.log(10 * start), math.log(start))

    @property
    def during(self) -> float:
        return math.exp(self.log_step)

    @property
    def after(self) -> float:
        return math.exp(self.log_mean if self.count else self.log_step)

    def update(self, acceptance: float) -> None:
        self.count += 1
        share = 1 / (self.count + 10)
        self.error += share * (self.target - acceptance - self.error)
        self.log_step = self.center - math.sqrt(self.count) / 0.05 * self.error
        decay = self.count**-0.75
        self.log_mean += decay * (self.log_step - self.log_mean)


class GradientMoments(NamedTuple):
    """Mean squares and, within blocks, mean products of gradients of a log-density.

    E[g g'] is the Fisher information: for a normal density, whose gradient is -P (x - mu), it is
    P Cov(x) P = P, so these are the diagonal and the blocks of the precision.
    """

    squares: FloatArray  # (m,)
    products: FloatArray  # (B, w, w)


def expert_blocks(layout: Layout) -> IntArray:
    """Return places of each expert's coefficients in a vector, (B, w); none if w is too large."""
    places = layout.free(np.arange(layout.length, dtype=np.float64))
    joined = np.concatenate([places["hyperplane"], places["intercept"][..., None]], axis=-1)
    width = joined.shape[-1]
    blocks = joined.reshape(-1, width) if width <= MAX_WIDTH else np.empty((0, 0))
    return blocks.astype(np.int64)


@dataclass
class Information:
    """Running estimate of a density's precision from gradients, shrunk towards a prior guess."""

    blocks: IntArray
    guess: GradientMoments
    count: int = 0
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    products: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.squares, self.products = (np.zeros_like(part) for part in self.guess)

    @classmethod
    def of(cls, gradients: FloatArray, blocks: IntArray) -> GradientMoments:
        """Estimate from gradients (n, m) only; blocks are shrunk towards their diagonal."""
        squares = np.mean(gradients**2, axis=0)
        diagonal = squares[blocks][..., None] * np.eye(blocks.shape[1])
        information = cls(blocks, GradientMoments(squares, diagonal))
        for gradient in gradients:
            information.add(gradient)
        return information.estimate

    def state_dict(self) -> dict[str, Any]:
        return {
            "guess": tuple(self.guess),
            "count": self.count,
            "squares": self.squares,
            "products": self.products,
        }

    @classmethod
    def restored(cls, blocks: IntArray, state: Mapping[str, Any]) -> Self:
        information = cls(blocks, GradientMoments(*state["guess"]), state["count"])
        information.squares, information.products = state["squares"], state["products"]
        return information

    def add(self, gradient: FloatArray) -> None:
        """Add a gradient, shape (m,)."""
        self.count += 1
        self.squares += gradient**2
        parts = gradient[self.blocks]
        self.products += parts[:, :, None] * parts[:, None, :]

    @property
    def estimate(self) -> GradientMoments:
        """Weighted mean: the guess counts as 5 gradients, or 5 plus its width for a block."""
        wide = GUESS_COUNT + self.blocks.shape[1]
        return GradientMoments(
            (self.squares + GUESS_COUNT * self.guess.squares) / (self.count + GUESS_COUNT),
            (self.products + wide * self.guess.products) / (self.count + wide),
        )


class Whitening:
    """A linear change of coordinates, x = A u with A A' the inverse of a precision.

    With the Cholesky factor P = L L' of a block, A = L'^-1: x = L'^-1 u, u = L' x, and a gradient
    in u is A' = L^-1 times that in x. ``curvature`` (m,) is an additional precision.
    """

    def __init__(self, precision: GradientMoments, blocks: IntArray, curvature: FloatArray) -> None:
        self.blocks = blocks
        self.scale = 1 / np.sqrt(np.maximum(precision.squares, MIN_INFORMATION) + curvature)
        extra = (MIN_INFORMATION + curvature[blocks])[..., None] * np.eye(blocks.shape[1])
        factor, inverse = _factors(precision.products + extra)
        self.factor, self.root = factor, inverse.swapaxes(-1, -2)

    def white(self, position: FloatArray) -> FloatArray:
        """Return coordinates u of a position x."""
        return self._mixed(position, 1 / self.scale, self.factor.swapaxes(-1, -2))

    def position(self, white: FloatArray) -> FloatArray:
        """Return the position x of coordinates u."""
        return self._mixed(white, self.scale, self.root)

    def gradient(self, gradient: FloatArray) -> FloatArray:
        """Convert a gradient with respect to x to one with respect to u."""
        return self._mixed(gradient, self.scale, self.root.swapaxes(-1, -2))

    def _mixed(self, vector: FloatArray, scale: FloatArray, matrices: FloatArray) -> FloatArray:
        mixed = scale * vector
        mixed[self.blocks] = (matrices @ vector[self.blocks][..., None])[..., 0]
        return mixed


def _factors(precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute lower Cholesky factors of matrices (B, w, w), and their inverses."""
    factor = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    return factor, np.asarray(np.linalg.inv(factor), dtype=np.float64)


class WhitenedDensity:
    """The log-density of the coordinates that move, given the others, in a whitened space.

    ``vector`` (D,) is the start; ``information`` is the data's on the coordinates that move.
    """

    def __init__(
        self, density: TreeDensity, vector: FloatArray, information: GradientMoments
    ) -> None:
        self.density, self.start = density, vector
        layout, prior = density.layout, density.model.priors.hyperplane
        self.moving = layout.n_moving
        curvature = np.zeros_like(vector)
        if self.moving < layout.length:
            free, precision = layout.free(curvature), prior.precision(layout.free(vector))
            free["hyperplane"][...] = precision[..., :-1]
            free["intercept"][...] = precision[..., -1]
        self.whitening = Whitening(information, expert_blocks(layout), curvature[: self.moving])

    def vector(self, white: FloatArray) -> FloatArray:
        """Return the whole vector (D,) at white coordinates."""
        return np.concatenate([self.whitening.position(white), self.start[self.moving :]])

    def value_and_gradient(self, white: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = self.density.value_and_gradient(self.vector(white))
        return value, self.whitening.gradient(gradient[: self.moving])

    def place(self) -> EvaluatedPoint:
        """Evaluate the start."""
        white = self.whitening.white(self.start[: self.moving])
        return EvaluatedPoint(white, *self.value_and_gradient(white))


def gradient_of_data(density: TreeDensity, vector: FloatArray) -> FloatArray:
    """Compute the gradient along the coordinates that move, from which the metric is estimated.

    It excludes a prior whose precision is known at each draw; any other prior is as fixed as the
    data, and estimated with them.
    """
    _, gradient = density.value_and_gradient(vector)
    layout = density.layout
    if layout.n_moving < layout.length:
        into, prior = layout.free(gradient), layout.free(np.empty_like(vector))
        density.model.priors.hyperplane.set_gradient(layout.free(vector), prior)
        for name in ("hyperplane", "intercept"):
            into[name] -= prior[name]
    return gradient[: layout.n_moving]
