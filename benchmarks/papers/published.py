"""Every figure of the papers beside ours, on one page."""

import pandas as pd

from benchmarks.papers.render import counted, in_order, number
from benchmarks.papers.tables import TABLES, Published, Table

HEAD = """# What the papers publish, and what the same methods have here

Written by `python -m benchmarks` (without arguments: from the measurements alone). Score of the
deterministic tree; leaves and depth, where they were recorded. *With the paper's settings* is its
card (`cpt-paper`, ...), at the depth of the paper's table; *own settings* were chosen on validation
rows (v) or are the defaults (d). Bold: at or above the published mean; -: not measured, mostly for
its CPU time. A line is repeated by `python -m benchmarks TABLE --sets SET --methods METHOD
--columns defaults` or `validated`.
"""
#: Figures that no table of ``python -m benchmarks`` has: paper and place, what is published, ours,
#: what differs, and the command or the reason why there is none.
OTHERS = [
    ("CPT, figure 1, two rings", "CPT AUC .962; 3 leaves; 8 and 5 facets, LCN .959; 479, CART "
     ".901; 9", "CPT AUC .9973; 3 leaves; 5 to 8 facets a node (ten seeds)", "radii .4 and .8, "
     "which the paper does not state; K = 12", "[rings](../rings.md)"),
    ("CPT, tables 2 and 3, SensIT and PDBbind", "CPT .8577; 36 and 1.413; 15", "-", "",
     "the sets are not available here"),
    ("E2EDT, figure 2, accuracy by depth", "pictures only", "[depths]"
     "(../papers.md#what-is-missing)", "", "`python -m benchmarks e2edt`"),
    ("E2EDT, section 3.3, trees with networks", "MNIST .982 ± .003; 10 leaves",
     ".9800 ± .0003; 10", "", "[the paper's CNN](../other-trees.md)"),
    ("E2EDT, figures 3 to 5, images", "pictures only", "-", "",
     "the ISBI images are not available here"),
    ("WODT, figures 1 to 3, seconds and depths", "pictures only", "[by depth]"
     "(../papers.md#accuracy-by-depth)", "", "seconds are in the tables of measurements"),
    ("Bivariate trees, poster", "pictures of trees", "[five splits of six sets]"
     "(../other-trees.md#bivariate-trees)", "", "`benchmarks/bivariate.py`; Segment is not "
     "available here"),
]  # fmt: skip


def page(frame: pd.DataFrame) -> str:
    """Return all published figures beside ours, as Markdown."""
    parts = [HEAD]
    for name in ("cpt", "wodt", "tao"):
        table = TABLES[name]
        rows = in_order(table, frame[(frame["table"] == name) & (frame["error"] == "")])
        lines = [
            f"## {table.title}: `python -m benchmarks {name}`\n",
            "| set | method | published | with the paper's settings | own settings |",
            "|---|---|---|---|---|",
        ]
        for data in table.sets:
            for method, known in table.published[data].items():
                lines.append(_line(table, data, method, known, rows[rows["set"] == data]))
        parts.append("\n".join(lines) + "\n")
    head = "| figure | published | ours | what differs | command, or why there is none |"
    each = [f"| {' | '.join(cells)} |" for cells in OTHERS]
    parts.append("\n".join(["## Other figures\n", head, "|---|---|---|---|---|", *each, ""]))
    return "\n".join(parts)


def _line(table: Table, data: str, method: str, known: Published, rows: pd.DataFrame) -> str:
    paper = _ours(table, data, known, rows[rows["method"] == f"{method}-paper"], "")
    own = rows[rows["method"] == method]
    chosen = own[own["column"] == "validated"]
    if len(chosen):
        ours = _ours(table, data, known, chosen, " (v)")
    else:
        ours = _ours(table, data, known, own, " (d)")
    shown = _told(known.score, known.leaves, known.depth)
    return f"| {data} | {method} | {shown} | {paper} | {ours} |"


def _ours(table: Table, data: str, known: Published, rows: pd.DataFrame, mark: str) -> str:
    if not len(rows):
        return "-"
    score = rows["tree"].mean()
    text = _told(score, rows["leaves"].mean(), rows["depth"].mean())
    better = score <= known.score if table.measure(data) == "rmse" else score >= known.score
    several = f"; {len(rows)} fits" if len(rows) > 1 else ""
    return f"**{text}**{several}{mark}" if better else f"{text}{several}{mark}"


def _told(score: float, leaves: float | None, depth: float | None) -> str:
    text = number(score)
    if leaves is not None and not pd.isna(leaves):
        text += f"; {counted(leaves)}"
    if depth is not None and not pd.isna(depth):
        text += f", depth {counted(depth)}"
    return text
