"""The sections of a report: each says what it shows, or that there is nothing to show."""

from collections.abc import Callable

from bayestree.report.html.sections._about import data, repeat
from bayestree.report.html.sections._posterior import doubt, sizes
from bayestree.report.html.sections._rows import features, view
from bayestree.report.html.sections._section import Section
from bayestree.report.html.sections._tree import tree
from bayestree.report.html.sections._trust import convergence, scores
from bayestree.report.html.study import Study

__all__ = ["Section", "sections"]

MAKERS: tuple[Callable[[Study], Section | None], ...] = (
    data,
    tree,
    sizes,
    doubt,
    features,
    view,
    scores,
    convergence,
    repeat,
)


def sections(study: Study) -> list[Section]:
    """All sections for which there is something to show."""
    return [section for make in MAKERS if (section := make(study)) is not None]
