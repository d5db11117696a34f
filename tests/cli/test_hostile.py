"""Tables of strangers on the command line."""

import gzip

import pandas as pd

from tests.cli.command import QUICK, done, refused


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
    assert "max_size" in refused(*fit, "--set", "data.max_size=-1")
    done(*fit, "--set", "data.max_size=1")
    lines = f"a\n1\n{'z' * 200_000}\n"
    (place / "new.csv").write_text(lines)
    said = done("predict", "tree", "new.csv", "--out", "p.csv").stderr
    assert "1 row holds a value that cannot be read as a number ('zzz" in said
    assert len(said) < 600
