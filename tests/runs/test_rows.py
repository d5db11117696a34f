"""Rows of a run: split into training and held-out rows, or held out in another table."""

import numpy as np
import pandas as pd
import pytest

from bayestree.runs import rows as rows_module
from bayestree.runs.rows import read_rows
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.finished import finished
from tests.runs.cases import run_file, table


def labelled(labels, sizes=None):
    sizes = range(len(labels)) if sizes is None else sizes
    return pd.DataFrame({"size": list(sizes), "kind": labels})


@pytest.fixture(params=["memory", "disk"])
def prepare(request, tmp_path):
    """Prepares a table as a run does."""

    def prepared(frame, test=None, *, seed=0, **data):
        frame.to_parquet(tmp_path / "rows.parquet")
        if test is not None:
            test.to_parquet(tmp_path / "test.parquet")
            data["test"] = "test.parquet"
        fixed = {"path": "rows.parquet", "drop": [], "storage": request.param}
        return read_rows(run_file(tmp_path, data=fixed | data, seed=seed))

    return prepared


class TestHeldOut:
    def test_no_row_is_lost_or_repeated(self, prepare):
        frame = table(50)
        found = prepare(frame, test_fraction=0.3, seed=4)
        kept = frame.drop(index=found.rows_held)
        assert (len(found.X), len(found.X_held)) == (35, 15)
        np.testing.assert_array_equal(found.X["width"], kept["width"])
        np.testing.assert_array_equal(found.y, kept["kind"])
        np.testing.assert_array_equal(found.y_held, frame["kind"][found.rows_held])

    def test_the_split_is_stratified(self, prepare):
        found = prepare(labelled(["a"] * 30 + ["b"] * 10), test_fraction=0.2)
        assert sorted(found.y_held) == ["a"] * 6 + ["b"] * 2

    def test_the_seed_selects_the_held_out_rows(self, prepare):
        held = [
            prepare(table(50), test_fraction=0.3, seed=seed).rows_held.tolist()
            for seed in (0, 0, 1)
        ]
        assert held[0] == held[1] != held[2]

    def test_the_split_is_that_of_earlier_versions(self, prepare):
        found = prepare(table(20), test_fraction=0.25, seed=3)
        assert found.rows_held.tolist() == [2, 6, 8, 15, 19]

    def test_no_rows_held_out(self, prepare):
        found = prepare(table(20), test_fraction=0.0)
        assert not found.held_out
        pd.testing.assert_frame_equal(found.X, found.X_held)

    def test_weights(self, prepare):
        frame = table(20).assign(copies=np.arange(20) % 3)
        found = prepare(frame, weights="copies", test_fraction=0.5)
        assert list(found.X.columns) == ["width", "height", "price"]
        np.testing.assert_array_equal(found.weights_held, frame["copies"][found.rows_held])


class TestApart:
    def test_all_rows_are_training_rows(self, prepare):
        found = prepare(table(20), table(8, seed=1))
        assert (len(found.X), len(found.X_held), found.held_out) == (20, 8, True)
        np.testing.assert_array_equal(found.y_held, table(8, seed=1)["kind"])
        np.testing.assert_array_equal(found.rows_held, np.arange(8))

    @pytest.mark.parametrize("labels", [[True, False, True], [0, 1, 1], [0.0, 2.0, 1.0]])
    def test_labels_are_those_of_training(self, labels, prepare):
        found = prepare(labelled(labels), labelled(labels))
        assert found.y_held.dtype == found.y.dtype
        np.testing.assert_array_equal(found.y_held, found.y)

    def test_an_unknown_label(self, prepare):
        found = prepare(labelled(["a", "b", "a"]), labelled(["c", "a"]))
        assert list(found.y_held) == ["c", "a"]

    def test_fractions_are_not_classes(self, prepare):
        with pytest.raises(InputError, match=r"'kind' holds 0\.5, which is not a class"):
            prepare(labelled([0, 1, 1]), labelled([0.5, 1.0]))

    def test_one_class(self, prepare):
        with pytest.raises(InputError, match="one class"):
            prepare(labelled(["a", "a"]), labelled(["a", "b"]))

    def test_numbers(self, prepare):
        found = prepare(labelled([0.5, 1.5, 2.5]), labelled([7, 8]))
        assert found.y_held.tolist() == [7.0, 8.0]


class TestReadRows:
    def test_a_test_file(self, tmp_path):
        table(10, seed=1).to_parquet(tmp_path / "test.parquet")
        found = read_rows(run_file(tmp_path, data={"test": "test.parquet"}))
        assert (len(found.X), len(found.X_held)) == (60, 10)
        assert found.fingerprints["data"]["rows"] == 60
        assert found.fingerprints["test"]["path"] == str(tmp_path / "test.parquet")
        assert found.fingerprints["test"]["columns"] == 4

    @pytest.mark.parametrize("path", ["rows", "rows/part=*/*.parquet", "file://{}/rows"])
    def test_a_data_set_of_many_files(self, prepare, tmp_path, path):
        frame = table(50)
        expected = prepare(frame, test_fraction=0.3)
        for part, rows in (("9", slice(20)), ("10", slice(20, None))):
            (tmp_path / "rows" / f"part={part}").mkdir(parents=True)
            frame[rows].to_parquet(tmp_path / "rows" / f"part={part}" / "own.parquet")
        parts = {"path": path.format(tmp_path), "drop": ["part"], "test_fraction": 0.3}
        found = read_rows(run_file(tmp_path, data=parts))
        pd.testing.assert_frame_equal(found.X.astype(float), expected.X.astype(float))
        np.testing.assert_array_equal(found.y_held, expected.y_held)
        assert found.fingerprints["data"]["rows"] == 50
        assert found.fingerprints["data"]["files"] == 2

    def test_text_stays_text_in_the_test_file(self, tmp_path):
        (tmp_path / "data.csv").write_text("code,kind\n01,a\nx,b\n01,a\nx,b\n")
        (tmp_path / "test.csv").write_text("code,kind\n01,a\n")
        found = read_rows(run_file(tmp_path, data={"test": "test.csv", "drop": []}))
        assert found.X_held["code=x"].tolist() == [0.0]
        assert found.remarks == []

    @pytest.mark.parametrize("mark", [";", "\t", "|"])
    @pytest.mark.parametrize("decimal", [".", ","])
    def test_other_separators(self, mark, decimal, tmp_path):
        expected = read_rows(run_file(tmp_path))
        table().to_csv(tmp_path / "data.csv", sep=mark, decimal=decimal, index=False)
        found = read_rows(run_file(tmp_path))
        pd.testing.assert_frame_equal(found.X, expected.X)
        np.testing.assert_array_equal(found.y, expected.y)

    def test_the_fingerprint_is_of_the_file(self, tmp_path):
        first = read_rows(run_file(tmp_path)).fingerprints["data"]
        assert (first["rows"], first["columns"]) == (60, 4)
        text = (tmp_path / "data.csv").read_text()
        (tmp_path / "data.csv").write_text(text + "\n")
        assert read_rows(run_file(tmp_path)).fingerprints["data"]["sha256"] != first["sha256"]

    def test_too_many_columns_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("bayestree.runs.rows.MOST_COLUMNS", 2_000)
        names = [f"c{number}" for number in range(2_000)]
        row = ",".join("1" * len(names))
        (tmp_path / "data.csv").write_text(f"kind,{','.join(names)}\na,{row}\nb,{row}\n")
        with pytest.raises(InputError, match=r"'data\.csv' has 2,001 columns, more than 2,000: "):
            read_rows(run_file(tmp_path))

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({"target": "weight"}, r"target 'weight' is not a column of 'data\.csv', which has "),
            ({"weights": "mass"}, "weights 'mass' is not a column"),
            ({"drop": ["mass"]}, "drop 'mass' is not a column"),
            ({"drop": ["kind"]}, "drop 'kind' is also named as target"),
            ({"weights": "kind"}, "weights 'kind' is also named as target"),
            ({"test": "test.csv"}, r"target 'kind' is not a column of 'test\.csv'"),
            ({"test": "absent.csv"}, r"absent\.csv' does not exist"),
        ],
    )
    def test_refused(self, data, said, tmp_path):
        table(5).drop(columns="kind").to_csv(tmp_path / "test.csv")
        with pytest.raises(InputError, match=said):
            read_rows(run_file(tmp_path, data=data))


class TestLevels:
    def content(self, folder):
        frame = table().assign(size=np.resize(["M", "S", "L"], 60), code=np.arange(60) % 4)
        frame.to_csv(folder / "data.csv", index=False)
        return {"levels": {"size": ["S", "M", "L"], "code": ["3", "2", "1", "0"]}}

    @pytest.mark.parametrize("storage", ["memory", "disk"])
    def test_ordered_categories(self, storage, tmp_path):
        data = self.content(tmp_path) | {"storage": storage}
        found = read_rows(run_file(tmp_path, data=data))
        steps = ["size>=M", "size>=L", "code>=2", "code>=1", "code>=0"]
        assert list(found.X) == ["width", "height", *steps]
        assert found.encoding.columns[-2].levels == ("S", "M", "L")
        assert found.X["size>=L"].sum() <= found.X["size>=M"].sum()
        saved = run_file(tmp_path, data=data).explicit("classification")
        assert '[data.levels]\nsize = [\n    "S"' in saved.to_toml(tmp_path)
        assert "levels" not in run_file(tmp_path).explicit("regression").to_toml(tmp_path)

    def test_refusals(self, tmp_path):
        self.content(tmp_path)
        for levels, said in (
            ({"size": ["S", "M"]}, "'size' should hold one of 'S', 'M', but line 4 .* holds 'L'"),
            ({"sice": ["S", "M"]}, "levels 'sice' is not a column .* did you mean 'size'"),
            ({"size": ["S"]}, "levels must be from 2 to 30 different texts"),
            ({"size": ["S", "M", "S"]}, "levels must be from 2 to 30 different texts"),
            ({"code": [1, 2]}, "each value of levels must be text"),
            (["S"], "levels must be a table"),
        ):
            with pytest.raises(InputError, match=said):
                read_rows(run_file(tmp_path, data={"levels": levels}))


def test_rows_with_fewer_columns_are_thinned_alike(monkeypatch):
    monkeypatch.setattr(rows_module, "_spaced", lambda X: slice(0, len(X), X.shape[1]))
    rows = open_run(finished("svi")).rows()
    narrow = rows._replace(X=rows.X.iloc[:, :1], X_held=rows.X_held.iloc[:, :1])
    np.testing.assert_array_equal(narrow.thinned(rows).rows_held, rows.thinned().rows_held)
    assert len(narrow.thinned().rows_held) > len(rows.thinned().rows_held)
