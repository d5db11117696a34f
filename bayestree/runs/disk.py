"""Rows of a run that are never all in memory: read in chunks, and kept in files as features.

Target and weights of all rows are held, and what says which rows are held out; the features are
not. A table is read twice, and once more where it has columns of text or is CSV.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayestree import tables
from bayestree._utils.arrays import FloatArray
from bayestree.estimators._file_rows import PARTS, fits_in_parts, large_file
from bayestree.inference import scratch
from bayestree.runs.rows import (
    Prepared,
    check_classes,
    check_columns,
    fingerprint,
    hold_out,
    target_like,
)
from bayestree.tables import ChunkedTable, Encoding, InputError, Survey, located, open_chunks
from bayestree.tables.columns import remarks_on
from bayestree.tables.texts import MOST_CATEGORIES

if TYPE_CHECKING:
    from bayestree.runs.schema import RunFile
    from bayestree.runs.settings import DataTable

Mask = NDArray[np.bool_]


class Scan(NamedTuple):
    """What a first reading of a table says.

    ``text`` has, of each feature column, whether it holds text; ``single`` whether single
    precision holds all numbers as they are; ``remarks`` what to tell a person of the columns.
    """

    table: ChunkedTable
    text: dict[str, bool]
    single: bool
    target: pd.Series
    weights: FloatArray
    remarks: list[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the table."""
        return len(self.target), len(self.table.columns)


def check_parts(file: "RunFile", estimator: Any) -> None:
    """Refuse to keep rows on disk for a fit that needs them all in memory.

    Raises
    ------
    InputError
    """
    if file.data.storage == "disk" and not fits_in_parts(estimator):
        raise InputError(
            f'[data] storage = "disk" is for fits that go through the rows by parts, and tree '
            f"{file.tree!r} with these settings needs all of them at a time: take the trees cpt or "
            "e2edt with inference 'grow', 'map', 'svi' or 'em' and without search_facets, extend "
            'and refine, or storage = "memory".'
        )


def read_on_disk(file: "RunFile", keep: Collection[str] = ()) -> Prepared:
    """Read, check and encode the rows of a run, the features in files that go with the process.

    The rows, their order and the choice of those that are held out are as in memory.

    Parameters
    ----------
    file : RunFile
    keep : collection of str
        Columns that are features even where they look like an index.

    Returns
    -------
    Prepared
        Whose features are tables of mapped files.

    Raises
    ------
    InputError
        If a table cannot be used, or the disk has no room.
    """
    data = file.data
    scan = _scan(open_chunks(data.path), data, keep)
    with located(data.path):
        task, y = tables.read_target(scan.target, data.task)
    prints = {"data": fingerprint(Path(data.path), *scan.shape)}
    if data.test is None:
        kept, held = hold_out(y, scan.weights, task, data.test_fraction, file.seed)
        masks = [_mask(rows, len(y)) for rows in (kept, held)]
        encoding = _encoding(scan, masks[0])
        # the same, if none are held out
        files = _features(scan, encoding, masks if len(kept) < len(y) else masks[:1])
        (X, _), (X_held, remarks) = files[0], files[-1]
        y_held, weights_held = y[held], scan.weights[held]
        y, weights = y[kept], scan.weights[kept]
    else:
        check_classes(y, scan.weights, task)
        every = np.ones(len(y), dtype=bool)
        encoding, weights = _encoding(scan, every), scan.weights
        # what is text in the one is so in the other, even where it looks like numbers
        text = [*encoding.text, *([data.target] if tables.is_text(scan.target) else [])]
        other = _scan(open_chunks(data.test, text), data)
        with located(data.test):
            y_held = target_like(y, other.target, task)
        prints["test"] = fingerprint(Path(data.test), *other.shape)
        weights_held = other.weights
        held = np.arange(len(y_held))
        [(X, _)] = _features(scan, encoding, [every])
        [(X_held, remarks)] = _features(other, encoding, [np.ones(len(held), dtype=bool)])
    return Prepared(
        task=task,
        encoding=encoding,
        X=X,
        y=y,
        weights=weights,
        X_held=X_held,
        y_held=y_held,
        weights_held=weights_held,
        rows_held=held,
        held_out=data.test is not None or data.test_fraction > 0,
        remarks=[*scan.remarks, *remarks],
        fingerprints=prints,
    )


def few(rows: Prepared) -> Prepared:
    """The rows themselves or, of large files, so many evenly spread ones as can be drawn."""
    kept, held = _spread(rows.X), _spread(rows.X_held)
    return rows._replace(
        X=rows.X.iloc[kept],
        y=rows.y[kept],
        weights=rows.weights[kept],
        X_held=rows.X_held.iloc[held],
        y_held=rows.y_held[held],
        weights_held=rows.weights_held[held],
        rows_held=rows.rows_held[held],
    )


def _spread(X: pd.DataFrame) -> slice:
    return slice(0, len(X), 1 if large_file(X) is None else -(-X.size * PARTS // scratch.HELD))


def _scan(table: ChunkedTable, data: "DataTable", keep: Collection[str] | None = None) -> Scan:
    """Check all rows, and read what is known of each without its features.

    Where ``keep`` is not given, the rows are not trained on, and any features will do.
    """
    columns = pd.DataFrame(columns=list(table.columns))
    check_columns(columns, table.path.name, data.target, data.weights, data.drop)
    left_out = {data.target, data.weights, *data.drop}
    features = [name for name in table.columns if name not in left_out]
    survey = Survey(() if keep is None else features, keep or ())
    single = dict.fromkeys(features, True)
    targets, weights = [], []
    with located(table.path):
        for frame in table.chunks():
            own = frame.drop(columns=list(data.drop))
            survey.add(own)
            targets.append(own[data.target])
            if data.weights is not None:
                weights.append(own[data.weights])
            for name in features:
                single[name] &= _is_single(own[name].dtype)
        remarks = survey.check()
        counts = tables.read_weights(pd.concat(weights)) if weights else None
    target = pd.concat(targets)
    return Scan(
        table,
        text={name: text for name, text in survey.text.items() if name not in survey.idle},
        single=all(found for name, found in single.items() if name not in survey.idle),
        target=target,
        weights=np.ones(len(target)) if counts is None else counts,
        remarks=remarks,
    )


def _is_single(dtype: Any) -> bool:
    """Whether single precision holds all values, of which those of text become 0 and 1."""
    if not pd.api.types.is_numeric_dtype(dtype):
        return True
    return isinstance(dtype, np.dtype) and np.can_cast(dtype, np.float32)


def _encoding(scan: Scan, kept: Mask) -> Encoding:
    """How columns become features, by the categories of the rows that are marked."""
    found: dict[str, set[str]] = {name: set() for name, is_text in scan.text.items() if is_text}
    if found:
        start = 0
        for frame in scan.table.chunks():
            own = frame[kept[start : start + len(frame)]]
            start += len(frame)
            for name, categories in found.items():
                categories.update(own[name].astype(str).unique())
            if max(map(len, found.values())) > MOST_CATEGORIES:
                break  # and is refused
    height = max([1, *map(len, found.values())])
    columns = {
        name: np.resize(sorted(found[name]), height) if name in found else np.zeros(height)
        for name in scan.text
    }
    return Encoding.of(pd.DataFrame(columns))


def _features(
    scan: Scan, encoding: Encoding, masks: Sequence[Mask]
) -> list[tuple[pd.DataFrame, list[str]]]:
    """Features of the rows that each mask marks, in a file, and remarks on them."""
    names, kind = encoding.feature_names, np.float32 if scan.single else np.float64
    try:
        found = [
            _File(scratch.mapped_array((int(mask.sum()), len(names)), kind), mask) for mask in masks
        ]
    except scratch.NoRoomError as error:
        raise InputError(str(error)) from error
    start = 0
    with located(scan.table.path):
        for frame in scan.table.chunks():
            for each in found:
                each.add(encoding, frame, start)
            start += len(frame)
    return [
        (pd.DataFrame(each.rows, columns=names, copy=False), remarks_on(each.unknown))
        for each in found
    ]


@dataclass
class _File:
    """Features of the rows that are marked, as far as they have been written."""

    rows: Any
    mask: Mask
    done: int = 0
    unknown: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, encoding: Encoding, frame: pd.DataFrame, start: int) -> None:
        """Those of a chunk, whose first row has the number ``start``."""
        own = frame[self.mask[start : start + len(frame)]]
        if len(own) == 0:
            return
        features, _ = encoding.encode(own)
        self.rows[self.done : self.done + len(own)] = features.to_numpy()
        self.done += len(own)
        for name, counts in encoding.unknown(own).items():
            self.unknown[name].update(counts)


def _mask(rows: NDArray[np.int64], n: int) -> Mask:
    marked = np.zeros(n, dtype=bool)
    marked[rows] = True
    return marked
