"""The deterministic tree as an ONNX model, in double precision, for any runtime."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.description import features_of, trees_of
from bayestree.export._onnx_graph import check_size, model_of, package
from bayestree.tables import Encoding
from bayestree.tree import LOG2, Tree

NEAR = 1e-9  # of log 2: rows with votes this close to it may go either way by rounding
ROWS = 1000  # rows compared at a time


class OnnxMismatchError(RuntimeError):
    """The predictions of a runtime differ from those of the tree."""


def export_onnx(
    tree: object, *, X: ArrayLike | None = None, inputs: Literal["features", "columns"] = "features"
) -> bytes:
    """Write a tree as an ONNX model that predicts without this package.

    The input ``X``, double (rows, features), holds features in the units of the data, in the order
    of ``features`` in the metadata. With ``inputs="columns"`` there is an input (rows) for each
    column of the table, by its name, and the model encodes them: doubles for numbers, NaN where
    they are missing; text for categories, empty where they are missing; doubles for dates, in days
    since 1970 (``encoding_.portable(X)`` gives them all). The outputs are

    - ``label`` (rows): the most probable class, as in ``classes_`` (for a Tree without an
      estimator its name, or its number if it has no name);
    - ``probabilities`` (rows, classes), in the order of ``classes`` in the metadata;
    - or, for regression, ``prediction`` (rows);
    - ``leaf``: number of the leaf that each row reaches, (rows), or (rows, trees) for a forest.

    The model is the deterministic tree (``tree_``): ``prediction="tree"`` predicts the same.
    The runtime computes what :class:`bayestree.tree.Tree` does; only rows within rounding error
    of a border (1e-16 relative to its terms) may fall on the other side. Prediction takes eight
    bytes per row and expert of the largest tree: pass a large table in parts.

    Parameters
    ----------
    tree : Tree, or a fitted estimator
        With linear splits. A forest predicts the mean of its trees.
    X : array or DataFrame, shape (n, d), optional
        Rows on which the model is run by ``onnxruntime`` and compared with the tree.
    inputs : {"features", "columns"}
        What the model takes. Columns need a fitted estimator, and names other than those of the
        outputs.

    Returns
    -------
    bytes
        The content of a ``.onnx`` file, as ``onnxruntime.InferenceSession`` takes it.

    Raises
    ------
    NotFittedError, TypeError
        If ``tree`` is not a tree with linear splits or a fitted estimator of one.
    ValueError
        If the model exceeds two gigabytes, the maximum of one ONNX file, or a column has the name
        of an output.
    ImportError
        If ``onnx`` is not installed or, with ``X``, ``onnxruntime``.
    OnnxMismatchError
        If the runtime sends a row of ``X`` to another leaf, or predicts differently.

    Examples
    --------
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import BivariateTreeClassifier, export_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BivariateTreeClassifier(max_depth=2).fit(X, y)
    >>> Path("iris.onnx").write_bytes(export_onnx(clf, X=X))  # doctest: +SKIP
    """
    if inputs not in ("features", "columns"):
        raise ValueError(f"inputs must be 'features' or 'columns', got {inputs!r}.")
    trees = _linear(tree)
    check_size(trees)
    encoding = _encoding(tree) if inputs == "columns" else None
    model = model_of(trees, getattr(tree, "classes_", None), encoding)
    content: bytes = model.SerializeToString()
    if X is not None:
        check_onnx(content, tree, X)
    return content


def check_onnx(content: bytes, tree: object, X: ArrayLike) -> int:
    """Run an ONNX model with ``onnxruntime`` and compare it with its tree.

    Returns the number of rows that reach another leaf because they lie within rounding error of a
    border.

    Raises
    ------
    ImportError
        If ``onnxruntime`` is not installed.
    OnnxMismatchError
        If any other row reaches another leaf, or predictions differ by more than rounding.
    """
    runtime = package("onnxruntime")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    trees, rows = _linear(tree), features_of(tree, X)
    takes_features = "columns" not in session.get_modelmeta().custom_metadata_map
    given = {"X": rows} if takes_features else _encoding(tree).portable(X)
    near = 0
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        feed = {name: values[part] for name, values in given.items()}
        found = dict(zip(names, session.run(None, feed), strict=True))
        near += _compare(trees, rows[part], found)
    return near


def _encoding(tree: object) -> Encoding:
    """The encoding of columns of a fitted estimator."""
    found: Encoding | None = getattr(tree, "encoding_", None)
    if found is None:
        raise TypeError(
            f"a {type(tree).__name__} has no columns; pass a fitted estimator, or use "
            "inputs='features'."
        )
    return found


def _compare(trees: Sequence[Tree], X: FloatArray, found: dict[str, AnyArray]) -> int:
    """Number of rows at a border, after a check of the leaves and predictions of all others."""
    leaves = found["leaf"].reshape(len(X), len(trees))
    total, other = np.zeros_like(trees[0].value[:1]), np.zeros(len(X), dtype=bool)
    for tree, leaf in zip(trees, leaves.T, strict=True):
        differ = np.flatnonzero(tree.apply(X) != leaf)
        far = [row for row in differ.tolist() if not _is_near(tree, X[row : row + 1])]
        if far:
            raise OnnxMismatchError(
                f"onnxruntime and the tree send {len(far)} of {len(X)} rows to different leaves."
            )
        other[differ] = True
        total = total + tree.predict(X)
    expected = total / len(trees)
    value = found["probabilities" if "probabilities" in found else "prediction"]
    if not np.allclose(value[~other], expected[~other], rtol=1e-9, atol=1e-12):
        raise OnnxMismatchError(
            "onnxruntime reaches the leaves of the tree but predicts differently."
        )
    return int(other.sum())


def _is_near(tree: Tree, row: FloatArray) -> bool:
    """Whether a row (1, d) passes a border on its path within rounding error."""
    return any(abs(float(tree.score(v, row)[0]) / LOG2 - 1) < NEAR for v, _, _ in tree.walk(row))


def _linear(tree: object) -> list[Tree]:
    """The trees of an estimator, all with linear splits."""
    found = trees_of(tree)
    if not getattr(tree, "_averaged", True):
        raise TypeError(
            f"{type(tree).__name__} multiplies the probabilities of its trees, but a model has "
            "their mean; export its trees one by one, estimators_[0], ..., and multiply them."
        )
    linear = [one for one in found if isinstance(one, Tree)]
    if len(linear) < len(found):
        raise TypeError(
            f"tree must have linear splits, but its splits are of the kind "
            f"{found[0].split_name!r}; export their modules with torch.onnx.export."
        )
    return linear
