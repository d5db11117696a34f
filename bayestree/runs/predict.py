"""Predictions of a table of any size, some rows at a time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bayestree import tables
from bayestree._utils.write import whole_file
from bayestree.runs.rows import sha256
from bayestree.runs.scores import predictions, said_of, scores_of, target_or_why_not
from bayestree.runs.store import Columns, open_run, read_model
from bayestree.tables import InputError, located
from bayestree.tables.columns import remarks_on

Scores = dict[str, float]


class Predicted(NamedTuple):
    """What came of predicting a table.

    Attributes
    ----------
    n_rows : int
    remarks : list of str
        On categories that training did not hold.
    scores : dict, str or None
        See :func:`bayestree.runs.scores.scored`; why there are none although the table has the
        target; or None where it has not.
    n_seen : int or None
        How many of the scored rows the model was fitted to; None where nothing is scored, or the
        file is not byte for byte the one that the run was fitted to.
    """

    n_rows: int
    remarks: list[str]
    scores: Scores | str | None
    n_seen: int | None = None


def predict_file(folder: Path, data: Path, out: Path) -> Predicted:
    """Predict the rows of a table by the model of a folder, and write the predictions.

    Parameters
    ----------
    folder : Path
        Of a run, or of any model with its columns.
    data : Path
    out : Path
        Ends in .csv or .parquet. It is there whole or not at all.

    Raises
    ------
    InputError
        If the model or the table cannot be read, or columns are missing.
    """
    estimator, columns = read_model(folder)
    text = [*columns.encoding.text, *([columns.target] if columns.is_text else [])]
    told = _Told(estimator, columns)
    with located(data), whole_file(out) as draft, _written(draft, out.suffix) as write:
        for frame in tables.open_chunks(data, text).chunks():
            X = told.features(frame)
            write(predictions(estimator, X))
            told.score(frame, X)
    scores = told.scores()
    seen = _seen_rows(folder, data) if isinstance(scores, dict) else None
    return Predicted(told.n_rows, remarks_on(told.unknown), scores, seen)


def _seen_rows(folder: Path, data: Path) -> int | None:
    """How many rows of a table the run was fitted to, if it is the table of the run."""
    try:
        run = open_run(folder)
        same = sha256(data) == run.manifest["data"]["data"]["sha256"]
        return run.metrics.get("training_rows") if same else None
    except InputError:
        return None


@contextmanager
def _written(path: Path, suffix: str) -> Iterator[Callable[[pd.DataFrame], None]]:
    """What writes one table after the other to a file, below each other."""
    with ExitStack() as open_files:
        files: list[Any] = []

        def write_csv(table: pd.DataFrame) -> None:
            if not files:
                files.append(open_files.enter_context(path.open("w", encoding="utf-8", newline="")))
                table.to_csv(files[0], index=False)
            else:
                table.to_csv(files[0], index=False, header=False)

        def write_parquet(table: pd.DataFrame) -> None:
            rows = pa.Table.from_pandas(table, preserve_index=False)
            if not files:
                files.append(open_files.enter_context(pq.ParquetWriter(path, rows.schema)))
            files[0].write_table(rows)

        yield write_csv if suffix == ".csv" else write_parquet


class _Told:
    """What is kept of the chunks: counts, and what the scores are made of."""

    def __init__(self, estimator: Any, columns: Columns) -> None:
        self.estimator, self.columns = estimator, columns
        self.n_rows = 0
        self.unknown: dict[str, Counter[str]] = defaultdict(Counter)
        self.seen: list[tuple[NDArray[Any], ...]] = []
        self.fault: str | None = None

    def features(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Features of the rows of a chunk."""
        encoding = self.columns.encoding
        X, _ = encoding.encode(frame)
        for name, counts in encoding.unknown(frame).items():
            self.unknown[name].update(counts)
        self.n_rows += len(frame)
        return X

    def score(self, frame: pd.DataFrame, X: pd.DataFrame) -> None:
        """Keep what is said of the rows of a chunk beside what they are, if that is known."""
        if self.fault is not None or self.columns.target not in frame:
            return
        y = target_or_why_not(frame[self.columns.target], is_text=self.columns.is_text)
        if isinstance(y, str):
            self.fault = y
        else:
            self.seen.append((y, *said_of(self.estimator, X, y)))

    def scores(self) -> Scores | str | None:
        """Of all chunks."""
        if self.fault is not None or not self.seen:
            return self.fault
        y, *said = (np.concatenate(arrays) for arrays in zip(*self.seen, strict=True))
        return scores_of(y, *said, weights=None)
