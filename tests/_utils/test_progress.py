"""Loops that are monitored and resumed, and progress bars: only on a terminal, for long fits."""

import sys
import threading
import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed

from bayestree import (
    AlternatingTreeClassifier,
    ConvexPolytopeTreeClassifier,
    EndToEndForestClassifier,
    UnconvergedWarning,
    html_report,
)
from bayestree._utils import progress
from bayestree._utils.progress import Track, steps_of, watching
from bayestree.inference import Svi
from tests.forked import forked


class Recorder:
    """Records the calls of a loop that has completed ``done`` steps before."""

    def __init__(self, done=0):
        self.done = done
        self.told = []

    def begin(self, label, total, parts, *, show):
        self.told.append(("begin", label, total, parts, show))
        return self

    def start(self):
        return self.done

    def step(self, done):
        self.told.append(("step", done))

    def note(self, text):
        self.told.append(("note", text))

    def finish(self):
        self.told.append("finish")

    def stop(self):
        self.told.append("stop")


def test_a_monitor_hears_of_each_step():
    trace = []
    with watching(recorder := Recorder()):
        track = Track("ab", "letters", show=True, parts={"trace": trace})
        for letter in track:
            trace.append(letter)
            track.note(letter)
    begin = ("begin", "letters", 2, {"trace": ["a", "b"]}, True)
    steps = [("note", "a"), ("step", 1), ("note", "b"), ("step", 2)]
    assert recorder.told == [begin, *steps, "finish", "stop"]


def test_steps_that_are_done_are_not_repeated():
    with watching(Recorder(done=2)):
        assert list(Track(range(5), "loop", show=False)) == [2, 3, 4]
    with watching(Recorder(done=5)):
        assert list(Track(range(5), "loop", show=False)) == []


def test_a_loop_that_fails_is_not_finished():
    def fail():
        for _ in Track(range(3), "loop", show=False):
            raise ZeroDivisionError

    with watching(recorder := Recorder()), pytest.raises(ZeroDivisionError):
        fail()
    assert "finish" not in recorder.told
    assert recorder.told[-1] == "stop"


def test_an_early_end_is_said():
    with watching(recorder := Recorder()):
        track = Track(range(3), "loop", show=False)
        for _ in track:
            track.finish()
            break
        del track
    assert recorder.told[1:] == ["finish", "stop"]


def test_monitors_are_put_back():
    with watching(outer := Recorder()):
        with watching(inner := Recorder()):
            list(Track(range(1), "inner", show=False))
        list(Track(range(1), "outer", show=False))
    assert [told.told[0][1] for told in (outer, inner)] == ["outer", "inner"]


def test_what_is_read_from_a_fit_shows_its_loops_where_this_was_asked_for():
    X = np.random.default_rng(0).normal(size=(60, 2))
    clf = ConvexPolytopeTreeClassifier(
        n_modes=2, max_depth=1, n_experts=2, inference=Svi(epochs=2, n_draws=3), random_state=0
    ).fit(X, X[:, 0] > 0)
    recorder = Recorder()
    with watching(recorder):
        clf.polytope_size()
        clf.to_arviz(X, X[:, 0] > 0)
        html_report(clf, X=X, y=X[:, 0] > 0)
    begun = {told[1]: told[-1] for told in recorder.told if told[0] == "begin"}
    assert {"modes", "facets of draws", "log-likelihood of draws", "sections"} <= set(begun)
    assert all(begun.values())
    # a loop that nobody asked to see is not shown by the default monitor either
    assert list(steps_of(range(3), "loop")) == [0, 1, 2]


LOOPS = {"grow", "map", "svi", "tao", "trees"}
ERASE_LINE = "\x1b[2K"


def fit(delay, **settings):
    """Fit three trees, with a word to standard error after each."""
    progress.DELAY = delay
    warnings.simplefilter("ignore", UnconvergedWarning)
    X = np.random.default_rng(0).normal(size=(80, 2))
    settings = {"max_depth": 2, "random_state": 0} | settings
    for clf in (
        ConvexPolytopeTreeClassifier(
            n_modes=1, n_experts=2, inference=Svi(epochs=2, n_draws=2), **settings
        ),
        AlternatingTreeClassifier(**settings),
        EndToEndForestClassifier(2, epochs=2, **settings),
    ):
        clf.fit(X, X[:, 0] > 0)
        sys.stderr.write("fitted\n")
        sys.stderr.flush()


def on_a_terminal(monkeypatch, **settings):
    """What the fits write to standard error if that is a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    status, _, told = forked(fit, terminal=True, **settings)
    assert status == 0, told
    return told


def test_long_fits_show_their_loops_and_clear_them(monkeypatch):
    told = on_a_terminal(monkeypatch, delay=0)
    assert {loop for loop in LOOPS if f"{loop} " in told} == LOOPS
    for before in told.split("fitted")[:-1]:
        assert ERASE_LINE in before.rpartition("━")[2]


@pytest.mark.parametrize("quiet", [{"delay": 3600}, {"delay": 0, "verbose": False}])
def test_short_and_silent_fits_write_nothing(quiet, monkeypatch):
    assert on_a_terminal(monkeypatch, **quiet).split() == ["fitted"] * 3


def test_asked_for_bars_come_at_once(monkeypatch):
    assert "grow" in on_a_terminal(monkeypatch, delay=3600, verbose=True)


def printing():
    with progress.fitting(verbose=True):
        for step in progress.Track(range(3), "loop", show=True):
            sys.stdout.write(f"{step} printed\n")


def test_what_goes_to_a_pipe_stays_out_of_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    _, printed, told = forked(printing, terminal=True)
    assert printed.splitlines() == ["0 printed", "1 printed", "2 printed"]
    assert "loop" in told


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


@pytest.mark.parametrize("settings", [{}, {"verbose": True}])
def test_nothing_is_written_to_a_pipe(settings, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    status, printed, told = forked(fit, delay=0, **settings)
    assert (status, printed, told.split()) == (0, "", ["fitted"] * 3)


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
