"""Codes that stand for missing values, such as -999 or ``?``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.wording import nearest_match
from bayestree.tables.errors import InputError

Code = int | float | str
Codes = tuple[Code, ...]


def codes_by_column(missing_values: Any, names: Sequence[str]) -> dict[str, Codes]:
    """The codes of each column, given those of all columns or by their names."""
    if missing_values is None:
        return {}
    if not isinstance(missing_values, Mapping):
        return dict.fromkeys(names, _codes(missing_values))
    for name in missing_values:
        if name not in names:
            end = nearest_match(str(name), names)
            raise InputError(f"missing_values: {name!r} is not a column to predict from{end}")
    return {name: _codes(given) for name, given in missing_values.items()}


def without_codes(values: pd.Series, codes: Codes) -> pd.Series:
    """The values, with missing ones in the place of codes; text and numbers are the same."""
    if not codes:
        return values
    if isinstance(values.dtype, pd.CategoricalDtype):
        known = values.cat.categories
        return values.cat.remove_categories(known[_are_codes(known.to_series(), codes)])
    return values.mask(_are_codes(values, codes))


def _are_codes(values: pd.Series, codes: Codes) -> pd.Series:
    numeric = pd.to_numeric(pd.Series([*codes], dtype=object), errors="coerce").dropna()
    if pd.api.types.is_numeric_dtype(values):
        return values.isin(numeric.astype(float))
    return values.isin([*codes, *map(text_of, codes)])


def text_of(value: Any) -> str:
    """A value as text; 2.0, a number in a column of floats, is 2."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def _codes(given: Any) -> Codes:
    found = [given] if np.isscalar(given) else [*given]
    for one in found:
        if not np.isscalar(one) or isinstance(one, bool | np.bool_):
            raise InputError(f"missing_values must be numbers or texts, got {one!r}.")
    plain: list[Any] = [one.item() if isinstance(one, np.generic) else one for one in found]
    return tuple(one for one in plain if not pd.isna(one))  # which is missing in any case
