"""The comparison of log scores in a sample and beyond."""

import numpy as np
import pytest

from bayestree.diagnostics.sample import SampleCheck, score_sums

RNG = np.random.default_rng(0)
SCORE, WEIGHTS = RNG.normal(size=60) - 0.7, RNG.integers(1, 4, 60).astype(float)


def groups(gap=0.0, weights=WEIGHTS):
    each = (score_sums(SCORE + shift, weights) for shift in (gap, 0.0))
    return SampleCheck.of(np.array([*each]))


def test_sums_of_parts_are_those_of_all_rows():
    half = np.arange(60) < 23
    parts = sum(score_sums(SCORE[own], WEIGHTS[own]) for own in (half, ~half))
    np.testing.assert_allclose(parts, score_sums(SCORE, WEIGHTS))


def test_weighted_means():
    assert groups().others_score == pytest.approx(np.average(SCORE, weights=WEIGHTS))
    assert (groups().n_sample, groups().n_others) == (60, 60)


def test_equal_scores_have_no_variance():
    sums = score_sums(np.full(60, -0.1), WEIGHTS)
    assert SampleCheck.of(np.array([sums, sums])).standard_error == pytest.approx(0, abs=1e-9)


def test_a_difference_of_two_standard_errors_matters():
    error = np.sqrt(2 * SCORE.var() / 60)
    assert groups(0.0, np.full(60, 2.0)).standard_error == pytest.approx(error)
    assert groups(2.01 * error, np.ones(60)).gains
    assert not groups(1.99 * error, np.ones(60)).gains
    assert not groups(-3 * error, np.ones(60)).gains


def test_texts_have_the_numbers():
    assert str(groups(1.0)) == (
        "the 60 rows of the sample score 1 nats a row higher than the other 60 (standard error "
        f"{groups(1.0).standard_error:.2g}): more rows would improve a tree of this size by up to "
        "some 0.5 nats a row"
    )
    assert "no sign that more rows would improve" in str(groups(0.0))
    assert groups(1.0).to_json()["difference"] == pytest.approx(1.0)
