"""Predictions for a table of any size, and the explanation of one of them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree import tables
from bayestree._utils.arrays import AnyArray
from bayestree._utils.write import whole_file
from bayestree.runs.outputs import predict_rows, predictions, scores_of, table_writer
from bayestree.runs.rows import sha256
from bayestree.runs.store import Columns, open_run, read_model
from bayestree.tables import InputError, located

if TYPE_CHECKING:
    from bayestree.explain.explanation import Explanation


Scores = dict[str, float]


class Predicted(NamedTuple):
    """Result of predicting a table.

    ``remarks`` warn about categories that do not occur in the training rows. ``scores`` are those
    of :func:`bayestree.runs.outputs.scored`, the reason if the target cannot be scored, or None if
    the table does not contain the target. ``n_seen`` is the number of scored rows that the model
    was fitted to; None if nothing is scored, or the file is not the one that the run was fitted to.
    """

    n_rows: int
    remarks: list[str]
    scores: Scores | str | None
    n_seen: int | None = None


def predict_file(folder: Path, data: Path, out: Path) -> Predicted:
    """Predict the rows of a table with the model of a folder, and write the predictions.

    The folder belongs to a run, or holds a model with its ``columns.json``. ``out`` ends in .csv or
    .parquet, and is written completely or not at all.
    """
    estimator, columns = read_model(folder)
    encoding = columns.encoding
    used = encoding.among(estimator._used)
    text = [*encoding.text, *(columns.targets if columns.is_text else [])]
    scorer = _Scorer(estimator, columns)
    n_rows, unknown = 0, dict[str, Counter[str]]()
    with located(data), whole_file(out) as draft, table_writer(draft, out.suffix) as write:
        for frame in tables.open_table(data, text, codes=lambda _: encoding.codes).chunks():
            X = encoding.features(frame)
            used.count_unknown(frame, unknown)
            n_rows += len(frame)
            write(predictions(estimator, X, columns.extra_of(frame), columns.targets))
            scorer.add(frame, X)
    scores = scorer.scores()
    n_seen = _count_training_rows(folder, data) if isinstance(scores, dict) else None
    return Predicted(n_rows, used.describe_unknown(unknown), scores, n_seen)


def _count_training_rows(folder: Path, data: Path) -> int | None:
    """Return the number of training rows, if the table is the one that the run was fitted to."""
    try:
        run = open_run(folder)
        same = sha256(data) == run.manifest["data"]["data"]["sha256"]
        return run.metrics.get("training_rows") if same else None
    except InputError:
        return None


class _Scorer:
    """Collects targets and predictions of all chunks whose target is known."""

    def __init__(self, estimator: Any, columns: Columns) -> None:
        self.estimator, self.columns = estimator, columns
        self.parts: list[tuple[AnyArray, ...]] = []
        self.fault: str | None = None

    def add(self, frame: pd.DataFrame, X: pd.DataFrame) -> None:
        needed = {*self.columns.targets, *([self.columns.extra] if self.columns.extra else [])}
        if self.fault is not None or not needed <= {*frame.columns}:
            return
        found = frame[[*self.columns.targets]]
        try:
            tables.check_complete(found)
            found = found.astype(str) if self.columns.is_text else found.apply(tables.numbers)
            y = found.to_numpy()[:, 0] if found.shape[1] == 1 else found.to_numpy()
            if (extra := self.columns.extra_of(frame)) is not None:
                y = np.column_stack((y, extra))
        except InputError as error:
            self.fault = str(error)
        else:
            self.parts.append((y, *predict_rows(self.estimator, X, y)))

    def scores(self) -> Scores | str | None:
        if self.fault is not None or not self.parts:
            return self.fault
        y, *predicted = (np.concatenate(arrays) for arrays in zip(*self.parts, strict=True))
        try:
            targets = self.columns.targets
            return scores_of(self.estimator, y, *predicted, weights=None, targets=targets)
        except ValueError as error:  # such as survival times without an event
            return str(error)


def explain_row(
    folder: Path, row: str, *, features: Sequence[str] = (), target: str | None = None
) -> "Explanation":
    """Explain the prediction for a row with the model of a folder.

    ``row`` is the number of a row, from 0, in the table of the run, or the path of a table with a
    single row. The others are arguments of ``explain`` of the estimators.
    """
    estimator, columns = read_model(folder)
    columns.check_single("explain")
    if not hasattr(estimator, "explain"):
        raise InputError(
            f"the model in {str(folder)!r} is a {type(estimator).__name__} of several trees, which "
            "explain predictions one by one: bayestree.load(...).estimators_[0].explain(x)."
        )
    numbered = row.isdecimal() and not Path(row).exists()
    path = open_run(folder).file.data.path if numbered else Path(row)
    with located(path):
        frame = _row(path, columns, int(row) if numbered else None)
        columns.encoding.features(frame)  # whose messages name the row
    try:
        X = frame[[*columns.encoding.names]]
        return estimator.explain(X, features=features or None, target=target)
    except ValueError as error:
        raise InputError(str(error)) from error


def _row(path: Path, columns: Columns, number: int | None) -> pd.DataFrame:
    """Return the row of a table with a number, or its only row."""
    n_rows, found = 0, None
    known = columns.encoding
    for frame in tables.open_table(path, known.text, codes=lambda _: known.codes).chunks():
        n_rows += len(frame)
        if found is None and (number or 0) < n_rows:
            found = frame.loc[[number or 0]]
    if number is None and n_rows > 1:
        raise InputError(f"{str(path)!r} has {n_rows} rows; give a table with one row.")
    if found is None:
        raise InputError(f"{str(path)!r} has no row {number}; its rows are 0 to {n_rows - 1}.")
    return found
