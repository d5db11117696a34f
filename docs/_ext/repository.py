"""Publishes Markdown files of the repository that lie outside ``docs``, and follows links to them.

On GitHub, pages link to each other and to files such as ``../../benchmarks/results/rings.md`` by
relative paths. The site has a copy of each of these files, made by the build.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def published() -> dict[Path, Path]:
    """Map each file outside ``docs`` to the page that the build makes of it."""
    results = sorted((ROOT / "benchmarks").glob("results/*.md"))
    histories = sorted((ROOT / "benchmarks").glob("history/*.md"))
    return (
        {one: DOCS / "benchmarks/results" / one.name for one in results}
        | {one: DOCS / "benchmarks/history" / one.name for one in histories}
        | {
            ROOT / "benchmarks/results/papers/tables.md": DOCS
            / "benchmarks/results/paper-tables.md",
            ROOT / "CHANGELOG.md": DOCS / "release-notes.md",
            ROOT / "CONTRIBUTING.md": DOCS / "develop/contributing.md",
            ROOT / "SECURITY.md": DOCS / "develop/security.md",
        }
    )


def relinked(text: str, origin: Path, page: Path, copies: dict[Path, Path]) -> str:
    """Rewrite the relative links of a file for the page that shows it."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(origin.parent / found[1]))
        target = copies.get(target, target)
        return f"]({os.path.relpath(target, page.parent)}{found[2] or ''})"

    return LINK.sub(link, text)


def publish(app: Sphinx) -> None:
    """Write the copies that changed, before Sphinx looks for pages."""
    copies = published()
    for origin, page in copies.items():
        if not origin.exists():
            continue
        text = relinked(origin.read_text(encoding="utf-8"), origin, page, copies)
        page.parent.mkdir(exist_ok=True, parents=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def follow(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links of a page to files outside ``docs`` lead to their copies."""
    page = app.env.doc2path(docname)
    if Path(page).suffix == ".md":
        source[0] = relinked(source[0], Path(page), Path(page), published())


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", publish, priority=100)
    app.connect("source-read", follow)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
