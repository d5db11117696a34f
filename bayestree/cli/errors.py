"""Errors of the verbs: messages on one line, and exit codes."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from bayestree._utils.errors import InputError

INPUT = 2  # exit code of input that cannot be used
INTERRUPTED = 130  # exit code of Ctrl-C, as in shells: 128 plus the number of the signal
BROKEN_PIPE = 141  # exit code if the reader of the output has gone, as `| head` does

_as_json: ContextVar[bool] = ContextVar("as_json", default=False)


class Verbs(TyperGroup):
    """The verbs, which with ``--json`` print errors as JSON too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Record whether JSON is requested, before anything can fail, and check the texts."""
        _as_json.set("--json" in args)
        with clear_errors():
            for text in (*args, str(Path.cwd())):
                _check_encoding(text)
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the verb; report usage errors and unexpected exceptions as JSON."""
        with clear_errors():
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort, BrokenPipeError):
                raise
            except Exception as error:
                usage_error = getattr(error, "format_message", None)  # of the click in typer
                _print_json(usage_error() if usage_error else f"{type(error).__name__}: {error}")
                raise


@contextmanager
def clear_errors(*, interrupted: str = "interrupted") -> Iterator[None]:
    """Report unusable input on one line with exit code 2, and Ctrl-C with exit code 130.

    With ``--json`` the message is also printed on standard output, as a JSON object. If nobody
    reads standard output any more, the command ends silently with exit code 141.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # what is left goes nowhere
        raise typer.Exit(BROKEN_PIPE) from None
    except (ValueError, OSError) as error:
        if not _is_input_error(error):
            raise
        _report(str(error))
        raise typer.Exit(INPUT) from None
    except KeyboardInterrupt:
        _report(interrupted)
        raise typer.Exit(INTERRUPTED) from None


def _report(text: str) -> None:
    line = " ".join(text.split())
    typer.echo(f"bayestree: {line}", err=True)
    _print_json(line)


def _print_json(error: str) -> None:
    if _as_json.get():
        typer.echo(json.dumps({"error": error}, indent=2))


def _check_encoding(text: str) -> None:
    """Refuse text that Python could not decode, which no file of a run could contain."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(text).decode(errors="replace")
        raise InputError(
            f"{shown!r} is not text in the encoding of this locale, {sys.getfilesystemencoding()}; "
            "set LC_ALL=C.UTF-8, or use another name."
        ) from None


def _is_input_error(error: Exception) -> bool:
    """Whether the input, not the program, is to blame; torch is imported only if necessary."""
    if isinstance(error, InputError | OSError):
        return True
    from bayestree.estimators.files import ModelFileError

    return isinstance(error, ModelFileError)
