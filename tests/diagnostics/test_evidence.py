"""The evidence of runs, and the probabilities of sizes."""

import numpy as np
import pytest

from bayestree.diagnostics import (
    check_convergence,
    compare_evidence,
    evidence,
)


def stats(runs=(-10.0, -10.0), n_leaves=((1, 2, 2, 3), (2, 2, 2, 2))):
    n_leaves = np.array(n_leaves)
    return {"log_evidence": np.array(runs), "n_leaves": n_leaves, "depth": n_leaves - 1}


def test_mean_of_the_runs():
    """The mean of exp(-10) and 3 exp(-10), whose standard error is half of it."""
    found = evidence(stats((-10.0, -10.0 + np.log(3))))
    assert found.log_evidence == pytest.approx(-10 + np.log(2))
    assert found.standard_error == pytest.approx(0.5)


def test_probabilities_and_their_errors():
    table = evidence(stats()).leaf_probabilities
    assert table["probability"].to_dict() == {1: 0.125, 2: 0.75, 3: 0.125}
    # shares of 1/2 and 1 differ from their mean by a quarter
    assert table["error"][2] == pytest.approx(0.25)
    assert "leaves" in str(evidence(stats()))
    assert list(evidence(stats()).depth_probabilities.index) == [0, 1, 2]


@pytest.mark.parametrize(("gap", "verdict"), [(0.1, "ok"), (0.8, "doubtful"), (5.0, "failed")])
def test_verdict_on_the_spread_of_the_runs(gap, verdict):
    shares = np.full(10, -10.0)
    shares[0] += gap * 3
    found = check_convergence(None, stats(shares))
    assert found["log_evidence"].verdict == verdict
    assert ("particles" in found["log_evidence"].remedy) == (verdict != "ok")


def test_as_json():
    found = evidence(stats((-10.0, -10.0 + np.log(3)))).to_json()
    assert found["log_evidence"] == pytest.approx(-10 + np.log(2))
    assert found["standard_error"] == pytest.approx(0.5)
    assert found["leaves"] == {"1": 0.125, "2": 0.75, "3": 0.125}
    assert found["depth"] == {"0": 0.125, "1": 0.75, "2": 0.125}


def test_one_run_has_no_standard_error():
    found = evidence(stats((-10.0,), ((1, 2),)))
    assert found.to_json()["standard_error"] is None
    assert str(found).startswith("Log evidence -10.00, 1 run of 2 draws\n")


def test_checks_have_the_evidence():
    found = check_convergence(None, stats())
    assert str(found).endswith(str(found.evidence))
    assert found.evidence.log_evidence == -10
    assert check_convergence(None, {"lp": np.zeros((2, 3))}).evidence is None


def test_other_methods_have_none():
    with pytest.raises(ValueError, match="inference='smc'"):
        evidence({"lp": np.zeros((2, 3))})


def test_bayes_factors_and_probabilities():
    """Evidence in the ratio 1 to 3; each standard error is half of its evidence, as above."""
    low, high = (evidence(stats((a, a + np.log(3)))) for a in (-10.0, -10.0 + np.log(3)))
    found = compare_evidence({"a": low, "b": high})
    assert [*found.index] == ["b", "a"]
    np.testing.assert_allclose(found["probability"], [0.75, 0.25])
    np.testing.assert_allclose(found["log_bayes_factor"], [0, -np.log(3)])
    np.testing.assert_allclose(found["se"], 0.5)
    np.testing.assert_allclose(found["log_bayes_factor_se"], [0, np.sqrt(0.5)])
    assert found["log_evidence"]["b"] == high.log_evidence


def test_evidence_far_apart_does_not_overflow():
    found = compare_evidence({"a": evidence(stats((-9e4, -9e4))), "b": evidence(stats())})
    assert found["probability"].to_dict() == {"b": 1.0, "a": 0.0}


def test_other_rows_are_refused():
    one, other = (evidence(stats() | {"rows": number}) for number in (1, 2))
    with pytest.raises(ValueError, match="'a' and 'c' were fitted to different targets"):
        compare_evidence({"a": one, "b": evidence(stats()), "c": other})
    with pytest.raises(ValueError, match="two or more"):
        compare_evidence({"a": one})
