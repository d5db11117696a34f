"""`bayestree compare`."""

import json

import pandas as pd

from bayestree.runs.compare import compare
from bayestree.runs.store import open_run
from tests.cli.command import done, refused
from tests.finished import finished


def test_it_prints_what_the_function_finds(place):
    folders = [finished("tao"), finished("svi")]
    found = compare([open_run(folder) for folder in folders])
    assert done("compare", *folders).stdout == f"{found}\n"
    plain = json.loads(done("compare", *folders, "--json", "--out", "runs.parquet").stdout)
    runs = {one["run"]: one for one in plain["runs"]}
    assert set(runs) == {"svi", "tao"}
    assert runs["tao"]["elpd"] is None
    assert plain["basis"] == "held-out rows"
    assert plain["remarks"] == list(found.remarks)
    pd.testing.assert_frame_equal(pd.read_parquet("runs.parquet").set_index("run"), found.table)


def test_refusals(place):
    assert "specify two or more" in refused("compare", finished("tao"))
    assert "were fitted to different rows" in refused(
        "compare", finished("tao"), finished("all rows")
    )
