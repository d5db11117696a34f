"""Runs: what they write, what they refuse, and how they are resumed."""

import html
import json
import os
import re
import shutil
import signal
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from filelock import FileLock

import bayestree
from bayestree._utils import arviz_compat
from bayestree.runs import outputs, runner
from bayestree.runs.checkpoints import Checkpoints
from bayestree.runs.rows import read_rows
from bayestree.runs.runner import run
from bayestree.runs.schema import RunFile, read_run
from bayestree.runs.store import open_run
from bayestree.tables import InputError
from tests.runs.cases import Recorder, edit_json, interrupt, numbers, run_file, table


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def files_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return run(run_file(folder)).folder


class TestWhatIsWritten:
    def test_the_folder(self, tmp_path):
        file = run_file(tmp_path, output={"draws": True}, title="Sizes", seed=3)
        told = Recorder()
        found = run(file, display=told, command="bayestree run it")
        assert found.folder == tmp_path / "out"
        assert files_in(found.folder) == [
            "columns.json", "facets.csv", "manifest.json", "metrics.json", "model.safetensors",
            "posterior.nc", "predictions.parquet", "run.log", "run.toml", "tree.txt",
        ]  # fmt: skip
        assert told.stages == ["fit", "scores", "draws", "predictions"]
        assert told.closed == 1
        said = manifest(found.folder)
        assert found.manifest == {key: x for key, x in said.items() if key != "checksum"}
        assert set(said["files"]) == {
            "facets.csv", "metrics.json", "posterior.nc", "predictions.parquet", "run.toml",
            "tree.txt",
        }  # fmt: skip
        assert (said["status"], said["seed"], said["resumed"]) == ("done", 3, 0)
        assert said["command"] == "bayestree run it"
        assert said["stages"] == list(said["seconds"]) == told.stages
        assert said["versions"]["bayestree"] == bayestree.__version__
        assert said["started"] <= said["ended"]
        log = (found.folder / "run.log").read_text()
        assert "48 training rows and 12 scored rows" in log
        assert "fit: svi" in log
        assert ("facets of draws", 1) in told.steps
        assert "scores: " not in log  # short loops have no lines

    def test_the_model_is_that_of_the_estimator(self, tmp_path):
        file = run_file(tmp_path, seed=3)
        found = run(file)
        rows = read_rows(file)
        clf = file.estimator("classification").fit(rows.X, rows.y, rows.weights)
        clf.save(tmp_path / "own.safetensors")
        written = (found.folder / "model.safetensors").read_bytes()
        assert (tmp_path / "own.safetensors").read_bytes() == written

    def test_the_resolved_run_file_makes_the_same(self, undisturbed, tmp_path):
        again = read_run(undisturbed / "run.toml", [f'output.folder="{tmp_path}/again"'])
        assert numbers(run(again).folder) == numbers(undisturbed)

    def test_the_rows_of_predictions(self, undisturbed):
        frame = pd.read_csv(undisturbed.parent / "data.csv")
        found = pd.read_parquet(undisturbed / "predictions.parquet")
        assert list(found.columns) == ["row", "kind", "prediction", "p(big)", "p(small)"]
        assert list(found["kind"]) == list(frame["kind"][found["row"]])
        clf = bayestree.load(undisturbed / "model.safetensors")
        rows = frame.loc[found["row"], ["width", "height"]]
        assert list(found["prediction"]) == list(clf.predict(rows))

    def test_trees_without_draws_have_no_posterior_to_write(self, tmp_path):
        run_file(tmp_path)  # writes the data
        parts = {
            "data": {"path": "data.csv", "target": "kind"},
            "model": {"tree": "wodt", "max_depth": 2},
            "output": {"folder": "out", "report": False},
        }
        found = run(RunFile.from_parts(parts, tmp_path / "run.toml"))
        assert not (found.folder / "posterior.nc").exists()
        assert not (found.folder / "facets.csv").exists()

    def test_large_groups_are_left_out(self, tmp_path, monkeypatch):
        monkeypatch.setattr(outputs, "MAX_NUMBERS", 48 * 3 - 1)
        found = run(run_file(tmp_path, output={"draws": True}))
        container = arviz_compat.arviz().from_netcdf(found.folder / "posterior.nc")
        assert "log_likelihood" not in arviz_compat.names(container)
        assert container["posterior"]["hyperplane"].shape[:2] == (1, 3)

    def test_the_report(self, tmp_path):
        found = run(run_file(tmp_path, output={"report": True}, question="How big?"))
        page = (found.folder / "report.html").read_text()
        assert "How big?" in page
        assert f"bayestree run run.toml --out ../{found.folder.name}-again" in page
        assert str(tmp_path) not in page


class TestResuming:
    @pytest.mark.parametrize(
        "at", [("grow", 1), ("map", 2), ("svi", 4), "scores", "draws", "predictions"], ids=str
    )
    def test_the_numbers_are_those_of_an_undisturbed_run(self, at, undisturbed, tmp_path):
        file = run_file(tmp_path, output={"draws": True})
        with pytest.raises(KeyboardInterrupt):
            run(file, display=Recorder(at, interrupt))
        said = manifest(tmp_path / "out")
        assert said["status"] == "interrupted"
        assert not {"posterior.nc", "predictions.parquet"} & set(said["stages"])
        told = Recorder()
        found = run(file, resume=True, display=told)
        assert numbers(found.folder) == numbers(undisturbed)
        assert not set(said["stages"]) & set(told.stages)
        assert (found.manifest["status"], found.manifest["resumed"]) == ("done", 1)
        assert not (found.folder / "checkpoints").exists()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_stops_after_the_step(self, number, undisturbed, tmp_path):
        file = run_file(tmp_path)
        handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        told = Recorder(("svi", 2), lambda: os.kill(os.getpid(), number))
        with pytest.raises(KeyboardInterrupt):
            run(file, display=told)
        assert told.steps[-1] == ("svi", 2)
        assert list((tmp_path / "out" / "checkpoints").iterdir())
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
        told = Recorder()
        assert numbers(run(file, resume=True, display=told).folder) == numbers(undisturbed)
        steps = [step for step in told.steps if step[0] == "svi"]
        assert steps == [("svi", 2), ("svi", 3), ("svi", 4), ("svi", 5)]
        assert ("map", 1) not in told.steps

    def test_a_signal_between_loops_stops_before_the_next_stage(self, tmp_path):
        told = Recorder("scores", lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            run(run_file(tmp_path), display=told)
        assert manifest(tmp_path / "out")["stages"] == ["fit", "scores"]

    def test_what_is_done_is_not_done_again(self, tmp_path):
        file = run_file(tmp_path)
        before = run(file).folder / "model.safetensors"
        at = before.stat().st_mtime_ns
        told = Recorder()
        run(file, resume=True, display=told)
        assert told.stages == []
        assert before.stat().st_mtime_ns == at

    def test_outputs_may_be_asked_for_later(self, tmp_path):
        file = run_file(tmp_path, output={"predictions": False})
        assert not (run(file).folder / "predictions.parquet").exists()
        more = run_file(tmp_path, title="Another")
        found = run(more, resume=True)
        assert (found.folder / "predictions.parquet").exists()
        assert open_run(found.folder).file.title == "Another"

    def test_other_versions_are_told(self, tmp_path):
        file = run_file(tmp_path)
        folder = run(file).folder
        versions = manifest(folder)["versions"] | {"torch": "1.0"}
        edit_json(folder / "manifest.json", versions=versions)
        told = Recorder()
        run(file, resume=True, display=told)
        assert "torch" in told.warned[0]
        assert "was 1.0" in told.warned[0]
        assert "numpy" not in told.warned[0]

    def test_changed_outputs_are_written_again(self, tmp_path):
        file = run_file(tmp_path)
        folder = run(file).folder
        before = numbers(folder)
        (folder / "metrics.json").write_text("{}")
        (folder / "predictions.parquet").write_bytes(b"")
        told = Recorder()
        run(file, resume=True, display=told)
        assert told.stages == ["scores", "predictions"]
        assert numbers(folder) == before

    @pytest.mark.filterwarnings("always:the checkpoint")
    def test_a_damaged_checkpoint_is_named(self, undisturbed, tmp_path, monkeypatch):
        often = partial(Checkpoints, every=0.0, share=float("inf"))
        monkeypatch.setattr(runner, "Checkpoints", often)
        file = run_file(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            run(file, display=Recorder(("svi", 4), interrupt))
        *_, path = sorted((tmp_path / "out" / "checkpoints").iterdir())
        path.write_bytes(path.read_bytes()[:-1])
        found = run(file, resume=True, display=(told := Recorder()))
        assert any(f"{path.name}' is damaged" in text for text in told.warned)
        assert numbers(found.folder) == numbers(undisturbed)

    @pytest.mark.parametrize("change", [("seed = 0", "seed = 1"), ("epochs = 5", "epochs = 6")])
    def test_a_run_file_that_was_changed_in_its_folder(self, tmp_path, change):
        with pytest.raises(KeyboardInterrupt):
            run(run_file(tmp_path), display=Recorder("fit", interrupt))
        path = tmp_path / "out" / "run.toml"
        path.write_text(path.read_text().replace(*change))
        with pytest.raises(InputError, match=r"run\.toml' was changed after it was written; undo"):
            run(read_run(path), resume=True)

    def test_other_words_make_another_report(self, tmp_path):
        asked = {"output": {"report": True}}
        run(run_file(tmp_path, **asked, question="How big?"))
        told = Recorder()
        found = run(run_file(tmp_path, **asked, question="How wide?"), resume=True, display=told)
        assert told.stages == ["report"]
        assert "How wide?" in (found.folder / "report.html").read_text()

    def test_checkpoints_of_a_process_killed_after_its_fit_go(self, tmp_path):
        file = run_file(tmp_path)
        folder = run(file).folder
        (folder / "checkpoints").mkdir()
        for name in ("0001.safetensors", ".0002.safetensors.x1"):
            (folder / "checkpoints" / name).write_bytes(b"")
        run(file, resume=True)
        assert not (folder / "checkpoints").exists()

    def test_order_and_form_of_the_values_do_not_matter(self, tmp_path):
        file = run_file(tmp_path, model={"min_rows": 4})
        path = run(file).folder / "run.toml"
        head, model, rest = re.split(r"(?<=\[model\]\n)|(?=\n\[inference\])", path.read_text())
        lines = model.replace("min_rows = 4\n", "min_rows = 4.0\n").splitlines(keepends=True)
        path.write_text(head + "".join(reversed(lines)) + rest)
        assert run(file, resume=True).manifest["resumed"] == 1

    def test_checkpoints_of_someone_else_stay(self, tmp_path):
        other = tmp_path / "out" / "checkpoints" / "epoch-1.safetensors"
        other.parent.mkdir(parents=True)
        other.write_text("mine")
        run(run_file(tmp_path), force=True)
        assert other.read_text() == "mine"

    def test_an_error_is_forgotten_once_the_run_is_done(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError("disk full")

        file = run_file(tmp_path)
        with monkeypatch.context() as patch:
            patch.setitem(outputs.WRITERS, "predictions", full)
            with pytest.raises(OSError, match="disk full"):
                run(file)
        said = manifest(tmp_path / "out")
        assert (said["status"], said["error"]) == ("failed", "OSError: disk full")
        assert "Traceback" in (tmp_path / "out" / "run.log").read_text()
        found = run(file, resume=True)
        assert found.manifest["status"] == "done"
        assert "error" not in found.manifest

    def test_a_folder_without_a_run_is_begun(self, tmp_path):
        assert run(run_file(tmp_path), resume=True).manifest["resumed"] == 0

    @pytest.mark.parametrize("left", [[], ["manifest.json"]])
    def test_a_run_that_was_killed_as_it_began(self, left, undisturbed, tmp_path):
        file = run_file(tmp_path)
        folder = tmp_path / "out"
        folder.mkdir()
        (folder / "run.log").write_text("began\n")
        (folder / ".run.toml.x1y2").write_text("tit")
        for name in left:
            shutil.copy(undisturbed / name, folder)
            edit_json(folder / name, status="running", stages=[], seconds={}, files={})
        found = run(file, resume=True)
        assert numbers(found.folder) == numbers(undisturbed)
        assert not list(folder.glob(".run.toml.*"))

    def test_drafts_of_a_killed_process_go(self, tmp_path):
        file = run_file(tmp_path)
        folder = run(file).folder
        (folder / ".metrics.json.abc").write_text("{")
        run(file, resume=True)
        assert not (folder / ".metrics.json.abc").exists()


class TestRefusals:
    def test_another_run(self, tmp_path):
        folder = run(run_file(tmp_path)).folder
        before = numbers(folder)
        with pytest.raises(InputError, match=r"not empty and contains a run; .* --force"):
            run(run_file(tmp_path))
        deeper = run_file(tmp_path, model={"max_depth": 2})
        with pytest.raises(InputError, match="with max_depth = 1, but this run has max_depth = 2"):
            run(deeper, resume=True)
        assert numbers(folder) == before
        assert run(deeper, force=True).file.parameters()["max_depth"] == 2

    @pytest.mark.parametrize("words", ["a [output] b", "[output]\n[output]\n"])
    def test_another_run_whatever_its_title(self, words, tmp_path):
        run(run_file(tmp_path, title=words))
        with pytest.raises(InputError, match="contains a run with max_depth = 1"):
            run(run_file(tmp_path, title=words, model={"max_depth": 2}), resume=True)

    def test_another_seed(self, tmp_path):
        run(run_file(tmp_path))
        with pytest.raises(InputError, match="with seed = 0, but this run has seed = 1"):
            run(run_file(tmp_path, seed=1), resume=True)

    def test_other_data(self, tmp_path):
        run(run_file(tmp_path))
        table(seed=1).to_csv(tmp_path / "data.csv", index=False)
        with pytest.raises(
            InputError, match=r"data\.csv' has changed since the run in .* was started"
        ):
            run(run_file(tmp_path), resume=True)

    def test_another_table_of_held_out_rows(self, tmp_path):
        table(seed=1).to_csv(tmp_path / "test.csv", index=False)
        file = run_file(tmp_path, data={"test": "test.csv"})
        run(file)
        table(seed=2).to_csv(tmp_path / "test.csv", index=False)
        with pytest.raises(
            InputError, match=r"test\.csv' has changed since the run in .* was started"
        ):
            run(file, resume=True)

    def test_a_run_that_was_not_finished(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            run(run_file(tmp_path), display=Recorder("scores", interrupt))
        with pytest.raises(InputError, match="contains an unfinished run; add --resume"):
            run(run_file(tmp_path))

    def test_files_that_are_none_of_a_run(self, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes.txt").write_text("mine")
        for resume in (False, True):
            with pytest.raises(InputError, match=r"not empty and not a run; .* --force"):
                run(run_file(tmp_path), resume=resume)
        run(run_file(tmp_path), force=True)
        assert (tmp_path / "out" / "notes.txt").read_text() == "mine"

    def test_force_leaves_nothing_of_the_other_run(self, tmp_path):
        folder = run(run_file(tmp_path)).folder
        run(run_file(tmp_path, output={"predictions": False, "report": True}), force=True)
        assert not (folder / "predictions.parquet").exists()
        report = (folder / "report.html").read_text(encoding="utf-8")
        assert f"bayestree run run.toml --out ../{folder.name}-again" in report
        assert 'folder = "."' in html.unescape(report)

    def test_resume_and_force(self, tmp_path):
        with pytest.raises(InputError, match=r"--resume .* --force .*; specify only one"):
            run(run_file(tmp_path), resume=True, force=True)

    def test_a_place_that_is_no_folder(self, tmp_path):
        file = run_file(tmp_path, output={"folder": "data.csv"})
        with pytest.raises(InputError, match=r"data\.csv' is a file; choose another"):
            run(file)

    def test_a_folder_that_is_being_written(self, tmp_path):
        (tmp_path / "out").mkdir()
        with (
            FileLock(tmp_path / "out" / ".lock"),
            pytest.raises(InputError, match="another process is writing"),
        ):
            run(run_file(tmp_path))

    def test_settings_that_do_not_go_together_leave_nothing(self, tmp_path):
        wrong = {"model": {"image_shape": [2, 2]}, "inference": {"sparsity": 0.1}}
        with pytest.raises(InputError, match="cannot be combined with image_shape"):
            run(run_file(tmp_path, **wrong, output={"folder": "new/out"}))
        assert files_in(tmp_path) == ["data.csv"]

    def test_a_forced_run_that_is_refused_leaves_the_other_run(self, tmp_path):
        folder = run(run_file(tmp_path)).folder
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        wrong = {"model": {"image_shape": [2, 2]}, "inference": {"sparsity": 0.1}}
        with pytest.raises(InputError, match="cannot be combined with image_shape"):
            run(run_file(tmp_path, **wrong), force=True)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    @pytest.mark.parametrize("stage", ["fit", "scores"])
    def test_a_forced_run_that_is_interrupted_leaves_the_other_run(self, stage, tmp_path):
        folder = run(run_file(tmp_path)).folder
        before = numbers(folder)
        deeper = run_file(tmp_path, model={"max_depth": 2})
        with pytest.raises(KeyboardInterrupt):
            run(deeper, force=True, display=Recorder(stage, interrupt))
        assert numbers(folder) == before
        assert open_run(folder).file.parameters()["max_depth"] == 1
        with pytest.raises(InputError, match="contains an unfinished run; add --resume"):
            run(deeper)

        found = run(deeper, resume=True)
        assert found.file.parameters()["max_depth"] == 2
        assert found.manifest["resumed"] == 1
        assert not (folder / ".next").exists()
        fresh = run_file(tmp_path, model={"max_depth": 2}, output={"folder": "fresh"})
        assert numbers(folder) == numbers(run(fresh).folder)
        assert run(deeper, resume=True).manifest["resumed"] == 2

    def test_a_move_that_was_interrupted_is_repeated(self, tmp_path, monkeypatch):
        folder = run(run_file(tmp_path)).folder
        deeper = run_file(tmp_path, model={"max_depth": 2})
        move = Path.replace

        def stop(path, to):
            if path.name == "metrics.json" and path.parent.name == ".next":
                raise KeyboardInterrupt
            return move(path, to)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", stop)
            with pytest.raises(KeyboardInterrupt):
                run(deeper, force=True)
        found = run(deeper, resume=True)
        assert found.file.parameters()["max_depth"] == 2
        assert (folder / "metrics.json").exists()
        assert (folder / "model.safetensors").exists()

    def test_data_that_cannot_be_used_leaves_nothing(self, tmp_path):
        with pytest.raises(InputError, match=r"target .weight. is not a column of .data\.csv."):
            run(run_file(tmp_path, data={"target": "weight"}))
        assert files_in(tmp_path) == ["data.csv"]


class TestWarnings:
    @pytest.mark.filterwarnings("always:steep:UserWarning")
    def test_they_are_told_in_one_line(self, tmp_path, monkeypatch):
        def text_of(*_):
            warnings.warn("steep\n  slope", stacklevel=1)
            return ""

        monkeypatch.setattr(outputs, "text_of", text_of)
        told = Recorder()
        run(run_file(tmp_path), display=told)
        assert told.warned == ["steep slope"]
        assert "warning: steep slope" in (tmp_path / "out" / "run.log").read_text()


VI = {"inference": "vi", "epochs": "none"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": {"prior": "laplace"}, "inference": VI}, "use prior='inverse-"),
        ({"data": {"target": "price", "drop": [], "exposure": "width"}}, "is for leaf = poisson"),
        ({"inference": VI, "data": {"storage": "disk"}}, "needs all rows at once"),
        (
            {"model": {"class_weight": "balanced"}, "cluster": {"workers": 1}},
            "cannot use class_weight",
        ),
    ],
)
def test_settings_that_exclude_a_fit_are_refused_before_the_rows(
    given, said, tmp_path, monkeypatch
):
    monkeypatch.setattr(runner, "rows_of", lambda _: pytest.fail("the table was read"))
    file = run_file(tmp_path, **given)
    with pytest.raises(InputError, match=re.escape(said)):
        run(file)
    assert not (tmp_path / "out").exists()
