"""Publishes Markdown files of the repository that lie outside ``docs``, and follows links to them.

On GitHub, pages link to each other and to files such as ``../../benchmarks/results/rings.md`` by
relative paths. The site has a copy of each of these files, made by the build.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
BENCHMARKS = ROOT / "benchmarks"
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def published() -> dict[Path, Path]:
    """Map each published file outside ``docs`` to the page that the build makes of it."""
    pages = {one: DOCS / one.relative_to(ROOT) for one in BENCHMARKS.glob("*/*.md")}
    papers, results = BENCHMARKS / "results/papers", DOCS / "benchmarks/results"
    return pages | {
        BENCHMARKS / "RESULTS.md": DOCS / "benchmarks/measured.md",
        papers / "tables.md": results / "paper-tables.md",
        papers / "published.md": results / "published-figures.md",
        ROOT / "CHANGELOG.md": DOCS / "release-notes.md",
        ROOT / "CONTRIBUTING.md": DOCS / "develop/contributing.md",
        ROOT / "SECURITY.md": DOCS / "develop/security.md",
        ROOT / "README.md": DOCS / "index.md",
        DOCS / "gallery": DOCS / "auto_gallery/index.rst",
    }


def relinked(text: str, origin: Path, page: Path) -> str:
    """Rewrite the relative links of a file for the page that shows it."""
    pages = published()

    def link(found: re.Match[str]) -> str:
        label, path, anchor = found.groups(default="")
        target = Path(os.path.normpath(origin.parent / path))
        if (
            target.is_dir() and target not in pages
        ):  # a folder of the repository, which the site does not have
            return label
        return f"[{label}]({os.path.relpath(pages.get(target, target), page.parent)}{anchor})"

    return LINK.sub(link, text)


def publish(_: Sphinx) -> None:
    """Write the copies that have changed, before Sphinx looks for pages."""
    for origin, page in published().items():
        if page == DOCS / "index.md" or not origin.is_file():
            continue
        text = relinked(origin.read_text(encoding="utf-8"), origin, page)
        page.parent.mkdir(exist_ok=True, parents=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def follow(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links of a page to files outside ``docs`` lead to their copies."""
    page = Path(app.env.doc2path(docname))
    if page.suffix == ".md":
        source[0] = relinked(source[0], page, page)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", publish, priority=100)
    app.connect("source-read", follow)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
