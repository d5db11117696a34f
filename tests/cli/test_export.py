"""`bayestree export`."""

import json
import shutil
from typing import get_args

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import bayestree
from bayestree.cli.predict import Format
from bayestree.export.onnx import OnnxMismatchError
from bayestree.runs import results
from tests.cli.command import done, refused, run
from tests.finished import finished


@pytest.fixture
def tree(place):
    return finished("svi")


@pytest.fixture
def fitted(tree):
    return bayestree.load(tree / "model.safetensors")


def test_every_format_has_a_writer_and_a_name():
    assert set(get_args(Format)) == results.WRITERS.keys()
    assert set(results.SUFFIXES.values()) == results.WRITERS.keys() - {"rules"}


def test_what_is_printed_is_what_the_function_writes(tree, fitted):
    for name in ("text", "rules", "json", "dot"):
        expected = results.WRITERS[name](fitted)
        assert done("export", tree, "--format", name).stdout == expected
    assert done("export", tree).stdout == bayestree.export_text(fitted)
    assert done("export", tree / "model.safetensors").stdout == bayestree.export_text(fitted)


@pytest.mark.parametrize("out", ["t.txt", "t.json", "t.dot", "t.gv"])
def test_the_name_of_the_file_tells_the_format(tree, fitted, place, out):
    result = done("export", tree, "--out", out)
    assert result.stdout == f"written to {out}\n"
    expected = results.WRITERS[results.SUFFIXES[place.joinpath(out).suffix]](fitted)
    assert place.joinpath(out).read_text(encoding="utf-8") == expected


def test_onnx_is_compared_on_the_rows_of_the_fit(tree, fitted, place, monkeypatch):
    result = done("export", tree, "--out", "tree.onnx")
    assert result.stderr == "onnxruntime sends 64 training rows to the leaves of the tree\n"
    monkeypatch.setattr(results, "COMPARED", 10)
    few = json.loads(done("export", tree, "--out", "tree.onnx", "--force", "--json").stdout)
    assert few["checked"]["rows"] == 10
    session = onnxruntime.InferenceSession(place / "tree.onnx")
    X = np.random.default_rng(1).normal(size=(50, fitted.n_features_in_))
    np.testing.assert_array_equal(session.run(["leaf"], {"X": X})[0], fitted.tree_.apply(X))


@pytest.mark.parametrize("missing", ["manifest.json", "run.log"])
def test_onnx_without_the_data_is_compared_on_rows_that_are_made_up(tree, fitted, place, missing):
    """The run was moved away from the data next to it."""
    shutil.copytree(tree, "moved", ignore=shutil.ignore_patterns(missing))
    result = done("export", "moved", "--out", "tree.onnx", "--json")
    found = json.loads(result.stdout)
    assert found["checked"] == {"rows": 1000, "at_border": 0, "source": "simulated rows"}
    assert (found["format"], found["file"]) == ("onnx", "tree.onnx")
    assert found["leaves"] == fitted.get_n_leaves()


def test_a_model_that_differs_is_not_written(tree, place, monkeypatch):
    def differs(*_):
        raise OnnxMismatchError

    monkeypatch.setattr(results, "check_onnx", differs)
    assert isinstance(run("export", tree, "--out", "tree.onnx").exception, OnnxMismatchError)
    assert not place.joinpath("tree.onnx").exists()


def test_a_model_that_cannot_be_compared_is_written_with_a_warning(
    tree, fitted, place, monkeypatch
):
    def missing(*_):
        raise ImportError("ONNX needs the package onnxruntime.")

    monkeypatch.setattr(results, "check_onnx", missing)
    result = done("export", tree, "--out", "tree.onnx")
    assert result.stderr.startswith("warning: not compared with the tree: ONNX needs")
    assert place.joinpath("tree.onnx").exists()


def test_limits_of_what_is_shown(place):
    forest = finished("forest")
    fitted = bayestree.load(forest / "model.safetensors")
    short = done("export", forest, "--max-features", "1").stdout
    assert "more" in short
    assert short == bayestree.export_text(fitted, max_features=1)
    digits = done("export", forest, "--decimals", "1").stdout
    assert digits == bayestree.export_text(fitted, decimals=1)
    assert digits != bayestree.export_text(fitted)
    assert "json always shows the whole tree; omit --max-facets" in refused(
        "export", forest, "--format", "json", "--max-facets", "3"
    )


def test_json_holds_the_content(tree, fitted):
    found = json.loads(done("export", tree, "--format", "dot", "--json").stdout)
    assert found["content"] == bayestree.export_dot(fitted)


def test_refusals(place):
    forest = finished("forest")
    assert "onnx is a binary format; specify a file" in refused(
        "export", forest, "--format", "onnx"
    )
    assert "does not indicate the format; end it in .txt" in refused(
        "export", forest, "--out", "a.b"
    )
    assert "rules: one tree is needed" in refused("export", forest, "--format", "rules")
    place.joinpath("t.txt").touch()
    assert "exists; choose another file, or add --force" in refused(
        "export", forest, "--out", "t.txt"
    )
    done("export", forest, "--out", "t.txt", "--force")
    assert "has no model.safetensors" in refused("export", ".")
    assert "is not a safetensors file" in refused("export", "t.txt")


def test_a_model_of_columns(table, place):
    table.loc[::7, "color"] = None
    table.to_csv("data.csv", index=False)
    words = ("--depth", "2", "--set", "report=false", "--tree", "tao")
    done("fit", "data.csv", "--target", "kind", "--drop", "price", "--out", "tree", *words)
    result = done("export", "tree", "--out", "tree.onnx", "--columns")
    assert "onnxruntime sends 80 rows of the table to the leaves of the tree" in result.stderr
    session = onnxruntime.InferenceSession(place / "tree.onnx")
    given = {
        "size": table["size"].to_numpy(),
        "color": table["color"].fillna("").to_numpy(dtype=object),
        "copies": table["copies"].to_numpy(dtype=float),
    }
    label = session.run(["label"], given)[0]
    done("predict", "tree", "data.csv", "--out", "predicted.csv")
    assert label.tolist() == pd.read_csv("predicted.csv")["prediction"].tolist()
    assert "--columns is for the format onnx" in refused("export", "tree", "--columns")
    place.joinpath("data.csv").unlink()
    words = ("export", "tree", "--out", "tree.onnx", "--columns", "--force")
    assert "not compared with the tree" in done(*words).stderr
