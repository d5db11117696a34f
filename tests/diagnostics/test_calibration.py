"""Calibration scores: worked examples, scikit-learn, and forecasts that are calibrated or not.

Verdicts on predictions by held-out rows.
"""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from bayestree.diagnostics import (
    calibration,
    held_out_classes,
    held_out_intervals,
    held_out_values,
)
from bayestree.diagnostics.verdict import residuals

N = 4000


def draws(p, seed=0):
    """One class for each row, by its probabilities."""
    uniform = np.random.default_rng(seed).uniform(size=(len(p), 1))
    return (uniform > p.cumsum(axis=1)[:, :-1]).sum(axis=1)


@pytest.fixture(scope="module")
def forecast():
    p = np.random.default_rng(1).dirichlet(np.full(4, 0.7), size=4000)
    return p, draws(p)


class TestByHand:
    y = [0, 1, 1, 1]
    p = [0.2, 0.9, 0.6, 0.4]  # confidences .8, .9, .6, .6; right: yes, yes, yes, no

    def test_scores(self):
        found = calibration(self.y, self.p, n_bins=2)
        assert found.accuracy.value == 0.75
        assert found.brier.value == pytest.approx(2 * np.mean([0.04, 0.01, 0.16, 0.36]))
        assert found.log_score.value == pytest.approx(np.log([0.8, 0.9, 0.6, 0.4]).mean())
        # equal mass: {.6, .6} half right, {.8, .9} all right
        assert found.ece.value == pytest.approx((2 * 0.1 + 2 * 0.15) / 4)
        # equal width: all confidences but the edge .5 lie in the upper half
        assert found.ece_width.value == pytest.approx(abs(3 - 2.9) / 4)
        # class 1: bins {.2, .4} (one happened) and {.6, .9} (both); class 0 mirrors it
        assert found.ece_classwise.value == pytest.approx((abs(1 - 0.6) + abs(2 - 1.5)) / 4)

    def test_table(self):
        bins = calibration(self.y, self.p, n_bins=2).bins
        np.testing.assert_array_equal(bins["rows"], [2, 2])
        np.testing.assert_allclose(bins["confidence"], [0.6, 0.85])
        np.testing.assert_allclose(bins["accuracy"], [0.5, 1.0])
        np.testing.assert_allclose(bins[["low", "high"]], [[0.6, 0.6], [0.8, 0.9]])
        np.testing.assert_allclose(bins["error"], np.sqrt([0.24 / 2, 0.85 * 0.15 / 2]))

    def test_errors_of_means(self):
        found = calibration(self.y, self.p)
        assert found.accuracy.error == pytest.approx(np.sqrt(0.75 * 0.25 / 4))
        assert found.accuracy.if_calibrated == pytest.approx(np.mean([0.8, 0.9, 0.6, 0.6]))

    def test_a_certain_forecast_that_fails(self):
        found = calibration([0, 1], [[1.0, 0.0], [1.0, 0.0]])
        assert found.log_score.value == -np.inf
        assert np.isnan(found.log_score.error)
        assert (found.n_zero, found.n_rows) == (1, 2)
        assert found.brier.value == 1.0
        assert "Rows whose class was given probability 0: 1." in str(found)


def test_agrees_with_scikit_learn(forecast):
    p, y = forecast
    found = calibration(y, p)
    assert -found.log_score.value == pytest.approx(log_loss(y, p))
    binary = calibration((y == 2).astype(int), p[:, 2])
    assert binary.brier.value == pytest.approx(2 * brier_score_loss(y == 2, p[:, 2]))


def test_true_probabilities_score_as_expected(forecast):
    found = calibration(forecast[1], forecast[0])
    for name in (
        "accuracy",
        "ece",
        "ece_width",
        "ece_classwise",
        "brier",
        "overconfidence",
        "log_score",
    ):
        score = getattr(found, name)
        assert score.value == pytest.approx(score.if_calibrated, abs=4 * score.error), name


def test_overconfidence_shows(forecast):
    p, y = forecast
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    found = calibration(y, sharp)
    assert found.ece.value > found.ece.if_calibrated + 10 * found.ece.error
    assert (found.bins["accuracy"] < found.bins["confidence"]).all()
    assert found.brier.value > calibration(y, p).brier.value
    assert found.log_score.value < calibration(y, p).log_score.value


def test_bootstrap_error_is_that_of_the_rows():
    # one bin: the gap .98 - .6 has the error of a share of .98, whatever the forecast said
    y = (np.arange(500) >= 10).astype(int)
    found = calibration(y, np.full(500, 0.6))
    assert found.ece.value == pytest.approx(0.38)
    # 200 resamples give a standard deviation to 5 %
    assert found.ece.error == pytest.approx(np.sqrt(0.98 * 0.02 / 500), rel=0.2)
    # and if calibrated, the gap is that of a share of .6: mean absolute value of a normal
    expected = np.sqrt(0.6 * 0.4 / 500 * 2 / np.pi)
    assert found.ece.if_calibrated == pytest.approx(expected, rel=0.25)


def test_equal_confidences_stay_in_one_bin():
    p = np.repeat([0.6, 0.7, 1.0], [70, 20, 10])
    bins = calibration(np.ones(100, dtype=int), p, n_bins=10).bins
    np.testing.assert_array_equal(bins["rows"], [70, 20, 10])


def test_labels(forecast):
    p, y = forecast
    names = np.array(["d", "a", "c", "b"])
    named = calibration(names[y], p, classes=names)
    assert named.brier == calibration(y, p).brier


def test_it_repeats_and_can_be_read(forecast):
    p, y = forecast
    found = calibration(y, p)
    assert found.ece == calibration(y, p, random_state=0).ece
    assert found.ece.error != calibration(y, p, random_state=1).ece.error
    frame = found.to_frame()
    assert list(frame.columns) == ["value", "error", "if_calibrated"]
    assert frame.loc["brier", "value"] == found.brier.value
    assert "ece_classwise" in str(found)


def test_bad_input():
    with pytest.raises(ValueError, match=r"row 1 is \[0.5, 0.6\]"):
        calibration([0, 1], [[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(ValueError, match="row 0 is"):
        calibration([0], [[np.nan, 1.0]])
    with pytest.raises(ValueError, match=r"probability must have shape"):
        calibration([0], [[1.0]])
    with pytest.raises(ValueError, match=r"y must have shape \(2,\) like probability, got \(1,\)"):
        calibration([0], [0.5, 0.5])
    with pytest.raises(ValueError, match="y contains 2, which is not among the classes"):
        calibration([0, 2], [0.5, 0.5])
    with pytest.raises(ValueError, match="classes must name 2 columns"):
        calibration([0, 1], [0.5, 0.5], classes=["a"])
    with pytest.raises(ValueError, match="n_bins must be 1 or more, got 0"):
        calibration([0, 1], [0.5, 0.5], n_bins=0)


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


@pytest.mark.parametrize(("off", "holds"), [(0.04, True), (0.07, False)])
def test_small_errors_hold_whatever_the_number_of_rows(off, holds):
    n = 10_000  # standard errors are .003 and .005
    assert held_out_intervals(np.arange(n) < (0.9 - off) * n, 0.9).holds == holds
    y = (np.arange(n) < 0.7 * n).astype(int)
    assert held_out_classes(calibration(y, np.full(n, 0.7 + off))).holds == holds


def test_no_rows():
    with pytest.raises(ValueError, match="y must have shape"):
        held_out_values([], [], [], 0.9)


def test_probabilities_are_compared_with_the_class_frequencies():
    p, y = drawn()
    known = held_out_classes(calibration(y, p))
    # of probabilities uniform on (0, 1): E |p - f|^2 = 2 Var(p) = 1/6
    assert known.better
    assert "Brier score is below the score of the class frequencies, by 0.1" in known.says
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
    # also if one value is the mean itself
    own, constant = residuals(y, rate * scale, exposure)
    constant[0] = 0.0
    assert "below the error" in held_out_intervals(np.ones(N), 0.9, residual=(own, constant)).says
    assert "mean squared error is below the error of the mean of y" in known.says
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
    found = held_out_intervals(np.ones(100), 0.9, residual=(y / 2, y))  # the same ratio everywhere
    assert "by 75.0% (standard error 0.0%)" in found.says


def test_the_mean_of_counts_is_that_of_all_exposures_together():
    own, constant = residuals([1.0, 8.0], [2.0, 5.0], [1.0, 4.0])
    assert own.tolist() == [-1.0, 3.0]
    np.testing.assert_allclose(constant, [1 - 9 / 5, 8 - 4 * 9 / 5])


def test_equal_values_are_not_compared_with_their_mean():
    found = held_out_intervals(np.ones(5), 0.9, residual=residuals(np.ones(5), np.full(5, 1.5)))
    assert "mean squared error" not in found.says
