"""The table of the nodes of a run."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayestree.report.html.study import Study
from bayestree.report.rows import Rows, rows_of
from bayestree.report.splits import most_important
from bayestree.runs import summary as module
from bayestree.runs.store import open_run
from bayestree.runs.summary import summary
from bayestree.tables import InputError
from tests.export.test_text import committee, oblique
from tests.finished import finished
from tests.fitted_cases import encoding_of, network_tree

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
    pd.testing.assert_frame_equal(summary(open_run(tmp_path / "earlier"), rows=False), found)
    shutil.copytree(finished("svi"), tmp_path / "other")
    tmp_path.joinpath("other/facets.csv").write_text("node,facets\nLRL,7\n")  # of another tree
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
        tree, encoding_of(tree), Rows(X, None, np.ones(200), held_out=True)
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
