"""The encoding of the columns of a table as a graph of ONNX operators."""

from typing import Any

import numpy as np
import pandas as pd

from bayestree.report._onnx_graph import Graph
from bayestree.tables import Categories, Column, Dates, Encoding

OUTPUTS = ("label", "probabilities", "prediction", "leaf")
UNKNOWN = "\0"  # no level of a column
ML = "ai.onnx.ml"


def add_columns(graph: Graph, encoding: Encoding) -> list[Any]:
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
