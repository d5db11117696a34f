"""Dask workers: how they are found or started, and tasks that run on certain ones of them."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from time import monotonic
from typing import Any, ClassVar
from uuid import uuid4

from bayestree._utils.wording import InputError
from bayestree._version import __version__

TIMEOUT = 10  # seconds to wait for the scheduler, and for a worker
REPLACED = 30.0  # seconds to wait for a worker in the place of a lost one
POLL = 1.0  # seconds between checks whether all workers are there
PROCESS = uuid4().hex  # of this process


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


def _process() -> str:
    return PROCESS


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
def workers(n_workers: int | None, scheduler: str | None) -> Iterator["Workers | ThisProcess"]:
    """Use the workers of a scheduler, or as many processes on this machine for the block."""
    if n_workers is not None and (scheduler is not None or n_workers < 1):
        fault = f"n_workers must be 1 or more, got {n_workers}"
        if scheduler is not None:
            fault = f"set either n_workers or a scheduler, got {n_workers} and {scheduler!r}"
        raise InputError(f"{fault}.")
    if scheduler is not None:
        with client_of(scheduler) as client, stopped(scheduler):
            places = [*client.run(_process).values()]
            if {*places} == {PROCESS}:
                yield ThisProcess()
                return
            if len({PROCESS, *places}) <= len(places):
                raise InputError(
                    f"each worker of the scheduler at {scheduler!r} needs a process of its own, "
                    "because torch has one random generator in a process: start them by `dask "
                    "worker`, or by LocalCluster(processes=True)."
                )
            yield Workers(client)
        return
    if n_workers == 1:
        yield ThisProcess()
        return
    dask = _dask("n_workers")
    from dask import config as dask_config  # noqa: PLC0415 - it is optional

    settings: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1}
    # The page of Dask, which cannot be turned off, gets a free port. All failures are raised here.
    settings |= {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    settings["silence_logs"] = logging.CRITICAL
    # The limit of Dask would count mapped rows, which the system can drop, and kill the worker.
    settings["memory_limit"] = 0
    # Dask has malloc return memory at once, which doubles the CPU time of steps on many rows.
    keeping = {"distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25}
    with (
        dask_config.set(keeping),
        dask.LocalCluster(**settings) as cluster,
        dask.Client(cluster, set_as_default=False) as own,
    ):
        yield Workers(own)


class WorkerLostError(Exception):
    """A worker was lost before its task was done."""


#: What to call, where and with what: ``(address, function, arguments)``.
Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


class ThisProcess:
    """The process of the fit in the role of the only worker."""

    addresses: ClassVar[list[str]] = ["tcp://localhost"]

    def anywhere(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Call a function with each of the arguments; return its results in this order."""
        return [function(*given) for given in arguments]

    def run(self, calls: Mapping[Any, Call]) -> dict[Any, Any]:
        """Run calls; return their results by key."""
        return {key: function(*given) for key, (_, function, given) in calls.items()}

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on every worker."""
        function(*arguments)

    def exclusive(self) -> AbstractContextManager[Any]:
        """Let no other fit run on the workers during the block."""
        return nullcontext()

    def await_replacement(self, number: int) -> list[str]:
        """Return the workers."""
        return self.addresses


class Workers:
    """The workers of a Dask scheduler, by their addresses."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def addresses(self) -> list[str]:
        """The workers that are there now."""
        return sorted(self.client.nthreads())

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no other fit use the workers during the block: their tasks would wait for each other.

        A fit that is killed keeps them for half a minute more.
        """
        from distributed import Lock  # noqa: PLC0415 - it is optional

        with self.client.as_current(), Lock("bayestree"):
            yield

    def await_replacement(self, number: int) -> list[str]:
        """Return the workers, as soon as there are ``number`` of them or some time has passed."""
        end = monotonic() + REPLACED
        while len(self.addresses) < number and monotonic() < end:
            try:
                self.client.wait_for_workers(number, timeout=POLL)
            except TimeoutError:
                continue
        if not self.addresses:
            raise InputError(
                f"all workers of the scheduler at {self.client.scheduler.address!r} have stopped; "
                "start some, and resume with the same command."
            )
        return self.addresses

    def anywhere(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Call a function with each of the arguments, on any worker; return its results.

        Raises
        ------
        WorkerLostError
            If one worker after another goes during a call.
        """
        from distributed import KilledWorker  # noqa: PLC0415 - it is optional

        futures = [self.client.submit(function, *given, pure=False) for given in arguments]
        try:
            return list(self.client.gather(futures))
        except KilledWorker as error:
            raise WorkerLostError from error

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on every worker that answers."""
        self.client.run(function, *arguments, on_error="ignore")

    def run(self, calls: Mapping[Any, Call]) -> dict[Any, Any]:
        """Run calls at once; return their results by key.

        Raises
        ------
        WorkerLostError
            If one of the workers goes, or has lost what an earlier call left there.
        """
        self._check({address for address, *_ in calls.values()})
        futures = {
            key: self.client.submit(
                function, *given, workers=[address], allow_other_workers=False, pure=False
            )
            for key, (address, function, given) in calls.items()
        }
        try:
            self._wait([*futures.values()], {address for address, *_ in calls.values()})
            return {key: future.result() for key, future in futures.items()}
        finally:
            self.client.cancel([*futures.values()])

    def _wait(self, futures: Sequence[Any], addresses: set[str]) -> None:
        """Wait for tasks, as long as their workers are there."""
        from distributed import wait  # noqa: PLC0415 - it is optional

        while True:
            done = [future for future in futures if future.done()]
            failed = [future for future in done if future.status != "finished"]
            if failed:
                self._check(addresses)
                self._explain(failed)
            if len(done) == len(futures):
                return
            self._check(addresses)
            with self.client.as_current(), suppress(TimeoutError):
                wait([f for f in futures if not f.done()], POLL, return_when="FIRST_COMPLETED")

    def _check(self, addresses: set[str]) -> None:
        """Raise WorkerLostError unless all these workers are there."""
        if not addresses <= set(self.addresses):
            raise WorkerLostError

    def _explain(self, failed: Sequence[Any]) -> None:
        """Raise the error of a task, unless it says that a worker was lost."""
        errors = [future.exception().with_traceback(future.traceback()) for future in failed]
        for error in errors:
            if not _is_loss(error):
                raise error
        raise WorkerLostError from errors[0]


def _is_loss(error: BaseException) -> bool:
    """Return whether an error says that another process was lost, or that this one is new."""
    names = {kind.__name__ for kind in type(error).__mro__}
    lost = {
        "LostRowsError",
        "KilledWorker",
        "CancelledError",
        "FutureCancelledError",
        "DistNetworkError",
    }
    if isinstance(error, ValueError):  # such as an InputError that quotes a column "connection"
        return False
    return bool(names & lost) or "onnection" in str(error) or "imed out" in str(error)
