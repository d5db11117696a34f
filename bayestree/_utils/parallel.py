"""Tasks in processes or on a cluster, repeated if a worker dies, and the number of threads."""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NoReturn, TypeVar

import torch
from joblib import Parallel, delayed
from joblib.parallel import LokyBackend, get_active_backend
from threadpoolctl import threadpool_limits

#: Whether tasks, also in other processes, may ask for more memory than is free.
memory_forced: ContextVar[bool] = ContextVar("memory_forced", default=False)
#: How many threads compiled loops and large steps may have where small steps have a single one.
loop_threads: ContextVar[int] = ContextVar("loop_threads", default=1)
WATCH = 1.0  # seconds between checks whether the parent is alive

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Call = tuple[Callable[..., Result], tuple[Any, ...], dict[str, Any]]


def in_parallel(
    tasks: Mapping[Key, Call[Result]], *, n_jobs: int | None, lost: Callable[[str], Result]
) -> Iterator[tuple[Key, Result]]:
    """Run tasks in parallel and yield one result per task as they finish.

    Tasks of a process that dies are repeated. If an attempt yields no result, the first remaining
    task is run alone, so that a task that kills its process is identified eventually. Its result
    is ``lost(reason)``, which may raise an error. A cluster ignores ``n_jobs`` and uses all its
    workers.
    """
    left = dict(tasks)
    while left:
        before = len(left)
        try:
            for key, result in _attempt(left, n_jobs):
                del left[key]
                yield key, result
        except _deaths():
            if len(left) == before:
                first = next(iter(left))
                yield first, _alone(left.pop(first), n_jobs, lost)


def in_order(calls: Sequence[Call[Result]], *, n_jobs: int | None) -> Iterator[Result]:
    """Yield results in the order of the tasks; RuntimeError if a task kills its process."""
    found = in_parallel(dict(enumerate(calls)), n_jobs=n_jobs, lost=_give_up)
    early: dict[int, Result] = {}
    for number in range(len(calls)):
        while number not in early:
            key, result = next(found)
            early[key] = result
        yield early.pop(number)


def _give_up(reason: str) -> NoReturn:
    raise RuntimeError(f"a task could not be completed: {reason}.")


def _attempt(tasks: Mapping[Key, Call[Result]], n_jobs: int | None) -> Iterator[tuple[Key, Result]]:
    # All tasks are dispatched at once, in batches of one: workers that join later find work, and
    # a worker that dies loses a single task.
    pool = Parallel(
        n_jobs=n_jobs,
        batch_size=1,
        pre_dispatch="all",
        return_as="generator_unordered",
        mmap_mode="c",  # PyTorch warns of arrays that are read-only
    )
    results = pool(
        delayed(_named)((os.getpid(), memory_forced.get()), key, function, *args, **named)
        for key, (function, args, named) in list(tasks.items())
    )
    try:
        for result in results:  # noqa: UP028 - closed below
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about remaining tasks
            results.close()


def _alone(call: Call[Result], n_jobs: int | None, lost: Callable[[str], Result]) -> Result:
    try:
        return next(result for _, result in _attempt({"": call}, n_jobs))
    except _deaths() as error:
        return lost(f"its process was killed, perhaps for lack of memory ({type(error).__name__})")


def _named(
    origin: tuple[int, bool], key: Key, function: Callable[..., Result], *args: Any, **named: Any
) -> tuple[Key, Result]:
    driver, forced = origin
    if os.getppid() == driver:
        _end_with_parent(driver)
    memory_forced.set(forced)
    return key, function(*args, **named)


@cache
def _end_with_parent(parent: int) -> None:
    """End this process soon after its parent, which may have been killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _deaths() -> tuple[type[BaseException], ...]:
    """Return the errors raised when a process has died, including those by Dask if it is in use."""
    if "distributed" in sys.modules:
        from distributed.client import FutureCancelledError  # noqa: PLC0415 - it is optional
        from distributed.scheduler import KilledWorker  # noqa: PLC0415

        # FutureCancelledError: the only worker with a task's data is gone.
        return (BrokenExecutor, KilledWorker, FutureCancelledError)
    return (BrokenExecutor,)


def processes_for(n_tasks: int) -> int | None:
    """Return the number of processes of long tasks of one thread each, as PyTorch's threads allow.

    Slightly more processes than threads if their number does not divide that of the tasks: the
    system then shares the cores evenly. Three tasks on two cores take as long as 1.5 of them, but
    two after one another in two processes. None, joblib's default, where a task is parallel
    itself or ``joblib.parallel_config`` applies.
    """
    backend, given = get_active_backend()
    n_threads = max(torch.get_num_threads(), loop_threads.get())
    whole = isinstance(backend, LokyBackend) and backend.nesting_level == 0 and given is None
    return min(n_tasks, n_threads + n_tasks % n_threads) if whole and n_threads > 1 else None


SMALL = 500_000


class _Blocks:
    """The blocks of ``threads_for`` in all threads, whose last number new threads inherit."""

    lock, active, usual = threading.Lock(), 0, 1
    depth: ContextVar[int] = ContextVar("depth", default=0)  # of those around, in this thread


_blocks = _Blocks()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one thread, so that sums have the same order in every process."""
    with threads_for(0), threadpool_limits(1):
        loop_threads.set(1)  # until the end of threads_for
        yield


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Run the block on one thread if steps of ``work`` numbers are too small to share.

    For small tensors, synchronisation costs more than it gains, and ten times as much on a
    machine under load.
    """
    with _blocks.lock:
        own = before = torch.get_num_threads()
        if not _blocks.active:
            _blocks.usual = own
        elif not _blocks.depth.get():  # a new thread has the number of the last that was set
            before = max(own, _blocks.usual)
        most = max(before, loop_threads.get())
        torch.set_num_threads(1 if work < SMALL else most)
        _blocks.active += 1
    tokens = loop_threads.set(most), _blocks.depth.set(_blocks.depth.get() + 1)
    try:
        yield
    finally:
        loop_threads.reset(tokens[0])
        _blocks.depth.reset(tokens[1])
        with _blocks.lock:
            _blocks.active -= 1
            torch.set_num_threads(before)
