"""What is wrong with the input, in one line; and how each verb ends."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer
from typer.core import TyperGroup

INPUT = 2  # exit code of input that cannot be used
INTERRUPTED = 130  # exit code of Ctrl-C, as shells have it: 128 and the signal's number

_as_json: ContextVar[bool] = ContextVar("as_json", default=False)


class Verbs(TyperGroup):
    """Verbs that print an error as JSON as well, where a verb is told to print JSON."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note whether JSON is asked for, before anything can go wrong."""
        _as_json.set("--json" in args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the verb; report usage errors and unexpected exceptions as JSON."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            of_usage = getattr(error, "format_message", None)  # of click, whichever typer brings
            _print_json(of_usage() if of_usage else f"{type(error).__name__}: {error}")
            raise


@contextmanager
def clear_errors(*, interrupted: str = "interrupted") -> Iterator[None]:
    """Turn what is wrong with the input into one line and exit code 2, and Ctrl-C into 130.

    With ``--json`` standard output has the line as well, in a JSON object.

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
    line = " ".join(text.split())
    typer.echo(f"bayestree: {line}", err=True)
    _print_json(line)


def _print_json(error: str) -> None:
    if _as_json.get():
        typer.echo(json.dumps({"error": error}, indent=2, ensure_ascii=False))


def _is_input(error: Exception) -> bool:
    """Whether an error is of the input, not of the program; torch is imported only if need be."""
    from bayestree.tables import InputError

    if isinstance(error, BrokenPipeError):  # who reads has gone, as `| head` does
        return False
    if isinstance(error, InputError | OSError):
        return True
    from bayestree.estimators.files import ModelFileError

    return isinstance(error, ModelFileError)
