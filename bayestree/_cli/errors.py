"""What is wrong with the input, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what is wrong with the input into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        if not _is_input(error):
            raise
        typer.echo(f"bayestree: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


def _is_input(error: Exception) -> bool:
    """Whether an error is of the input, not of the program; torch is imported only if need be."""
    from bayestree.tables import InputError

    if isinstance(error, InputError | OSError):
        return True
    from bayestree.estimators.files import ModelFileError

    return isinstance(error, ModelFileError)
