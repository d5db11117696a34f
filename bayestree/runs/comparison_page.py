"""The HTML page that shows finished runs side by side."""

from collections.abc import Sequence

from bayestree.runs.compare import compare_named, named_runs, same_rows
from bayestree.runs.outputs import report_arguments, sizes_of
from bayestree.runs.rows import RunRows
from bayestree.runs.store import Run


def comparison_page(runs: Sequence[Run]) -> str:
    """Return the page of two or more runs on the same rows, in the order given.

    An InputError names what is missing, or how their rows differ (:func:`compare`).
    """
    from bayestree.report.compared import Compared  # noqa: PLC0415 - importing it takes seconds
    from bayestree.report.comparison import page_of  # noqa: PLC0415
    from bayestree.report.study import Study, study_of  # noqa: PLC0415

    def study(run: Run, rows: RunRows) -> Study:
        told = report_arguments(run.folder, run.file, rows, run.manifest, metrics=run.metrics)
        return study_of(run.estimator, **told, known_sizes=sizes_of(run.estimator))

    named = named_runs(runs)
    rows = same_rows(named)
    found = compare_named(named, rows)
    first = next(iter(rows.values())).thinned()
    studies = {name: study(run, rows[name]) for name, run in named.items()}
    numbers = first.rows_held if first.held_out else None
    return page_of(Compared(studies, numbers, found.table, found.caveats, found.conclusions))
