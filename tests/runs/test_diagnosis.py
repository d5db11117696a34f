"""Verdicts on the inference of runs."""

import pandas as pd
import pytest

from bayestree.diagnostics import Convergence
from bayestree.diagnostics.convergence import Check
from bayestree.runs.diagnosis import Diagnosis, _answer, diagnose
from bayestree.runs.store import open_run
from tests.finished import finished


def checks(**verdicts):
    about = {"pareto_k": "approximation"}
    made = [
        Check(name, about.get(name, "convergence"), 1.0, 1.0, verdict, "It says so.", "")
        for name, verdict in verdicts.items()
    ]
    return Convergence(tuple(made), (), pd.DataFrame())


@pytest.mark.parametrize(
    ("verdicts", "stats", "answer"),
    [
        ({"r_hat": "ok", "divergences": "ok"}, {}, "yes"),
        ({"r_hat": "ok", "divergences": "doubtful"}, {}, "doubtful"),
        ({"r_hat": "ok", "ess_bulk": "failed"}, {}, "no"),
        ({"divergences": "ok"}, {}, "not known"),  # too few draws for R-hat
        ({"divergences": "failed"}, {}, "no"),
        ({"elbo": "ok", "pareto_k": "failed"}, {"elbo": 0}, "yes"),
        ({"elbo": "failed"}, {"elbo": 0}, "no"),
        ({"pareto_k": "ok"}, {"elbo": 0}, "not known"),  # too few epochs
        ({"pareto_k": "ok"}, {}, "yes"),  # in closed form
        ({}, {}, "not known"),
    ],
)
def test_one_word_for_all_checks(verdicts, stats, answer):
    found = _answer(checks(**verdicts), stats)
    assert found == answer
    assert Diagnosis(found, "", None).passes == (answer in ("yes", "doubtful"))


def test_chains_that_disagree():
    found = diagnose(open_run(finished("nuts")))
    assert found.converged == "no"
    assert found.how == "cpt, nuts: 2 chains of 16 draws"
    lines = str(found).splitlines()
    assert lines[1] == "Converged: no"
    assert lines[2].startswith("The inference has not ended where it was going")
    assert "[failed] r_hat: 2 chains disagree" in str(found)
    assert str(found).count("Converged") == 1


def test_a_fit_too_short_to_tell():
    found = diagnose(open_run(finished("svi")))
    assert (found.converged, found.passes) == ("not known", False)
    assert found.how == "cpt, svi: 1 chain of 40 draws"
    assert "3 epochs are too few" in str(found)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("map", "cpt, map: a point estimate"),
        ("tao", "tao, tao: a point estimate"),
        ("forest", "e2edf: a forest of 2 trees"),
    ],
)
def test_a_point_estimate_has_nothing_to_judge(kind, how):
    found = diagnose(open_run(finished(kind)))
    assert (found.converged, found.passes, found.checks) == ("nothing to judge", True, None)
    assert str(found).splitlines()[0] == how
