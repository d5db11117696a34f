"""Reopened runs, and folders that were changed."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree._utils.write import whole_file
from bayestree.estimators.files import ModelFileError
from bayestree.runs.runner import run
from bayestree.runs.store import open_run, read_model
from bayestree.tables import InputError
from tests.runs.cases import Recorder, interrupt, run_file


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return run(run_file(folder, title="Sizes")).folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy that may be changed, with its data where it was."""
    shutil.copytree(finished.parent, tmp_path / "all")
    return tmp_path / "all" / "out"


class TestOpen:
    def test_all_that_it_has(self, finished):
        found = open_run(finished)
        assert found.folder == finished
        assert found.file.title == "Sizes"
        assert (found.columns.task, found.columns.target) == ("classification", "kind")
        assert found.columns.encoding.feature_names == ["width", "height"]
        assert found.metrics["leaves"] == found.estimator.get_n_leaves()
        rows = found.rows()
        accuracy = found.estimator.score(rows.X_held, rows.y_held)
        assert found.metrics["accuracy"] == accuracy

    def test_a_project_may_be_moved(self, folder, finished):
        found = open_run(folder)
        assert found.file.data.path == folder.parent / "data.csv"
        np.testing.assert_array_equal(found.rows().X, open_run(finished).rows().X)

    def test_a_relative_path(self, folder, monkeypatch):
        monkeypatch.chdir(folder.parent)
        assert open_run("out").folder == folder

    def test_data_that_changed(self, folder):
        (folder.parent / "data.csv").write_text("width,height,kind,price\n1,2,big,1\n2,1,small,3\n")
        with pytest.raises(InputError, match="the run in"):
            open_run(folder).rows()

    def test_an_unfinished_run(self, tmp_path):
        file = run_file(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            run(file, display=Recorder("fit", interrupt))
        found = open_run(tmp_path / "out")
        assert found.manifest["status"] == "interrupted"
        with pytest.raises(InputError, match=r"has no model\.safetensors.* --resume"):
            _ = found.estimator
        with pytest.raises(InputError, match=r"has no metrics\.json"):
            _ = found.metrics


class TestChanged:
    def test_no_run(self, tmp_path):
        with pytest.raises(InputError, match=r"has no manifest\.json; specify the folder of a run"):
            open_run(tmp_path)
        with pytest.raises(InputError, match=r"absent' does not exist; specify the folder"):
            open_run(tmp_path / "absent")

    def test_a_file_instead_of_its_folder(self, folder, tmp_path):
        with pytest.raises(InputError, match=r"is a file of a run; specify its folder, '.*'\."):
            open_run(folder / "run.toml")
        (tmp_path / "a.csv").write_text("x,y")
        with pytest.raises(InputError, match=r"a\.csv' is a file; specify the folder that"):
            read_model(tmp_path / "a.csv")

    @pytest.mark.parametrize("text", ["", "[", "[1]", "{}", '{"status": 3}', "[" * 5000])
    def test_manifest(self, text, folder):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(InputError, match=r"manifest\.json' was changed"):
            open_run(folder)

    @pytest.mark.parametrize(
        "change",
        [
            {"stages": [3]},
            {"seconds": {"fit": "long"}},
            {"versions": [1]},
            {"data": {"data": {}}},
            {"started": "yesterday"},
        ],
    )
    def test_values_of_the_manifest(self, change, folder):
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(InputError, match=r"manifest\.json' was changed"):
            open_run(folder)

    @pytest.mark.parametrize("text", ["", "[", "[1]", "{}", '{"columns": 3}', "\udcff"])
    def test_columns(self, text, folder):
        (folder / "columns.json").write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(InputError, match=r"columns\.json' was changed"):
            read_model(folder)

    def test_columns_of_another_fit(self, folder):
        path = folder / "columns.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"columns": content["columns"][:1]}))
        with pytest.raises(InputError, match="belong to different fits"):
            read_model(folder)

    def test_model(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ModelFileError, match="was truncated"):
            _ = open_run(folder).estimator

    def test_a_model_needs_no_manifest(self, folder):
        (folder / "manifest.json").unlink()
        model, columns = read_model(folder)
        assert isinstance(model, bayestree.ConvexPolytopeTreeClassifier)
        assert columns.target == "kind"


def test_a_draft_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    named = []
    monkeypatch.setattr("os.fsync", lambda _: named.append((tmp_path / "posterior.nc").exists()))
    with whole_file(tmp_path / "posterior.nc") as path:
        path.write_text("draws")
    assert named == [False]
    assert (tmp_path / "posterior.nc").read_text() == "draws"


def test_columns_of_version_0_1_0(folder):
    entries = [{"name": "a", "categories": None}, {"name": "b", "categories": ["x", "y"]}]
    content = json.loads((folder / "columns.json").read_text()) | {"columns": entries}
    (folder / "columns.json").write_text(json.dumps(content))
    found = open_run(folder).columns.encoding
    frame = pd.DataFrame({"a": [1.0], "b": ["y"]})
    assert found.encode(frame).to_numpy().tolist() == [[1, 0, 1]]
    with pytest.raises(InputError, match="1 missing value"):
        found.encode(frame.assign(a=np.nan))
