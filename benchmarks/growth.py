"""Growth of all nodes of a level in one batch against one node after another.

Run: BAYESTREE_DATA=... python benchmarks/growth.py
"""

import time
from unittest import mock

import torch
from data import load
from sklearn.preprocessing import StandardScaler

from bayestree import inference
from bayestree.inference import Data, GrowthLimits
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology


def main() -> None:
    rows = load("letter")
    labels = {label: k for k, label in enumerate(sorted(set(rows.y)))}
    data = Data.of(
        StandardScaler().fit_transform(rows.X), [labels[v] for v in rows.y], dtype=torch.float32
    )
    model = SoftTree(Topology.leaf(), Polytope(20), leaf=Categorical(26))
    limits = GrowthLimits(max_depth=10, min_rows=10, min_leaf=3, min_gain=2.0)
    for name, elements in (("a level at a time", None), ("a node at a time", 0)):
        start = time.perf_counter()
        if elements is None:
            grown = inference.grow(model, data, limits=limits, learning_rate=0.015, random_state=0)
        else:
            with mock.patch("bayestree.inference.grow.ELEMENTS", elements):
                grown = inference.grow(
                    model, data, limits=limits, learning_rate=0.015, random_state=0
                )
        print(f"{name}: {time.perf_counter() - start:.1f} s, {grown.model.topology}")


if __name__ == "__main__":
    main()
