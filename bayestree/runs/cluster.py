"""Work for a cluster: all that joblib shares out goes to the workers of a Dask scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config

from bayestree import __version__
from bayestree.tables import InputError

PATIENCE = 10  # seconds for the scheduler to answer, and for a worker to be there


@contextmanager
def spread(scheduler: str | None) -> Iterator[None]:
    """Send what joblib shares out in the block to a cluster.

    These are the trees of a forest, the chains of NUTS, and the points of a sweep with their
    folds. The numbers are the same as on one machine.

    Parameters
    ----------
    scheduler : str, optional
        Address of a Dask scheduler, such as ``"tcp://10.0.0.1:8786"``; None is this machine.
        A scheduler can run any code on its workers and on this machine: name only one's own.

    Raises
    ------
    InputError
        If Dask is not installed, nobody answers at the address, there are no workers, or one of
        them has another version of this package.
    """
    if scheduler is None:
        yield
        return
    try:
        from distributed import Client  # noqa: PLC0415 - it is optional
    except ImportError:
        raise InputError(
            "a scheduler needs Dask: pip install 'bayestree[cluster]', or leave it out."
        ) from None
    try:
        client = Client(scheduler, set_as_default=False, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {scheduler!r}; start one with `dask scheduler`, and "
            "give the address that it says."
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
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
            if error.errno is not None:  # of a file, not of Dask
                raise
            raise InputError(
                f"the scheduler at {scheduler!r} or all of its workers are gone; start them, and "
                "go on by the same command."
            ) from error


def _check_versions(client: Any) -> None:
    """Refuse workers that would not find the same numbers, or none at all."""
    for address, found in client.run(_version, on_error="return").items():
        if found != __version__:
            has = f"bayestree {found}" if isinstance(found, str) else "no bayestree to import"
            raise InputError(
                f"the worker {address} has {has}, and here it is {__version__}; install the same "
                "version there."
            )


def _version() -> str:
    return __version__
