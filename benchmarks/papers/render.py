"""Measurements as Markdown tables and plots, beside the published figures."""

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import LogLocator, NullFormatter
from scipy import stats

from benchmarks.papers.methods import METHODS
from benchmarks.papers.tables import TABLES, Published, Table

TEST_SHARE = 0.2  # of the rows, in each split
OURS = "cpt"
HEAD = """# Tables of the papers

Written by `python -m benchmarks` from the measurements in the Parquet file of the same name.
"""
COLUMNS = 4  # of plots
RESOLUTION = 0.01  # of the clock of CPU time, in seconds; smaller means are shown as this


class Difference(NamedTuple):
    """How far a method is ahead of another, its standard error (NaN if unknown) and p."""

    mean: float
    error: float
    p: float

    def __str__(self) -> str:
        if np.isnan(self.error):
            return f"{self.mean:+.4f}"
        return f"{self.mean:+.4f} ± {self.error:.4f}{' *' if self.p < 0.05 else ''}"


def rendered(frame: pd.DataFrame, folder: Path) -> str:
    """All tables of which there are measurements, as Markdown; plots go into the folder."""
    parts = [HEAD]
    for name, table in TABLES.items():
        rows = in_order(table, frame[frame["table"] == name])
        if not len(rows):
            continue
        parts.append(f"## {table.title}\n\n{_protocol(table)}\n")
        if OURS in set(rows["method"]):
            parts += [_verdicts(table, rows), _differences(table, rows)]
        parts.append(_scores(table, rows))
        for size, what in (("leaves", "leaves"), ("fit_s", "CPU seconds of a fit")):
            path = folder / f"{name}-{size}.png"
            if _plot(table, rows, size, what, path):
                parts.append(f"![Score against {what}]({path.name})\n")
    return "\n".join(parts)


def in_order(table: Table, rows: pd.DataFrame) -> pd.DataFrame:
    """Sets and methods in the order of the tables, with the score of the deterministic tree."""
    rows = rows.assign(tree=rows["tree_score"].fillna(rows["score"]))
    rows = rows.reindex(columns=[*rows.columns.union(["depth", "training_score"], sort=False)])
    for key, order in (("set", table.sets), ("method", list(METHODS))):
        rows[key] = pd.Categorical(rows[key], order, ordered=True)
    rows = rows.dropna(subset=["set", "method"])  # of methods that were removed
    rows = rows.sort_values(["method", "column", "set", "seed", "fold"], kind="stable")
    return rows.astype({"set": object, "method": object})


def _protocol(table: Table) -> str:
    absent = f" Of the paper's sets, the data folder lacks {table.absent}." if table.absent else ""
    return f"{table.parts.__doc__}{absent}"


def _grouped(rows: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Successful fits by method and column; those of CPT first."""
    found = {
        (method, column): one
        for (method, column), one in rows[rows["error"] == ""].groupby(
            ["method", "column"], sort=False
        )
    }
    return dict(sorted(found.items(), key=lambda item: item[0][0] != OURS))


def _sets(table: Table, rows: pd.DataFrame) -> list[str]:
    measured = set(rows["set"])
    return [name for name in table.sets if name in measured]


def _verdicts(table: Table, rows: pd.DataFrame) -> str:
    """For each set: which single trees and ensembles are ahead of CPT's tree, and which smaller."""
    lines = [
        "| set | CPT's tree: score; leaves | single trees with a higher score, by how much | with "
        "fewer leaves | with both | ahead of all in both | ensembles with a higher score | "
        "published scores above it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data in table.sets:
        groups = _grouped(rows[rows["set"] == data])
        ours = _ours(groups)
        if ours is None:
            continue
        size = ours["leaves"].mean()
        better: dict[bool, list[str]] = {True: [], False: []}
        smaller, both = [], []
        for key, theirs in groups.items():
            if key[0] == OURS:
                continue
            single, leaves = METHODS[key[0]].single, theirs["leaves"].mean()
            behind = ahead(theirs, ours, table, data)
            if behind.mean > 0:
                better[single].append(f"{_label(key)} {behind}")
            if single and leaves < size:
                smaller.append(f"{_label(key)} {counted(leaves)}")
                both += [_label(key)] * (behind.mean > 0)
        sign = -1 if table.measure(data) == "rmse" else 1
        told = [
            f"{name} {number(one.score)}"
            for name, one in table.published[data].items()
            if sign * (one.score - ours["tree"].mean()) > 0
        ]
        cells = [data, f"{_mean(ours['tree'])}; {counted(size)}"]
        cells += map(_listed, (better[True], smaller, both))
        cells += ["no" if better[True] or smaller else "yes", *map(_listed, (better[False], told))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _label(key: tuple[str, str]) -> str:
    return key[0] if key[1] == "defaults" else f"{key[0]}, {key[1]}"


def _differences(table: Table, rows: pd.DataFrame) -> str:
    """By how much CPT's tree is ahead of each method, of the same column if there is one."""
    sets = _sets(table, rows)
    lines = ["CPT's tree is ahead by (* where p < .05):\n", *_head("than", sets)]
    groups = {data: _grouped(rows[rows["set"] == data]) for data in sets}
    for key in _grouped(rows):
        cells = []
        for data in sets:
            ours, theirs = _ours(groups[data], key[1]), groups[data].get(key)
            known = ours is not None and theirs is not None
            cells.append(str(ahead(ours, theirs, table, data)) if known else "-")
        if key[0] != OURS and set(cells) != {"-"}:
            lines.append(f"| {_label(key)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ours(
    groups: dict[tuple[str, str], pd.DataFrame], column: str = "validated"
) -> pd.DataFrame | None:
    """The fits of CPT in a column, or in the other."""
    found = [groups.get((OURS, one)) for one in (column, "validated", "defaults")]
    return next((one for one in found if one is not None), None)


def _scores(table: Table, rows: pd.DataFrame) -> str:
    """Score of the deterministic tree, leaves and seconds, and the published score and leaves."""
    sets = _sets(table, rows)
    lines: dict[str, list[str]] = {}
    measured = set(rows[["method", "column"]].itertuples(index=False, name=None))
    published = {name for of_set in table.published.values() for name in of_set}
    for method in [*METHODS, *(name for name in published if name not in METHODS)]:
        for key in ((method, "defaults"), (method, "validated")):
            if key in measured:
                own = rows[(rows["method"] == method) & (rows["column"] == key[1])]
                lines[_label(key)] = [_cell(own[own["set"] == data]) for data in sets]
        figures = [table.published[data].get(method) for data in sets]
        if any(figures):
            lines[f"*{method}, published*"] = [_published(one) for one in figures]
    first, across = "method", sets
    if len(sets) > len(lines):
        first, across = "set", [*lines]
        lines = dict(zip(sets, map(list, zip(*lines.values(), strict=True)), strict=True))
    return "\n".join(
        [
            "Score of the deterministic tree, leaves (depth, if it was recorded, on training rows "
            "the score), CPU seconds of a fit; in brackets at the end the score of the posterior "
            "predictive or of the soft tree, if it differs:\n",
            *_head(first, across),
            *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in lines.items()),
            "",
        ]
    )


def _head(first: str, sets: list[str]) -> list[str]:
    return [f"| {first} | " + " | ".join(sets) + " |", "|---" * (len(sets) + 1) + "|"]


def _cell(rows: pd.DataFrame) -> str:
    if not len(rows):
        return "-"
    failed = rows[rows["error"] != ""]
    if len(failed):
        return str(failed["error"].iloc[0]).partition(":")[0]
    leaves = counted(rows["leaves"].mean())
    if not np.isnan(depth := rows["depth"].mean()):
        leaves += f" (depth {counted(depth)}, {number(rows['training_score'].mean())})"
    text = f"{_mean(rows['tree'])}; {leaves}; {_seconds(rows['fit_s'].mean())}"
    soft = rows["score"].mean()
    return text + (f" ({number(soft)})" if abs(soft - rows["tree"].mean()) > 5e-5 else "")


def ahead(ours: pd.DataFrame, theirs: pd.DataFrame, table: Table, data: str) -> Difference:
    """Mean difference of the scores of the trees, with its standard error.

    On the same test rows, their errors are compared row by row, averaged over the seeds, and the
    variance between the seeds of a method is added, if it has several. Over folds, the variance is
    corrected for the overlap of the training sets after Nadeau and Bengio (2003).
    """
    seeds = [one["tree"] for one in (ours, theirs) if table.same_rows and len(one) > 1]
    shares = [(one.var(ddof=1) / len(one), len(one) - 1) for one in seeds]  # with their freedom
    if table.same_rows:
        each = [np.mean(np.stack(list(one["rows"])), axis=0, dtype=float) for one in (ours, theirs)]
        difference, overlap = each[0] - each[1], 0.0
    else:
        paired = [one.set_index(["seed", "fold"])["tree"] for one in (ours, theirs)]
        difference = (paired[0] - paired[1]).dropna().to_numpy()
        overlap = TEST_SHARE / (1 - TEST_SHARE)
    if table.measure(data) == "rmse":
        difference = -difference
    count = len(difference)
    if count < 2:
        return Difference(float(difference.mean()) if count else np.nan, np.nan, np.nan)
    mean = float(difference.mean())
    shares.append((float(difference.var(ddof=1)) * (1 / count + overlap), count - 1))
    square = sum(part for part, _ in shares)
    if not square:
        return Difference(mean, 0.0, 1.0)
    error = float(np.sqrt(square))
    freedom = square**2 / sum(part**2 / own for part, own in shares)  # Satterthwaite
    return Difference(mean, error, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def number(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")


def _mean(values: pd.Series) -> str:
    spread = f" ± {number(values.std(ddof=1))}" if len(values) > 1 else ""
    return f"{number(values.mean())}{spread}"


def counted(leaves: float) -> str:
    if np.isnan(leaves):
        return "-"
    return f"{leaves:,.0f}" if leaves >= 10 else f"{leaves:.1f}".removesuffix(".0")


def _seconds(mean: float) -> str:
    if mean < RESOLUTION:
        return "< .01"
    return f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}"


def _published(one: Published | None) -> str:
    if one is None:
        return "-"
    depth = f" (depth {one.depth})" if one.depth else ""
    return f"*{number(one.score)}" + (f"; {one.leaves:,g}{depth}*" if one.leaves else "*")


def _plot(table: Table, rows: pd.DataFrame, size: str, what: str, path: Path) -> bool:
    """Score of the tree of each method on each set against a size, on a logarithmic axis.

    Leaves are those of single trees. Filled marks stand for settings chosen on validation rows.
    """
    known = rows.dropna(subset=[size, "tree"])
    if size == "leaves":
        known = known[[METHODS[name].single for name in known["method"]]]
    if not len(known):
        return False
    sets = _sets(table, known)
    shape = -(-len(sets) // COLUMNS), min(COLUMNS, len(sets))
    figure, axes = plt.subplots(
        *shape, figsize=(3.2 * shape[1], 3 * shape[0]), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(sets) :]:
        axis.set_visible(False)
    marks = {name: _mark(name, i) for i, name in enumerate(known["method"].unique())}
    for axis, data in zip(axes.flat, sets, strict=False):
        groups = known[known["set"] == data].groupby(["method", "column"], sort=False)
        for (method, column), group in groups:
            fill = {} if column == "validated" else {"markerfacecolor": "white"}
            x = max(group[size].mean(), RESOLUTION)
            axis.plot(x, group["tree"].mean(), **marks[method] | fill)
        axis.set(title=data, xlabel=what, xscale="log")
        low, high = axis.get_xlim()
        subs = (1.0, 2.0, 5.0) if high < 50 * low else (1.0,)
        axis.xaxis.set_major_locator(LogLocator(subs=subs))
        axis.xaxis.set_major_formatter("{x:,g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
    for axis in axes[:, 0]:
        axis.set_ylabel("score")
    legend = [plt.Line2D([], [], label=name, **mark) for name, mark in marks.items()]
    figure.legend(handles=legend, loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return True


def _mark(name: str, i: int) -> dict[str, Any]:
    """A colour and a shape for each method; CPT is a star on top of the others."""
    if name == OURS:
        return {"marker": "*", "markersize": 12, "color": "black", "ls": "", "zorder": 3}
    shape, colour = divmod(i, 10)
    return {"marker": "os^D"[shape], "color": f"C{colour}", "ls": ""}
