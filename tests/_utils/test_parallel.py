"""Tasks in processes that die."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor

import pytest
import torch
from joblib import Parallel, delayed, parallel_config

from bayestree._utils import parallel
from bayestree._utils.parallel import (
    SMALL,
    in_order,
    in_parallel,
    loop_threads,
    one_thread,
    processes_for,
    threads_for,
)
from bayestree._utils.state import InUsualState

distributed = pytest.importorskip("distributed")


def square(number, folder):
    return number**2


def kill(number, folder):
    """Kill the process that does it, the first time; always where the folder is None."""
    flag = None if folder is None else folder / f"begun-{number}"
    if flag is None or not flag.exists():
        if flag is not None:
            flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def fail(number, folder):
    raise RuntimeError(f"task {number}")


def tasks(folder, **others):
    calls = {str(number): (square, (number, folder), {}) for number in range(8)}
    return calls | others


EXPECTED = {str(number): number**2 for number in range(8)}


def collected(todo, n_jobs):
    found = list(in_parallel(todo, n_jobs=n_jobs, lost=lambda reason: reason))
    assert len(found) == len(todo)  # none twice
    return dict(found)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_task_once(tmp_path, n_jobs):
    assert collected(tasks(tmp_path), n_jobs) == EXPECTED


def test_nothing_to_do():
    assert collected({}, 2) == {}


def cancelled_once(number, folder):
    """Dask's error if the only worker that had the data is gone."""
    flag = folder / "cancelled"
    if not flag.exists():
        flag.touch()
        raise distributed.client.FutureCancelledError("key", "lost")
    return number**2


def test_a_task_whose_data_is_lost_is_done_again(tmp_path):
    todo = tasks(tmp_path, unlucky=(cancelled_once, (9, tmp_path), {}))
    assert collected(todo, 1) == EXPECTED | {"unlucky": 81}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_the_function_is_raised(tmp_path, n_jobs):
    with pytest.raises(RuntimeError, match="task 3"):
        collected(tasks(tmp_path, wrong=(fail, (3, tmp_path), {})), n_jobs)


@pytest.fixture
def mortal(monkeypatch):
    """Processes that a task ``kill`` breaks without being killed, all of them at once."""

    def attempt(todo, _):
        if any(function is kill for function, *_ in todo.values()):
            raise BrokenExecutor
        return [(key, function(*given)) for key, (function, given, _) in todo.items()]

    monkeypatch.setattr(parallel, "_attempt", attempt)


def test_the_first_of_the_tasks_that_are_left_is_tried_alone(mortal, tmp_path):
    todo = {"killer": (kill, (9, None), {}), **tasks(tmp_path)}
    found = collected(todo, 2)
    assert "its process was killed" in found.pop("killer")
    assert found == EXPECTED


class TestInOrder:
    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_results_are_in_the_order_of_the_tasks(self, tmp_path, n_jobs):
        calls = [(square, (number, tmp_path), {}) for number in range(8)]
        assert list(in_order(calls, n_jobs=n_jobs)) == list(EXPECTED.values())

    def test_a_task_that_always_kills_is_an_error(self, mortal):
        with pytest.raises(RuntimeError, match="its process was killed"):
            list(in_order([(kill, (9, None), {}), (square, (1, None), {})], n_jobs=2))


# After all others that share the processes, which each kill starts again.
def test_a_killed_process_loses_nothing(tmp_path):
    todo = tasks(tmp_path, killer=(kill, (9, tmp_path), {}))
    assert collected(todo, 2) == EXPECTED | {"killer": 81}


@pytest.mark.statistical
def test_a_task_that_always_kills_is_found_and_the_others_go_on(tmp_path):
    todo = {"killer": (kill, (9, None), {}), **tasks(tmp_path)}
    found = collected(todo, 2)
    assert "its process was killed" in found.pop("killer")
    assert found == EXPECTED


@pytest.mark.parametrize(
    ("n_threads", "n_tasks", "expected"),
    [(1, 3, None), (2, 3, 3), (2, 4, 2), (2, 5, 3), (3, 8, 5), (16, 3, 3)],
)
def test_processes_share_the_cores_evenly(monkeypatch, n_threads, n_tasks, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    assert processes_for(n_tasks) == expected
    with parallel_config(n_jobs=1):
        assert processes_for(n_tasks) is None
    with Parallel(n_jobs=2, backend="threading") as pool:
        assert pool(delayed(processes_for)(n_tasks) for _ in range(2)) == [None, None]


class Reader(InUsualState):
    """A class like an estimator, whose methods say how many threads they have."""

    def read(self):
        return torch.get_num_threads(), loop_threads.get()

    def fit(self):
        with threads_for(SMALL):
            return self.read(), (torch.get_num_threads(), processes_for(3))


def test_threads_at_the_same_time_leave_the_number_as_it_was():
    """The second begins while the first has one thread, and ends after it."""
    before, inside, found = torch.get_num_threads(), threading.Event(), []
    torch.set_num_threads(3)

    def second():
        with threads_for(0):
            inside.set()
            first.join()
        found.append(torch.get_num_threads())

    def start_second():
        with threads_for(0):
            other.start()
            inside.wait()
        found.append(torch.get_num_threads())

    first, other = threading.Thread(target=start_second), threading.Thread(target=second)
    try:
        first.start()
        first.join()
        other.join()
        later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert [*found, torch.get_num_threads()] == [3, 3, 3, 3]
    finally:
        torch.set_num_threads(before)


def test_loops_and_large_steps_have_the_threads_that_small_steps_leave():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert Reader().read() == (1, 3)
        assert Reader().fit() == ((1, 3), (3, 3))
        with threads_for(SMALL):
            assert (torch.get_num_threads(), loop_threads.get()) == (3, 3)
        with threads_for(0), threads_for(0):
            assert (torch.get_num_threads(), loop_threads.get()) == (1, 3)
        with one_thread():
            assert (torch.get_num_threads(), loop_threads.get()) == (1, 1)
        assert (torch.get_num_threads(), loop_threads.get()) == (3, 1)
    finally:
        torch.set_num_threads(before)


DRIVER = """
import os, signal, time
from bayestree._utils.parallel import in_order
both = [(time.sleep, (0.5,), {})] * 2
list(in_order([*both, (os.kill, (os.getpid(), signal.SIGKILL), {})], n_jobs=2))
"""


PATIENCE = 1200  # looks, a tenth of a second apart: far longer than they take


def is_there(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_end_with_a_driver_that_is_killed():
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], start_new_session=True)
    assert driver.wait() == -signal.SIGKILL
    for _ in range(PATIENCE):
        if not is_there(driver.pid):
            return
        time.sleep(0.1)
    pytest.fail("its processes are still there")
