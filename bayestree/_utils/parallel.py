"""Tasks in processes or on a cluster, whose loss is no loss of a task."""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from functools import cache
from typing import Any, NoReturn, TypeVar

from joblib import Parallel, delayed

WATCH = 1.0  # seconds between two looks for the parent

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Call = tuple[Callable[..., Result], tuple[Any, ...], dict[str, Any]]


def in_parallel(
    tasks: Mapping[Key, Call[Result]], *, n_jobs: int | None, lost: Callable[[str], Result]
) -> Iterator[tuple[Key, Result]]:
    """Do tasks at once, and give their results as they come: one for each.

    Tasks that a dead process takes along are done again. When nothing comes of a try, the first
    task that is left is done alone: the one that kills its process is so found in the end, and
    the others go on.

    Parameters
    ----------
    tasks : mapping
        Key to a function, its arguments and its keyword arguments.
    n_jobs : int, optional
        Processes, as in joblib; ignored on a cluster, which uses all its workers.
    lost : callable
        From the reason to the result of a task that kills its process, or an error.
    """
    left = dict(tasks)
    while left:
        before = len(left)
        try:
            for key, result in _tried(left, n_jobs):
                del left[key]
                yield key, result
        except _deaths():
            if len(left) == before:
                first = next(iter(left))
                yield first, _alone(left.pop(first), n_jobs, lost)


def in_order(calls: Sequence[Call[Result]], *, n_jobs: int | None) -> Iterator[Result]:
    """The same, with the results in the order of the tasks.

    Raises
    ------
    RuntimeError
        If a task kills its process.
    """
    found = in_parallel(dict(enumerate(calls)), n_jobs=n_jobs, lost=_give_up)
    early: dict[int, Result] = {}
    for number in range(len(calls)):
        while number not in early:
            key, result = next(found)
            early[key] = result
        yield early.pop(number)


def _give_up(reason: str) -> NoReturn:
    raise RuntimeError(f"A task could not be done: {reason}.")


def _tried(tasks: Mapping[Key, Call[Result]], n_jobs: int | None) -> Iterator[tuple[Key, Result]]:
    # Each task is handed out by itself and all at once: processes that join later find work, and
    # one that dies takes a single task along.
    pool = Parallel(
        n_jobs=n_jobs, batch_size=1, pre_dispatch="all", return_as="generator_unordered"
    )
    results = pool(
        delayed(_named)(os.getpid(), key, function, *args, **named)
        for key, (function, args, named) in list(tasks.items())
    )
    try:
        for result in results:  # noqa: UP028 - closed below, where tasks may be left
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # which says that some are
            results.close()


def _alone(call: Call[Result], n_jobs: int | None, lost: Callable[[str], Result]) -> Result:
    try:
        return next(result for _, result in _tried({"": call}, n_jobs))
    except _deaths() as error:
        return lost(f"its process was killed, perhaps for want of memory ({type(error).__name__})")


def _named(
    driver: int, key: Key, function: Callable[..., Result], *args: Any, **named: Any
) -> tuple[Key, Result]:
    if os.getppid() == driver:
        _end_with_parent(driver)
    return key, function(*args, **named)


@cache
def _end_with_parent(parent: int) -> None:
    """End this process soon after its parent: one that was killed cannot end it any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _deaths() -> tuple[type[BaseException], ...]:
    """Errors that say that a process has died; Dask's only where Dask is at work."""
    if "distributed" in sys.modules:
        from distributed.client import FutureCancelledError  # noqa: PLC0415 - it is optional
        from distributed.scheduler import KilledWorker  # noqa: PLC0415

        # a task is cancelled when the only worker that had its data has gone
        return (BrokenExecutor, KilledWorker, FutureCancelledError)
    return (BrokenExecutor,)
