"""Deterministic trees, and the encoding of the columns of a table, as a graph of ONNX operators."""

import json
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, DTypeLike

from bayestree._utils.arrays import AnyArray, BoolArray, IntArray
from bayestree._version import __version__
from bayestree.tables import Categories, Column, Dates, Encoding
from bayestree.tree import LOG2, Tree, facet_threshold

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # from 2022, for ONNX 1.12 and later
ZERO = np.zeros(1, dtype=np.int64)
OUTPUTS = ("label", "probabilities", "prediction", "leaf")
UNKNOWN = "\0"  # no level of a column
ML = "ai.onnx.ml"
MAX_BYTES = 2**31 - 2**20  # limit of a protocol buffer, less room for everything but numbers


class Outputs(NamedTuple):
    """Names in the graph of the outputs of one tree."""

    leaf: str
    value: str


class Graph:
    """Nodes and constants of a graph, named in the order in which they are added.

    ``prefix`` distinguishes names inside a loop from those outside, and from those of columns;
    ``features`` is the name of the features (rows, d).
    """

    def __init__(self, onnx: ModuleType, prefix: str = "", features: str = "X") -> None:
        self.onnx = onnx
        self.prefix = prefix
        self.features = features
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: ArrayLike) -> str:
        """Add a constant of text, integers, doubles or booleans; return its name."""
        array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
        if array.dtype.kind == "U":
            array = array.astype(object)
        name = f"{self.prefix}constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node of the operator ``kind``; return the name of its output."""
        output = name or f"{self.prefix}{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, [*inputs], [output], **attributes))
        return output

    def value(self, name: str, dtype: DTypeLike, shape: Sequence[int | str]) -> Any:
        """An input or output of the graph."""
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)


def package(name: str) -> ModuleType:
    """Import a package that only this export needs."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"ONNX export needs the package {name}; run pip install 'bayestree[export]'."
        ) from error


def check_size(trees: Sequence[Tree]) -> None:
    """Refuse trees that do not fit in one file."""
    n_bytes = sum(
        array.nbytes for tree in trees for array in (*tree.arrays().values(), _experts(tree))
    )
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"tree takes {n_bytes / 2**30:.1f} GB, but one ONNX file holds 2; grow smaller trees, "
            "or export those of a forest one by one."
        )


def model_of(
    trees: Sequence[Tree], classes: AnyArray | None, encoding: Encoding | None = None
) -> Any:
    """The ONNX model of one tree, or of the mean of several with the same features and classes.

    ``classes`` are the labels; by default the class names of the trees. The input is the features
    or, with an ``encoding``, the columns that it encodes.
    """
    graph, first = Graph(package("onnx"), "" if encoding is None else "tree/"), trees[0]
    if encoding is None:
        inputs = [graph.value("X", np.float64, ["rows", first.n_features])]
    else:
        inputs = _columns(graph, encoding)
    found = [_tree(graph, tree, f"tree{t}_") for t, tree in enumerate(trees)]
    outputs = _predictions(graph, first, classes, [one.value for one in found])
    outputs.append(_leaves(graph, [one.leaf for one in found]))
    helper = graph.onnx.helper
    opsets = [("", OPSET), *([(ML, ML_OPSET)] if encoding is not None else [])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "tree", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid(*one) for one in opsets],
        ir_version=IR_VERSION,
        producer_name="bayestree",
        producer_version=__version__,
    )
    columns = [one.name for one in inputs] if encoding is not None else []
    names = {
        "features": first.feature_names,
        "columns": columns,
        "classes": _class_names(first),
    }
    helper.set_model_props(model, {k: json.dumps(v) for k, v in names.items() if v})
    graph.onnx.checker.check_model(model, full_check=True)
    return model


def _predictions(
    graph: Graph, tree: Tree, classes: AnyArray | None, values: Sequence[str]
) -> list[Any]:
    """Add the mean prediction of the trees, and the label; return the outputs of the graph."""
    total = values[0]
    for value in values[1:]:
        total = graph.add("Add", total, value)
    mean = graph.constant(float(len(values)))
    if tree.value.ndim == 1:
        graph.add("Div", total, mean, name="prediction")
        return [graph.value("prediction", np.float64, ["rows"])]
    graph.add("Div", total, mean, name="probabilities")
    best = graph.add("ArgMax", "probabilities", axis=1, keepdims=0)
    labels = _labels(tree, classes)
    graph.add("Gather", graph.constant(labels), best, name="label")
    return [
        graph.value("label", labels.dtype, ["rows"]),
        graph.value("probabilities", np.float64, ["rows", tree.value.shape[1]]),
    ]


def _class_names(tree: Tree) -> tuple[str, ...]:
    """Names of the classes, or their numbers; empty for regression."""
    if tree.value.ndim == 1:
        return ()
    return tree.class_names or tuple(str(c) for c in range(tree.value.shape[1]))


def _labels(tree: Tree, classes: AnyArray | None) -> AnyArray:
    """Labels in a type of ONNX: integers, doubles, booleans or text."""
    if classes is None:
        n_classes = tree.value.shape[1]
        return (
            np.array(tree.class_names, dtype=object) if tree.class_names else np.arange(n_classes)
        )
    kind = {"i": np.int64, "u": np.int64, "b": np.bool_, "f": np.float64}.get(classes.dtype.kind)
    if kind is None:
        return np.array([*map(str, classes)], dtype=object)  # dates as in ISO 8601
    if classes.dtype.kind == "u" and (classes > np.iinfo(np.int64).max).any():
        raise ValueError(
            f"label {classes.max()} is too large for an ONNX model, whose integers have 64 bits "
            "with a sign; fit to labels of text, y.astype(str)."
        )
    return classes.astype(kind)


def _leaves(graph: Graph, leaves: Sequence[str]) -> Any:
    """Add the leaves of all trees as one output of the graph."""
    if len(leaves) == 1:
        graph.add("Identity", leaves[0], name="leaf")
        return graph.value("leaf", np.int64, ["rows"])
    axis = graph.constant([1])
    columns = [graph.add("Unsqueeze", leaf, axis) for leaf in leaves]
    graph.add("Concat", *columns, axis=1, name="leaf")
    return graph.value("leaf", np.int64, ["rows", len(leaves)])


def _tree(graph: Graph, tree: Tree, name: str) -> Outputs:
    """Add one tree. Its places are its nodes 0..V-1, and its leaves V..V+L-1, which loop."""
    single = tree.n_facets == 1
    # a single expert decides by its activation, as in Tree, because softplus would round its border
    limits = np.full(tree.n_nodes + tree.n_leaves, LOG2)
    limits[: tree.n_nodes][single] = facet_threshold(tree.weight[tree.expert_start[:-1][single]])
    votes = _votes(graph, tree, np.append(np.repeat(single, tree.n_facets), True))
    tables = [graph.constant(one) for one in (_experts(tree), limits, _children(tree))]
    n_rows = graph.add("Gather", graph.add("Shape", graph.features), graph.constant([0]))
    root = graph.add("ConstantOfShape", n_rows, value=graph.onnx.numpy_helper.from_array(ZERO))
    body = _level(Graph(graph.onnx, f"{graph.prefix}{name}level_"), votes, *tables)
    place = graph.add("Loop", graph.constant(tree.depth), "", root, body=body)
    leaf = graph.add("Sub", place, graph.constant(tree.n_nodes))
    values = tree.value.astype(np.float64)
    if tree.slope is None:
        return Outputs(leaf, graph.add("Gather", graph.constant(values), leaf))
    classifies = values.ndim == 2
    if classifies:
        # probabilities of 0, whose logarithm is infinite, would give NaN
        values = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    slope = graph.add("Gather", graph.constant(tree.slope), leaf)
    move = graph.add("Sub", graph.features, graph.constant(tree.center))
    if classifies:
        move = graph.add("Unsqueeze", move, graph.constant([1]))
    terms = graph.add("Mul", slope, move)
    more = graph.add("ReduceSum", terms, graph.constant([values.ndim]), keepdims=0)
    total = graph.add("Add", graph.add("Gather", graph.constant(values), leaf), more)
    return Outputs(leaf, graph.add("Softmax", total, axis=1) if classifies else total)


def _votes(graph: Graph, tree: Tree, alone: BoolArray) -> str:
    """Vote of every expert on every row, or its activation if it is ``alone``; (rows, E + 1).

    The last expert has weight 0 and pads the tables of nodes with fewer experts.
    """
    plane = np.vstack([tree.hyperplane, np.zeros(tree.n_features)]).astype(np.float64)
    offset = np.append(tree.intercept, 0.0).astype(np.float64)
    activation = graph.add(
        "Add", graph.add("MatMul", graph.features, graph.constant(plane.T)), graph.constant(offset)
    )
    if alone.all():
        return activation
    weight = graph.constant(np.append(tree.weight, 0.0).astype(np.float64))
    vote = graph.add("Mul", _softplus(graph, activation), weight)
    return graph.add("Where", graph.constant(alone), activation, vote)


def _softplus(graph: Graph, x: str) -> str:
    """max(x, 0) + log1p(exp(-|x|)), because runtimes lack log1p and a double-precision softplus.

    log1p(e) is log(u) e / (u - 1) with u = 1 + e rounded, accurate to the last digits (Kahan).
    """
    zero, one = graph.constant(0.0), graph.constant(1.0)
    small = graph.add("Exp", graph.add("Neg", graph.add("Abs", x)))
    rounded = graph.add("Add", small, one)
    ratio = graph.add("Div", small, graph.add("Sub", rounded, one))
    log1p = graph.add("Mul", graph.add("Log", rounded), ratio)
    log1p = graph.add("Where", graph.add("Equal", rounded, one), small, log1p)
    return graph.add("Add", graph.add("Max", x, zero), log1p)


def _level(graph: Graph, votes: str, experts: str, limits: str, children: str) -> Any:
    """Body of the loop: every row descends one level."""
    start, running, place = (f"{graph.prefix}{name}" for name in ("start", "running", "place"))
    node_votes = graph.add("GatherElements", votes, graph.add("Gather", experts, place), axis=1)
    score = graph.add("ReduceSum", node_votes, graph.constant([1]), keepdims=0)
    above = graph.add("Greater", score, graph.add("Gather", limits, place))
    right = graph.add("Cast", above, to=graph.onnx.TensorProto.INT64)
    at = graph.add("Add", graph.add("Mul", place, graph.constant(2)), right)
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
    """Experts of each place, shape (V + L, K), padded with the expert of weight 0."""
    widest = int(tree.n_facets.max(initial=1))
    table = np.full((tree.n_nodes + tree.n_leaves, widest), tree.n_experts_total, dtype=np.int64)
    for node in range(tree.n_nodes):
        experts = tree.experts(node)
        table[node, : tree.n_facets[node]] = np.arange(experts.start, experts.stop)
    return table


def _children(tree: Tree) -> IntArray:
    """Places below each place, left and right, shape (2 (V + L),); leaves lead to themselves."""
    below = tree.topology.children
    below = np.where(below >= 0, below, tree.n_nodes + ~below)
    leaves = tree.n_nodes + np.arange(tree.n_leaves)
    return np.concatenate([below.reshape(-1), np.repeat(leaves, 2)])


def _columns(graph: Graph, encoding: Encoding) -> list[Any]:
    """Add the encoding of columns as the features of the graph; return its inputs, (rows) each."""
    inputs, parts = [], []
    for column in encoding.columns:
        if column.name in ("", *OUTPUTS):
            raise ValueError(
                f"column {column.name!r} cannot be an input of an ONNX model, which needs a name "
                "other than those of the outputs; rename it, or use inputs='features'."
            )
        kind = object if isinstance(column, Categories) else np.float64
        inputs.append(graph.value(column.name, kind, ["rows"]))
        if isinstance(column, Categories):
            parts.append(_levels(graph, column))
        else:
            parts.append(_numbers(graph, column))
    graph.features = graph.add("Concat", *parts, axis=1)
    return inputs


def _levels(graph: Graph, column: Column) -> str:
    """The features of categories: those of each level, of unknown ones, and of missing ones."""
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
    return graph.add("Gather", graph.constant(blocks), code)


def _numbers(graph: Graph, column: Column) -> str:
    """The features of a number or a date, with the mean in the place of a missing value."""
    axis = graph.constant([1])
    given = graph.add("Unsqueeze", column.name, axis)
    missing = graph.add("IsNaN", given)
    if isinstance(column, Dates):
        parts = _date_parts(graph, given)
        found = graph.add("Concat", *(parts[part] for part in column.parts), axis=1)
    else:
        found = given
    if column.fill is not None:
        found = graph.add("Where", missing, graph.constant(np.array([column.fill])), found)
    if not column.gaps:
        return found
    mark = graph.add("Cast", missing, to=graph.onnx.TensorProto.DOUBLE)
    return graph.add("Concat", found, mark, axis=1)


def _date_parts(graph: Graph, days: str) -> dict[str, str]:
    """The parts of days since 1970, by Hinnant's algorithm (chrono-compatible date algorithms)."""

    def term(kind: str, left: str | float, right: str | float) -> str:
        ends = [
            one if isinstance(one, str) else graph.constant(float(one)) for one in (left, right)
        ]
        return graph.add(kind, *ends)

    def whole(value: str, divisor: float) -> str:
        return graph.add("Floor", term("Div", value, divisor))

    def rest(value: str, divisor: float) -> str:
        return term("Sub", value, term("Mul", whole(value, divisor), divisor))

    day = graph.add("Floor", days)
    # Years start in March, in eras of 400 years.
    of_era = rest(term("Add", day, 719468), 146097)
    leap = term(
        "Sub", whole(of_era, 36524), term("Add", whole(of_era, 1460), whole(of_era, 146096))
    )
    year = whole(term("Add", of_era, leap), 365)
    before = term("Sub", term("Add", term("Mul", year, 365), whole(year, 4)), whole(year, 100))
    of_year = term("Sub", of_era, before)
    march = whole(term("Add", term("Mul", of_year, 5), 2), 153)  # months since March
    start = whole(term("Add", term("Mul", march, 153), 2), 5)
    return {
        "days": days,
        "month": term("Add", rest(term("Add", march, 2), 12), 1),
        "day": term("Add", term("Sub", of_year, start), 1),
        "weekday": rest(term("Add", day, 3), 7),
        "hour": term("Mul", term("Sub", days, day), 24),
    }
