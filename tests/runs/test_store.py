"""Reopened runs, and folders that were changed."""

import json
import os
import shutil
from contextlib import suppress

import numpy as np
import pytest

import bayestree
from bayestree._utils.write import whole_file
from bayestree.estimators.files import ModelFileError
from bayestree.runs.results import diagnose, summary
from bayestree.runs.runner import run
from bayestree.runs.store import RunFolder, open_run, read_model
from bayestree.tables import InputError
from tests.runs.cases import Recorder, edit_json, interrupt, run_file


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

    @pytest.mark.parametrize("change", [{"target": "price"}, {"extra": "width"}, {"columns": []}])
    def test_values_of_the_columns(self, change, folder):
        path = folder / "columns.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(InputError, match=r"columns\.json' was changed"):
            read_model(folder)

    @pytest.mark.parametrize("fill", [[1e9], None])
    def test_columns_that_are_not_those_of_the_model(self, fill, folder):
        """Not even a file without a checksum replaces the encoding of the model."""
        path = folder / "columns.json"
        first, second = json.loads(path.read_text())["columns"]
        for columns in ([first], [first | {"fill": fill}, second], [second, first]):
            edit_json(path, columns=columns)
            with pytest.raises(
                InputError, match=r"columns\.json and model\.safetensors in .* different columns"
            ):
                read_model(folder)
        edit_json(path, columns=[first, second])
        read_model(folder)

    @pytest.mark.parametrize("layout", [{"indent": None}, {"indent": 7, "ensure_ascii": True}])
    def test_the_layout_of_json_may_change(self, layout, folder):
        for name in ("manifest.json", "columns.json"):
            content = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps(content, sort_keys=True, **layout))
        assert open_run(folder).columns.target == "kind"

    @pytest.mark.parametrize(
        ("name", "use"),
        [
            ("metrics.json", lambda run: run.metrics),
            ("facets.csv", lambda run: summary(run, rows=False)),
            ("predictions.parquet", diagnose),
        ],
    )
    def test_outputs(self, name, use, folder):
        use(open_run(folder))
        content = (folder / name).read_bytes().replace(b"0", b"1", 1)
        (folder / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}' was changed after it was written; undo"):
            use(open_run(folder))
        edit_json(folder / "manifest.json", files={})  # a run of version 0.2
        with suppress(InputError):  # Parquet may have noticed
            use(open_run(folder))

    def test_what_may_change_in_a_run_file(self, folder):
        path = folder / "run.toml"
        (folder.parent / "data.csv").rename(folder.parent / "moved.csv")
        text = path.read_text().replace("data.csv", "moved.csv").replace("Sizes", "Lengths")
        path.write_text(text)
        found = open_run(folder)
        assert found.file.title == "Lengths"
        assert len(found.rows().X) == 48
        for old, new in (("seed = 0", "seed = 1"), ("test_fraction = 0.2", "test_fraction = 0.3")):
            assert old in text
            path.write_text(text.replace(old, new))
            with pytest.raises(InputError, match=r"run\.toml' was changed after it was written"):
                open_run(folder)

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


def test_columns_of_version_0_1_0_are_refused(folder):
    entries = [{"name": "a", "categories": None}, {"name": "b", "categories": ["x", "y"]}]
    edit_json(folder / "columns.json", columns=entries)
    with pytest.raises(InputError, match="was changed after it was written"):
        read_model(folder)


PLACES = [*RunFolder.file_names, "checkpoints", ".next", ".model.safetensors.0",
          "checkpoints/0001.safetensors", ".next/manifest.json"]  # fmt: skip


class TestLinks:
    @pytest.fixture
    def other(self, tmp_path):
        """A folder that a link leads to, with files of the names of a run's."""
        other = tmp_path / "other"
        other.mkdir()
        for name in ("0001.safetensors", "manifest.json", "precious"):
            (other / name).write_text("precious")
        yield other
        assert {path.read_text() for path in other.iterdir()} == {"precious"}
        assert len(list(other.iterdir())) == 3

    @pytest.mark.parametrize("place", PLACES)
    def test_in_the_place_of_a_file(self, folder, other, place):
        path = folder / place
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(other if "." not in place[1:] else other / "precious")
        file, message = run_file(folder.parent), rf"{path.name}' is a link .*; remove it\."
        for use in (
            lambda: open_run(folder),
            lambda: read_model(folder),
            lambda: run(file, force=True),
            lambda: run(file, resume=True),
        ):
            with pytest.raises(InputError, match=message):
                use()

    def test_special_files(self, folder):
        (folder / "run.log").unlink()
        os.mkfifo(folder / "run.log")
        with pytest.raises(InputError, match=r"run\.log' is a link or a special file"):
            run(run_file(folder.parent), force=True)

    def test_links_of_the_user(self, folder, other):
        (folder / "notes").symlink_to(other)
        (folder.parent / "latest").symlink_to(folder)
        assert read_model(folder.parent / "latest")[1].target == "kind"
        run(run_file(folder.parent, output={"folder": "latest"}, seed=1), force=True)
        assert open_run(folder).file.seed == 1
        assert (folder / "notes").is_symlink()
