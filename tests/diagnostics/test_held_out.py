"""Verdicts on predictions by held-out rows."""

import numpy as np
import pytest

from bayestree.diagnostics import (
    calibration,
    held_out_classes,
    held_out_intervals,
    held_out_values,
)
from bayestree.diagnostics.held_out import residuals

N = 4000


def drawn(seed=0):
    """Probabilities of class 1, and classes that they are true of."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(size=N)
    return p, (rng.uniform(size=N) < p).astype(int)


def test_true_probabilities_hold():
    # Two standard errors above what is expected: at most 1 sample in 20 is further off.
    held = [held_out_classes(calibration(y, p)).holds for p, y in map(drawn, range(20))]
    assert np.sum(held) >= 15  # P(fewer) < 1e-3 at a rate of .95


def test_probabilities_that_are_too_sure_do_not():
    p, y = drawn()
    sure = p**3 / (p**3 + (1 - p) ** 3)
    found = held_out_classes(calibration(y, sure))
    assert not found.holds
    assert f"On {N:,} held-out rows" in found.says


def test_a_class_that_was_ruled_out():
    p, y = drawn()
    p[0], y[0] = 0.0, 1
    found = held_out_classes(calibration(y, p))
    assert not found.holds
    assert "1 held-out row had a class that was given probability 0" in found.says


@pytest.mark.parametrize(("width", "holds"), [(1.0, True), (0.8, False), (1.25, False)])
def test_coverage(width, holds):
    y = (np.arange(N) + 0.5) / N  # exactly uniform
    half = 0.45 * width
    found = held_out_values(y, np.full(N, 0.5 - half), np.full(N, 0.5 + half), 0.9)
    assert found.holds == holds
    assert f"{2 * min(half, 0.5):.1%}"[:3] in found.says
    assert "90% intervals" in found.says


def test_no_rows():
    with pytest.raises(ValueError, match="y must have shape"):
        held_out_values([], [], [], 0.9)


def test_probabilities_are_compared_with_the_class_frequencies():
    p, y = drawn()
    known = held_out_classes(calibration(y, p))
    # of probabilities uniform on (0, 1): E |p - f|^2 = 2 Var(p) = 1/6
    assert known.better
    assert "Brier score is below that of the class frequencies, by 0.1" in known.says
    # 1 of 40 gains exceeds two standard errors by chance, and a constant that is off is worse
    rng = np.random.default_rng(1)
    blind = [
        held_out_classes(calibration(y, np.full(N, y.mean()) + rng.normal(0, 0.01, N)))
        for _, y in map(drawn, range(20))
    ]
    assert sum(one.better for one in blind) <= 4  # P(more) < 1e-3 at a rate of .025
    assert all(one.constant == "the class frequencies" for one in blind)


@pytest.mark.parametrize("exposure", [None, np.repeat([1.0, 5.0], N // 2)])
def test_values_are_compared_with_their_mean(exposure):
    rng = np.random.default_rng(0)
    rate = rng.uniform(1, 9, size=N)
    scale = 1.0 if exposure is None else exposure
    y = rng.poisson(rate * scale).astype(float)

    def judged(predicted):
        found = residuals(y, predicted, exposure)
        return held_out_intervals(np.ones(N), 0.9, residual=found)

    known, blind = (
        judged(rate * scale),
        judged(np.full(N, y.sum() / np.sum(scale * np.ones(N))) * scale),
    )
    assert known.better
    assert "mean squared error is below that of the mean of y" in known.says
    assert not blind.better
    # R^2 of the true rate without exposures: Var(rate) / (Var(rate) + E rate)
    if exposure is None:
        share = (64 / 12) / (64 / 12 + 5)
        apart = residuals(y, rate)
        assert 1 - np.square(apart[0]).mean() / np.square(apart[1]).mean() == pytest.approx(
            share, abs=4 / np.sqrt(N)
        )


def test_a_gain_among_values_of_very_different_size():
    """Its error is that of a ratio: few large values determine both of its terms."""
    y = np.exp(2.5 * np.random.default_rng(0).normal(size=100))
    found = held_out_intervals(np.ones(100), 0.9, residual=residuals(y, 1.1 * y))
    assert found.better


def test_equal_values_are_not_compared_with_their_mean():
    found = held_out_intervals(np.ones(5), 0.9, residual=residuals(np.ones(5), np.full(5, 1.5)))
    assert "mean squared error" not in found.says
