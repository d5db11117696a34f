"""The tree of a run, in a form that other programs and people read."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestree.diagnostics.draws import spread
from bayestree.report.dot import export_dot
from bayestree.report.json import export_json
from bayestree.report.onnx import check_onnx, export_onnx
from bayestree.report.rules import export_rules
from bayestree.report.text import export_text
from bayestree.runs.folder import MANIFEST
from bayestree.runs.store import open_run
from bayestree.tables import InputError

WRITERS: dict[str, Callable[..., str | bytes]] = {
    "text": export_text,
    "rules": export_rules,
    "json": export_json,
    "dot": export_dot,
    "onnx": export_onnx,
}
SUFFIXES = {".txt": "text", ".json": "json", ".dot": "dot", ".gv": "dot", ".onnx": "onnx"}
COMPARED = 10_000  # rows of the data at which a model is compared, evenly spread
MADE_UP = 1000  # where there are none


class Checked(NamedTuple):
    """A comparison of an ONNX model with the tree.

    Attributes
    ----------
    rows : int
        Number of them that were compared.
    at_border : int
        Those that fall on the other side of a split within rounding.
    source : str
        Where the rows are from.
    """

    rows: int
    at_border: int
    source: str


def format_of(name: str | None, out: Path | None) -> str:
    """The format of an export: by its name, else by that of the file, else text.

    Raises
    ------
    InputError
        If neither tells.
    """
    if name is not None:
        return name
    if out is None:
        return "text"
    if out.suffix not in SUFFIXES:
        raise InputError(
            f"--out {str(out)!r} does not tell the format; end it in {', '.join(SUFFIXES)}, or add "
            f"--format, one of {', '.join(WRITERS)}."
        )
    return SUFFIXES[out.suffix]


def exported(estimator: Any, kind: str, **limits: int | None) -> str | bytes:
    """A fitted tree in one of the formats.

    Parameters
    ----------
    estimator : a fitted estimator
    kind : {"text", "rules", "json", "dot", "onnx"}
    **limits : int, optional
        ``max_features``, ``max_facets`` and ``decimals``, where they are not those of the format
        itself.

    Returns
    -------
    str or bytes

    Raises
    ------
    InputError
        If the format cannot hold this tree, has no such limit, or needs a package that is not
        installed.
    """
    writer = WRITERS[kind]
    given = {name: value for name, value in limits.items() if value is not None}
    foreign = given.keys() - inspect.signature(writer).parameters.keys()
    if foreign:
        raise InputError(
            f"{kind} shows all of the tree: leave out --{min(foreign).replace('_', '-')}."
        )
    try:
        return writer(estimator, **given)
    except (TypeError, ValueError, ImportError) as error:
        raise InputError(f"{kind}: {error}") from error


def checked(content: bytes, folder: Path, estimator: Any) -> Checked:
    """Run an ONNX model on rows of its run, at most 10,000, and compare it with the tree.

    Where the rows cannot be had again, or there is no run around the model, rows are made up
    about where those of the fit were.

    Raises
    ------
    ImportError
        If ``onnxruntime`` is not installed.
    bayestree.report.onnx.OnnxMismatchError
        If the two differ.
    """
    X, source = _rows(folder, estimator)
    return Checked(len(X), check_onnx(content, estimator, X), source)


def _rows(folder: Path, estimator: Any) -> tuple[NDArray[np.float64], str]:
    if (folder / MANIFEST).is_file():
        try:
            rows = open_run(folder).rows()
        except (InputError, OSError):
            pass  # the data has gone, or is another by now
        else:
            X = rows.X.iloc[spread(len(rows.X), COMPARED)]
            return X.to_numpy(dtype=np.float64), "training rows"
    tree = getattr(estimator, "estimators_", [estimator])[0].tree_
    normal = np.random.default_rng(0).normal(size=(MADE_UP, tree.n_features))
    return tree.center + tree.scale * normal, "rows that were made up"
