"""Verdicts on runs."""

import shutil
import warnings

import pandas as pd
import pytest

from bayestree import UnconvergedWarning
from bayestree.diagnostics import Check, Convergence
from bayestree.inference import bounds
from bayestree.runs.diagnosis import Diagnosis, diagnose
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.finished import finished, table


@pytest.mark.parametrize(
    ("kind", "verdicts", "passes"),
    [
        ("point", {}, True),
        ("chains", {}, False),
        ("chains", {"r_hat": "doubtful"}, True),
        # that of a variational fit as it comes: no run fails by its Pareto k
        ("variational", {"elbo": "ok", "pareto_k": "info"}, True),
        ("variational", {"elbo": "failed", "pareto_k": "info"}, False),
    ],
)
def test_what_passes(kind, verdicts, passes):
    about = {"pareto_k": "approximation"}
    checks = tuple(
        Check(name, about.get(name, "convergence"), 3.1, 1.0, verdict, "", "")
        for name, verdict in verdicts.items()
    )
    assert Diagnosis("", Convergence(checks, (), pd.DataFrame(), kind)).passes == passes


def test_chains_that_disagree():
    found = diagnose(open_run(finished("nuts")))
    assert (found.converged, found.passes) == ("no", False)
    assert found.how == "cpt, nuts: 2 chains of 16 draws"
    lines = str(found).splitlines()
    assert lines[0] == found.how
    assert lines[2].startswith("Predictions: ")
    assert "Intervals: not usable yet: the inference has not converged." in lines
    assert "Converged: no" in lines
    assert "[failed] r_hat = " in str(found)


@pytest.mark.parametrize("kind", ["svi", "numbers", "modes"])
def test_python_gives_the_same_verdict(kind):
    done = open_run(finished(kind))
    rows = done.rows()
    found = done.estimator.check_convergence(rows.X_held, rows.y_held)
    assert str(found.held_out) == str(diagnose(done).checks.held_out)
    again = done.estimator.check_convergence(rows.X_held)
    assert str(again["elbo"]) == str(diagnose(done).checks["elbo"])


def test_a_short_run_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "MIN_FURTHER", 50)
    table().to_csv(tmp_path / "data.csv", index=False)
    parts = {
        "data": {"path": "data.csv", "target": "kind", "drop": ["price"]},
        "model": {"card": "cpt", "max_depth": 1, "n_experts": 2},
        "inference": {"card": "svi", "n_modes": 1, "epochs": 3, "n_draws": 5},
        "output": {"draws": False, "report": False, "predictions": False},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnconvergedWarning)
        done = run(RunFile.from_parts(parts, tmp_path / "run.toml"))
    (said,) = (text for text in done.manifest["warnings"] if "converged" in text)
    assert "Set epochs to 1000 (the fit had 3)" in said
    assert diagnose(done).checks["elbo"].remedy in said


def test_a_fit_that_is_too_short():
    found = diagnose(open_run(finished("svi")))
    assert (found.converged, found.passes) == ("no", False)
    assert found.how == "cpt, svi: 1 chain of 40 draws"
    assert "[failed] elbo" in str(found)


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
    assert (found.converged, found.passes) == ("nothing to judge", True)
    assert found.checks.checks == ()
    assert found.checks.intervals.startswith("none")
    assert str(found).splitlines()[0] == how


class TestHeldOut:
    @pytest.mark.parametrize("kind", ["svi", "forest"])
    def test_classes_come_first(self, kind):
        run = open_run(finished(kind))
        table = pd.read_parquet(run.folder / "predictions.parquet")
        right = (table["kind"] == table["prediction"]).mean()
        said = diagnose(run).checks.held_out.says
        assert said.startswith(f"On {len(table)} held-out rows, accuracy is {right:.1%} ")
        assert said in " ".join(str(diagnose(run)).split())

    def test_numbers(self):
        run = open_run(finished("numbers"))
        table = pd.read_parquet(run.folder / "predictions.parquet")
        inside = table["price"].between(table["low"], table["high"]).mean()
        assert f"{inside:.1%} of the values lie inside" in diagnose(run).checks.predictions

    def test_a_run_without_held_out_rows(self):
        assert diagnose(open_run(finished("all rows"))).checks.held_out is None

    def test_a_run_that_wrote_no_predictions(self, tmp_path):
        folder = tmp_path / "run"
        shutil.copytree(finished("svi"), folder)
        (folder / "predictions.parquet").unlink()
        assert diagnose(open_run(folder)).checks.held_out is None

    def test_predictions_that_were_changed(self, tmp_path):
        folder = tmp_path / "run"
        shutil.copytree(finished("svi"), folder)
        (folder / "predictions.parquet").write_bytes(b"PAR1 no table")
        with pytest.raises(InputError, match=r"predictions\.parquet.* was changed"):
            diagnose(open_run(folder))
