"""Loops that are monitored and resumed."""

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier, html_report
from bayestree._utils.progress import Track, steps_of, watching


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
        n_modes=2, max_depth=1, n_experts=2, epochs=2, n_draws=3, random_state=0
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
