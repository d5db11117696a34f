"""A table to fit to, and a folder to be in."""

import numpy as np
import pandas as pd
import pytest

from tests.estimators.conftest import _short_checks_of_the_bound

__all__ = ["_short_checks_of_the_bound"]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    size = rng.normal(size=80)
    return pd.DataFrame(
        {
            "size": size,
            "color": np.where(np.arange(80) % 3, "red", "blue"),
            "kind": np.where(size > 0, "big", "small"),
            "price": 10 * size + rng.normal(size=80),
            "copies": np.arange(80) % 4,
        }
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path
