"""Dask workers: how they are found or started, and tasks that run on them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from bayestree._utils.wording import InputError
from bayestree._version import __version__

TIMEOUT = 10  # seconds to wait for the scheduler, and for a worker

#: Call a function with a shared argument and each of others; return its results in this order.
CallEach = Callable[[Callable[..., Any], Any, Sequence[tuple[Any, ...]]], list[Any]]


def client_of(scheduler: str) -> Any:
    """Return a client of a Dask scheduler that has workers of this version of the package.

    A scheduler can run arbitrary code on its workers and on this machine: use only trusted ones.

    Raises
    ------
    InputError
        If Dask is not installed, no scheduler answers, or there are no workers, or others.
    """
    dask = _dask("a scheduler")
    try:
        client = dask.Client(scheduler, set_as_default=False, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {scheduler!r}; start one with `dask scheduler`, and "
            "specify the address that it prints."
        ) from error
    try:
        client.wait_for_workers(1, timeout=TIMEOUT)
        _check_versions(client)
    except TimeoutError as error:
        client.close()
        raise InputError(
            f"the scheduler at {scheduler!r} has no workers; start one or more with `dask "
            f"worker {scheduler} --nthreads 1`."
        ) from error
    except InputError:
        client.close()
        raise
    return client


def _dask(purpose: str) -> Any:
    try:
        import distributed  # noqa: PLC0415 - it is optional
    except ImportError:
        raise InputError(
            f"{purpose} requires Dask: run pip install 'bayestree[cluster]', or omit it."
        ) from None
    return distributed


def _check_versions(client: Any) -> None:
    """Refuse workers that have another version of this package, or none."""
    for address, found in client.run(_version, on_error="return").items():
        if found != __version__:
            has = f"bayestree {found}" if isinstance(found, str) else "no bayestree"
            raise InputError(
                f"the worker {address} has {has}, but this machine has {__version__}; install the "
                "same version there."
            )


def _version() -> str:
    return __version__


@contextmanager
def stopped(scheduler: str) -> Iterator[None]:
    """Explain an error of the connection to a scheduler."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # an error of a file, not of Dask
            raise
        raise InputError(
            f"the scheduler at {scheduler!r} or all of its workers have stopped; restart them, "
            "and resume with the same command."
        ) from error


@contextmanager
def workers(n_workers: int | None, scheduler: str | None) -> Iterator[CallEach]:
    """Use the workers of a scheduler, or as many processes on this machine for the block."""
    if n_workers is not None and (scheduler is not None or n_workers < 1):
        fault = f"n_workers must be 1 or more, got {n_workers}"
        if scheduler is not None:
            fault = f"set either n_workers or a scheduler, got {n_workers} and {scheduler!r}"
        raise InputError(f"{fault}.")
    if scheduler is not None:
        with client_of(scheduler) as client, stopped(scheduler):
            yield partial(_on_workers, client)
        return
    if n_workers == 1:
        yield _here
        return
    dask = _dask("n_workers")
    settings: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1}
    # The page of Dask, which cannot be turned off, gets a free port. All failures are raised here.
    settings |= {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    settings["silence_logs"] = logging.CRITICAL
    with (
        dask.LocalCluster(**settings) as cluster,
        dask.Client(cluster, set_as_default=False) as own,
    ):
        yield partial(_on_workers, own)


def _here(
    function: Callable[..., Any], shared: Any, arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    return [function(shared, *given) for given in arguments]


def _on_workers(
    client: Any, function: Callable[..., Any], shared: Any, arguments: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Call a function on the workers; the scheduler repeats the calls of a worker that is lost."""
    from distributed import KilledWorker  # noqa: PLC0415 - it is optional

    # a task of its own, so that the scheduler sends it once, and again after a loss
    there = client.submit(_same, shared, pure=False)
    futures = [client.submit(function, there, *given, pure=False) for given in arguments]
    try:
        return list(client.gather(futures))
    except KilledWorker as error:
        raise InputError(
            "one worker after another was lost in the same pass over the rows, perhaps for lack of "
            "memory; use larger workers, and resume with the same command."
        ) from error
    finally:
        client.cancel([there, *futures])


def _same(value: Any) -> Any:
    return value
