"""`bayestree summary`."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from bayestree import _cli
from bayestree.runs.store import open_run
from bayestree.runs.summary import summary
from tests.cli.command import QUICK, done, refused
from tests.finished import finished


def test_the_table_in_lines(place):
    lines = done("summary", finished("numbers")).stdout.splitlines()
    assert lines[0] == "A run of numbers"
    assert lines[1].startswith("tree cpt of 'price': 64 training rows, ")
    assert lines[2].startswith("on 16 held-out rows: rmse ")
    heads = ["node", "rows", "facets", "90", "%", "prior", "unsure", "features", "left", "if"]
    assert lines[4].split() == heads
    root = lines[5].split()
    assert root[:3] == ["root", "64", "1"]
    assert root[4] == "to"


def test_a_forest_names_its_trees(place):
    lines = done("summary", finished("forest")).stdout.splitlines()
    assert lines[4].split()[:4] == ["tree", "node", "rows", "features"]  # every split has one facet
    assert [line.split()[0] for line in lines[5:]].count("2") > 1


def test_json_and_files(place):
    folder = finished("svi")
    table = summary(open_run(folder))
    found = json.loads(done("summary", folder, "--json", "--out", "nodes.csv").stdout)
    assert [node["node"] for node in found["nodes"]] == list(table.index)
    assert found["nodes"][0]["unsure"] == table["unsure"].iloc[0]
    assert found["metrics"]["training_rows"] == 64
    again = pd.read_csv("nodes.csv", index_col="node")
    np.testing.assert_allclose(again["facets_high"], table["facets_high"])
    assert "exists" in refused("summary", folder, "--out", "nodes.csv")


def test_the_facets_of_a_node(place):
    folder = finished("svi")
    clf = open_run(folder).estimator
    assert done("summary", folder, "--node", "root").stdout == f"{clf.facets('root')}\n"
    found = json.loads(done("summary", folder, "--node", "root", "--json").stdout)
    assert found["facets"][0]["inside is"] == clf.facets("root").inequalities()[0]
    assert "--node: node must be one of root" in refused("summary", folder, "--node", "RRR")
    assert "this run has no posterior" in refused("summary", finished("tao"), "--node", "root")


def test_rows_that_have_gone(place):
    shutil.copytree(finished("svi"), "moved")
    result = done("summary", "moved")
    assert result.stderr.startswith("warning: not said how sure the splits are of the rows: ")
    assert "unsure" not in result.stdout
    assert done("summary", "moved", "--no-rows").stderr == ""


def test_many_nodes_are_cut(place, monkeypatch):
    monkeypatch.setattr(_cli.verbs.summary, "MOST_NODES", 1)
    lines = done("summary", finished("forest")).stdout.splitlines()
    assert len(lines) == 7
    assert lines[-1].endswith("nodes more: write them all by --out nodes.csv")


def test_facets_of_a_point_estimate_are_shown_where_a_split_has_several():
    columns = {"rows": [5.0, 2.5], "facets": [1, 3], "features": ["", ""], "split": ["a", "b"]}
    table = pd.DataFrame(columns, index=pd.Index(["root", "L"], name="node"))
    assert [line.split() for line in _cli.verbs.summary._printed(table)] == [
        ["node", "rows", "facets", "features", "left", "if"],
        ["root", "5", "1", "a"],
        ["L", "2.5", "3", "b"],
    ]


def test_no_run(place):
    assert "has no manifest.json; give the folder of a run" in refused("summary", ".")


@pytest.mark.filterwarnings("always::bayestree.SingleLeafWarning")
@pytest.mark.filterwarnings("always::bayestree.UnusedColumnsWarning")
def test_what_the_fit_warned_of(place, table):
    table.head(12).assign(year=1991).drop(columns="copies").to_csv("few.csv", index=False)
    told = done(
        "fit", "few.csv", "--target", "kind", "--out", "few", "--test-fraction", "0.25", *QUICK
    )  # fmt: skip
    single = "warning: the tree has a single leaf and predicts the same for all rows: min_leaf=10"
    unused = "warning: the fit ignores 1 constant column (year) of X."
    lines = done("summary", "few").stdout.splitlines()
    assert [line for line in lines if line.startswith(single)]
    assert unused in lines
    kept = json.loads(done("summary", "few", "--json").stdout)["warnings"]
    log = (place / "few" / "run.log").read_text()
    assert len(kept) == 2
    for text in kept:
        assert text in told.stderr
        assert text in log
