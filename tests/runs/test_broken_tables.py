"""Malformed tables: each fault is reported with its column, value and line."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bayestree import load
from bayestree.runs.rows import read_rows
from bayestree.runs.runner import run
from bayestree.runs.store import RunFolder, open_run
from bayestree.tables import Encoding, InputError
from tests.runs.cases import run_file

N = 400


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("bayestree.tables.dataset.CELLS", 200)


@pytest.fixture(params=["memory", "disk"])
def storage(request):
    return request.param


def frame(n=N):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, n)).round(4)
    return pd.DataFrame({"a": a, "b": b, "kind": np.where(a + b > 0, "big", "small")})


def lines(n=N, **columns):
    """The lines of a file."""
    return frame(n).assign(**columns).to_csv(index=False).splitlines()


def rows_of(folder, storage, content=None, **data):
    if content is not None:
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / "rows.csv").write_bytes(raw)
    data = {"path": "rows.csv", "drop": [], "storage": storage} | data
    return read_rows(run_file(folder, data=data))


def refusal(folder, storage, content=None, **data):
    with pytest.raises(InputError) as found:
        rows_of(folder, storage, content, **data)
    assert "\n" not in str(found.value)
    return str(found.value)


def with_cell(line, column, value, n=N):
    """The table, with another value on a line of its file."""
    found = [text.split(",") for text in lines(n)]
    found[line - 1][column] = value
    return "\n".join(map(",".join, found))


class TestNumbers:
    def test_one_question_mark(self, storage, tmp_path):
        said = refusal(tmp_path, storage, with_cell(203, 0, "?"))
        assert said.startswith(
            "column 'a' holds numbers in 399 of 400 rows, but line 203 of 'rows.csv' holds '?'; "
            "correct it"
        )

    def test_line_breaks_and_blank_lines_are_counted(self, storage, tmp_path):
        found = [*lines(note="x"), ""]
        found[5] = found[5].replace(",x", ',"x\ny"')
        found.insert(8, "")
        found[100] = "?," + found[100].split(",", 1)[1]
        said = refusal(tmp_path, storage, "\n".join(found))
        assert "but line 102 of 'rows.csv' holds '?'" in said

    def test_few_rows(self, storage, tmp_path):
        """Too few for more than a hundred texts, which were categories before."""
        said = refusal(tmp_path, storage, with_cell(9, 1, "n.a.", n=60))
        assert "column 'b' holds numbers in 59 of 60 rows, but line 9 " in said

    def test_a_target(self, storage, tmp_path):
        said = refusal(tmp_path, storage, with_cell(31, 1, "?"), target="b", drop=["kind"])
        assert "column 'b' holds numbers in 399 of 400 rows, but line 31 " in said
        said = refusal(tmp_path, storage, target="b", drop=["kind"], task="regression")
        assert "column 'b' should hold numbers, but line 31 of 'rows.csv' holds '?'" in said

    def test_a_test_table(self, storage, tmp_path):
        (tmp_path / "test.csv").write_text(with_cell(40, 1, "?"))
        found = rows_of(tmp_path, storage, "\n".join(lines()), test="test.csv")
        (remark,) = found.remarks
        assert "column 'b': 1 row holds a value that cannot be read as a number ('?')" in remark
        assert found.X_held["b"][38] == pytest.approx(found.X["b"].mean())

    @pytest.mark.parametrize(
        "cell", ["{},5", "1,{:03}.5", "{} %", "${}", "1\xa0{:03}", "1\u202f{:03}"]
    )
    def test_numbers_with_other_marks(self, cell, storage, tmp_path):
        content = frame().assign(a=[cell.format(i) for i in range(N)]).to_csv(index=False)
        said = refusal(tmp_path, storage, content)
        assert "column 'a' holds numbers that cannot be read: line 2 of 'rows.csv' holds" in said
        assert "with a decimal point and without other marks" in said

    @pytest.mark.parametrize("missing", ["?", ["?", -9], {"a": "?"}])
    def test_declared_codes(self, missing, storage, tmp_path):
        found = rows_of(tmp_path, storage, with_cell(203, 0, "?"), missing_values=missing)
        assert list(found.X) == ["a", "a missing", "b"]
        assert found.X["a missing"].sum() == 1
        assert "?" in found.encoding.codes["a"]

    def test_codes_that_are_not_declared(self, storage, tmp_path):
        found = rows_of(tmp_path, storage, with_cell(203, 0, "-9999"))
        (remark,) = found.remarks
        assert remark.startswith("column 'a' holds -9999 in 1 of 400 rows, far from all other")

    def test_few_codes_are_categories(self, storage, tmp_path):
        codes = np.where(np.arange(N) % 50, (np.arange(N) % 4).astype(str), "3+")
        found = rows_of(tmp_path, storage, frame().assign(a=codes).to_csv(index=False))
        assert found.encoding.columns[0].categories == ("0", "1", "2", "3", "3+")
        assert found.remarks == [
            "column 'a' holds numbers in 392 of 400 rows, but '3+' in row 1; its values are "
            "categories. If it is a quantity, correct the others, or list them in missing_values."
        ]


class TestSeparators:
    def test_a_thousand_or_a_fraction(self, storage, tmp_path):
        """1,234 may be either, so that the file is not guessed at."""
        cells = [f"1,{i:03}" for i in range(N)]
        said = refusal(tmp_path, storage, frame().assign(a=cells).to_csv(sep=";", index=False))
        assert "line 2 of 'rows.csv' holds '1,000'" in said

    def test_both_decimal_marks(self, storage, tmp_path):
        cells = [f"{i},25" if i % 2 else f"{i}.25" for i in range(N)]
        said = refusal(tmp_path, storage, frame().assign(a=cells).to_csv(sep=";", index=False))
        assert "column 'a'" in said
        assert "line 3 of 'rows.csv' holds '1,25'" in said

    def test_separators_in_quotes(self, storage, tmp_path):
        note = np.where(np.arange(N) % 2, "x;y;z", "u;v\tw")
        found = rows_of(tmp_path, storage, frame().assign(note=note).to_csv(index=False))
        assert found.X.shape[1] == 3
        note = np.where(np.arange(N) % 2, "x,y,z", "u,v")
        found = rows_of(tmp_path, storage, frame().assign(note=note).to_csv(index=False, sep=";"))
        assert found.X.shape[1] == 3

    @pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "tsv.gz"])
    def test_tabs(self, ending, storage, tmp_path):
        frame().to_csv(tmp_path / f"rows.{ending}", sep="\t", index=False)
        found = rows_of(tmp_path, storage, path=f"rows.{ending}")
        assert found.X.shape == (320, 2)

    def test_a_byte_order_mark(self, storage, tmp_path):
        content = frame().to_csv(index=False, sep=";").encode("utf-8-sig")
        assert list(rows_of(tmp_path, storage, content).X) == ["a", "b"]


class TestLines:
    def test_a_short_line(self, storage, tmp_path):
        found = lines()
        found[250] = "1.5,2.5"
        assert refusal(tmp_path, storage, "\n".join(found)) == (
            "line 251 of 'rows.csv' has 2 fields, but the header names 3 columns; complete the "
            "line, or delete it."
        )

    def test_a_long_line(self, storage, tmp_path):
        found = lines()
        found[250] = "1.5,2.5,big,big"
        said = refusal(tmp_path, storage, "\n".join(found))
        assert (
            "line 251 has 4 fields, but the header (line 1) has 3; name every column, delete"
            in said
        )

    def test_a_missing_target(self, storage, tmp_path):
        content = with_cell(300, 2, "NA").replace("\n", "\n\n", 1)
        assert refusal(tmp_path, storage, content) == (
            "1 missing value ('kind': 1), first at line 301 of 'rows.csv', where 'NA' stands for "
            "a missing value; drop these rows."
        )

    def test_all_chunks_are_counted(self, storage, tmp_path):
        content = frame()
        content.loc[[7, 300], "b"], content.loc[5, "a"] = np.inf, np.inf
        said = refusal(tmp_path, storage, content.to_csv(index=False))
        assert said.startswith("3 infinite values ('a': 1, 'b': 2), first at line 7 ")

    def test_a_quote_that_is_not_closed(self, storage, tmp_path):
        found = lines()
        found[77] = '"1.5,2.5,big'
        said = refusal(tmp_path, storage, "\n".join(found))
        assert "a quote that opens on line 78 is never closed" in said

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"a,kind\n1,x\n2,\xe9\n", "line 3 contains the byte 0xe9, which is not UTF-8"),
            ("a,kind\n1,x\n".encode("utf-16"), "it is in UTF-16; save it as UTF-8"),
            (b"sep=;\na;kind\n1;x\n", "line 1 of .* is an instruction to Excel"),
            (b"\n  \n\n", "no line of column names"),
            (b"a,kind,a\n1,x,2\n", "column named 'a': columns 1 and 3; rename one"),
            (b"My sales\n\na,kind\n1,x\n", r"line 3 has 2 fields, .* \(line 1\) has 1"),
        ],
    )
    def test_files_of_spreadsheets(self, content, said, storage, tmp_path):
        with pytest.raises(InputError, match=said):
            rows_of(tmp_path, storage, content)

    def test_a_sheet(self, storage, tmp_path):
        (tmp_path / "rows.xlsx").write_bytes(b"PK")
        assert "save the sheet as CSV" in refusal(tmp_path, storage, path="rows.xlsx")


class TestFeatures:
    """What is not a number becomes features; files say the same whatever their format."""

    @staticmethod
    def content(n=N):
        rng = np.random.default_rng(1)
        days = pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d")
        found = frame(n).assign(day=days, name=[f"n{i % 50}" for i in range(n)])
        found["colour"] = rng.choice(["red", "blue"], n)
        for column in ("a", "day", "name", "colour"):
            found.loc[rng.random(n) < 0.1, column] = None
        return found

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_features(self, ending, storage, tmp_path):
        content = self.content()
        if ending == "csv":
            content.to_csv(tmp_path / "rows.csv", index=False)
        else:
            content.assign(day=pd.to_datetime(content["day"])).to_parquet(tmp_path / "rows.parquet")
        found = rows_of(tmp_path, storage, path=f"rows.{ending}")
        assert list(found.X) == [
            "a",
            "a missing",
            "b",
            "day (days)",
            "day (month)",
            "day (day)",
            "day (weekday)",
            "day missing",
            "name: P(small)",
            "name missing",
            "colour=red",
            "colour missing",
        ]
        held = content.iloc[found.rows_held].reset_index(drop=True)
        assert found.X_held["a missing"].tolist() == held["a"].isna().tolist()
        red = held["colour"].dropna() == "red"
        assert found.X_held["colour=red"][red.index].tolist() == red.tolist()
        mean = np.nanmean(content["a"].drop(found.rows_held))
        np.testing.assert_allclose(found.X_held["a"], held["a"].fillna(mean))
        again = found.encoding.encode(held)
        np.testing.assert_allclose(found.X_held, again)
        assert found.encoding.encode(content).shape == (N, 12)

    def test_memory_and_disk_agree(self, tmp_path):
        content = self.content().to_csv(index=False)
        one, other = (rows_of(tmp_path, storage, content) for storage in ("memory", "disk"))
        assert one.encoding.feature_names == other.encoding.feature_names
        np.testing.assert_allclose(one.X, other.X)
        np.testing.assert_allclose(one.X_held, other.X_held)

    def test_values_missing_in_the_test_table_alone(self, storage, tmp_path):
        other = frame(40).assign(a=np.nan)
        other.to_csv(tmp_path / "test.csv", index=False)
        found = rows_of(tmp_path, storage, "\n".join(lines()), test="test.csv")
        np.testing.assert_allclose(found.X_held["a"], frame()["a"].mean())

    def test_dates_in_two_formats(self, storage, tmp_path):
        content = self.content()
        content.loc[300, "day"] = "31.12.2024"
        found = rows_of(tmp_path, storage, content.to_csv(index=False))
        days = found.encoding.encode(content)["day (days)"]
        assert days[300] == (pd.Timestamp("2024-12-31") - pd.Timestamp(0)).days
        content.loc[350, "day"] = "12/31/2024"
        said = refusal(tmp_path, storage, content.to_csv(index=False))
        assert "column 'day' holds dates in several formats, such as " in said

    def test_a_mistake_among_dates(self, storage, tmp_path):
        content = self.content()
        content.loc[300, "day"] = "soon"
        said = refusal(tmp_path, storage, content.to_csv(index=False))
        assert "rows, but line 302 of 'rows.csv' holds 'soon'; list it in missing_values if" in said


class TestColumns:
    def test_an_index_is_left_out(self, storage, tmp_path):
        shuffled = frame().sample(frac=0.5, random_state=0)
        for content in (frame().to_csv(), shuffled.to_csv()):
            found = rows_of(tmp_path, storage, content)
            assert list(found.X) == ["a", "b"]
            assert found.remarks == [
                "column 'Unnamed: 0' is unnamed and looks like a row index; ignored."
            ]

    def test_what_is_no_index(self, storage, tmp_path):
        first = frame().assign(first=np.arange(N))[["first", "a", "b", "kind"]]
        assert "first" in rows_of(tmp_path, storage, first.to_csv(index=False)).X
        values = frame().set_index(np.arange(N) // 2).to_csv()
        assert "Unnamed: 0" in rows_of(tmp_path, storage, values).X

    def test_empty_columns_of_a_sheet(self, storage, tmp_path):
        content = "\n".join(f"{line},," for line in lines())
        found = rows_of(tmp_path, storage, content)
        assert list(found.X) == ["a", "b"]
        assert "'Unnamed: 3' is unnamed and empty" in found.remarks[0]

    def test_a_column_without_values(self, storage, tmp_path):
        content = frame().assign(c=np.nan).to_csv(index=False)
        found = rows_of(tmp_path, storage, content)
        assert list(found.X) == ["a", "b"]
        assert found.remarks == ["column 'c' is empty; ignored."]

    @pytest.mark.parametrize("target", ["Kind", " kind", "kindd"])
    def test_the_nearest_name(self, target, storage, tmp_path):
        said = refusal(tmp_path, storage, "\n".join(lines()), target=target)
        assert said.endswith("which has 'a', 'b', 'kind'; did you mean 'kind'?")

    def test_a_separator_that_is_not_known(self, storage, tmp_path):
        said = refusal(tmp_path, storage, "\n".join(lines()).replace(",", " "))
        assert said.endswith(
            "has 'a b kind'. Columns may be separated by commas, semicolons, tabs or vertical bars."
        )

    def test_numbers_as_text_in_parquet(self, storage, tmp_path):
        frame().astype({"a": str}).to_parquet(tmp_path / "test.parquet")
        found = rows_of(tmp_path, storage, "\n".join(lines()), test="test.parquet")
        np.testing.assert_array_equal(found.X_held["a"], frame()["a"])


def test_runs_with_an_index_among_their_features_still_open(tmp_path):
    """As earlier versions wrote them: the fitted model determines which columns are features."""
    frame(60).rename_axis("number").reset_index().to_csv(tmp_path / "data.csv", index=False)
    file = run_file(tmp_path, data={"drop": []})
    folder = run(file).folder
    found = frame(60).to_csv()
    (tmp_path / "data.csv").write_text(found)
    model = load(folder / "model.safetensors")
    named = {"number": "Unnamed: 0"}
    columns = [replace(one, name=named.get(one.name, one.name)) for one in model.encoding_.columns]
    model.fitted_ = replace(model.fitted_, encoding=Encoding(tuple(columns)))
    model.feature_names_in_ = np.array(model.encoding_.names, dtype=object)
    model.save(folder / "model.safetensors")
    place = RunFolder(folder)
    new = read_rows(file).fingerprints["data"]["sha256"]
    old = place.read_manifest()["data"]["data"]["sha256"]
    for name in ("columns.json", "manifest.json"):
        text = (folder / name).read_text().replace('"number"', '"Unnamed: 0"').replace(old, new)
        content = json.loads(text)
        del content["checksum"]
        place.write_json(name, content)
    assert list(open_run(folder).rows().X) == ["Unnamed: 0", "a", "b"]
