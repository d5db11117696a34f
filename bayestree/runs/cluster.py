"""Distribution of joblib tasks to the workers of a Dask scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config

from bayestree import __version__
from bayestree._utils.errors import InputError

TIMEOUT = 10  # seconds to wait for the scheduler, and for a worker


@contextmanager
def spread(scheduler: str | None) -> Iterator[None]:
    """Send the joblib tasks of the block to a cluster.

    These are the trees of a forest, the modes of a mixture, the chains of NUTS and the runs of
    SMC, and the points and folds of a sweep. The numbers are the same as on one machine.

    Parameters
    ----------
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``; None for this machine.
        A scheduler can run arbitrary code on its workers and on this machine: use only trusted
        ones.
    """
    if scheduler is None:
        yield
        return
    try:
        from distributed import Client  # noqa: PLC0415 - it is optional
    except ImportError:
        raise InputError(
            "a scheduler requires Dask: run pip install 'bayestree[cluster]', or omit it."
        ) from None
    try:
        client = Client(scheduler, set_as_default=False, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {scheduler!r}; start one with `dask scheduler`, and "
            "specify the address that it prints."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT)
        except TimeoutError as error:
            raise InputError(
                f"the scheduler at {scheduler!r} has no workers; start one or more with `dask "
                f"worker {scheduler} --nthreads 1`."
            ) from error
        _check_versions(client)
        try:
            with parallel_config("dask", client=client):
                yield
        except OSError as error:
            if error.errno is not None:  # an error of a file, not of Dask
                raise
            raise InputError(
                f"the scheduler at {scheduler!r} or all of its workers have stopped; restart them, "
                "and resume with the same command."
            ) from error


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
