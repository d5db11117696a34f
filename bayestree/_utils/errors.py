"""Errors raised for input that cannot be used."""

MAX_INTEGER = 2**31 - 1  # larger integers are refused: libraries count in 32 bits


class InputError(ValueError):
    """Input that cannot be used; the message is one line and names the remedy."""


class CellError(InputError):
    """A value in a table that cannot be used.

    ``before`` and ``after`` are the message around the location of the value; ``row`` counts from
    0; ``missing`` is true for a missing value.
    """

    def __init__(
        self, before: str, row: int, after: str, *, column: str, missing: bool = False
    ) -> None:
        self.before, self.row, self.after = before, row, after
        self.column, self.missing = column, missing
        super().__init__(self.located_at(f"row {row + 1}"))

    def located_at(self, place: str) -> str:
        """Return the message with another name for the row, such as its line in a file."""
        return f"{self.before} {place}{self.after}"
