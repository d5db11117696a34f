"""Fitted estimators that several test files share, each fitted once."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import bayestree as bt
from bayestree.inference import Svi
from bayestree.report.comparison import html_comparison
from bayestree.report.page import html_report


def rings(n=160):
    """Two features and two classes: what lies within a circle, and what without."""
    rng = np.random.default_rng(0)
    radius = np.where(np.arange(n) % 2, rng.uniform(0, 1, n), rng.uniform(1.6, 2.4, n))
    angle = rng.uniform(0, 2 * np.pi, n)
    X = pd.DataFrame({"east": radius * np.cos(angle), "north": radius * np.sin(angle)})
    return X, np.where(np.arange(n) % 2, "core", "shell")


@pytest.fixture(scope="package")
def drawn():
    """A tree with a posterior, and its rows: half of them held out."""
    X, y = rings()
    clf = bt.ConvexPolytopeTreeClassifier(
        n_modes=1, max_depth=1, n_experts=5, inference=Svi(epochs=60, n_draws=8), random_state=0
    )
    clf.fit(X[:80], y[:80])
    # sizes of few draws: those of the prior take longest
    given = {"X": X[:80], "y": y[:80], "X_held": X[80:], "y_held": y[80:]}
    return clf, given | {"sizes": clf.polytope_size(max_draws=8)}


@pytest.fixture(scope="package")
def side_by_side(drawn):
    """The page of the same tree, under a name that must be escaped, beside a large one."""
    clf, given = drawn
    rows = {key: given[key] for key in ("X", "y", "X_held", "y_held")}
    deep = bt.WeightedObliqueTreeClassifier(min_gain=0, random_state=0).fit(rows["X"], rows["y"])
    head = {"title": "Rings", "question": "Where does the core end?"}
    return html_comparison({"<b>": clf, "deep": deep}, **rows, **head)


@pytest.fixture(scope="package")
def large():
    """A tree of more than a hundred leaves, and its rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 4))
    y = rng.integers(3, size=250)
    return bt.WeightedObliqueTreeClassifier(min_gain=0, random_state=0).fit(X, y), {"X": X, "y": y}


@pytest.fixture(scope="package")
def ten():
    """A tree of ten classes, and its rows."""
    X = np.random.default_rng(2).normal(size=(400, 3))
    y = np.array([f"class {c}" for c in range(10)])[np.arange(400) % 10]
    return bt.BivariateTreeClassifier(max_depth=3).fit(X, y), {"X": X, "y": y}


@pytest.fixture(scope="package")
def choice():
    """A sparse tree with a posterior of two modes, its rows, and three trees to choose from."""
    X, y = rings()
    clf = bt.ConvexPolytopeTreeClassifier(
        n_modes=2, max_depth=1, n_experts=5, inference=Svi(epochs=60, n_draws=8), random_state=0
    )
    clf.fit(X, y)
    found = clf.near_optimal_trees(X, y)
    columns = (("east", "north"), ("east",), ("north",))
    three = {name: np.array([0.5, 0.3, 0.2]) for name in ("weight", "score", "loss", "se", "mode")}
    trees = replace(found, trees=(found[0],) * 3, columns=columns, **three)
    clf.near_optimal_trees = lambda *_: trees
    return clf, {"X": X, "y": y, "sizes": clf.polytope_size(max_draws=8)}


@pytest.fixture(scope="package")
def page_of(request, tmp_path_factory):
    """The path of the page of one of these, which is written where it is asked for."""
    folder = tmp_path_factory.mktemp("pages")
    head = {"title": "Rings", "question": "Where does the core end?", "command": "bayestree run x"}

    @cache
    def path(name):
        found = request.getfixturevalue(name)
        if name != "side_by_side":
            estimator, rows = found
            found = html_report(estimator, **rows, **(head if name == "drawn" else {}))
        (folder / f"{name}.html").write_text(found, encoding="utf-8")
        return folder / f"{name}.html"

    return path
