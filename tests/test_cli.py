"""The command line, and the tables it reads."""

import json
import string
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import bayestree
from bayestree import cli
from bayestree._cli import output
from bayestree.tables import (
    Encoding,
    InputError,
    check_complete,
    is_text,
    read_table,
    read_target,
    read_weights,
)

QUICK = ["--epochs", "2", "--draws", "3", "--experts", "3", "--depth", "1"]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    size = rng.normal(size=80)
    return pd.DataFrame(
        {
            "size": size,
            "color": np.where(np.arange(80) % 3, "red", "blue"),
            "kind": np.where(size > 0, "big", "small"),
            "price": 10 * size + rng.normal(size=80),
            "copies": np.arange(80) % 4,
        }
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def refused(*words):
    """What is said on stderr: one line, with exit code 2."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("bayestree: ")
    assert result.stderr.count("\n") == 1
    assert isinstance(result.exception, SystemExit)
    return result.stderr


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


FOLDER = ["columns.json", "facets.csv", "metrics.json", "model.safetensors", "tree.txt"]


class TestFit:
    def test_classes(self, table, place):
        table.to_csv("data.csv", index=False)
        result = run("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK)
        assert result.exit_code == 0, result.output
        assert files_in(place) == ["data.csv", "tree"]
        assert files_in(place / "tree") == FOLDER
        text = (place / "tree" / "tree.txt").read_text()
        assert text in result.stdout
        assert "becomes color=blue, color=red" in result.stdout
        clf = bayestree.load(place / "tree" / "model.safetensors")
        assert text == bayestree.export_text(clf)
        assert list(clf.feature_names_in_) == [
            "size", "color=blue", "color=red", "price", "copies",
        ]  # fmt: skip
        metrics = json.loads((place / "tree" / "metrics.json").read_text())
        assert (metrics["training_rows"], metrics["scored_rows"]) == (64, 16)
        assert metrics["accuracy"] > 0.8
        assert f"accuracy {metrics['accuracy']:.4g}" in result.stdout
        facets = pd.read_csv(place / "tree" / "facets.csv", index_col="node")
        assert list(facets.index) == list(clf.tree_.topology.node_labels)

    def test_numbers_weights_and_dropped_columns(self, table, place):
        table.to_parquet("data.parquet")
        result = run(
            "fit", "data.parquet", "--target", "price", "--out", "deep/tree", "--weights", "copies",
            "--drop", "kind", "--drop", "color", "--test-fraction", "0", *QUICK,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        folder = place / "deep" / "tree"
        reg = bayestree.load(folder / "model.safetensors")
        assert list(reg.feature_names_in_) == ["size"]
        assert reg.tree_.leaf_rows.sum() == table["copies"].sum()
        metrics = json.loads((folder / "metrics.json").read_text())
        assert metrics["scored_on"] == "training rows"
        expected = np.average(
            (reg.predict(table[["size"]]) - table["price"]) ** 2, weights=table["copies"]
        )
        assert metrics["rmse"] == pytest.approx(np.sqrt(expected))

    def test_the_held_out_score_is_of_rows_not_trained_on(self, table, place):
        table["kind"] = np.random.default_rng(1).permutation(table["kind"])
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", "--inference", "grow", "--depth", "6")
        assert run(*words, "--out", "a").exit_code == 0
        assert run(*words, "--out", "b", "--seed", "1").exit_code == 0
        scores = [
            json.loads((place / name / "metrics.json").read_text())["log_loss"] for name in "ab"
        ]
        assert scores[0] != scores[1]

    def test_the_same_seed_gives_the_same_files(self, table, place):
        table.to_csv("data.csv", index=False)
        for name in ("a", "b"):
            run("fit", "data.csv", "--target", "kind", "--out", name, *QUICK)
        for name in FOLDER:
            assert (place / "a" / name).read_bytes() == (place / "b" / name).read_bytes()

    def test_a_full_folder_is_left_alone(self, table, place):
        table.to_csv("data.csv", index=False)
        (place / "tree").mkdir()
        (place / "tree" / "tree.txt").write_text("mine")
        (place / "tree" / "notes.txt").write_text("mine")
        words = ("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK)
        assert "not empty" in refused(*words)
        assert files_in(place / "tree") == ["notes.txt", "tree.txt"]
        assert (place / "tree" / "tree.txt").read_text() == "mine"
        assert run(*words, "--force").exit_code == 0
        assert files_in(place / "tree") == sorted([*FOLDER, "notes.txt"])
        assert (place / "tree" / "tree.txt").read_text() != "mine"
        assert files_in(place) == ["data.csv", "tree"]

    def test_an_error_on_the_way_leaves_nothing(self, table, place, monkeypatch):
        table.to_csv("data.csv", index=False)

        def full(*_):
            raise OSError("disk full")

        monkeypatch.setattr(output, "json_text", full)
        words = ("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK)
        assert "disk full" in refused(*words)
        assert files_in(place) == ["data.csv"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "is empty"),
            (b"size,kind\n", "no rows"),
            (b"size,kind\n1,a\n2,b,c\n", "cannot be read as a CSV"),
            (b"size,kind\n1,a,x\n2,b,y\n", "cannot be read as a CSV"),
            (b"size,kind\n\xff\xfe\x00,a\n", "cannot be read as a CSV"),
            (b"size,size,kind\n1,2,a\n", "more than one column named 'size'"),
            (b"size,colour\n1,a\n2,b\n", "--target 'kind' is not a column"),
            (b"size,kind\n1,a\n,b\n,b\n", r"2 missing values ('size': 2)"),
            (b"size,kind\n1,a\n2,\n3,a\n", r"1 missing value ('kind': 1)"),
            (b"size,kind\n1,a\ninf,b\n3,a\n", r"1 infinite value ('size': 1)"),
            (b"size,kind\n1,a\n1e200,b\n3,a\n", r"1 too large value ('size': 1)"),
            (b"size,kind\n1,a\n2,a\n", "one class, 'a'"),
            (b"size,kind\n1,a\n2,b\n3,c\n", "different text in each of 3 rows"),
            (b"size,kind\n1,a\n2,a\n3,b\n", "too few"),
            (b"kind\na\na\nb\nb\nb\n", "no column is left"),
        ],
    )
    def test_tables(self, content, said, place):
        (place / "data.csv").write_bytes(content)
        assert said in refused("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK)
        assert files_in(place) == ["data.csv"]

    def test_files(self, table, place):
        words = ("--target", "kind", "--out", "tree")
        assert "'absent.csv' does not exist" in refused("fit", "absent.csv", *words)
        assert "is a folder" in refused("fit", place, *words)
        (place / "data.xlsx").write_bytes(b"x")
        assert "must end in one of .csv" in refused("fit", "data.xlsx", *words)
        (place / "data.parquet").write_bytes(b"not this")
        assert "cannot be read as a Parquet file" in refused("fit", "data.parquet", *words)

    def test_columns(self, table, place):
        table.assign(day=pd.Timestamp("2020-01-01")).to_parquet("data.parquet")
        words = ("fit", "data.parquet", "--out", "tree")
        assert "column 'day' holds datetime64" in refused(*words, "--target", "kind")
        words = (*words, "--drop", "day")
        assert "--drop 'x' is not a column" in refused(*words, "--target", "kind", "--drop", "x")
        assert "for another purpose" in refused(*words, "--target", "day")
        assert "should hold numbers" in refused(*words, "--target", "kind", "--task", "regression")
        assert "which is no class" in refused(
            *words, "--target", "price", "--task", "classification"
        )
        assert "should hold numbers" in refused(*words, "--target", "price", "--weights", "kind")
        assert "not all zero" in refused(*words, "--target", "kind", "--weights", "size")
        assert "too few" in refused(*words, "--target", "kind", "--test-fraction", "0.001")

    def test_out(self, table, place):
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", "--out")
        assert "is a file" in refused(*words, "data.csv")
        assert "cannot be written" in refused(*words, "data.csv/tree")

    def test_as_a_process(self, place):
        code = [sys.executable, "-m", "bayestree.cli"]
        done = subprocess.run(
            [*code, "fit", "absent.csv", "--target", "y", "--out", "tree"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr == (
            "bayestree: 'absent.csv' does not exist; give a CSV or Parquet file.\n"
        )


class TestPredict:
    @pytest.fixture
    def fitted(self, table, place):
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", "--drop", "price", "--out", "tree")
        assert run(*words, *QUICK).exit_code == 0
        return table

    def test_as_the_model_does(self, fitted, place):
        fitted[["copies", "color", "price", "size"]].to_parquet("new.parquet")
        result = run("predict", "tree", "new.parquet")
        assert result.exit_code == 0, result.output
        assert "scores" not in result.stdout
        found = pd.read_csv("predictions.csv")
        assert list(found.columns) == ["prediction", "p(big)", "p(small)"]
        clf = bayestree.load("tree/model.safetensors")
        X = pd.DataFrame(
            {
                "size": fitted["size"],
                "color=blue": fitted["color"] == "blue",
                "color=red": fitted["color"] == "red",
                "copies": fitted["copies"],
            }
        )
        np.testing.assert_allclose(found[["p(big)", "p(small)"]], clf.predict_proba(X), rtol=1e-9)
        assert list(found["prediction"]) == list(clf.predict(X))

    def test_scores_where_the_target_is_known(self, fitted, place):
        result = run("predict", "tree", "data.csv", "--out", "p.parquet")
        accuracy = (pd.read_parquet("p.parquet")["prediction"] == fitted["kind"]).mean()
        assert f"accuracy {accuracy:.4g}" in result.stdout

    def test_an_unknown_category_counts_as_none(self, fitted, place):
        fitted.assign(color=["green", "pink"] * 40).to_csv("new.csv", index=False)
        result = run("predict", "tree", "new.csv")
        assert result.exit_code == 0
        assert result.stderr.startswith("warning: column 'color': 80 rows hold a category")
        assert "'green', 'pink'" in result.stderr

    def test_refusals(self, fitted, place):
        assert "has no model.safetensors" in refused("predict", ".", "data.csv")
        fitted.drop(columns=["size", "color"]).to_csv("new.csv", index=False)
        assert "columns 'size', 'color' missing" in refused("predict", "tree", "new.csv")
        fitted.assign(size="x").to_csv("new.csv", index=False)
        assert "'size' should hold numbers, but holds 'x'" in refused("predict", "tree", "new.csv")
        assert "exists; name another file, or add --force" in refused(
            "predict", "tree", "data.csv", "--out", "new.csv"
        )
        assert "name another file." in refused(
            "predict", "tree", "data.csv", "--out", "data.csv", "--force"
        )
        assert "must end in" in refused("predict", "tree", "data.csv", "--out", "p.txt")
        assert "does not exist" in refused("predict", "tree", "data.csv", "--out", "no/p.csv")
        path = place / "tree" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        assert "was cut short" in refused("predict", "tree", "data.csv")

    def test_edited_columns(self, fitted, place):
        path = place / "tree" / "columns.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"columns": content["columns"][:1]}))
        assert "not of the same fit" in refused("predict", "tree", "data.csv")
        path.write_text("[1]")
        assert "was changed after" in refused("predict", "tree", "data.csv")

    def test_an_interval_for_numbers(self, table, place):
        table.to_csv("data.csv", index=False)
        run("fit", "data.csv", "--target", "price", "--out", "tree", *QUICK)
        assert run("predict", "tree", "data.csv").exit_code == 0
        found = pd.read_csv("predictions.csv")
        assert list(found.columns) == ["prediction", "low", "high"]
        assert (found["low"] < found["high"]).all()


class TestHelp:
    def test_no_torch(self):
        code = (
            "import sys; from typer.testing import CliRunner; from bayestree.cli import app\n"
            "for words in (['--help'], ['fit', '--help'], ['--version']):\n"
            "    assert CliRunner().invoke(app, words).exit_code == 0\n"
            "assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_version(self):
        assert run("--version").stdout == f"bayestree {bayestree.__version__}\n"

    def test_every_option_is_explained(self):
        page = run("fit", "--help").stdout
        for option in ("--target", "--test-fraction", "--weights", "--drop", "--force"):
            assert option in page
        assert "bayestree predict iris-tree new.csv" in run("--help").stdout


TEXT = st.text(string.ascii_letters + " ,\"'äß=1", min_size=1, max_size=5).filter(
    lambda text: text.strip() == text and text.lower() not in {"na", "nan", "null", "none"}
)


@st.composite
def tables(draw):
    n = draw(st.integers(1, 6))
    columns = draw(st.lists(st.text(string.ascii_letters, min_size=1), min_size=1, unique=True))
    number = st.floats(-1e6, 1e6, allow_subnormal=False)
    return pd.DataFrame(
        {
            name: draw(
                st.lists(number, min_size=n, max_size=n) | st.lists(TEXT, min_size=n, max_size=n)
            )
            for name in columns
        }
    )


class TestTables:
    @settings(max_examples=50, deadline=None)
    @given(frame=tables())
    def test_files_keep_what_was_written(self, frame, tmp_path_factory):
        folder = tmp_path_factory.getbasetemp()
        encoding = Encoding.of(frame)
        expected, _ = encoding.encode(frame)
        frame.to_csv(folder / "t.csv", index=False)
        frame.to_parquet(folder / "t.parquet")
        for name in ("t.csv", "t.parquet"):
            read = read_table(folder / name, text=encoding.text)
            found, remarks = encoding.encode(read)
            assert remarks == []
            pd.testing.assert_frame_equal(found, expected)

    @settings(max_examples=50, deadline=None)
    @given(frame=tables(), data=st.data())
    def test_order_and_other_columns_do_not_matter(self, frame, data):
        encoding = Encoding.from_json(json.loads(json.dumps(Encoding.of(frame).to_json())))
        assert encoding == Encoding.of(frame)
        mixed = frame[data.draw(st.permutations(list(frame.columns)))].assign(**{"1": 0})
        pd.testing.assert_frame_equal(encoding.encode(frame)[0], encoding.encode(mixed)[0])
        width = sum(1 if c.categories is None else len(c.categories) for c in encoding.columns)
        assert encoding.encode(frame)[0].shape == (len(frame), width)

    @settings(max_examples=50, deadline=None)
    @given(frame=tables())
    def test_one_hot(self, frame):
        features, _ = Encoding.of(frame).encode(frame)
        for name, column in frame.items():
            if is_text(column):
                for value in column.unique():
                    assert (features[f"{name}={value}"] == (column == value)).all()

    @settings(max_examples=100, deadline=None)
    @given(content=st.binary(max_size=60))
    def test_any_bytes_are_a_table_or_refused(self, content, tmp_path_factory):
        for name in ("any.csv", "any.parquet", "any.csv.gz"):
            path = tmp_path_factory.getbasetemp() / name
            path.write_bytes(content)
            try:
                frame = read_table(path)
            except InputError:
                continue
            assert len(frame) > 0

    def test_long_rows_are_refused_whatever_the_warnings(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("size,kind\n1,a,x\n2,b,y\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(InputError, match="cannot be read as a CSV"):
                read_table(path)

    def test_numbers_stay_text_where_training_had_text(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("code\n01\n02\n")
        encoding = Encoding.of(pd.DataFrame({"code": ["01", "x"]}))
        assert encoding.encode(read_table(path, text=["code"]))[0]["code=01"].tolist() == [1, 0]

    def test_kinds_of_columns(self):
        assert is_text(pd.Series(["a", None]))
        assert is_text(pd.Series(["a", "b"], dtype="category"))
        assert not is_text(pd.Series([1, 2], dtype="category"))
        assert not is_text(pd.Series([True, None], dtype=object))
        assert not is_text(pd.Series([1, 2], dtype="Int64"))
        with pytest.raises(InputError, match="holds mixed"):
            is_text(pd.Series([[1], "a"]))

    def test_too_many_categories(self):
        with pytest.raises(InputError, match="holds 101 different texts"):
            Encoding.of(pd.DataFrame({"id": [f"n{i}" for i in range(101)]}))

    def test_features_of_one_name(self):
        with pytest.raises(InputError, match="two features would be named 'a=b'"):
            Encoding.of(pd.DataFrame({"a": ["b"], "a=b": [1]}))

    @pytest.mark.parametrize(
        ("values", "task", "kind"),
        [
            (["a", "b", "a"], "classification", "U"),
            ([0, 1, 1], "classification", "i"),
            ([0.0, 1.0, 1.0], "classification", "i"),
            ([True, False, False], "classification", "b"),
            ([0.5, 1.0, 1.0], "regression", "f"),
            (list(range(21)), "regression", "f"),
            (list(range(20)), "classification", "i"),
        ],
    )
    def test_targets(self, values, task, kind):
        found, y = read_target(pd.Series(values, name="y"))
        assert (found, y.dtype.kind) == (task, kind)
        assert y.tolist() == values

    def test_targets_that_do_not_suit(self):
        text, number = pd.Series(["a", "b", "a"], name="y"), pd.Series([0.5, 1.0], name="y")
        with pytest.raises(InputError, match="'y' should hold numbers, but holds 'a'"):
            read_target(text, "regression")
        with pytest.raises(InputError, match=r"holds 0\.5, which is no class"):
            read_target(number, "classification")
        with pytest.raises(InputError, match="one class, 1; two are needed"):
            read_target(pd.Series([1, 1], name="y"))
        assert read_target(pd.Series([1, 1]), "regression")[0] == "regression"

    def test_weights(self):
        assert read_weights(pd.Series([0, 2])).tolist() == [0.0, 2.0]
        for bad in ([0, 0], [-1, 2]):
            with pytest.raises(InputError, match="zero or more and not all zero"):
                read_weights(pd.Series(bad, name="w"))

    def test_missing_values_of_many_columns(self):
        frame = pd.DataFrame(np.full((2, 12), np.nan)).rename(columns=str)
        with pytest.raises(InputError, match=r"24 missing values \('0': 2, .* and 4 more\)"):
            check_complete(frame)
