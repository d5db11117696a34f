"""`bayestree fit`: a run without a file."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.runs import outputs
from tests.cli.command import FOLDER, NUMBERS, QUICK, done, files_in, refused, run


class TestFit:
    def test_classes(self, table, place):
        table.to_csv("data.csv", index=False)
        result = done("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK)
        assert files_in(place) == ["data.csv", "tree"]
        assert files_in(place / "tree") == FOLDER
        text = (place / "tree" / "tree.txt").read_text()
        assert text in result.stdout
        assert "becomes color=red" in result.stderr
        clf = bayestree.load(place / "tree" / "model.safetensors")
        assert text == bayestree.export_text(clf)
        assert list(clf.feature_names_in_) == [
            "size", "color", "price", "copies",
        ]  # fmt: skip
        metrics = json.loads((place / "tree" / "metrics.json").read_text())
        assert (metrics["training_rows"], metrics["scored_rows"]) == (64, 16)
        assert metrics["accuracy"] > 0.8
        assert f"accuracy {metrics['accuracy']:.4g}" in result.stdout
        facets = pd.read_csv(place / "tree" / "facets.csv", index_col="node")
        assert list(facets.index) == list(clf.tree_.topology.node_labels)

    @pytest.mark.statistical
    def test_the_default_depth_suits_the_inference(self, table, place):
        """The card leaves it to the method: sequential Monte Carlo takes at most three levels."""
        table.to_csv("data.csv", index=False)
        short = ("--experts", "1", "--set", "n_draws=10", "--set", "n_chains=2")
        words = ("--target", "kind", "--inference", "smc", *short)
        done("fit", "data.csv", *words, "--out", "tree")
        assert 'max_depth = "none"' in (place / "tree" / "run.toml").read_text()
        clf = bayestree.load(place / "tree" / "model.safetensors")
        assert clf.posterior_.model.topology.depth == 2

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

    @pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
    def test_the_held_out_score_is_of_rows_not_trained_on(self, table, place):
        table["kind"] = np.random.default_rng(1).permutation(table["kind"])
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", "--inference", "grow", "--depth", "6",
                 *NUMBERS)  # fmt: skip
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
        for name in set(FOLDER) - {"manifest.json", "run.toml", "run.log"}:
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

    def test_an_error_on_the_way_can_be_taken_up(self, table, place, monkeypatch):
        table.to_csv("data.csv", index=False)

        def full(*_):
            raise OSError("disk full")

        words = ("fit", "data.csv", "--target", "kind", "--out", "tree", "--quiet", *QUICK)
        with monkeypatch.context() as patch:
            patch.setattr(outputs, "scored", full)
            assert "disk full" in refused(*words)
        assert json.loads((place / "tree" / "manifest.json").read_text())["status"] == "failed"
        assert "add --resume" in refused(*words)
        done(*words, "--resume")
        assert files_in(place / "tree") == FOLDER

    def test_settings_that_do_not_go_together_leave_nothing(self, table, place):
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", "--out", "new/tree", "--quiet", *QUICK)
        assert "cannot be combined with image_shape" in refused(
            *words, "--set=sparsity=0.1", "--set=image_shape=[2, 2]"
        )
        assert files_in(place) == ["data.csv"]

    def test_facets_have_intervals_only_where_there_are_draws(self, table, place):
        table.to_csv("data.csv", index=False)
        words = ("fit", "data.csv", "--target", "kind", *QUICK)
        printed = done(*words, "--inference", "map", "--out", "point").stdout
        assert "facets.csv" not in files_in(place / "point")
        assert "interval" not in printed
        printed = done(*words, "--out", "drawn").stdout
        (root,) = pd.read_csv("drawn/facets.csv").query("node == 'root'").itertuples()
        point = bayestree.load("drawn/model.safetensors").tree_.n_facets[0]
        posterior = f"{root.facets_median} ({root.facets_low} to {root.facets_high})"
        (line,) = [line for line in printed.splitlines() if line.startswith("root  ")]
        assert line.split(maxsplit=2) == ["root", str(point), posterior]

    def test_the_linear_model_stands_below_the_scores(self, table, place):
        table.to_csv("data.csv", index=False)
        printed = done("fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK).stdout
        told = done("summary", "tree").stdout.splitlines()
        assert printed.splitlines()[:2] == told[1:3]
        baseline = json.loads((place / "tree" / "metrics.json").read_text())["baseline"]
        assert told[2].startswith(
            f"{baseline['model']}, fitted to the same training rows: accuracy "
        )

    def test_its_run_file_makes_the_same(self, table, place):
        table.to_csv("data.csv", index=False)
        done("fit", "data.csv", "--target", "kind", "--drop", "price", "--out", "a", *QUICK)
        done("run", "a", "--out", "b")
        models = [(place / name / "model.safetensors").read_bytes() for name in "ab"]
        assert models[0] == models[1]


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
            (b"size,colour\n1,a\n2,b\n", "target 'kind' is not a column of 'data.csv'"),
            (b"0.126,a\n0.3,b\n", "The first line of a CSV file must name the columns."),
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
        assert "absent.csv' does not exist" in refused("fit", "absent.csv", *words)
        assert "is a folder" in refused("fit", place, *words)
        (place / "data.xlsx").write_bytes(b"x")
        assert "must end in one of .parquet" in refused("fit", "data.xlsx", *words)
        (place / "run.toml").write_bytes(b"x")
        assert "a run file is run by `bayestree run`" in refused("fit", "run.toml", *words)
        (place / "data.parquet").write_bytes(b"not this")
        assert "cannot be read as a Parquet file" in refused("fit", "data.parquet", *words)

    def test_columns(self, table, place):
        table.assign(day=pd.Timestamp("2020-01-01")).to_parquet("data.parquet")
        words = ("fit", "data.parquet", "--out", "tree")
        assert "column 'day' holds dates; replace it with numbers" in refused(
            *words, "--target", "day"
        )
        words = (*words, "--drop", "day")
        assert "drop 'x' is not a column of 'data.parquet'" in refused(
            *words, "--target", "kind", "--drop", "x"
        )
        assert "drop 'day' is also named as target" in refused(*words, "--target", "day")
        assert "should hold numbers" in refused(*words, "--target", "kind", "--task", "regression")
        assert "which is not a class" in refused(
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
        ended = subprocess.run(
            [*code, "fit", "absent.csv", "--target", "y", "--out", "tree"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert ended.stderr == (
            f"bayestree: '{place}/absent.csv' does not exist; specify a CSV or Parquet file.\n"
        )


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_a_data_set_of_many_files(table, place, storage):
    for number, part in enumerate((table[:30], table[30:])):
        (place / "data" / f"month={number}").mkdir(parents=True)
        part.to_parquet(f"data/month={number}/rows.parquet")
    words = ["--target", "kind", "--drop", "price", "--json", "--set"]
    words += [f"storage='{storage}'", *QUICK]
    scores = []
    for data in ("data", "data/*/*.parquet"):
        result = json.loads(done("fit", data, *words, "--out", f"of-{len(data)}").stdout)
        scores.append(result["metrics"])
    table.assign(month=[0] * 30 + [1] * 50).to_parquet("whole.parquet")
    scores.append(json.loads(done("fit", "whole.parquet", *words, "--out", "o").stdout)["metrics"])
    assert scores[0] == scores[1] == scores[2]
    for data in ("data/*/*.parquet", "whole.parquet"):
        done("predict", "of-4", data, "--out", f"{len(data)}.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet("16.parquet"), pd.read_parquet("13.parquet"))
