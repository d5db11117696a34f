"""Numbers that are valid but absurd: fits with them take no longer than with large ones."""

import numpy as np
import pytest

from bayestree._utils.wording import MAX_INTEGER
from bayestree.estimators.registry import TREES
from bayestree.runs.schema import RunFile
from bayestree.runs.settings import tree_parameters

# Limits that are seldom reached; those of what is made in any case ask for memory and time.
LIMITS = ("max_depth", "max_leaves", "batch_size", "sweeps", "patience", "max_pairs", "max_iter")
QUICK = {"epochs": 1, "refine_epochs": 1, "n_draws": 2, "n_estimators": 2, "n_experts": 2,
         "min_gain": 0}  # fmt: skip


# The depths of networks and of complete trees are bounded.
@pytest.mark.parametrize("tree", [tree for tree in TREES if tree not in ("cpt-k1", "lcn", "ndf")])
def test_limits_without_end(tree):
    own = tree_parameters(tree, "classification")
    values = dict.fromkeys(LIMITS, MAX_INTEGER) | QUICK
    sets = [(name, value) for name, value in values.items() if name in own]
    parts = {"data": {"path": "x.csv", "target": "y"}, "model": {"tree": tree}}
    if tree == "cpt":
        parts["inference"] = {"inference": "svi"}
    estimator = RunFile.from_parts(parts, "run.toml", sets=sets).estimator("classification")
    X = np.random.default_rng(0).normal(size=(40, 2))
    assert estimator.fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.5
