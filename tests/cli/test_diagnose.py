"""`bayestree diagnose`."""

import json

import pytest

from bayestree.runs.results import diagnose
from bayestree.runs.store import open_run
from tests.cli.command import done, refused, run
from tests.finished import finished


@pytest.mark.parametrize(("kind", "code"), [("nuts", 1), ("svi", 1), ("map", 0), ("forest", 0)])
def test_the_exit_code_is_the_verdict(kind, code, place):
    folder = finished(kind)
    found = diagnose(open_run(folder))
    result = run("diagnose", folder)
    assert result.exit_code == code
    assert result.stdout == f"{found}\n"
    assert result.stderr == ""


def test_json(place):
    result = run("diagnose", finished("nuts"), "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["converged"], found["stands_for_the_posterior"]) == ("no", False)
    assert found["checks"][0]["check"] == "r_hat"
    assert found["checks"][0]["verdict"] == "failed"
    assert found["intervals"] == "not usable yet: the inference has not converged."
    assert "16 held-out rows" in found["predictions"]
    plain = json.loads(done("diagnose", finished("map"), "--json").stdout)
    assert (plain["converged"], plain["checks"]) == ("nothing to judge", [])


def test_evidence(place):
    own = open_run(finished("smc")).estimator.evidence()
    assert run("diagnose", finished("smc")).stdout.endswith(f"{own}\n")
    found = json.loads(run("diagnose", finished("smc"), "--json").stdout)
    assert found["evidence"] == own.to_json()
    assert json.loads(run("diagnose", finished("nuts"), "--json").stdout)["evidence"] is None


def test_no_run(place):
    assert "has no manifest.json" in refused("diagnose", ".")
