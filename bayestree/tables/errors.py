"""The errors of input that cannot be used."""


class InputError(ValueError):
    """Input that cannot be used; the message is one line that says what to change."""


class CellError(InputError):
    """A value in a table that cannot be used; its row is known.

    Parameters
    ----------
    before, after : str
        The message before and after the place of the value.
    row : int
        Of the table, from 0.
    column : str
    missing : bool
        Whether there is no value.
    """

    def __init__(
        self, before: str, row: int, after: str, *, column: str, missing: bool = False
    ) -> None:
        self.before, self.row, self.after = before, row, after
        self.column, self.missing = column, missing
        super().__init__(self.at(f"row {row + 1}"))

    def at(self, place: str) -> str:
        """The message with another name of the row, such as its line in a file."""
        return f"{self.before} {place}{self.after}"
