"""Measurements as Markdown tables and plots, beside the published figures."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.papers.tables import TABLES, Published

TEST_SHARE = 0.2  # of the rows, in each split


def rendered(frame: pd.DataFrame, folder: Path) -> str:
    """All tables of which there are measurements, as Markdown; plots go into the folder."""
    parts = []
    for name, rows in frame.groupby("table", sort=False):
        parts.append(f"### {TABLES[str(name)].title}\n\n{_table(str(name), rows)}\n")
        for size, what in (("leaves", "leaves"), ("fit_s", "CPU seconds of a fit")):
            path = folder / f"{name}-{size}.png"
            if _plot(rows, size, what, path):
                parts.append(f"![Score against {what}]({path.name})\n")
    return "\n".join(parts)


def _table(name: str, rows: pd.DataFrame) -> str:
    """A line for each set and method: measured and published score and leaves, and a test."""
    published = TABLES[name].published
    lines = [
        "| set | method | settings | score | its tree | leaves | CPU s | published | fits | "
        "CPT's tree is ahead by |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, column), group in rows.groupby(["set", "column"], sort=False):
        ours = _deterministic(group[group["method"] == "cpt"])
        for method, one in group.groupby("method", sort=False):
            figures = published.get(str(data), {}).get(str(method))
            behind = "" if method == "cpt" else ahead(ours, _deterministic(one), name, str(data))
            cells = [
                *(data, method, column),
                *(_mean(one["score"]), _mean(one["tree_score"]), _size(one["leaves"].mean())),
                *(f"{one['fit_s'].mean():.3g}", _published(figures), len(one), behind),
            ]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _deterministic(rows: pd.DataFrame) -> pd.Series:
    """Score of the deterministic tree where there is one, by seed and fold."""
    indexed = rows.set_index(["seed", "fold"])
    return indexed["tree_score"].fillna(indexed["score"])


def ahead(ours: pd.Series, theirs: pd.Series, table: str, data: str) -> str:
    """Mean difference with its standard error, and a star where p < .05.

    The variance of the differences between overlapping training sets is corrected after Nadeau
    and Bengio (2003).
    """
    difference = (ours - theirs).dropna().to_numpy()
    if TABLES[table].measure(data) == "rmse":
        difference = -difference
    count = len(difference)
    if count < 2 or not difference.std():
        return f"{difference.mean():+.4f}" if count else ""
    folds = ours.index.get_level_values("fold").nunique()
    share = TEST_SHARE / (1 - TEST_SHARE) if folds > 1 else 0.0
    error = np.sqrt(difference.var(ddof=1) * (1 / count + share))
    p = 2 * stats.t.sf(abs(difference.mean()) / error, count - 1)
    return f"{difference.mean():+.4f} ± {error:.4f}{' *' if p < 0.05 else ''}"


def _mean(values: pd.Series) -> str:
    if values.isna().all():
        return "-"
    spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"


def _size(leaves: float) -> str:
    return "-" if np.isnan(leaves) else f"{leaves:.0f}"


def _published(one: Published | None) -> str:
    if one is None:
        return "-"
    return f"{one.score:.4f}" + (f"; {one.leaves:g}" if one.leaves else "")


def _plot(rows: pd.DataFrame, size: str, what: str, path: Path) -> bool:
    """Score of each method on each set against a size, on a logarithmic axis."""
    known = rows.dropna(subset=[size])
    if not len(known):
        return False
    sets = list(known["set"].unique())
    figure, axes = plt.subplots(
        1, len(sets), figsize=(3.2 * len(sets), 3.2), squeeze=False, layout="constrained"
    )
    colours = dict(zip(known["method"].unique(), plt.get_cmap("tab20").colors, strict=False))
    for axis, data in zip(axes[0], sets, strict=True):
        one = known[known["set"] == data].groupby("method", sort=False)
        for method, group in one:
            axis.scatter(group[size].mean(), group["score"].mean(), color=colours[method], s=30)
        axis.set(title=data, xlabel=what, xscale="log")
    axes[0, 0].set_ylabel("score")
    marks = [plt.Line2D([], [], marker="o", ls="", color=c, label=m) for m, c in colours.items()]
    figure.legend(handles=marks, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
