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


def test_several_runs_are_put_side_by_side(fitted, place):
    other = ["--set", "min_leaf=2", "--set", "output.predictions=false"]
    done("fit", "things.csv", "--target", "kind", "--out", "other", *QUICK, *other)
    assert "comparison.html" in done("report", "found", "other").stdout
    page = (place / "comparison.html").read_text(encoding="utf-8")
    assert "Comparison of found and other" in page
    assert "1 setting: model.min_leaf (10, 2)." in page
    assert str(place) not in page
    written = json.loads(done("report", "found", "other", "--out", "two.html", "--json").stdout)
    assert written == {"file": str(place / "two.html"), "bytes": len(page.encode())}


def test_what_cannot_be_compared_is_refused(fitted, place):
    assert "--no-rows is for the report of one run" in refused("report", "found", "x", "--no-rows")
    assert "nothing' does not exist; specify" in refused("report", "found", "nothing")
    assert "compared with itself; specify each folder once" in refused("report", "found", "found")
    done("fit", "things.csv", "--target", "price", "--out", "price", *QUICK)
    said = refused("report", "found", "price")
    assert "one predicts 'kind', the other 'price'; specify runs of one target" in said
    (place / "price" / "model.safetensors").unlink()
    (place / "price" / "metrics.json").unlink()
    (place / "price" / "columns.json").unlink()
    said = refused("report", "found", "price")
    assert "was not finished; resume it by `bayestree run" in said
    (place / "others.csv").write_text((place / "things.csv").read_text() + "0,red,small,1,2\n")
    done("fit", "others.csv", "--target", "kind", "--out", "others", *QUICK)
    said = refused("report", "found", "others")
    assert "tables differ ('things.csv' and 'others.csv', by SHA-256); fit both to the same" in said
