"""Prediction of 1,000,000 rows of 16 columns: the deterministic tree and scikit-learn's CART.

Run: BAYESTREE_DATA=... OMP_NUM_THREADS=1 python benchmarks/predict.py [--alternatives]

Times are CPU seconds, the best and the median of several rounds in which all run in turn. CART
takes several times longer where memory for its probabilities must be mapped first.

``--alternatives`` adds the same tree in those of ONNX Runtime, torch.compile and numba that are
installed, measured on a tenth of the rows after a first call, which compiles.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from data import load
from sklearn.tree import DecisionTreeClassifier

from bayestree import ConvexPolytopeTreeClassifier, export_onnx
from bayestree.baselines import from_sklearn
from bayestree.tree import LOG2, Tree, facet_threshold

ROWS = 1_000_000
ROUNDS = 7
BATCH = 16_384  # rows of the dense alternatives, which evaluate every expert on every row

Predict = Callable[[np.ndarray], Any]


def polytopes(X: np.ndarray, y: np.ndarray, **settings: int) -> ConvexPolytopeTreeClassifier:
    """A tree as it is after growth."""
    return ConvexPolytopeTreeClassifier(
        max_depth=11,
        max_leaves=300,
        inference="grow",
        dtype="float32",
        random_state=0,
        **settings,
    ).fit(X, y)


def in_batches(predict: Predict, X: np.ndarray) -> np.ndarray:
    """Predictions of all rows, a batch at a time."""
    return np.concatenate([predict(X[i : i + BATCH]) for i in range(0, len(X), BATCH)])


def onnx(tree: Tree) -> Predict:
    """The exported graph in ONNX Runtime."""
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(export_onnx(tree), options)
    return partial(in_batches, lambda rows: session.run(["leaf"], {"X": rows})[0])


def compiled(tree: Tree) -> Predict:
    """All scores, then the path of each row, in torch.compile."""
    plane, intercept = torch.as_tensor(tree.hyperplane.T), torch.as_tensor(tree.intercept)
    weight = torch.as_tensor(tree.weight)
    node = torch.as_tensor(np.repeat(np.arange(tree.n_nodes), tree.n_facets))
    below = tree.topology.children
    ends = np.repeat(np.arange(tree.n_nodes, tree.n_nodes + tree.n_leaves), 2)
    places = np.where(below >= 0, below, tree.n_nodes + ~below).reshape(-1)
    children = torch.as_tensor(np.concatenate([places, ends]))

    def leaves(X: torch.Tensor) -> torch.Tensor:
        votes = torch.nn.functional.softplus(torch.addmm(intercept, X, plane)) * weight
        score = votes.new_zeros(len(X), tree.n_nodes + tree.n_leaves).index_add(1, node, votes)
        at = torch.zeros(len(X), 1, dtype=torch.int64)
        for _ in range(tree.depth):
            at = children[2 * at + (score.gather(1, at) > LOG2)]
        return at[:, 0] - tree.n_nodes

    run = torch.compile(leaves, dynamic=True)
    return partial(in_batches, lambda rows: run(torch.tensor(rows)).numpy())


def numba(tree: Tree) -> Predict:
    """Every row down its path, with the bounds of ``Tree.goes_right``, in machine code."""
    n_experts = np.repeat(tree.n_facets, tree.n_facets)
    lower, upper = facet_threshold(tree.weight * n_experts), facet_threshold(tree.weight)

    @import_module("numba").njit(fastmath=True)
    def leaves(X, children, start, plane, intercept, weight):  # type: ignore[no-untyped-def]
        found, activation = np.empty(len(X), np.int64), np.empty(len(weight))
        for i in range(len(X)):
            at = 0
            while at >= 0:
                right = near = False
                for k in range(start[at], start[at + 1]):
                    a = intercept[k]
                    for j in range(X.shape[1]):
                        a += plane[k, j] * X[i, j]
                    activation[k] = a
                    near |= a > lower[k]
                    if a > upper[k]:
                        right = True
                        break
                if near and not right:
                    score = 0.0
                    for k in range(start[at], start[at + 1]):
                        a = activation[k]
                        score += weight[k] * (max(a, 0.0) + np.log1p(np.exp(-abs(a))))
                    right = score > LOG2
                at = children[at, 1 if right else 0]
            found[i] = ~at
        return found

    splits = (tree.expert_start, tree.hyperplane, tree.intercept, tree.weight)
    return lambda X: leaves(X, tree.topology.children, *splits)


ALTERNATIVES = {"onnxruntime": onnx, "torch": compiled, "numba": numba}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alternatives", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = load("letter")
    many = rows.X[np.random.default_rng(0).integers(len(rows.X), size=ROWS)]
    cart = DecisionTreeClassifier(random_state=0).fit(rows.X, rows.y)
    fits = {
        "CPT": polytopes(rows.X, rows.y),
        "CPT, 1 expert": polytopes(rows.X, rows.y, n_experts=1),
    }
    part = many[: ROWS // 10]
    jobs: dict[str, tuple[Predict, np.ndarray]] = {"CART": (cart.predict, many)}
    for name, clf in fits.items():
        print(f"{name}: {clf.tree_}", flush=True)
        jobs |= {name: (clf.predict, many), f"{name}, leaves": (clf.tree_.apply, many)}
        for package, build in ALTERNATIVES.items():
            if options.alternatives and find_spec(package):
                other = build(clf.tree_)
                same = (other(part) == clf.tree_.apply(part)).mean()
                print(f"{name}: {package} finds the same leaves for {100 * same:.4f} % of the rows")
                jobs[f"{name}, leaves by {package}"] = other, part
    jobs["CART, converted, leaves"] = from_sklearn(cart).apply, many
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, (predict, X) in jobs.items():
            start = time.process_time()
            predict(X)
            seconds[name].append((time.process_time() - start) * ROWS / len(X))
    for name, taken in seconds.items():
        print(
            f"{name}: {min(taken):.3f} s, {min(taken) / min(seconds['CART']):.2f} times CART; "
            f"median {np.median(taken):.3f} s, "
            f"{np.median(taken) / np.median(seconds['CART']):.2f} times CART"
        )


if __name__ == "__main__":
    main()
