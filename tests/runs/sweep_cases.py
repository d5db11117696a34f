"""A small sweep to test on."""

import numpy as np
import pandas as pd

from bayestree.runs.sweep_file import read_sweep

RUN = """
[data]
path = "data.csv"
target = "kind"

[model]
tree = "bivariate"
"""
SWEEP = """
run = "run.toml"

[sweep]
folder = "out"
seeds = [0, 1]
folds = 2
n_jobs = 1

[vary]
model.max_depth = [1, 2]
"""


class Heard:
    """A display that keeps what is said, and may do something after some lines."""

    def __init__(self, after=None, act=None):
        self.lines, self.warnings = [], []
        self.after, self.act = after, act

    @property
    def done(self):
        return [line for line in self.lines if "log_loss" in line]

    def say(self, text):
        self.lines.append(text)
        if self.act is not None and len(self.done) == self.after:
            act, self.act = self.act, None
            act()

    def warn(self, text):
        self.warnings.append(text)

    def stage(self, name): ...

    def begin(self, label, total, parts, *, show):
        return self

    def start(self):
        return 0

    def step(self, done): ...

    def note(self, text): ...

    def finish(self): ...

    def stop(self): ...

    def close(self): ...


def table(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    inside = (np.abs(X[:, :2]).max(axis=1) < 1) ^ (rng.random(n) < 0.1)
    frame = pd.DataFrame(X, columns=["width", "height", "depth"])
    return frame.assign(kind=np.where(inside, "in", "out"))


def written(folder, *, sweep=SWEEP, run=RUN):
    """A sweep file, its run file and its data in a folder, read."""
    table().to_csv(folder / "data.csv", index=False)
    (folder / "run.toml").write_text(run)
    (folder / "sweep.toml").write_text(sweep)
    return read_sweep(folder / "sweep.toml")


def numbers(found):
    """The columns of a table that depend on the fits only, not on the circumstances."""
    return found.drop(columns=["seconds", "worker"])
