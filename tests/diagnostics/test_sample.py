"""The comparison of log scores in a sample and beyond."""

import numpy as np
import pytest

from bayestree.diagnostics.sample import SampleCheck, ScoreSums

RNG = np.random.default_rng(0)
SCORE, WEIGHTS = RNG.normal(size=60) - 0.7, RNG.integers(1, 4, 60).astype(float)
EVERY = np.ones(60, dtype=bool)


def test_sums_of_parts_are_those_of_all_rows():
    half = np.arange(60) < 23
    parts = [ScoreSums.of(SCORE, WEIGHTS, own) for own in (half, ~half)]
    whole = ScoreSums.of(SCORE, WEIGHTS, EVERY)
    assert parts[0].plus(parts[1]).n_rows == whole.n_rows
    np.testing.assert_allclose(parts[0].plus(parts[1]).sums, whole.sums)
    assert whole.mean == pytest.approx(np.average(SCORE, weights=WEIGHTS))


def test_the_variance_of_a_mean_of_equal_weights():
    found = ScoreSums.of(SCORE, np.full(60, 2.0), EVERY)
    assert found.variance == pytest.approx(SCORE.var() / 60)


def test_equal_scores_have_no_variance():
    assert ScoreSums.of(np.full(60, -0.1), WEIGHTS, EVERY).variance == pytest.approx(0, abs=1e-18)


def groups(gap):
    each = (ScoreSums.of(SCORE + shift, np.ones(60), EVERY) for shift in (gap, 0.0))
    return SampleCheck.of(*each)


def test_a_difference_of_two_standard_errors_matters():
    error = np.sqrt(2 * SCORE.var() / 60)
    assert groups(0.0).standard_error == pytest.approx(error)
    assert groups(2.01 * error).gains
    assert not groups(1.99 * error).gains
    assert not groups(-3 * error).gains


def test_texts_have_the_numbers():
    assert str(groups(1.0)) == (
        "the 60 rows of the sample score 1 nats a row higher than the other 60 (standard error "
        f"{groups(1.0).standard_error:.2g}): more rows would improve a tree of this size by up to "
        "some 0.5 nats a row"
    )
    assert "no sign that more rows would improve" in str(groups(0.0))
    assert groups(1.0).to_json()["difference"] == pytest.approx(1.0)
