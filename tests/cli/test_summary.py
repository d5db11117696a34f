"""`bayestree summary`."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from bayestree import export_text
from bayestree.cli import results as verb
from bayestree.cli.shared import score_lines
from bayestree.description import POLYTOPE_RULE
from bayestree.runs.results import summary
from bayestree.runs.store import open_run
from tests.cli.command import QUICK, done, refused, run
from tests.finished import finished
from tests.finished import table as finished_table
from tests.runs.cases import edit_json


def test_the_table_in_lines(place):
    lines = done("summary", finished("numbers")).stdout.splitlines()
    assert lines[0] == "A run of numbers"
    assert lines[1].startswith("tree cpt of 'price': 64 training rows, ")
    assert lines[2].startswith("on 16 held-out rows: rmse ")
    assert lines[3].startswith("ridge regression, fitted to the same training rows: rmse ")
    assert lines[4].startswith("ELBO: ")
    heads = "node rows point estimate posterior prior unsure features split (point estimate)"
    assert lines[6].split() == heads.split()
    table = summary(open_run(finished("numbers"))).loc["root"]
    root = lines[7].split()
    assert root[:3] == ["root", "64", f"{table['facets_point']}"]
    assert root[3:6] == [f"{table['facets_median']}", f"({table['facets_low']}", "to"]
    assert f" {100 * table['unsure']:.1f} % " in lines[7]
    key = " ".join(lines[8:])
    assert "Unsure: share of the 16 held-out rows" in key
    assert "shuffled among them" in key


def test_a_baseline_of_fewer_rows(place):
    shutil.copytree(finished("numbers"), "few")
    path = place / "few" / "metrics.json"
    metrics = json.loads(path.read_text())
    metrics["baseline"]["training_rows"] = 40
    path.write_text(json.dumps(metrics))
    edit_json(place / "few" / "manifest.json", files={})
    lines = done("summary", "few", "--no-rows").stdout.splitlines()
    assert lines[3].startswith("ridge regression, fitted to 40 of the training rows: rmse ")


def test_a_forest_names_its_trees(place):
    lines = done("summary", finished("forest")).stdout.splitlines()
    assert lines[1].startswith("forest e2edf of 'kind'")
    assert lines[5].split()[:4] == ["tree", "node", "rows", "features"]  # every split has one facet
    assert [line[:1] for line in lines[6:]].count("2") > 1


def test_evidence(place):
    own = open_run(finished("smc")).estimator.evidence()
    metrics = json.loads((finished("smc") / "metrics.json").read_text())
    assert metrics["evidence"] == own.to_json()
    (line,) = (
        line
        for line in done("summary", finished("smc"), "--no-rows").stdout.splitlines()
        if line.startswith("log evidence")
    )
    shares = own.leaf_probabilities["probability"]
    leaves = ", ".join(f"{size} ({share:.2f})" for size, share in shares.items())
    assert line.startswith(
        f"log evidence {own.log_evidence:.2f} (standard error {own.standard_error:.2f}); "
        f"posterior of the number of leaves: {leaves}; of the depth: "
    )
    one = score_lines(metrics | {"evidence": metrics["evidence"] | {"standard_error": None}})
    assert "(of one run)" in [*one][-1]
    assert "evidence" not in json.loads((finished("svi") / "metrics.json").read_text())


def test_several_modes(place):
    lines = done("summary", finished("modes")).stdout.splitlines()
    assert lines[2].startswith("the tree is mode 1 of 2 (weight 0.50), the most typical tree; ")
    said = run("diagnose", finished("modes")).stdout  # so few epochs fail
    assert said.startswith("cpt, svi, 2 modes, each: 1 chain of 40 draws")
    assert "modes =" in said
    container = done("export", finished("modes")).stdout
    assert "This is mode 1 of 2 (weight 0.50)" in container


def test_names_with_commas_and_line_breaks(place):
    names = {"size": "size, of all,\nin m", "weight": "weight, total"}
    finished_table().rename(columns=names).to_csv("data.csv", index=False)
    done("fit", "data.csv", "--target", "kind", "--drop", "price", "--out", "found", *QUICK)
    found = json.loads(done("summary", "found", "--json", "--out", "nodes.csv").stdout)
    features = found["nodes"][0]["features"]
    assert features
    assert set(features) <= {*names.values(), "color=red"}
    assert found["asked"] == "16 held-out rows"
    assert json.loads(pd.read_csv("nodes.csv")["features"][0]) == features
    printed = done("summary", "found").stdout.splitlines()
    (root,) = [line for line in printed if line.startswith("root")]
    assert " ".join(features[0].split()) in root


def test_more_features_than_are_printed():
    assert verb._first(["a, b", "c", "d", "e, f", "g"]) == "a, b · c · d + 2 more"
    assert verb._first(["a, b", "c\nd", "e"]) == "a, b · c d · e"


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
    printed = done("summary", folder, "--node", "root").stdout
    point, posterior = printed.split("\n\nPosterior\n")
    assert posterior == f"{clf.facets('root')}\n"
    assert point.startswith("Point estimate: ")
    exported = export_text(clf).splitlines()
    for line in point.splitlines()[1:]:
        assert any(one.endswith(line) for one in exported)
    found = json.loads(done("summary", folder, "--node", "root", "--json").stdout)
    assert found["facets"][0]["inside is"] == clf.facets("root").inequalities()[0]
    assert "--node: node must be " in refused("summary", folder, "--node", "RRR")
    assert "this run has no posterior" in refused("summary", finished("tao"), "--node", "root")


def test_rows_that_have_gone(place):
    shutil.copytree(finished("svi"), "moved")
    result = done("summary", "moved")
    assert result.stderr.startswith(
        "warning: feature importance and split uncertainty are not shown: "
    )
    assert "unsure" not in result.stdout.lower()
    assert done("summary", "moved", "--no-rows").stderr == ""


def test_many_nodes_are_cut(place, monkeypatch):
    monkeypatch.setattr(verb, "MAX_NODES", 1)
    lines = done("summary", finished("forest")).stdout.splitlines()
    assert [line[:1] for line in lines[6:]].count("1") == 1
    hidden = len(summary(open_run(finished("forest")))) - 1
    assert lines[7] == f"… {hidden} more nodes: write all with --out nodes.csv"


def test_facets_of_a_point_estimate_are_shown_where_a_split_has_several():
    columns = {"rows": [5.0, 2.5], "facets_point": [1, 3], "facets": [1, 3], "split": ["a", "b"]}
    table = pd.DataFrame(columns, index=pd.Index(["root", "L"], name="node"))
    lines = [*verb._printed(table, POLYTOPE_RULE)]
    assert [line.split() for line in lines[:3]] == [
        ["node", "rows", "point", "estimate", "split", "(point", "estimate)"],
        ["root", "5", "1", "a"],
        ["L", "2.5", "3", "b"],
    ]
    assert POLYTOPE_RULE in " ".join(lines)
    assert POLYTOPE_RULE in " ".join(verb._rule(["a", "b"], POLYTOPE_RULE).split())
    assert verb._rule(["a"], POLYTOPE_RULE) == "Point estimate: a row goes left if"
    single = [*verb._printed(table.assign(facets_point=1, facets=1), POLYTOPE_RULE)]
    assert not any("necessary" in line for line in single)


def test_no_run(place):
    assert "has no manifest.json; specify the folder of a run" in refused("summary", ".")


@pytest.mark.filterwarnings("always::bayestree.SingleLeafWarning")
@pytest.mark.filterwarnings("always::bayestree.UnusedColumnsWarning")
def test_what_the_fit_warned_of(place, table):
    table.head(12).assign(year=1991).drop(columns="copies").to_csv("few.csv", index=False)
    told = done(
        "fit", "few.csv", "--target", "kind", "--out", "few", "--test-fraction", "0.25", *QUICK
    )  # fmt: skip
    single = "warning: the tree has a single leaf: a split "
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
