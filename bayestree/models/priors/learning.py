"""Empirical Bayes: the most probable hyperparameters given the posterior of the parameters.

Each hyperparameter h has a gamma hyper-prior with shape s and rate r, which has the density
s log h - r h in log h, up to a constant. The *weak* one, s = 1 and r = 1 / h_0, has its mode at the
value h_0 from which learning starts, and vanishes at both ends: without it, rows that do not
determine a rate or a shape would leave it undefined, or move it to 0 or infinity. It weighs as much
as one variable: the log-likelihood of the rate c of n gamma variables is n a log c - c sum r, that
of a small shape a about n log a + a sum log(c r), and s adds to n a, or to n. 95 % of its mass lie
within [0.03 h_0, 3.7 h_0].
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma

from bayestree._utils.arrays import FloatArray
from bayestree.distributions import LogGamma
from bayestree.models.priors.base import HyperPriors, Prior

Pair = tuple[float, float] | None  # shape and rate of a hyper-prior, if there is one

REACH = 30.0  # natural logarithms that one update may change a hyperparameter by
STEPS = np.linspace(-4.5, 4.5, 25)  # of the quadrature over log b, in the argument of sinh


def weak_hyper_priors(prior: Prior) -> HyperPriors:
    """Weak hyper-priors of all hyperparameters that can be learned."""
    return {name: (1.0, 1.0 / value) for name, value in prior.learned_values.items()}


class GammaSums(NamedTuple):
    """Number of gamma variables r, and sums of their posterior means of log r and r."""

    n: int
    log: float
    total: float

    @classmethod
    def of(cls, log_r: LogGamma) -> "GammaSums":
        """The sums of variables with such posteriors."""
        mean = log_r.concentration / log_r.rate
        return cls(mean.numel(), float(log_r.mean.sum()), float(mean.sum()))


def most_probable_gamma(
    sums: GammaSums, start: tuple[float, float], hyper: tuple[Pair, Pair], parts: int = 1
) -> tuple[float, float]:
    """Hyperparameters g and c of many variables r ~ Gamma(g / ``parts``, c).

    ``hyper`` has the hyper-priors of g and c; where one is None, its hyperparameter stays as in
    ``start``. With a = g / parts, the objective is

        n (a log c - log Gamma(a)) + a sum E log r - c sum E r + the log hyper-priors.

    It is concave in log c, and with the best c for each a, its slope in a decreases.
    """
    (g, c), (of_g, of_c), (n, log_sum, total) = start, hyper, sums

    def rate(g: float) -> float:
        return c if of_c is None else (of_c[0] + n * g / parts) / (of_c[1] + total)

    def slope(g: float) -> float:
        return (n * (math.log(rate(g)) - digamma(g / parts)) + log_sum) / parts

    if of_g is not None:
        g = most_probable(slope, g, of_g)
    return g, rate(g)


def most_probable(
    slope: Callable[[float], float], start: float, hyper: tuple[float, float]
) -> float:
    """The h > 0 where log likelihood and log hyper-prior have the largest sum.

    ``slope`` is that of the log likelihood in h; it decreases.
    """
    shape, rate = hyper

    def along_log(log_h: float) -> float:
        h = math.exp(log_h)
        return h * (slope(h) - rate) + shape

    middle = math.log(start)
    return math.exp(brentq(along_log, middle - REACH, middle + REACH))


def known_share(
    a: float, b: FloatArray, half_square: FloatArray, variance: FloatArray
) -> FloatArray:
    """Share of information on each coefficient (M, W) that is not missing, from 0 to 1.

    A coefficient that the rows do not determine has the normal factor of smallest divergence, with
    mean 0 and variance b / a, though its prior is a Student-t: counted in full, such factors would
    move a to infinity. With excess, the divergence beyond the smallest, the share is
    1 - exp(-2 excess): for a small variance, exp(-2 excess) is proportional to it.
    """
    spread = np.log(b / (a * variance)) / 2
    excess = spread + (a + 0.5) * np.log((b + half_square) / (b * (1 + 0.5 / a)))
    return -np.expm1(-2 * np.maximum(excess, 0.0))  # rounding can leave less than 0


def shrinkage_moments(
    law: tuple[float, float, float], mode: FloatArray, half_square: FloatArray, known: FloatArray
) -> tuple[GammaSums, float]:
    """What coefficients (M, W) say about their shrinkages b (M, 1) and a, scales integrated out.

    The posterior of log b given the coefficients beta of an expert, each counted ``known`` times,

        e_0 log b - f_0 b + sum known (a log b - (a + 1/2) log(b + beta^2 / 2)),

    is integrated by the trapezoidal rule along x, log b = log ``mode`` + sinh(x) / sqrt(shape). The
    shape e_0 + known a / (2 a + 3) is nearly the curvature at the mode: a / (2 a + 3) is the Fisher
    information of a coefficient on log b. (The variational factor has e_0 + a (d + 1), as if the
    scales were known; this would move e_0 to infinity.) The means are those of a log-gamma law of
    the same shape and mode, and the differences between the two integrals: without known
    coefficients, both are the same, and the means exactly those of the prior.

    ``law`` is a, e_0 and f_0. Returns the sums over the shrinkages, and that of
    known (E log b - E log(b + beta^2 / 2)), whose sum with known (digamma(a + 1/2) - digamma(a)) is
    the slope of the log-density in a.
    """
    a, e, f = law
    mode, count = mode[:, 0], known.sum(-1)
    shape = e + count * a / (2 * a + 3)
    log_b = np.log(mode)[:, None] + np.sinh(STEPS) / np.sqrt(shape)[:, None]
    log_b = log_b.clip(-700.0, 300.0)  # of small shapes; b and f_0 b are finite within
    b = np.exp(log_b)
    rates = [(known * np.log(column[:, None] + half_square)).sum(-1) for column in b.T]
    rate = np.stack(rates, -1)
    target = _shares((e + a * count)[:, None] * log_b - f * b - (a + 0.5) * rate)
    change = target - _shares(shape[:, None] * log_b - (shape / mode)[:, None] * b)
    mean_log = digamma(shape) - np.log(shape / mode) + (change * log_b).sum(-1)
    mean = mode + (change * b).sum(-1)
    sums = GammaSums(len(mode), float(mean_log.sum()), float(mean.sum()))
    return sums, float(count @ mean_log - (target * rate).sum())


def _shares(log_density: FloatArray) -> FloatArray:
    """Weights of the nodes of the quadrature, summing to 1 for each expert."""
    weight = np.cosh(STEPS) * np.exp(log_density - log_density.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)
