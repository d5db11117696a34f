"""Displays of a run: log records, live, several at once, and silent."""

import io
import logging
import re
from contextlib import closing

import pytest
from rich.console import Console

from bayestree._utils.progress import Track, watching
from bayestree.runs import display
from bayestree.runs.display import Display, Displays, Live, Log, LogFile, Loop, Printed, clock


class Clock:
    """A second passes with each look at it."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def seconds(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(display, "time", clock)
    return clock


def fit(display, *, show=True, until=None, inner=False):
    """A loop of 10 steps, as an inference has it."""
    with watching(display):
        track = Track(range(10), "svi", show=show)
        for step in track:
            track.note(f"ELBO {step}")
            if inner:
                list(Track(range(2), "polish", show=True))
            if step == until:
                track.finish()
                break


class TestLog:
    def test_a_line_every_so_often_and_one_at_the_end(self, seconds):
        said = []
        display = Log(Printed(said.append), every=6)
        display.stage("fit")
        fit(display)
        assert said[0] == "fit"
        assert said[1] == "fit: svi 6 of 10, ELBO 5, 0:05 left"
        assert re.fullmatch(r"fit: svi 10 steps, ELBO 9, 0:\d\d", said[-1])

    def test_a_loop_that_is_left_early(self):
        said = []
        fit(Log(Printed(said.append)), until=4)
        assert re.fullmatch(r": svi 4 steps, ELBO 4, 0:0\d", said[-1])

    def test_an_interrupted_loop(self):
        def interrupted():
            for step in Track(range(10), "svi", show=True):
                if step == 3:
                    raise KeyboardInterrupt

        said = []
        with watching(Log(Printed(said.append))), pytest.raises(KeyboardInterrupt):
            interrupted()
        assert said[-1].startswith(": svi 3 of 10 steps")

    def test_loops_that_are_not_shown(self):
        said = []
        fit(Log(Printed(said.append)), show=False)
        assert said == []

    def test_warnings(self):
        said = []
        Log(Printed(said.append)).warn("steep")
        assert said == ["warning: steep"]


class TestLoop:
    def test_the_time_left_is_by_the_steps_that_were_done_here(self, seconds):
        loop = Loop(Log(), "svi", 100)
        loop.start()
        loop.step(90)
        loop.step(92)
        seconds.now = 6.0
        # 3 steps in 6 seconds; 8 are left
        assert loop.progress() == "svi 92 of 100, 0:16 left"

    @pytest.mark.parametrize(
        ("seconds", "said"), [(0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3723, "1:02:03")]
    )
    def test_clock(self, seconds, said):
        assert clock(seconds) == said


class TestLogFile:
    def test_lines_have_times_and_are_added(self, tmp_path):
        for word in ("one", "two"):
            log = Log(LogFile(tmp_path / "run.log"))
            log.say(word)
            log.close()
        read = (tmp_path / "run.log").read_text().splitlines()
        assert [line.split()[1] for line in read] == ["one", "two"]
        assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 ", line) for line in read)

    def test_an_application_may_listen(self, tmp_path, monkeypatch):
        said = []
        monkeypatch.setattr(display.LOGGER, "handlers", [Printed(said.append, logging.WARNING)])
        log = Log(LogFile(tmp_path / "run.log"), propagate=True)
        log.say("one")
        log.warn("two")
        log.close()
        assert said == ["warning: two"]


class TestLive:
    @pytest.fixture
    def live(self):
        console = Console(file=io.StringIO(), force_terminal=True, width=80)
        return Live(console)

    def test_what_stays(self, live):
        live.stage("fit")
        fit(live, inner=True)
        live.stage("scores")
        live.say("a [word]")
        live.warn("steep")
        live.close()
        text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", live.console.file.getvalue())
        stays = [line.strip() for line in text.replace("\r", "\n").splitlines()]
        for said in (
            r"polish 2 steps, 0:0\d",
            r"svi 10 steps, ELBO 9, 0:0\d",
            r"fit 0:0\d",
            r"a \[word\]",
            r"warning: steep",
            r"scores 0:0\d",
        ):
            assert any(re.fullmatch(said, line) for line in stays), said

    def test_loops_have_bars_and_stages_none(self, live):
        live.stage("fit")
        with watching(live):
            for step in Track(range(10), "svi", show=True):
                if step == 5:
                    live.bars.progress.refresh()
        text = live.console.file.getvalue()
        assert "5/10" in text
        assert "/?" not in text
        live.close()

    def test_nothing_is_left_running(self, live):
        live.stage("fit")
        live.close()
        live.close()
        assert live.bars.progress.tasks == []
        assert live.bars.progress.live.is_started is False


class TestBoth:
    def test_each_is_told_and_closed(self):
        said, other = [], []
        displays = Log(Printed(said.append)), Log(Printed(other.append, logging.WARNING))
        closed = []
        displays[1].close = lambda: closed.append(True)
        with closing(Displays(*displays)) as both:
            both.stage("fit")
            both.say("word")
            both.warn("steep")
            fit(both)
        assert said[:3] == ["fit", "word", "warning: steep"]
        assert other == ["warning: steep"]
        assert closed == [True]

    def test_nothing_is_said_by_default(self, capsys):
        display = Display()
        display.stage("fit")
        display.say("word")
        display.warn("steep")
        fit(display)
        display.close()
        assert capsys.readouterr() == ("", "")
