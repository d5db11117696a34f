"""From the constraints of a parameter, as scikit-learn has them, to types of pydantic and words."""

from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union

from pydantic import Field
from sklearn.utils._param_validation import Interval, StrOptions

NONE = "none"  # TOML has no null: so a file says that a parameter is left to the fit
LARGEST = 2**31 - 1  # what every library that counts something can hold

Whole = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Positive = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]
Weight = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


def typed(constraints: list[Any]) -> Any:
    """A type of pydantic for what a file may give; None where a file can give nothing.

    Parameters
    ----------
    constraints : list
        Of one parameter, in ``_parameter_constraints``. Those that no file can meet (objects of
        Python) are left out.
    """
    found = [kind for one in constraints if (kind := _type_of(one)) is not None]
    return Union[tuple(found)] if found else None  # noqa: UP007 - the members are not known here


def in_words(constraints: list[Any]) -> str:
    """The same for a person: ``a whole number of 1 or more, or "none"``."""
    found = [words for one in constraints if (words := _words_of(one)) is not None]
    return ", or ".join(found)


def leaves_open(constraints: list[Any]) -> bool:
    """Whether ``"none"`` stands for Python's None."""
    options = [one.options for one in constraints if isinstance(one, StrOptions)]
    return None in constraints and not any(NONE in each for each in options)


def _type_of(constraint: Any) -> Any:
    if isinstance(constraint, Interval):
        return _interval(constraint)
    if isinstance(constraint, StrOptions):
        return Literal[tuple(sorted(constraint.options))]
    if constraint is None:
        return Literal[NONE]
    plain: dict[Any, Any] = {
        "boolean": Annotated[bool, Field(strict=True)],
        str: Annotated[str, Field(strict=True)],
        Integral: Whole,
        tuple: tuple[Positive, Positive],  # an image's height and width
        dict: dict[str, Weight],
    }
    return _of(plain, constraint)


def _words_of(constraint: Any) -> str | None:
    if isinstance(constraint, Interval):
        return _bounds(constraint)
    if isinstance(constraint, StrOptions):
        return " or ".join(f'"{option}"' for option in sorted(constraint.options))
    if constraint is None:
        return f'"{NONE}"'
    plain: dict[Any, str] = {
        "boolean": "true or false",
        str: "text",
        Integral: "a whole number",
        tuple: "[height, width]",
        dict: "a table of one number of 0 or more for each class",
    }
    return _of(plain, constraint)


def _of(plain: dict[Any, Any], constraint: Any) -> Any:
    return plain.get(constraint) if isinstance(constraint, str | type) else None


def _interval(interval: Interval) -> Any:
    bounds: dict[str, Any] = {}
    if interval.left is not None:
        bounds["ge" if interval.closed in ("left", "both") else "gt"] = interval.left
    if interval.right is not None:
        bounds["le" if interval.closed in ("right", "both") else "lt"] = interval.right
    if interval.type is Integral:
        return Annotated[int, Field(strict=True, **{"le": LARGEST} | bounds)]
    infinite = interval.right is None and interval.closed in ("right", "both")
    return Annotated[float, Field(strict=True, allow_inf_nan=infinite, **bounds)]


def _bounds(interval: Interval) -> str:
    what = "a number" if interval.type is Real else "a whole number"
    if interval.type not in (Real, Integral):
        what = "a fraction"
    said = []
    if interval.left is not None:
        closed = interval.closed in ("left", "both")
        said.append(f"of {interval.left} or more" if closed else f"above {interval.left}")
    if interval.right is not None:
        closed = interval.closed in ("right", "both")
        said.append(f"up to {interval.right}" if closed else f"below {interval.right}")
    return " ".join([what, " and ".join(said)]) if said else what
