"""What is wrong with the input, in one line; and how each verb ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

INPUT = 2  # exit code of input that cannot be used
INTERRUPTED = 130  # exit code of Ctrl-C, as shells have it: 128 and the signal's number


@contextmanager
def clear_errors(*, interrupted: str = "interrupted") -> Iterator[None]:
    """Turn what is wrong with the input into one line and exit code 2, and Ctrl-C into 130.

    Parameters
    ----------
    interrupted : str
        What to say after Ctrl-C.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        # a pipe that was closed has no reader left to be told
        if isinstance(error, BrokenPipeError) or not _is_input(error):
            raise
        _say(str(error))
        raise typer.Exit(INPUT) from None
    except KeyboardInterrupt:
        _say(interrupted)
        raise typer.Exit(INTERRUPTED) from None


def _say(text: str) -> None:
    typer.echo(f"bayestree: {' '.join(text.split())}", err=True)


def _is_input(error: Exception) -> bool:
    """Whether an error is of the input, not of the program; torch is imported only if need be."""
    from bayestree.tables import InputError

    if isinstance(error, BrokenPipeError):  # who reads has gone, as `| head` does
        return False
    if isinstance(error, InputError | OSError):
        return True
    from bayestree.estimators.files import ModelFileError

    return isinstance(error, ModelFileError)
