"""Progress bars: only on a terminal, only for long fits, and never from workers."""

import os
import pty
import subprocess
import sys
import threading

import pytest
from joblib import Parallel, delayed

from bayestree._utils import progress

FIT = """
import sys
import numpy as np

from bayestree import (
    AlternatingTreeClassifier, ConvexPolytopeTreeClassifier, EndToEndForestClassifier
)
from bayestree._utils import progress
progress.DELAY = {delay}
X = np.random.default_rng(0).normal(size=(80, 2))
y = X[:, 0] > 0
settings = dict(max_depth=2, random_state=0 {settings})
for clf in (
    ConvexPolytopeTreeClassifier(n_modes=1, n_experts=2, epochs=2, n_draws=2, **settings),
    AlternatingTreeClassifier(**settings),
    EndToEndForestClassifier(2, epochs=2, {jobs} **settings),
):
    clf.fit(X, y)
    print("fitted", file=sys.stderr, flush=True)
"""
LOOPS = {"grow", "map", "svi", "tao", "trees"}
ERASE_LINE = "\x1b[2K"


def on_a_terminal(script):
    """Output of the script on standard error if that is a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    found = b""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        try:
            while part := os.read(ours, 65536):
                found += part
        except OSError:  # which Linux raises where the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0, found.decode()
    return found.decode()


def script(delay, settings="", jobs=""):
    return FIT.format(delay=delay, settings=settings, jobs=jobs)


def test_long_fits_show_their_loops_and_clear_them():
    told = on_a_terminal(script(delay=0))
    assert {loop for loop in LOOPS if f"{loop} " in told} == LOOPS
    for before in told.split("fitted")[:-1]:
        assert ERASE_LINE in before.rpartition("━")[2]


@pytest.mark.parametrize("quiet", [script(delay=3600), script(delay=0, settings=", verbose=False")])
def test_short_and_silent_fits_write_nothing(quiet):
    assert on_a_terminal(quiet).split() == ["fitted"] * 3


def test_asked_for_bars_come_at_once():
    assert "grow" in on_a_terminal(script(delay=3600, settings=", verbose=True"))


PRINTING = """
from bayestree._utils.progress import Track, fitting

with fitting(verbose=True):
    for step in Track(range(3), "loop", show=True):
        print(f"{step} printed")
"""


def test_what_goes_to_a_pipe_stays_out_of_the_terminal():
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", PRINTING], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        printed, _ = process.communicate()
    told = os.read(ours, 65536)
    os.close(theirs)
    os.close(ours)
    assert printed.decode().splitlines() == ["0 printed", "1 printed", "2 printed"]
    assert b"loop" in told


def test_notebooks_without_widgets_show_a_line_of_text(monkeypatch, capsys):
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr("builtins.get_ipython", shell, raising=False)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with progress.fitting(verbose=True):
        for _ in progress.Track(range(2), "outer", show=True):
            inner = progress.Track(range(3), "inner", show=True)
            for _ in inner:
                inner.note("well")
    told = capsys.readouterr().err
    shown = [line.strip() for line in told.split("\r")]
    assert "outer 1/2, inner 2/3 well" in shown
    last, blank, end = told.split("\r")[-3:]
    assert blank == " " * len(last.rstrip())  # the line is cleared
    assert not end


@pytest.mark.parametrize("settings", ["", ", verbose=True"])
def test_nothing_is_written_to_a_pipe(settings):
    environment = os.environ | {"FORCE_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script(delay=0, settings=settings)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert (done.stdout, done.stderr.split()) == ("", ["fitted"] * 3)


def shows(verbose):
    """Whether a fit would show its loops, were there a terminal."""
    with progress.fitting(verbose):
        return progress._monitor.get().shown  # type: ignore[attr-defined]


def test_workers_show_nothing_unasked():
    assert shows("auto")
    assert Parallel(n_jobs=2)(delayed(shows)(each) for each in ("auto", True)) == [False, True]
    found = []
    thread = threading.Thread(target=lambda: found.append(shows("auto")))
    thread.start()
    thread.join()
    assert found == [False]


def test_who_watches_a_fit_shows_it_alone():
    class Watcher:
        pass

    with progress.watching(watcher := Watcher()), progress.fitting(verbose=True):
        assert progress._monitor.get() is watcher
