"""The error of input that cannot be used."""


class InputError(ValueError):
    """Input that cannot be used; the message is one line that says what to change."""
