"""Reading TOML: every error in one line."""

import pytest

from bayestree.runs.toml import MAX_BYTES, abbreviated, read_pair, read_toml
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
