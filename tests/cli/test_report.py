"""`bayestree report`."""

import json

import pytest
from markupsafe import Markup

from bayestree.report import figures
from tests.cli.command import QUICK, done, refused


@pytest.fixture
def fitted(place, table, monkeypatch):
    """A folder of a run without a report; figures take no time."""
    sketch = Markup('<svg role="img" aria-label="a figure"></svg>')
    monkeypatch.setattr(figures, "picture", lambda *_, **__: sketch)
    table.to_csv("things.csv", index=False)
    done("fit", "things.csv", "--target", "kind", "--out", "found", *QUICK)
    return place / "found"


def test_a_page_is_written(fitted, place):
    assert "report.html" in done("report", "found").stdout
    page = (fitted / "report.html").read_text(encoding="utf-8")
    assert "held-out rows" in page
    assert "color=red" in page
    assert "bayestree run run.toml --out ../found-again" in page
    assert str(place) not in page
    assert "path = &#34;things.csv&#34;" in page
    found = json.loads(done("report", "found", "--out", "page.html", "--json").stdout)
    assert found == {"file": str(place / "page.html"), "bytes": len(page.encode())}
    assert (place / "page.html").read_text(encoding="utf-8") == page


def test_rows_must_be_those_of_the_run_unless_left_out(fitted, place):
    (place / "things.csv").write_text("changed\n1\n")
    said = refused("report", "found")
    assert "things.csv" in said
    assert said.endswith("; or add --no-rows.\n")
    done("report", "found", "--no-rows")
    page = (fitted / "report.html").read_text(encoding="utf-8")
    assert "of the predictions for 16 held-out rows are correct" in page
    assert "Composition" in page


def test_what_cannot_be_written_is_refused(fitted):
    assert "must end in .html" in refused("report", "found", "--out", "page.txt")
    assert "does not exist" in refused("report", "found", "--out", "nowhere/page.html")
    assert "nothing' does not exist; specify the folder" in refused("report", "nothing")
