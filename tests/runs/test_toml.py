"""TOML files, single settings and paths: every error is one line with a remedy."""

from pathlib import Path

import pytest

from bayestree.cli.output import check_output
from bayestree.runs.cards import MAX_BYTES, read_pair, read_toml
from bayestree.runs.configuration import abbreviated, relative_path, resolve_path
from bayestree.tables import InputError


class TestPairs:
    @pytest.mark.parametrize(
        ("pair", "name", "value"),
        [
            ("max_depth=3", "max_depth", 3),
            ("rate=1e-3", "rate", 0.001),
            ("extend = true", "extend", True),
            ('guide="Auto=Normal"', "guide", "Auto=Normal"),
            ("scaling=common", "scaling", "common"),
            ("order=best-first", "order", "best-first"),
            ("data.path=../new/rows.csv", "data.path", "../new/rows.csv"),
            (r"data.path=C:\data\new.csv", "data.path", r"C:\data\new.csv"),
            (r'data.path="C:\data\new.csv"', "data.path", r"C:\data\new.csv"),
            ("image_shape=[28, 28]", "image_shape", [28, 28]),
        ],
    )
    def test_values_are_those_of_toml(self, pair, name, value):
        found = read_pair(pair)
        assert found == (name, value)
        assert type(found[1]) is type(value)

    @pytest.mark.parametrize(
        "pair", ["depth", "=3", "depth=", "depth=3 4", "a=1\nb=2", "x=not so", "x=" + "[" * 5000]
    )
    def test_refused(self, pair):
        with pytest.raises(InputError, match="--set"):
            read_pair(pair)


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"max_depth 3", "is not valid TOML: Expected"),
            (b"x = '\xff'", "is not valid TOML: it is not text in UTF-8"),
            (
                b'x = "C:\\data\\new.csv"',
                "Unescaped .* write paths with forward slashes, or in single",
            ),
            (
                b'x = "C:\\Users\\a.csv"',
                "hex value .* write paths with forward slashes, or in single",
            ),
            (b"x = " + b"[" * 5000, "is not valid TOML: it is nested too deeply"),
            (b"x = " + b"9" * 5000, "is not valid TOML: .*digits"),
            (b"#" * (MAX_BYTES + 1), "larger than 1 MiB"),
        ],
    )
    def test_what_is_no_toml(self, tmp_path, content, said):
        path = tmp_path / "a.toml"
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"run file '.*a\.toml' .*{said}"):
            read_toml(path, "run file")

    @pytest.mark.parametrize(
        ("name", "content", "what", "said"),
        [
            (
                "a.csv",
                "x,y",
                "run file",
                r"is a table, not a run file; .* `bayestree fit .*a\.csv --t",
            ),
            ("a.parquet", "x", "sweep file", "is a table, not a sweep file; .* `bayestree fit "),
            (
                "a.toml",
                "[data]",
                "sweep file",
                "is a run file, not a sweep.* `bayestree run .*a.toml`",
            ),
            ("a.toml", "[data]", "model card", "is a run file, not a model card"),
            (
                "a.toml",
                "[vary]",
                "run file",
                "is a sweep file, not a run.* `bayestree sweep .*a.toml`",
            ),
        ],
    )
    def test_files_of_another_kind(self, tmp_path, name, content, what, said):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=said):
            read_toml(tmp_path / name, what)

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match=r"card .* is not a file"):
            read_toml(tmp_path, "card")

    def test_a_byte_order_mark_is_no_fault(self, tmp_path):
        path = tmp_path / "a.toml"
        path.write_text("seed = 3", encoding="utf-8-sig")
        assert read_toml(path, "run file") == {"seed": 3}


def test_values_are_shown_short():
    assert abbreviated("a" * 100) == "'" + "a" * 76 + "..."
    assert abbreviated(10**5000) == "a int"


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
