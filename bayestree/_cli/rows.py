"""A table made ready for a fit: checked, held out, encoded."""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from bayestree.tables import Encoding


class Prepared(NamedTuple):
    """A table, read and checked: features of the training and the held-out rows."""

    task: str
    encoding: "Encoding"
    X: "pd.DataFrame"
    y: "NDArray[Any]"
    weights: "NDArray[np.float64]"
    X_held: "pd.DataFrame"
    y_held: "NDArray[Any]"
    weights_held: "NDArray[np.float64]"
    held_out: bool
    remarks: list[str]


def check_columns(frame: "pd.DataFrame", target: str, weights: str | None, drop: list[str]) -> None:
    from bayestree.tables import InputError

    named = [("--target", target), *([("--weights", weights)] if weights else [])]
    for option, name in [*named, *(("--drop", name) for name in drop)]:
        if name not in frame:
            known = ", ".join(map(repr, frame.columns[:20]))
            raise InputError(f"{option} {name!r} is not a column; the table has {known}.")
    for option, name in named:
        if name in drop or (option == "--weights" and name == target):
            raise InputError(f"{option} {name!r} is named for another purpose as well.")


def prepare(
    frame: "pd.DataFrame",
    target: str,
    weights: str | None,
    *,
    task: str,
    fraction: float,
    seed: int,
) -> Prepared:
    """Check a table, hold rows out, and turn columns into features by the training rows."""
    import numpy as np

    from bayestree import tables

    tables.check_complete(frame)
    found, y = tables.read_target(frame[target], task)
    counts = np.ones(len(frame)) if weights is None else tables.read_weights(frame[weights])
    features = frame.drop(columns=[target, *([weights] if weights else [])])
    kept, held = _hold_out(y, counts, found, fraction, seed)
    encoding = tables.Encoding.of(features.iloc[kept])
    X, _ = encoding.encode(features.iloc[kept])
    X_held, remarks = encoding.encode(features.iloc[held])
    return Prepared(
        task=found,
        encoding=encoding,
        X=X,
        y=y[kept],
        weights=counts[kept],
        X_held=X_held,
        y_held=y[held],
        weights_held=counts[held],
        held_out=fraction > 0,
        remarks=remarks,
    )


def _hold_out(
    y: "NDArray[Any]", weights: "NDArray[np.float64]", task: str, fraction: float, seed: int
) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """Rows to train on and to score on: the same, if none are held out."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from bayestree.tables import InputError

    rows = np.arange(len(y))
    n_held = round(fraction * len(y))
    kept = held = rows
    if fraction > 0:
        if not 1 <= n_held <= len(y) - 2:
            raise InputError(
                f"--test-fraction {fraction:g} of {len(y)} rows leaves too few to train on or to "
                "score; 0 scores the training rows."
            )
        classes, sizes = np.unique(y, return_counts=True)
        even = task == "classification" and sizes.min() > 1
        even = even and len(classes) <= min(n_held, len(y) - n_held)
        kept, held = train_test_split(
            rows, test_size=n_held, random_state=seed, stratify=y if even else None
        )
    counted = y[kept][weights[kept] > 0]
    if len(np.unique(counted)) < (2 if task == "classification" else 1):
        raise InputError("the training rows of positive weight hold too few classes; add rows.")
    return np.sort(kept), np.sort(held)
