"""The HTML page that shows finished runs side by side."""

from collections.abc import Mapping

from bayestree.runs.compare import compare_named
from bayestree.runs.outputs import report_arguments, sizes_of
from bayestree.runs.rows import RunRows
from bayestree.runs.store import Run


def comparison_page(named: Mapping[str, Run], rows: Mapping[str, RunRows]) -> str:
    """Return the page of runs by their names, given the rows that ``same_rows`` has read."""
    from bayestree.report.compared import Compared  # noqa: PLC0415 - importing it takes seconds
    from bayestree.report.comparison import page_of  # noqa: PLC0415
    from bayestree.report.study import study_of  # noqa: PLC0415

    widest = max(rows.values(), key=lambda one: one.X.shape[1])
    studies = {}
    for name, run in named.items():
        drawn = rows[name].thinned(widest)
        told = report_arguments(run.folder, run.file, drawn, run.manifest, metrics=run.metrics)
        studies[name] = study_of(run.estimator, **told, known_sizes=sizes_of(run.estimator))
    found = compare_named(named, rows)
    numbers = widest.thinned().rows_held
    return page_of(Compared(studies, numbers, found.table, found.caveats, found.conclusions))
