"""Ordered classes from the command line."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.command import QUICK, done, refused

ORDER = ["poor", "fair", "good"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_order_of_classes(suffix, table, place):
    table["grade"] = pd.Categorical(np.resize(ORDER, 80), ORDER, ordered=True)
    getattr(table, f"to_{suffix}")(f"data.{suffix}", index=False)
    words = ("fit", f"data.{suffix}", "--drop", "kind", *QUICK)
    levels = ("--set", 'levels={grade=["poor", "fair", "good"]}') if suffix == "csv" else ()
    ordinal = ("--target", "grade", "--set", "leaf=ordinal", "--out", "tree", *levels)
    assert "alphabet" not in done(*words, *ordinal).stderr
    done("predict", "tree", f"data.{suffix}")
    found = pd.read_csv("predictions.csv")
    assert list(found.columns[1:]) == [f"p({grade})" for grade in ORDER]


def test_numbers_have_no_levels(table, place):
    table.to_csv("data.csv", index=False)
    words = ("fit", "data.csv", "--target", "copies", "--task", "regression", *QUICK)
    levels = 'levels={copies=["0", "1", "2", "3"]}'
    assert "whose order is for classes" in refused(*words, "--out", "tree", "--set", levels)
