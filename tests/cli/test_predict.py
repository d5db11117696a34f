"""`bayestree predict`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.cli.predict import _print_predicted
from bayestree.runs.predict import Predicted
from tests.cli.command import QUICK, done, refused
from tests.runs.cases import edit_json


class TestPredict:
    @pytest.fixture
    def fitted(self, table, place):
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", "--drop", "price", "--out", "tree")
        done(*words, *QUICK)
        return table

    def test_as_the_model_does(self, fitted, place):
        fitted[["copies", "color", "price", "size"]].to_parquet("new.parquet")
        result = done("predict", "tree", "new.parquet")
        assert "scores" not in result.stdout
        found = pd.read_csv("predictions.csv")
        assert list(found.columns) == ["prediction", "p(big)", "p(small)"]
        clf = bayestree.load("tree/model.safetensors")
        X = fitted[["size", "color", "copies"]]
        np.testing.assert_allclose(found[["p(big)", "p(small)"]], clf.predict_proba(X), rtol=1e-9)
        assert list(found["prediction"]) == list(clf.predict(X))

    def test_scores_where_the_target_is_known(self, fitted, place):
        result = done("predict", "tree", "data.csv", "--out", "p.parquet")
        accuracy = (pd.read_parquet("p.parquet")["prediction"] == fitted["kind"]).mean()
        assert f"accuracy {accuracy:.4g}" in result.stdout
        result = done("predict", "tree", "data.csv", "--force", "--json")
        found = json.loads(result.stdout)
        assert (found["file"], found["rows"]) == ("predictions.csv", 80)
        assert found["scores"]["accuracy"] == accuracy

    def test_the_table_of_the_run_holds_training_rows(self, fitted, place):
        result = done("predict", "tree", "data.csv").stdout
        assert "\nscores on 80 rows, 64 of them training rows: " in result
        (place / "data.csv").rename("moved.csv")
        found = json.loads(done("predict", "tree", "moved.csv", "--force", "--json").stdout)
        assert found["rows_of_the_fit"] == 64
        fitted.to_csv("all.csv", index=False)
        words = ("fit", "all.csv", "--target", "kind", "--drop", "price", "--out", "every")
        done(*words, *QUICK, "--test-fraction", "0")
        label = "\nscores on rows the model was fitted to (expect worse on new rows): "
        assert label in done("predict", "every", "all.csv", "--force").stdout

    def test_equal_rows_of_another_file_are_not_called_training_rows(self, fitted, place):
        """With categorical columns, new rows often equal old ones."""
        fitted.iloc[::-1].to_csv("new.csv", index=False)
        assert "\nscores: " in done("predict", "tree", "new.csv").stdout
        found = json.loads(done("predict", "tree", "new.csv", "--force", "--json").stdout)
        assert found["rows_of_the_fit"] is None

    def test_a_part_of_the_rows_is_scored(self, capsys):
        scores = {"accuracy": 0.5}
        for seen, said in (
            (None, "scores on 40 rows: "),
            (7, "scores on 40 rows of 90, 7 of them training rows: "),
        ):
            found = Predicted(90, [], scores, n_seen=seen, n_scored=40)
            _print_predicted(found, Path("p.csv"), as_json=False)
            assert f"\n{said}accuracy 0.5" in capsys.readouterr().out
            _print_predicted(found, Path("p.csv"), as_json=True)
            content = json.loads(capsys.readouterr().out)
            numbers = (content[name] for name in ("rows", "scored_rows", "rows_of_the_fit"))
            assert [*numbers] == [90, 40, seen]

    def test_why_it_is_not_scored(self, fitted, place):
        fitted.assign(kind=[None, *fitted["kind"][1:]]).to_csv("new.csv", index=False)
        result = done("predict", "tree", "new.csv")
        assert "not scored: 1 missing value ('kind': 1), first at row 1; drop" in result.stdout

    def test_classes_that_the_fit_did_not_see_are_named(self, fitted, place):
        fitted.assign(kind=["huge", "other", *fitted["kind"][2:]]).to_csv("new.csv", index=False)
        result = done("predict", "tree", "new.csv")
        assert "warning: scores: 2 rows of classes that the fit did not see" in result.stderr
        assert "('huge', 'other'), of probability 0" in result.stderr

    def test_an_unknown_category_counts_as_none(self, fitted, place):
        fitted.assign(color=["green", "pink"] * 40).to_csv("new.csv", index=False)
        result = done("predict", "tree", "new.csv")
        assert result.stderr.startswith("warning: column 'color': 80 rows hold a category")
        assert "'green', 'pink'" in result.stderr

    def test_text_in_a_column_of_numbers_counts_as_missing(self, fitted, place):
        fitted.assign(size=["x", *fitted["size"][1:]]).to_csv("new.csv", index=False)
        said = "warning: column 'size': 1 row holds a value that cannot be read as a number ('x')"
        assert done("predict", "tree", "new.csv").stderr.startswith(said)

    def test_refusals(self, fitted, place):
        assert "has no model.safetensors" in refused("predict", ".", "data.csv")
        fitted.drop(columns=["size", "color"]).to_csv("new.csv", index=False)
        assert "columns 'size', 'color' are missing" in refused("predict", "tree", "new.csv")
        fitted.assign(size=np.inf).to_csv("new.csv", index=False)
        assert "80 infinite values ('size': 80), first at line 2 of 'new.csv'" in refused(
            "predict", "tree", "new.csv"
        )
        assert "exists; choose another file, or add --force" in refused(
            "predict", "tree", "data.csv", "--out", "new.csv"
        )
        assert "choose another file." in refused(
            "predict", "tree", "data.csv", "--out", "data.csv", "--force"
        )
        assert "must end in" in refused("predict", "tree", "data.csv", "--out", "p.txt")
        assert "does not exist" in refused("predict", "tree", "data.csv", "--out", "no/p.csv")
        path = place / "tree" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        assert "was truncated" in refused("predict", "tree", "data.csv")

    def test_edited_columns(self, fitted, place):
        path = place / "tree" / "columns.json"
        edit_json(path, columns=json.loads(path.read_text())["columns"][:1])
        assert "describe different columns" in refused("predict", "tree", "data.csv")
        path.write_text("[1]")
        assert "was changed after" in refused("predict", "tree", "data.csv")

    def test_an_interval_for_numbers(self, table, place):
        table.to_csv("data.csv", index=False)
        done("fit", "data.csv", "--target", "price", "--out", "tree", *QUICK)
        done("predict", "tree", "data.csv")
        found = pd.read_csv("predictions.csv")
        assert list(found.columns) == ["prediction", "low", "high"]
        assert (found["low"] < found["high"]).all()
