"""Tables of strangers on the command line."""

import gzip
from contextvars import copy_context

import pandas as pd
import pytest

from bayestree._utils.parallel import _named, memory_forced
from bayestree.inference import memory_mapped
from tests.cli.command import NUMBERS, QUICK, done, refused, run


def test_formulas(place):
    label = ["=1+cmd()" if i % 8 < 4 else "+1" for i in range(80)]
    pd.DataFrame({"-a": [i % 8 - 4 for i in range(80)], "y": label}).to_csv("t.csv", index=False)
    done("fit", "t.csv", "--target", "y", "--out", "tree", *QUICK)
    done("predict", "tree", "t.csv", "--out", "plain.csv")
    done("predict", "tree", "t.csv", "--out", "quoted.csv", "--quote-formulas")
    plain, quoted = pd.read_csv("plain.csv"), pd.read_csv("quoted.csv")
    assert quoted["prediction"].tolist() == [f"'{one}" for one in plain["prediction"]]
    pd.testing.assert_frame_equal(quoted.iloc[:, 1:], plain.iloc[:, 1:])
    for option, mark in ((), ""), (("--quote-formulas",), "'"):
        done("summary", "tree", "--no-rows", "--out", "nodes.csv", "--force", *option)
        assert pd.read_csv("nodes.csv")["split"].dropna().str.startswith(f"{mark}-a").all()


def test_refusals(place):
    rows = "".join(f"{i % 5},{'pq'[i % 5 > 2]}\n" for i in range(60))
    (place / "t.csv").write_text(f"a,y\n{rows}1,{'z' * 20_000}\n")
    assert "line 62 of 't.csv'" in refused("fit", "t.csv", "--target", "y", "--out", "tree")
    (place / "t.csv.gz").write_bytes(gzip.compress(f"a,y\n{rows}".encode()))
    fit = ("fit", "t.csv.gz", "--target", "y", "--out", "tree", *QUICK)
    assert "max_size" in refused(*fit, "--set", "data.max_size=1e-9")
    assert "max_size must be above 0" in refused(*fit, "--set", "data.max_size=0")
    done(*fit, "--set", "data.max_size=1")
    lines = f"a\n1\n{'z' * 200_000}\n"
    (place / "new.csv").write_text(lines)
    said = done("predict", "tree", "new.csv", "--out", "p.csv").stderr
    assert "1 row holds a value that cannot be read as a number ('zzz" in said
    assert len(said) < 600


@pytest.mark.parametrize("command", ["fit", "run"])
def test_forced_memory(command, place, table, monkeypatch):
    table.to_csv("t.csv", index=False)
    given = ("fit", "t.csv", "--target", "kind", "--out", "tree", *QUICK)
    if command == "run":
        toml = '[data]\npath = "t.csv"\ntarget = "kind"\n[model]\nmax_depth = 1\nn_experts = 3\n'
        toml += "[inference]\ninference = 'svi'\nepochs = 2\nn_draws = 3\nn_modes = 1\n"
        toml += "[output]\nfolder = 'tree'\n"
        (place / "run.toml").write_text(toml)
        given = ("run", "run.toml", *NUMBERS)
    monkeypatch.setattr(memory_mapped, "free_memory", lambda: 0.0)
    short = run(*given)
    assert short.exit_code == 2
    assert "set --force-memory" in short.stderr
    context = copy_context()
    context.run(done, *given, "--force-memory")
    assert context.run(memory_forced.get)
    assert copy_context().run(_named, (0, True), "", memory_forced.get) == ("", True)  # a worker
    assert not memory_forced.get()
