"""The command line `bayestree`; torch is imported only when it is needed."""

from bayestree.cli._app import app, main

__all__ = ["app", "main"]
