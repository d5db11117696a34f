"""y of a fit: what it holds, how it is encoded, and what is refused."""

import sys
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_array

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.wording import warn
from bayestree.inference import Units
from bayestree.models.leaves import Leaf
from bayestree.tables.columns import abbreviate


@dataclass(frozen=True, eq=False)
class Response:
    """What y of a fit holds: classes, numbers, counts with an exposure, or times with events."""

    labels: AnyArray | None  # the classes, (C,); None of numbers
    units: Units  # of numbers
    leaf: Leaf
    with_extra: bool  # whether the rows of the fit had exposures other than 1, or censored times

    @property
    def classifies(self) -> bool:
        """Whether y are classes."""
        return self.labels is not None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes as text; none of numbers."""
        return () if self.labels is None else tuple(str(label) for label in self.labels)

    @property
    def extra(self) -> str | None:
        """Name of a number of each row that may come with y (see ``Leaf.extra``)."""
        return self.leaf.extra

    @property
    def n_outputs(self) -> int:
        """Columns of y, 1 for y (n,)."""
        return self.leaf.n_outputs

    def encode(self, values: AnyArray) -> AnyArray:
        """Encode y as class numbers, or in the units of the fit."""
        if self.labels is None:
            return self.units.encode(np.asarray(values, dtype=np.float64))
        numbers = {label: number for number, label in enumerate(self.labels.tolist())}
        unknown = sorted({str(label) for label in values.tolist() if label not in numbers})
        if unknown:
            raise ValueError(
                f"y holds classes that were absent from the fit, {unknown[:5]}; the fit had "
                f"{[str(label) for label in numbers]}."
            )
        return np.array([numbers[label] for label in values.tolist()], dtype=np.int64)

    def decode(self, values: AnyArray) -> AnyArray:
        """Invert ``encode``."""
        return self.units.decode(values) if self.labels is None else self.labels[values]

    def separate(self, y: Any, *, refuse: bool = False) -> tuple[Any, FloatArray | None]:
        """Split y from its extra column; warn, or refuse it, if it lacks what y of the fit had."""
        if self.classifies:
            return y, None
        values, extra = separated(y, self.extra)
        if extra is None and self.with_extra:
            remedy = f"give np.column_stack((y, {self.extra})) as y"
            if refuse:
                raise ValueError(
                    f"y lacks the {self.extra} of each row, which the fit had; {remedy}."
                )
            warn(
                f"y comes without the {self.extra} of each row, which the fit had: it is taken as "
                f"1; {remedy}, or {self.extra}= if there is such an argument.",
                UserWarning,
            )
        return values, extra

    def check_outputs(self, y: AnyArray) -> None:
        """Refuse y with another number of outputs than in the fit."""
        given = y.shape[1] if y.ndim == 2 else 1
        if given != self.n_outputs:
            raise ValueError(
                f"y must have {self.n_outputs} outputs, as in the fit, got the shape {y.shape}."
            )


def separated(y: Any, extra: str | None) -> tuple[Any, FloatArray | None]:
    """Split numbers y from their extra column, if there is one: the second, or a field (event)."""
    refuse_times(y, "y")
    names = getattr(getattr(y, "dtype", None), "names", None)
    if extra == "event" and names is not None:
        events = [name for name in names if y.dtype[name].kind == "b"]
        if len(names) != 2 or len(events) != 1:
            raise ValueError(
                "a structured y must have one boolean field, the event, and one field of "
                f"times, got {y.dtype}."
            )
        (time,) = set(names) - set(events)
        return y[time].astype(np.float64), y[events[0]].astype(np.float64)
    if extra is None or np.shape(np.asarray(y))[1:] != (2,):
        return y, None
    check_numbers(np.asarray(y, dtype=object)[:, 1], f"{extra}, the second column of y,")
    both = np.asarray(y, dtype=np.float64)
    return both[:, 0], checked_extra(both[:, 1], extra, len(both))


def checked_extra(extra: Any, name: str, n_rows: int) -> FloatArray:
    """Return the extra column of y as an array (n,); refuse other shapes and missing values."""
    check_numbers(extra, name)
    if np.shape(extra) != (n_rows,):
        raise ValueError(
            f"{name} must have shape ({n_rows},), one number for each row of X, got "
            f"{np.shape(extra)}."
        )
    return np.array(check_array(extra, ensure_2d=False, dtype=np.float64, input_name=name))


def check_generated(leaf: Leaf, y: AnyArray, extra: FloatArray | None) -> None:
    """Refuse y that a family of leaves cannot generate; labels have no such limits."""
    if not (leaf.n_classes or leaf.regresses):  # whose response needs the features
        y = np.asarray(y, dtype=np.float64)
        leaf.check(torch.tensor(y if extra is None else np.column_stack((y, extra))))


def check_numbers(values: Any, name: str, remedy: str = "") -> None:
    """Refuse what is not a number; the rest is up to scikit-learn's checks."""
    _refuse_fields(values, name)
    refuse_times(values, name)
    first = pd.Series(np.asarray(values, dtype=object).ravel()[:1000]).dropna()
    others = first[~first.map(lambda value: isinstance(value, Number | np.bool_))]
    if len(others):
        kind = "text" if isinstance(others.iloc[0], str) else "values"
        if pd.to_numeric(others, errors="coerce").notna().all():
            remedy = f"; convert it by {name}.astype(float)"
        raise ValueError(
            f"{name} must hold numbers, got {kind} such as {str(others.iloc[0])!r}{remedy}."
        )


def check_labels(y: Any) -> None:
    """Refuse labels that are neither numbers nor booleans, text or dates of NumPy."""
    refuse_dask(y)
    _refuse_fields(y, "y")
    for column in [one for _, one in y.items()] if isinstance(y, pd.DataFrame) else [y]:
        values = np.asarray(column)
        numeric = pd.api.types.is_numeric_dtype(getattr(column, "dtype", object))
        kind = pd.api.types.infer_dtype(values.ravel(), skipna=True)
        if numeric or values.dtype.kind not in "Om" or kind in ("string", "bytes", "empty"):
            continue
        if values.ndim:  # otherwise scikit-learn refuses it
            dtype = {"integer": "int", "floating": "float", "boolean": "bool"}.get(kind, "str")
            raise ValueError(
                f"Unknown label type {kind!r}, such as {values.ravel()[0]}: y must hold text, "
                f"numbers or booleans; convert it by y.astype({dtype})."
            )


def _refuse_fields(y: Any, name: str) -> None:
    """Refuse structured arrays, which hold events and times of survival data."""
    if getattr(getattr(y, "dtype", None), "names", None):
        raise ValueError(
            f"{name} must hold one value for each row, got an array of the fields "
            f"{abbreviate(map(repr, y.dtype.names))}; for events and times use "
            "ConvexPolytopeTreeSurvival."
        )


def refuse_dask(*given: Any) -> None:
    """Refuse the rows of Dask, which NumPy would load into memory without being asked."""
    dask = sys.modules.get("dask.dataframe")  # not imported for that
    if dask is not None and any(isinstance(X, dask.DataFrame | dask.Series) for X in given):
        raise TypeError(
            "X and y may not be a Dask DataFrame or Series. To predict, call the method by "
            "X.map_partitions; to fit, write the rows by X.to_parquet('rows') and fit that data "
            "set by fit_files (docs/data/large-data.md); if they fit into memory, pass "
            "X.compute()."
        )


def refuse_times(values: Any, name: str) -> None:
    """Refuse dates and durations, which NumPy would convert to counts of its own unit."""
    refuse_dask(values)
    if not hasattr(values, "dtype") and not isinstance(values, pd.DataFrame):
        values = np.asarray(values, dtype=object)
    if np.ndim(values) not in (1, 2):
        return  # scikit-learn refuses it
    table = pd.DataFrame(values)
    for place in range(table.shape[1]):
        inferred = pd.api.types.infer_dtype(table.iloc[:1000, place], skipna=True)
        if inferred.startswith("timedelta"):
            raise ValueError(
                f"{name} must hold numbers, got durations; choose their unit: for example "
                f"{name} / pd.Timedelta(days=1), durations in days."
            )
        if inferred in ("datetime64", "datetime", "date", "time", "period"):
            raise ValueError(
                f"{name} must hold numbers, got dates; give a number of days, for example "
                f"({name} - {name}.min()) / pd.Timedelta(days=1)."
            )
