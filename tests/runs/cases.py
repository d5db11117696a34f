"""Runs of a second: their table, their run files, and a display that interrupts."""

import json

import numpy as np
import pandas as pd

from bayestree._utils.progress import Watch
from bayestree.runs.display import Display
from bayestree.runs.schema import RunFile


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["width", "height"])
    score = frame["width"] + 0.5 * frame["height"] + 0.3 * rng.normal(size=n)
    return frame.assign(kind=np.where(score > 0, "big", "small"), price=score.round(3))


def run_file(folder, *, data=None, model=None, inference=None, output=None, **head):
    """A run file of ``folder``, which holds ``data.csv``."""
    if not (folder / "data.csv").exists():
        table().to_csv(folder / "data.csv", index=False)
    model = {"tree": "cpt", "max_depth": 1, "n_experts": 2, "min_rows": 4} | (model or {})
    one = {"inference": "svi", "n_modes": 1} if model.get("tree") == "cpt" else {}
    parts = {
        "data": {"path": "data.csv", "target": "kind", "drop": ["price"]} | (data or {}),
        "model": model,
        "inference": {"epochs": 5, "n_draws": 3} | one | (inference or {}),
        "output": {"folder": "out", "report": False, "draws": False} | (output or {}),
    }
    return RunFile.from_parts(parts | head, folder / "run.toml")


class Recorder(Display):
    """A display that keeps its messages, and can act at a stage or a step."""

    def __init__(self, at=None, act=None):
        self.at, self.act, self.stages, self.said, self.warned = at, act, [], [], []
        self.steps, self.closed = [], 0

    def stage(self, name):
        self.stages.append(name)
        if name == self.at:
            self.act()

    def say(self, text):
        self.said.append(text)

    def warn(self, text):
        self.warned.append(text)

    def begin(self, label, total, parts, *, show):
        return _Loop(self, label)

    def close(self):
        self.closed += 1


class _Loop(Watch):
    def __init__(self, recorder, label):
        self.recorder, self.label = recorder, label

    def step(self, done):
        self.recorder.steps.append((self.label, done))
        if (self.label, done) == self.recorder.at:
            self.recorder.act()


def interrupt():
    raise KeyboardInterrupt


def edit_json(path, **changes):
    """Change values of a JSON file of a run, which is left without its checksum, as an old one."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: x for k, x in content.items() if k != "checksum"}))


NUMBERS = ("model.safetensors", "metrics.json", "tree.txt", "facets.csv", "columns.json",
           "predictions.parquet")  # fmt: skip


def numbers(folder):
    """The files of a run whose bytes follow from its run file."""
    return {name: (folder / name).read_bytes() for name in NUMBERS}
