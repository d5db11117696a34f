"""Checkpoints: when they are written, what is restored, and how a run is stopped."""

import json
import math
import os
import signal
import threading

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from bayestree._utils.progress import Track, watching
from bayestree.inference.training import Adam
from bayestree.runs import checkpoints
from bayestree.runs.checkpoints import (
    Checkpoints,
    DamagedStateError,
    capture,
    from_bytes,
    restore,
    stopped_by_signals,
    to_bytes,
)
from bayestree.runs.display import Display
from bayestree.runs.store import RunFolder
from bayestree.tables import InputError
from tests.fuzz.strategies import fuzzed, turned


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(checkpoints, "time", clock)
    return clock


def keeping(folder, **options):
    return Checkpoints(
        folder / "checkpoints", display=Display(), **{"every": 0.0, "share": math.inf} | options
    )


def loop(trace, *, label="loop", total=5, act=None):
    """A loop of random numbers; ``act`` is called after each."""
    for step in Track(range(total), label, show=False, parts={"trace": trace}):
        trace.append(float(torch.rand(())))
        if act is not None:
            act(step)


def stop_at(number):
    def act(step):
        if step == number:
            raise ZeroDivisionError

    return act


def files(folder):
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


def fit(trace, act=None):
    """Two loops, with random numbers before and between them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trace["before"] = float(torch.rand(()))
        loop(trace["first"], label="first", act=act)
        trace["between"] = float(torch.rand(()))
        loop(trace["second"], label="second", act=None if act is None else lambda s: act(5 + s))
    return trace


def empty():
    return {"first": [], "second": []}


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("every", [0.0, 1e9], ids=["often", "never"])
def test_a_fit_goes_on_where_it_was(tmp_path, at, every):
    with watching(keeping(tmp_path, every=every)), pytest.raises(ZeroDivisionError):
        fit(empty(), stop_at(at))
    done = []
    with watching(keeping(tmp_path)):
        found = fit(empty(), done.append)
    assert found == fit(empty())
    # the step in which it was stopped is done again
    assert done == list(range(at if every == 0.0 else 0, 10))


def test_several_interruptions_in_a_row(tmp_path):
    for at in (1, 2, 6, 6, 9):
        with watching(keeping(tmp_path)), pytest.raises(ZeroDivisionError):
            fit(empty(), stop_at(at))
    done = []
    with watching(keeping(tmp_path)):
        assert fit(empty(), done.append) == fit(empty())
    assert done == [9]


def test_they_are_due_by_the_clock(tmp_path, clock):
    written = []

    def act(step):
        clock.now += 1.0
        written.append(read(tmp_path))

    with watching(keeping(tmp_path, every=2.0)):
        loop([], total=6, act=act)
    assert written == [None, None, 2, 2, 4, 4]  # as the step ends, before it is watched
    assert read(tmp_path) == 6


def read(folder):
    path = folder / "checkpoints" / "0001.safetensors"
    return from_bytes(path.read_bytes())["done"] if path.exists() else None


def test_slow_ones_take_a_small_share_of_the_time(tmp_path, clock, monkeypatch):
    def slow(path, raw):
        clock.now += 3.0
        path.write_bytes(raw)

    monkeypatch.setattr(checkpoints, "write_whole", slow)
    kept = keeping(tmp_path, every=1.0, share=0.1)
    times = []

    def act(step):
        clock.now += 1.0
        times.append((clock.now, read(tmp_path)))

    with watching(kept):
        loop([], total=40, act=act)
    seen = [done for _, done in times]
    assert seen[:2] == [None, 1]
    assert sorted({done for done in seen if done}) == [1, 31]  # 30 seconds apart


def test_loops_within_loops_are_not_kept(tmp_path):
    with watching(keeping(tmp_path)):
        for _ in Track(range(2), "outer", show=False, parts={"trace": []}):
            loop([])
        loop([])
    assert files(tmp_path) == ["0001.safetensors", "0002.safetensors"]


def test_a_loop_without_parts_is_done_again(tmp_path):
    for _ in range(2):
        with watching(keeping(tmp_path)):
            assert list(Track(range(3), "alone", show=False)) == [0, 1, 2]
            loop([])
    assert files(tmp_path) == ["0002.safetensors"]


def test_loops_left_early_are_done(tmp_path):
    def early(trace):
        track = Track(range(5), "early", show=False, parts={"trace": trace})
        for step in track:
            trace.append(step)
            if step == 2:
                track.finish()
                break

    for trace in ([], []):
        with watching(keeping(tmp_path)):
            early(trace)
        assert trace == [0, 1, 2]


def test_they_can_be_cleared(tmp_path):
    folder = RunFolder(tmp_path)
    folder.clear_checkpoints()
    with watching(keeping(tmp_path)):
        loop([])
    folder.clear_checkpoints()
    assert not (tmp_path / "checkpoints").exists()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mine.txt").write_text("")
    folder.clear_checkpoints()
    assert files(tmp_path) == ["mine.txt"]


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    with watching(keeping(tmp_path)), pytest.raises(ZeroDivisionError):
        loop([], act=stop_at(2))

    def full(*_):
        raise OSError("disk full")

    before = (tmp_path / "checkpoints" / "0001.safetensors").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with watching(keeping(tmp_path)), pytest.raises(OSError, match="disk full"):
        loop([])
    assert files(tmp_path) == ["0001.safetensors"]
    assert (tmp_path / "checkpoints" / "0001.safetensors").read_bytes() == before


def interrupted(folder):
    """Checkpoints of two loops; the second is interrupted."""
    with watching(keeping(folder)), pytest.raises(ZeroDivisionError):
        fit(empty(), stop_at(8))
    return sorted((folder / "checkpoints").iterdir())


def resumed(folder, done):
    with watching(keeping(folder)):
        return fit(empty(), done.append)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_a_loop_with_a_damaged_checkpoint_starts_again(tmp_path, number, cut):
    path, done = interrupted(tmp_path)[number], []
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.warns(UserWarning, match=rf"{path.name}' is damaged .*; '(first|second)' starts"):
        assert resumed(tmp_path, done) == fit(empty())
    assert done == [[*range(5), 8, 9], [*range(5, 10)]][number]


@fuzzed
@given(st.data())
def test_any_bit_of_a_checkpoint(data):
    raw = to_bytes({"a": np.arange(20.0), "b": [1, "two"]})
    with pytest.raises(ValueError, match=r"not a valid loop state|checksum"):
        from_bytes(data.draw(turned(raw)))


class TestRefusals:
    @pytest.fixture
    def path(self, tmp_path):
        with watching(keeping(tmp_path)):
            loop([])
        return tmp_path / "checkpoints" / "0001.safetensors"

    def test_files_of_version_0_2(self, tmp_path, path):
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        state = json.loads(header["__metadata__"]["state"])["state"]
        path.write_bytes(save(load(raw), {"state": json.dumps(state)}))
        with (
            watching(keeping(tmp_path)),
            pytest.raises(InputError, match=r"another run or version.* has no checksum, as those"),
        ):
            loop([])

    @pytest.mark.parametrize("other", [{"label": "other"}, {"total": 6}])
    def test_other_loops(self, tmp_path, path, other):
        message = (
            "another run or version, or was changed .*it has 5 steps of 'loop'.*to start again"
        )
        with watching(keeping(tmp_path)), pytest.raises(InputError, match=message):
            loop([], **other)

    def test_other_parts(self, tmp_path, path):
        with watching(keeping(tmp_path)), pytest.raises(InputError, match="belongs to another run"):
            list(Track(range(5), "loop", show=False, parts={"other": []}))

    def test_parts_of_another_shape(self, tmp_path):
        for length in (2, 3):
            with watching(keeping(tmp_path)):
                tracks = Track(range(5), "loop", show=False, parts={"x": torch.zeros(length)})
                if length == 2:
                    list(tracks)
                    continue
                with pytest.raises(InputError, match="belongs to another run"):
                    list(tracks)


class TestSignals:
    def interrupted(self, kept, numbers, at=2):
        """The trace of a loop that is sent signals in a step of it."""
        trace = []

        def act(step):
            if step == at:
                for number in numbers:
                    os.kill(os.getpid(), number)

        with watching(kept), stopped_by_signals(kept), pytest.raises(KeyboardInterrupt):
            loop(trace, act=act)
        return trace

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_the_first_lets_the_step_end(self, tmp_path, number):
        before = signal.getsignal(number)
        trace = self.interrupted(keeping(tmp_path, every=1e9), [number])
        assert len(trace) == 3
        assert read(tmp_path) == 3
        assert signal.getsignal(number) is before

    def test_the_second_stops_at_once(self, tmp_path):
        self.interrupted(keeping(tmp_path, every=1e9), [signal.SIGINT, signal.SIGINT])
        assert read(tmp_path) is None

    def test_a_loop_that_is_not_kept_is_stopped_too(self, tmp_path):
        kept = keeping(tmp_path, every=1e9)
        steps = []

        def alone():
            loop([])
            for step in Track(range(5), "alone", show=False):
                steps.append(step)
                kept.stopping = True

        with watching(kept), pytest.raises(KeyboardInterrupt):
            alone()
        assert steps == [0]
        assert files(tmp_path) == ["0001.safetensors"]

    def test_other_threads_leave_signals_alone(self, tmp_path):
        found = []

        def work():
            before = signal.getsignal(signal.SIGINT)
            with stopped_by_signals(keeping(tmp_path)):
                found.append(signal.getsignal(signal.SIGINT) is before)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [True]


DTYPES = st.sampled_from([np.bool_, np.int8, np.int64, np.uint32, np.float32, np.float64])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats()
    | st.text()
    | arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0))
)
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=8,
)


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray | np.generic):
        raw = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        return raw and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (
            math.isnan(b)
            if math.isnan(a)
            else (a, math.copysign(1, a))
            == (
                b,
                math.copysign(1, b),
            )
        )
    return type(a) is type(b) and a == b


@given(STATES)
def test_a_state_comes_back_as_it_was(state):
    assert same(from_bytes(to_bytes(state)), state)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_arrays_lie_in_memory_as_they_did(axes):
    array = np.arange(24.0).reshape(2, 3, 4).transpose(axes)
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(axes)
    found, there = from_bytes(to_bytes([array, tensor]))
    assert same(found, array)
    assert found.strides == array.strides
    assert torch.equal(there, tensor)
    assert there.stride() == tensor.stride()


def test_repeated_numbers_are_stored_once_each():
    assert torch.equal(from_bytes(to_bytes([torch.ones(1).expand(3)]))[0], torch.ones(3))
    wide = np.broadcast_to(np.arange(3), (2, 3))
    assert from_bytes(to_bytes([wide]))[0].flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("value", [{1, 2}, object(), np.array(["a"]), np.array([None]), 1j])
def test_what_is_no_state_is_refused(value):
    with pytest.raises(TypeError, match="cannot be part of a state"):
        to_bytes({"part": value})


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(raw):
    with pytest.raises(ValueError, match="not a valid loop state"):
        from_bytes(raw)


@given(st.data())
def test_a_file_cut_short_is_refused(data):
    raw = to_bytes({"a": np.arange(20.0), "b": [1, "two"]})
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DamagedStateError):
        from_bytes(raw[:cut])


def parts():
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 2)
    optimiser = Adam(module.parameters(), 0.1)
    return {
        "module": module,
        "optimiser": optimiser,
        "sums": torch.zeros(4),
        "count": np.zeros(2),
        "trace": [],
        "generator": np.random.default_rng(3),
        "old": np.random.RandomState(4),
        "noise": torch.Generator().manual_seed(5),
    }


def advance(parts):
    module, optimiser = parts["module"], parts["optimiser"]
    optimiser.zero_grad()
    rows = torch.randn(5, 3, generator=parts["noise"])
    module(rows).square().sum().backward()
    optimiser.step()
    parts["sums"] += parts["generator"].random()
    parts["count"] += parts["old"].rand()
    parts["trace"].append(float(parts["sums"].sum()))


def test_parts_go_on_from_where_they_were():
    with torch.random.fork_rng():
        first, second = parts(), parts()
    for _ in range(3):
        advance(first)
    raw = to_bytes(capture(first))
    place = second["sums"].data_ptr()
    restore(second, from_bytes(raw))
    assert second["sums"].data_ptr() == place, "restored elsewhere in memory"
    for _ in range(2):
        advance(first)
        advance(second)
    assert to_bytes(capture(first)) == to_bytes(capture(second))
    assert len(second["trace"]) == 5


def test_parts_of_another_loop_are_refused():
    with pytest.raises(ValueError, match="the loop has"):
        restore({"a": []}, {"b": []})
    with pytest.raises(TypeError, match="'a' of type object has no state_dict"):
        capture({"a": object()})
