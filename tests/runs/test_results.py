"""The nodes of a run as a table, and the verdict on its inference."""

import shutil
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayestree import UnconvergedWarning
from bayestree.diagnostics import Check, Convergence
from bayestree.inference import convergence
from bayestree.report.rows import LabelledRows, most_important, rows_of
from bayestree.report.study import Study
from bayestree.runs import results as module
from bayestree.runs.results import Diagnosis, diagnose, summary
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.export.test_text import committee, oblique
from tests.finished import finished, table
from tests.fitted_cases import encoding_of, network_tree
from tests.runs.cases import edit_json

DOUBT = ["unsure", "disagreement", "sd"]


def test_a_posterior_is_that_of_the_estimators_own_diagnostics():
    run = open_run(finished("numbers"))
    found, clf = summary(run), run.estimator
    assert list(found.index) == list(clf.tree_.topology.node_labels)
    assert found.index.name == "node"
    sizes = clf.polytope_size().to_frame()
    for name in ("rows", "facets", "facets_median", "facets_low", "facets_high", "prior_mean"):
        np.testing.assert_allclose(found[name], sizes[name])
    assert list(found["facets_point"]) == list(clf.tree_.n_facets)
    doubt = clf.split_uncertainty(run.rows().X_held).to_frame("node")
    pd.testing.assert_frame_equal(found[DOUBT], doubt[DOUBT])
    assert found.attrs["asked"] == "16 held-out rows"
    assert found.loc["root", "features"][0] == "size"
    assert found.loc["root", "split"].startswith("size ")


@pytest.mark.parametrize("kind", ["svi", "all rows"])
def test_the_report_says_the_same(kind):
    run = open_run(finished(kind))
    rows, found = run.rows(), summary(run)
    train = rows_of(run.estimator, rows.X, held_out=False)
    held = rows_of(run.estimator, rows.X_held, held_out=True) if rows.held_out else None
    study = Study(run.estimator, train, held)
    pd.testing.assert_frame_equal(study.uncertainty_table[DOUBT], found[DOUBT])
    assert study.importance is not None
    assert study.evaluated is not None
    assert found.attrs["asked"] == study.evaluated.counted
    names = [
        [study.columns[j] for j in most_important(share)] for share in study.importance.nodes[0]
    ]
    assert names == list(found["features"])


def test_without_rows_the_data_is_left_alone(tmp_path):
    shutil.copytree(finished("svi"), tmp_path / "moved")
    run = open_run(tmp_path / "moved")
    assert not {*DOUBT, "features"} & set(summary(run, rows=False))
    with pytest.raises(InputError):
        summary(run)


def test_sizes_are_measured_where_the_run_has_no_table_of_them(tmp_path):
    found = summary(open_run(finished("svi")), rows=False)
    without = shutil.ignore_patterns("facets.csv")
    shutil.copytree(finished("svi"), tmp_path / "one", ignore=without)
    pd.testing.assert_frame_equal(summary(open_run(tmp_path / "one"), rows=False), found)
    earlier = pd.read_csv(finished("svi") / "facets.csv").drop(columns="facets_median")
    shutil.copytree(finished("svi"), tmp_path / "earlier")
    earlier.to_csv(tmp_path / "earlier/facets.csv", index=False)
    edit_json(tmp_path / "earlier/manifest.json", files={})
    pd.testing.assert_frame_equal(summary(open_run(tmp_path / "earlier"), rows=False), found)
    shutil.copytree(finished("svi"), tmp_path / "other")
    tmp_path.joinpath("other/facets.csv").write_text("node,facets\nLRL,7\n")  # of another tree
    edit_json(tmp_path / "other/manifest.json", files={})
    pd.testing.assert_frame_equal(summary(open_run(tmp_path / "other"), rows=False), found)


@pytest.mark.parametrize("kind", ["map", "tao"])
def test_a_point_estimate_has_no_intervals(kind):
    run = open_run(finished(kind))
    found = summary(run)
    assert list(found) == ["rows", "facets_point", "facets", "features", "split"]
    assert found.loc["root", "rows"] == 64


def test_a_forest_is_a_table_of_trees():
    run = open_run(finished("forest"))
    found = summary(run)
    assert found.index.names == ["tree", "node"]
    trees = [member.tree_ for member in run.estimator.estimators_]
    assert len(found) == sum(tree.n_nodes for tree in trees)
    assert list(found.loc[2].index) == list(trees[1].topology.node_labels)


def test_names_with_commas_stay_whole():
    tree = replace(oblique(), feature_names=("height, in m", "age", "year"))
    rng = np.random.default_rng(0)
    X = tree.center + tree.scale * rng.normal(size=(200, 3))
    table = module._point_estimate(
        tree, encoding_of(tree), LabelledRows(X, None, np.ones(200), held_out=True)
    )
    assert sorted(table.loc["root", "features"]) == ["age", "height, in m"]


def test_splits_in_words():
    assert (
        module._point_estimate(oblique(), encoding_of(oblique()), None).loc["root", "split"]
        == "age - 4 height <= -2.0"
    )
    assert (
        module._point_estimate(committee(), encoding_of(committee()), None)
        .loc["root", "split"]
        .endswith(" and 2 more")
    )
    networks = module._point_estimate(network_tree(), encoding_of(network_tree()), None)
    assert networks.loc["root"].to_dict() == {"rows": 8.0, "split": "network"}


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
    monkeypatch.setattr(convergence, "MIN_FURTHER", 50)
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
