"""A run whose process dies at given steps: python -m tests.runs.killed FOLDER STEP...

Each process is killed at its step and the next takes the run up; the last one ends it. Writes how
each of them ended, and before that how many steps the last one saw. All are forks of this one,
which imports the package once.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from bayestree.runs import runner
from bayestree.runs.checkpoints import Checkpoints
from bayestree.runs.display import Display
from tests.runs.cases import run_file
from tests.short_checks import short_checks


class Deadly(Display):
    """Kills its process at a step, which is before that step is in a checkpoint."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def begin(self, label, total, parts, *, show):
        return _Steps(self)


class _Steps:
    def __init__(self, display):
        self.display = display

    def start(self):
        return 0

    def step(self, done):
        self.display.left -= 1
        if self.display.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, text):
        pass

    finish = stop = lambda self: None


def main():
    folder, *steps = sys.argv[1:]
    file = run_file(Path(folder), inference={"epochs": 12, "n_draws": 3, "batch_size": 30})
    runner.Checkpoints = partial(Checkpoints, every=0.0, share=float("inf"))  # type: ignore[attr-defined]
    for step in [*map(int, steps), 0]:
        process = os.fork()
        if not process:
            with short_checks():  # as in the tests of this folder
                runner.run(file, resume=True, display=(last := Deadly(step)))
            sys.stderr.write(f"{-last.left} steps\n")
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        sys.stdout.write(f"{ended}\n")


if __name__ == "__main__":
    main()
