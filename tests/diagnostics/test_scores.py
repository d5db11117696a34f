"""Scores of survival predictions, against their definitions."""

import numpy as np
import pytest

from bayestree.diagnostics.scores import (
    brier_scores,
    concordance,
    integrated_brier_score,
    kaplan_meier,
)


@pytest.fixture
def rows():
    """Sixty rows with ties in times and in risks."""
    rng = np.random.default_rng(0)
    time = np.ceil(rng.exponential(5.0, 60))
    return time, rng.random(60) < 0.7, np.round(rng.normal(size=60) - time / 10, 1)


def test_concordance_counts_pairs(rows):
    time, event, risk = rows
    weights = np.random.default_rng(1).integers(0, 3, 60)
    right = total = 0.0
    for i in range(60):
        for j in range(60):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                pair = weights[i] * weights[j]
                total += pair
                right += pair * (1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0)
    assert concordance(time, event, risk, weights) == pytest.approx(right / total, rel=1e-12)
    copied = (np.repeat(part, weights) for part in rows)
    # copies of a row have equal times, of which no pair of events counts, and equal censored ones
    assert concordance(*copied) == pytest.approx(right / total, rel=1e-12)


def test_concordance_of_an_order_and_its_reverse(rows):
    _, event, _ = rows
    time = np.random.default_rng(1).permutation(60).astype(float)  # without ties
    assert concordance(time, event, -time) == 1.0
    assert concordance(time, event, time) == 0.0
    assert concordance(time, event, np.full(60, 1e9)) == 0.5


def test_concordance_of_risks_of_very_different_sizes():
    time, event = np.arange(1.0, 5.0), np.ones(4)
    assert concordance(time, event, [1e6, 3e-3, 2e-3, 1e-3]) == 1.0
    # differences of rounding are ties
    assert concordance(time, event, [1.0, 0.1 + 0.2, 0.3, 0.3]) == pytest.approx(4.5 / 6)
    with pytest.raises(ValueError, match="risk must be finite"):
        concordance(time, event, [1.0, 2.0, np.nan, 4.0])


def test_no_comparable_pair_is_refused():
    with pytest.raises(ValueError, match="no two rows are comparable"):
        concordance([1.0, 2.0], [0, 1], [1.0, 2.0])
    with pytest.raises(ValueError, match="same shape"):
        concordance([1.0, 2.0], [0, 1], [1.0])


def test_kaplan_meier_is_the_product_of_its_factors():
    # at risk: 6, 5, 3, 1; deaths: 1, 1, 1, 0
    times, survival = kaplan_meier([1, 2, 2, 3, 3, 4], [1, 1, 0, 1, 0, 0])
    assert times.tolist() == [1, 2, 3, 4]
    assert survival == pytest.approx(np.cumprod([5 / 6, 4 / 5, 2 / 3, 1]))


def test_brier_scores_without_censoring_are_mean_squares(rows):
    time, _, _ = rows
    at = np.array([2.0, 4.5, 7.0])
    survival = np.random.default_rng(2).random((60, 3))
    expected = (((time[:, None] > at) - survival) ** 2).mean(axis=0)
    found = brier_scores(time, np.ones(60), survival, at)
    assert found == pytest.approx(expected)
    trapezoids = (found[1:] + found[:-1]) / 2 @ np.diff(at) / 5
    assert integrated_brier_score(time, np.ones(60), survival, at) == pytest.approx(trapezoids)


def test_brier_scores_of_a_constant_with_ties(rows):
    """The weights of events add up to Kaplan and Meier's probability of death, also with ties."""
    time, event, _ = rows
    at = np.array([1.0, 2.5, 4.0, 7.0])
    steps, beyond = kaplan_meier(time, event)
    truth = beyond[np.searchsorted(steps, at, "right") - 1]
    for guess in (0.0, 0.3, 1.0):
        found = brier_scores(time, event, np.full((60, 4), guess), at)
        assert found == pytest.approx(guess**2 * (1 - truth) + (1 - guess) ** 2 * truth)


@pytest.mark.portable
def test_brier_scores_do_not_depend_on_censoring():
    """Weights make up for the rows that were censored: equal up to sampling error."""
    rng = np.random.default_rng(3)
    n = 40_000
    time, end = rng.exponential(2.0, n), rng.exponential(4.0, n)
    at = np.array([0.5, 1.0, 2.0])
    survival = np.clip(np.exp(-at / 2) + rng.normal(0, 0.1, (n, 1)), 0, 1)
    full = brier_scores(time, np.ones(n), survival, at)
    found = brier_scores(np.minimum(time, end), time <= end, survival, at)
    # squares are at most 1 and weights at most 1 / exp(-2 / 4) = 1.65; five standard errors
    assert found == pytest.approx(full, abs=5 * 1.65 / np.sqrt(n) / 2)


def test_times_after_the_last_observation_are_refused():
    with pytest.raises(ValueError, match="from which all rows are censored"):
        brier_scores([1.0, 2.0, 3.0], [1, 1, 0], np.full((3, 1), 0.5), [3.0])
    with pytest.raises(ValueError, match=r"survival must have shape \(3, 1\)"):
        brier_scores([1.0, 2.0, 3.0], [1, 1, 0], np.full((3, 2), 0.5), [2.0])
    with pytest.raises(ValueError, match="ascending"):
        integrated_brier_score([1.0, 2.0], [1, 1], np.full((2, 2), 0.5), [2.0, 1.0])
