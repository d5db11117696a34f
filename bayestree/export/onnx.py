"""The deterministic tree as an ONNX model, in double precision, for any runtime."""

import json
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, DTypeLike

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree._version import __version__
from bayestree.description import features_of, trees_of
from bayestree.tables import Categories, Column, Dates, Encoding
from bayestree.tree import LOG2, Tree, facet_threshold

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # from 2022, for ONNX 1.12 and later
OUTPUTS = ("label", "probabilities", "prediction", "leaf")
UNKNOWN = "\0"  # no level of a column
ML = "ai.onnx.ml"
MAX_BYTES = 2**31 - 2**20  # limit of a protocol buffer, less room for everything but numbers
NEAR = 1e-9  # of log 2: rows with votes this close to it may go either way by rounding
ROWS = 1000  # rows compared at a time


class OnnxMismatchError(RuntimeError):
    """The predictions of a runtime differ from the predictions of the tree."""


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
    _check_size(trees)
    encoding = _encoding(tree) if inputs == "columns" else None
    model = _model_of(trees, getattr(tree, "classes_", None), encoding)
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
    runtime = _package("onnxruntime")
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
    """Return the encoding of columns of a fitted estimator."""
    found: Encoding | None = getattr(tree, "encoding_", None)
    if found is None:
        raise TypeError(
            f"a {type(tree).__name__} has no columns; pass a fitted estimator, or use "
            "inputs='features'."
        )
    return found


def _compare(trees: Sequence[Tree], X: FloatArray, found: dict[str, AnyArray]) -> int:
    """Count the rows at a border, and check the leaves and predictions of all others."""
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
    """Tell whether a row (1, d) passes a border on its path within rounding error."""
    return any(abs(float(tree.score(v, row)[0]) / LOG2 - 1) < NEAR for v, _, _ in tree.walk(row))


def _linear(tree: object) -> list[Tree]:
    """Return the trees of an estimator, all with linear splits."""
    found = trees_of(tree)
    linear = [one for one in found if isinstance(one, Tree)]
    if len(linear) < len(found):
        raise TypeError(
            f"tree must have linear splits, but its splits are of the kind "
            f"{found[0].split_name!r}; export their modules with torch.onnx.export."
        )
    return linear


class _Graph:
    """Nodes and constants of a graph, named in the order in which they are added.

    ``prefix`` distinguishes names inside a loop from names outside, and from columns;
    ``features`` is the name of the features (rows, d).
    """

    def __init__(self, onnx: ModuleType, prefix: str = "") -> None:
        self.onnx = onnx
        self.prefix = prefix
        self.features = "X"
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: ArrayLike) -> str:
        """Add a constant of text, integers, doubles or booleans; return its name."""
        array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
        name = f"{self.prefix}constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        """Add a node of the operator ``kind``; return the name of its output.

        An input is a name, or the values of a constant.
        """
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        output = name or f"{self.prefix}{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def value(self, name: str, dtype: DTypeLike, shape: Sequence[int | str]) -> Any:
        """Describe an input or output of the graph."""
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)


def _package(name: str) -> ModuleType:
    """Import a package that only this export needs."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"ONNX export needs the package {name}; run pip install 'bayestree[export]'."
        ) from error


def _check_size(trees: Sequence[Tree]) -> None:
    """Refuse trees that do not fit in one file."""
    n_bytes = sum(
        array.nbytes for tree in trees for array in (*tree.arrays().values(), _experts(tree))
    )
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"tree takes {n_bytes / 2**30:.1f} GB, but one ONNX file holds 2; grow smaller trees, "
            "or export the trees of a forest one by one."
        )


def _model_of(trees: Sequence[Tree], classes: AnyArray | None, encoding: Encoding | None) -> Any:
    """Make the model of one tree, or of the mean of several with the same features and classes.

    ``classes`` are the labels; by default the class names of the trees. The input is the features
    or, with an ``encoding``, the columns that it encodes.
    """
    graph, first = _Graph(_package("onnx"), "" if encoding is None else "tree/"), trees[0]
    columns: list[str] = []
    if encoding is None:
        inputs = [graph.value("X", np.float64, ["rows", first.n_features])]
    else:
        inputs = _columns(graph, encoding)
        columns = [one.name for one in inputs]
    leaves, values = zip(
        *(_tree(graph, one, f"tree{t}_") for t, one in enumerate(trees)), strict=True
    )
    outputs = [*_predictions(graph, first, classes, values), _leaves(graph, leaves)]
    helper = graph.onnx.helper
    opsets = [("", OPSET), (ML, ML_OPSET)] if columns else [("", OPSET)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "tree", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid(*one) for one in opsets],
        ir_version=IR_VERSION,
        producer_name="bayestree",
        producer_version=__version__,
    )
    n_classes = 0 if first.value.ndim == 1 else first.value.shape[1]
    known = first.class_names if n_classes and first.class_names else [*map(str, range(n_classes))]
    names = {"features": first.feature_names, "columns": columns, "classes": known}
    helper.set_model_props(model, {k: json.dumps(v) for k, v in names.items() if v})
    graph.onnx.checker.check_model(model, full_check=True)
    return model


def _predictions(
    graph: _Graph, tree: Tree, classes: AnyArray | None, values: Sequence[str]
) -> list[Any]:
    """Add the mean prediction of the trees, and the label; return the outputs of the graph."""
    total = values[0]
    for value in values[1:]:
        total = graph.add("Add", total, value)
    name = "prediction" if tree.value.ndim == 1 else "probabilities"
    graph.add("Div", total, float(len(values)), name=name)
    if tree.value.ndim == 1:
        return [graph.value(name, np.float64, ["rows"])]
    best = graph.add("ArgMax", name, axis=1, keepdims=0)
    labels = _labels(tree, classes)
    graph.add("Gather", labels, best, name="label")
    return [
        graph.value("label", labels.dtype, ["rows"]),
        graph.value(name, np.float64, ["rows", tree.value.shape[1]]),
    ]


def _labels(tree: Tree, classes: AnyArray | None) -> AnyArray:
    """Return labels in a type of ONNX: integers, doubles, booleans or text."""
    if classes is None:
        if tree.class_names:
            return np.array(tree.class_names, dtype=object)
        return np.arange(tree.value.shape[1])
    kind = {"i": np.int64, "u": np.int64, "b": np.bool_, "f": np.float64}.get(classes.dtype.kind)
    if kind is None:
        return np.array([*map(str, classes)], dtype=object)  # dates as in ISO 8601
    if classes.dtype.kind == "u" and (classes > np.iinfo(np.int64).max).any():
        raise ValueError(
            f"label {classes.max()} is too large for an ONNX model, whose integers have 64 bits "
            "with a sign; fit to labels of text, y.astype(str)."
        )
    return classes.astype(kind)


def _leaves(graph: _Graph, leaves: Sequence[str]) -> Any:
    """Add the leaves of all trees as one output of the graph."""
    if len(leaves) == 1:
        graph.add("Identity", leaves[0], name="leaf")
        return graph.value("leaf", np.int64, ["rows"])
    columns = [graph.add("Unsqueeze", leaf, [1]) for leaf in leaves]
    graph.add("Concat", *columns, axis=1, name="leaf")
    return graph.value("leaf", np.int64, ["rows", len(leaves)])


def _tree(graph: _Graph, tree: Tree, name: str) -> tuple[str, str]:
    """Add one tree; return the names of the leaf and of the value of each row.

    Its places are its nodes 0..V-1, and its leaves V..V+L-1, which loop.
    """
    single = tree.n_facets == 1
    # a single expert decides by its activation, as in Tree, because softplus would round its border
    limits = np.full(tree.n_nodes + tree.n_leaves, LOG2)
    limits[: tree.n_nodes][single] = facet_threshold(tree.weight[tree.expert_start[:-1][single]])
    votes = _votes(graph, tree, np.append(np.repeat(single, tree.n_facets), True))
    tables = [graph.constant(one) for one in (_experts(tree), limits, _children(tree))]
    n_rows = graph.add("Gather", graph.add("Shape", graph.features), [0])
    zero = graph.onnx.numpy_helper.from_array(np.zeros(1, dtype=np.int64))
    root = graph.add("ConstantOfShape", n_rows, value=zero)
    body = _level(_Graph(graph.onnx, f"{graph.prefix}{name}level_"), votes, *tables)
    place = graph.add("Loop", tree.depth, "", root, body=body)
    leaf = graph.add("Sub", place, tree.n_nodes)
    values = tree.value.astype(np.float64)
    if tree.slope is None:
        return leaf, graph.add("Gather", values, leaf)
    classifies = values.ndim == 2
    if classifies:
        # probabilities of 0, whose logarithm is infinite, would give NaN
        values = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    slope = graph.add("Gather", tree.slope, leaf)
    move = graph.add("Sub", graph.features, tree.center)
    if classifies:
        move = graph.add("Unsqueeze", move, [1])
    more = graph.add("ReduceSum", graph.add("Mul", slope, move), [values.ndim], keepdims=0)
    total = graph.add("Add", graph.add("Gather", values, leaf), more)
    return leaf, graph.add("Softmax", total, axis=1) if classifies else total


def _votes(graph: _Graph, tree: Tree, alone: BoolArray) -> str:
    """Add the vote of every expert on every row, or its activation if ``alone``; (rows, E + 1).

    The last expert has weight 0 and pads the tables of nodes with fewer experts.
    """
    plane = np.vstack([tree.hyperplane, np.zeros(tree.n_features)]).astype(np.float64)
    offset, weight = (
        np.append(one, 0.0).astype(np.float64) for one in (tree.intercept, tree.weight)
    )
    activation = graph.add("Add", graph.add("MatMul", graph.features, plane.T), offset)
    if alone.all():
        return activation
    vote = graph.add("Mul", _softplus(graph, activation), weight)
    return graph.add("Where", alone, activation, vote)


def _softplus(graph: _Graph, x: str) -> str:
    """Add max(x, 0) + log1p(exp(-|x|)): runtimes lack log1p and a double-precision softplus.

    log1p(e) is log(u) e / (u - 1) with u = 1 + e rounded, accurate to the last digits (Kahan).
    """
    one = graph.constant(1.0)
    small = graph.add("Exp", graph.add("Neg", graph.add("Abs", x)))
    rounded = graph.add("Add", small, one)
    ratio = graph.add("Div", small, graph.add("Sub", rounded, one))
    log1p = graph.add("Mul", graph.add("Log", rounded), ratio)
    log1p = graph.add("Where", graph.add("Equal", rounded, one), small, log1p)
    return graph.add("Add", graph.add("Max", x, 0.0), log1p)


def _level(graph: _Graph, votes: str, experts: str, limits: str, children: str) -> Any:
    """Make the body of the loop: every row descends one level."""
    start, running, place = (f"{graph.prefix}{name}" for name in ("start", "running", "place"))
    node_votes = graph.add("GatherElements", votes, graph.add("Gather", experts, place), axis=1)
    score = graph.add("ReduceSum", node_votes, [1], keepdims=0)
    above = graph.add("Greater", score, graph.add("Gather", limits, place))
    right = graph.add("Cast", above, to=graph.onnx.TensorProto.INT64)
    at = graph.add("Add", graph.add("Mul", place, 2), right)
    still = graph.add("Identity", running)
    child = graph.add("Gather", children, at)
    inputs = [
        graph.value(start, np.int64, []),
        graph.value(running, np.bool_, []),
        graph.value(place, np.int64, ["rows"]),
    ]
    outputs = [graph.value(still, np.bool_, []), graph.value(child, np.int64, ["rows"])]
    return graph.onnx.helper.make_graph(graph.nodes, "level", inputs, outputs, graph.constants)


def _experts(tree: Tree) -> IntArray:
    """Return the experts of each place, shape (V + L, K), padded with the expert of weight 0."""
    widest = int(tree.n_facets.max(initial=1))
    table = np.full((tree.n_nodes + tree.n_leaves, widest), tree.n_experts_total, dtype=np.int64)
    for node in range(tree.n_nodes):
        experts = tree.experts(node)
        table[node, : tree.n_facets[node]] = np.arange(experts.start, experts.stop)
    return table


def _children(tree: Tree) -> IntArray:
    """Return the places left and right below each, (2 (V + L),); leaves lead to themselves."""
    below = tree.topology.children
    below = np.where(below >= 0, below, tree.n_nodes + ~below)
    leaves = tree.n_nodes + np.arange(tree.n_leaves)
    return np.concatenate([below.reshape(-1), np.repeat(leaves, 2)])


def _columns(graph: _Graph, encoding: Encoding) -> list[Any]:
    """Add the encoding of columns as the features of the graph; return its inputs, (rows) each."""
    inputs, parts = [], []
    for column in encoding.columns:
        if column.name in ("", *OUTPUTS):
            raise ValueError(
                f"column {column.name!r} cannot be an input of an ONNX model, which needs a name "
                "other than those of the outputs; rename it, or use inputs='features'."
            )
        is_text = isinstance(column, Categories)
        inputs.append(graph.value(column.name, object if is_text else np.float64, ["rows"]))
        parts.append((_levels if is_text else _numbers)(graph, column))
    graph.features = graph.add("Concat", *parts, axis=1)
    return inputs


def _levels(graph: _Graph, column: Column) -> str:
    """Add the features of categories: of each level, of unknown ones, and of missing ones."""
    levels = [*column.levels]
    blocks = column.encode(pd.Series([*levels, UNKNOWN, None], dtype=object, name=column.name))
    keys = dict.fromkeys([""], len(levels) + 1) | {level: code for code, level in enumerate(levels)}
    code = graph.add(
        "LabelEncoder",
        column.name,
        domain=ML,
        keys_strings=[*keys],
        values_int64s=[*keys.values()],
        default_int64=len(levels),
    )
    return graph.add("Gather", blocks, code)


def _numbers(graph: _Graph, column: Column) -> str:
    """Add the features of a number or a date, with the mean in the place of a missing value."""
    given = found = graph.add("Unsqueeze", column.name, [1])
    missing = graph.add("IsNaN", given)
    if isinstance(column, Dates):
        parts = _date_parts(graph, given)
        found = graph.add("Concat", *(parts[part] for part in column.parts), axis=1)
    if column.fill is not None:
        found = graph.add("Where", missing, np.array([column.fill]), found)
    if not column.gaps:
        return found
    mark = graph.add("Cast", missing, to=graph.onnx.TensorProto.DOUBLE)
    return graph.add("Concat", found, mark, axis=1)


def _date_parts(graph: _Graph, days: str) -> dict[str, str]:
    """Add the parts of days since 1970, by Hinnant's algorithm (chrono-compatible dates)."""
    add = graph.add

    def whole(value: str, divisor: float) -> str:
        return add("Floor", add("Div", value, divisor))

    def rest(value: str, divisor: float) -> str:
        return add("Sub", value, add("Mul", whole(value, divisor), divisor))

    day = add("Floor", days)
    # Years start in March, in eras of 400 years.
    of_era = rest(add("Add", day, 719468.0), 146097.0)
    leap = add(
        "Sub", whole(of_era, 36524.0), add("Add", whole(of_era, 1460.0), whole(of_era, 146096.0))
    )
    year = whole(add("Add", of_era, leap), 365.0)
    before = add("Sub", add("Add", add("Mul", year, 365.0), whole(year, 4.0)), whole(year, 100.0))
    of_year = add("Sub", of_era, before)
    march = whole(add("Add", add("Mul", of_year, 5.0), 2.0), 153.0)  # months since March
    start = whole(add("Add", add("Mul", march, 153.0), 2.0), 5.0)
    return {
        "days": days,
        "month": add("Add", rest(add("Add", march, 2.0), 12.0), 1.0),
        "day": add("Add", add("Sub", of_year, start), 1.0),
        "weekday": rest(add("Add", day, 3.0), 7.0),
        "hour": add("Mul", add("Sub", days, day), 24.0),
    }
