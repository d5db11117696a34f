"""Paths of a run: how they are resolved, and that they stay inside a root."""

from pathlib import Path

import pytest

from bayestree._cli.tables import check_output
from bayestree.runs.paths import relative_path, resolve_path
from bayestree.tables import InputError


def test_relative_to_the_file_that_names_them(tmp_path):
    folder = tmp_path.resolve()
    assert resolve_path("data/a.csv", folder, root=None, what="path") == folder / "data" / "a.csv"
    assert resolve_path("../a.csv", folder, root=None, what="path") == folder.parent / "a.csv"
    assert resolve_path("/a.csv", folder, root=None, what="path") == Path("/a.csv")


class TestRoot:
    @pytest.mark.parametrize("name", ["a.csv", "../run/a.csv", "deep/er/../a.csv"])
    def test_inside(self, tmp_path, name):
        inside = tmp_path / "run"
        inside.mkdir()
        assert resolve_path(name, inside, root=inside, what="path").is_relative_to(inside.resolve())

    @pytest.mark.parametrize("name", ["../a.csv", "/etc/passwd", "deep/../../a.csv"])
    def test_outside(self, tmp_path, name):
        inside = tmp_path / "run"
        inside.mkdir()
        with pytest.raises(InputError, match=r"\[data\] path '.*' is outside --root '.*run'"):
            resolve_path(name, inside, root=inside, what="[data] path")

    def test_by_a_link(self, tmp_path):
        inside, outside = tmp_path / "run", tmp_path / "other"
        inside.mkdir()
        outside.mkdir()
        (inside / "link").symlink_to(outside)
        with pytest.raises(InputError, match="outside --root"):
            resolve_path("link/a.csv", inside, root=inside, what="path")
        (inside / "same").symlink_to(inside)
        assert (
            resolve_path("same/a.csv", inside, root=inside, what="path")
            == inside.resolve() / "a.csv"
        )

    def test_a_root_by_a_link(self, tmp_path):
        (tmp_path / "run").mkdir()
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "run")
        found = resolve_path("a.csv", tmp_path / "run", root=link, what="path")
        assert found == (tmp_path / "run").resolve() / "a.csv"

    def test_a_name_that_begins_alike_is_outside(self, tmp_path):
        with pytest.raises(InputError, match="outside"):
            resolve_path("../runs/a.csv", tmp_path / "run", root=tmp_path / "run", what="path")


@pytest.mark.parametrize("name", ["a\0b", "C:\new\table.csv"])
def test_what_is_no_path(tmp_path, name):
    with pytest.raises(
        InputError, match=r"path '.*\\.*' has a control .* write paths with forward"
    ):
        resolve_path(name, tmp_path, root=None, what="path")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(InputError, match="path 'round' is not a valid path"):
        resolve_path("round", tmp_path, root=None, what="path")


def test_relative_path_a_folder():
    assert relative_path(Path("/work/data/a.csv"), Path("/work/results/x")) == "../../data/a.csv"
    assert relative_path(Path("/work/results"), Path("/work/results")) == "."
    assert relative_path(Path("/data/a.csv"), Path("/work/results")) == "/data/a.csv"


def test_outputs(tmp_path):
    path = tmp_path / "a.toml"
    check_output(path, (), force=False)
    path.touch()
    with pytest.raises(InputError, match="exists; choose another file, or add --force"):
        check_output(path, (), force=False)
    check_output(path, (), force=True)
    with pytest.raises(InputError, match=r"--out '.*' must end in \.csv or \.parquet"):
        check_output(path, force=True)
    with pytest.raises(InputError, match="is a folder; specify a file"):
        check_output(tmp_path, (), force=True)
    with pytest.raises(InputError, match="is in a folder that does not exist"):
        check_output(tmp_path / "no" / "a.toml", (), force=False)
