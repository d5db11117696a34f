"""The tree of a run in formats for other programs and for people."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayestree.diagnostics.draws import spread
from bayestree.export.dot import export_dot
from bayestree.export.json import export_json
from bayestree.export.onnx import check_onnx, export_onnx
from bayestree.export.rules import export_rules
from bayestree.export.text import export_text
from bayestree.runs.folder import MANIFEST
from bayestree.runs.store import open_run
from bayestree.tables import Encoding, Features, InputError, located, open_table

WRITERS: dict[str, Callable[..., str | bytes]] = {
    "text": export_text,
    "rules": export_rules,
    "json": export_json,
    "dot": export_dot,
    "onnx": export_onnx,
}
SUFFIXES = {".txt": "text", ".json": "json", ".dot": "dot", ".gv": "dot", ".onnx": "onnx"}
COMPARED = 10_000  # maximum number of rows on which an ONNX model is compared
SIMULATED = 1000  # number of simulated rows if the data is unavailable


class Checked(NamedTuple):
    """A comparison of an ONNX model with the tree, by numbers of rows and their origin.

    ``at_border`` counts rows that fall on the other side of a split because of rounding.
    """

    rows: int
    at_border: int
    source: str


def format_of(name: str | None, out: Path | None) -> str:
    """The format of an export: the given one, else by the name of the file, else text."""
    if name is not None:
        return name
    if out is None:
        return "text"
    if out.suffix not in SUFFIXES:
        raise InputError(
            f"--out {str(out)!r} does not indicate the format; end it in {', '.join(SUFFIXES)}, or "
            f"add --format with one of {', '.join(WRITERS)}."
        )
    return SUFFIXES[out.suffix]


def exported(estimator: Any, kind: str, **limits: Any) -> str | bytes:
    """Export a fitted tree in one of the formats.

    ``limits`` are ``max_features``, ``max_facets`` and ``decimals``, and ``inputs`` of ONNX; None
    for the defaults of the format. An InputError reports that the format cannot represent this
    tree, has no such limit, or requires a package that is not installed.
    """
    writer = WRITERS[kind]
    limits = {name: value for name, value in limits.items() if value is not None}
    unsupported = limits.keys() - inspect.signature(writer).parameters.keys()
    if unsupported:
        option = min(unsupported).replace("_", "-")
        raise InputError(f"the format {kind} always shows the whole tree; omit --{option}.")
    try:
        return writer(estimator, **limits)
    except (TypeError, ValueError, ImportError) as error:
        raise InputError(f"{kind}: {error}") from error


def checked(content: bytes, folder: Path, estimator: Any, *, columns: bool = False) -> Checked:
    """Compare an ONNX model with its tree on at most 10,000 rows of its run.

    If the rows are unavailable, or the model does not belong to a run, rows with a similar
    location and scale are simulated, but not for a model of ``columns``: an InputError says so.
    Raises an ImportError if ``onnxruntime`` is not installed, and an OnnxMismatchError if the two
    differ.
    """
    X, source = _table(folder, estimator.encoding_) if columns else _rows(folder, estimator)
    return Checked(len(X), check_onnx(content, estimator, X), source)


def _table(folder: Path, encoding: Encoding) -> tuple[pd.DataFrame, str]:
    """The first rows of the table of a run."""
    if not (folder / MANIFEST).is_file():
        raise InputError("the model does not belong to a run, whose rows are needed.")
    path = open_run(folder).file.data.path
    with located(path):
        frame = next(open_table(path, encoding.text, codes=lambda _: encoding.codes).chunks())
    return frame[[*encoding.names]].head(COMPARED), "rows of the table"


def _rows(folder: Path, estimator: Any) -> tuple[pd.DataFrame, str]:
    if (folder / MANIFEST).is_file():
        try:
            rows = open_run(folder).rows()
        except (InputError, OSError):
            pass  # the data is missing or has changed
        else:
            return rows.X.iloc[spread(len(rows.X), COMPARED)], "training rows"
    tree = getattr(estimator, "estimators_", [estimator])[0].tree_
    normal = np.random.default_rng(0).normal(size=(SIMULATED, tree.n_features))
    X = Features.of(tree.center + tree.scale * normal, estimator.encoding_)
    return X, "simulated rows"
