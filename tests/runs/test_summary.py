"""The table of the nodes of a run."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bayestree.runs import summary as module
from bayestree.runs.store import open_run
from bayestree.runs.summary import summary
from bayestree.tables import InputError
from tests.finished import finished
from tests.report.cases import network_tree
from tests.test_text import committee, oblique

DOUBT = ["unsure", "disagreement", "sd"]


def test_a_posterior_is_that_of_the_estimators_own_diagnostics():
    run = open_run(finished("numbers"))
    found, clf = summary(run), run.estimator
    assert list(found.index) == list(clf.tree_.topology.node_labels)
    assert found.index.name == "node"
    sizes = clf.polytope_size().to_frame()
    for name in ("rows", "facets", "facets_low", "facets_high", "prior_mean"):
        np.testing.assert_allclose(found[name], sizes[name])
    doubt = clf.split_uncertainty(run.rows().X).to_frame("node")
    pd.testing.assert_frame_equal(found[DOUBT], doubt[DOUBT])
    facets = clf.facets("root", max_draws=50)
    strength = facets.probability @ facets.strength**2
    assert found.loc["root", "features"].split(", ")[0] == facets.feature_names[strength.argmax()]
    assert found.loc["root", "split"].startswith("size + ")


def test_without_rows_the_data_is_left_alone(tmp_path):
    shutil.copytree(finished("svi"), tmp_path / "moved")
    run = open_run(tmp_path / "moved")
    assert not set(DOUBT) & set(summary(run, rows=False))
    with pytest.raises(InputError):
        summary(run)


def test_sizes_are_measured_where_the_run_has_no_table_of_them(tmp_path):
    found = summary(open_run(finished("svi")), rows=False)
    without = shutil.ignore_patterns("facets.csv")
    shutil.copytree(finished("svi"), tmp_path / "one", ignore=without)
    pd.testing.assert_frame_equal(summary(open_run(tmp_path / "one"), rows=False), found)
    shutil.copytree(finished("svi"), tmp_path / "other")
    tmp_path.joinpath("other/facets.csv").write_text("node,facets\nLRL,7\n")  # of another tree
    pd.testing.assert_frame_equal(summary(open_run(tmp_path / "other"), rows=False), found)


@pytest.mark.parametrize("kind", ["map", "tao"])
def test_a_point_estimate_has_no_intervals(kind):
    run = open_run(finished(kind))
    found = summary(run)
    assert list(found) == ["rows", "facets", "features", "split"]
    assert found.loc["root", "rows"] == 64


def test_a_forest_is_a_table_of_trees():
    run = open_run(finished("forest"))
    found = summary(run)
    assert found.index.names == ["tree", "node"]
    trees = [member.tree_ for member in run.estimator.estimators_]
    assert len(found) == sum(tree.n_nodes for tree in trees)
    assert list(found.loc[2].index) == list(trees[1].topology.node_labels)


def test_the_strongest_features_hold_nine_tenths():
    tree = oblique()  # height - 2, age + 0.5 a year, in units of 1 and 10
    table = module._plain(tree)
    assert table.loc["root", "features"] == "age, height"
    far = replace(tree, hyperplane=tree.hyperplane * [1.0, 10.0, 0.0])
    assert module._plain(far).loc["root", "features"] == "age"
    none = replace(tree, hyperplane=0 * tree.hyperplane)
    assert module._plain(none).loc["root", "features"] == ""


def test_a_facet_counts_as_often_as_draws_have_it():
    """Two facets in 1 of 10 draws, of one feature each, do not make up for one in all."""

    class Fitted:
        tree_ = oblique()

        def facets(self, node, max_draws):
            return SimpleNamespace(
                probability=np.array([1.0, 0.05, 0.04]),
                strength=np.eye(3)[[0, 1, 1]],
                feature_names=("height", "age", "year"),
            )

    assert [*module._features(Fitted())] == [["height"]]


def test_splits_in_words():
    assert module._plain(oblique()).loc["root", "split"] == "age - 4 height <= -2.0"
    assert module._plain(committee()).loc["root", "split"].endswith(" and 2 more")
    networks = module._plain(network_tree())
    assert networks.loc["root"].to_dict() == {"rows": 8.0, "split": "network"}
