"""The command line of ``python -m benchmarks``."""

import argparse
import math
from pathlib import Path

import torch

from benchmarks.papers.measure import COLUMNS, Results, measure
from benchmarks.papers.methods import METHODS
from benchmarks.papers.published import page
from benchmarks.papers.render import rendered
from benchmarks.papers.tables import TABLES


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the tables of the papers again. Measurements are added to a file, and "
        "those that it holds are not repeated.",
    )
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; none: only render"
    )
    parser.add_argument("--sets", nargs="*", help="sets of the tables; all by default")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--columns", nargs="*", choices=COLUMNS, default=["defaults"])
    parser.add_argument(
        "--seeds", type=_positive, help="repetitions; those of the table by default"
    )
    parser.add_argument(
        "--settings",
        type=_positive,
        help="the number of settings to choose from; all by default, 1 for those chosen before",
    )
    parser.add_argument("--limit", type=float, help="CPU seconds after which a fit is given up")
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/results/papers/tables.parquet")
    )
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"no table is named {', '.join(unknown)}; choose from {', '.join(TABLES)}.")
    known = {name for table in options.tables for name in TABLES[table].sets}
    if unknown := set(options.sets or ()) - known:
        parser.error(f"no set is named {', '.join(unknown)}; choose from {', '.join(known)}.")
    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    results = Results(options.results, options.limit or math.inf)
    measure(results, options.tables, options)
    if len(results.frame):
        text = rendered(results.frame, options.results.parent)
        options.results.with_suffix(".md").write_text(text, encoding="utf-8")
        beside = options.results.with_name("published.md")
        beside.write_text(page(results.frame), encoding="utf-8")
        print(f"{options.results.with_suffix('.md')}: {len(results.frame)} measurements")
