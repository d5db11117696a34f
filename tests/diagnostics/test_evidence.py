"""The evidence of runs, and the probabilities of sizes."""

import numpy as np
import pytest

from bayestree.diagnostics import check_convergence, evidence


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


def test_other_methods_have_none():
    with pytest.raises(ValueError, match="inference='smc'"):
        evidence({"lp": np.zeros((2, 3))})
