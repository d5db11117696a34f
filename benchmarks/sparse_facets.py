"""Sparse facets against full ones, and against other trees that print as many numbers.

Run: python benchmarks/sparse_facets.py [--tables wine fair ...] [--folds 5] [--points 5 10]

The tables of ``benchmarks/tables.py`` and their packages, at most 1,500 rows of each. A facet of m
coefficients prints m numbers, m - 1 ratios and a limit; a split of CART prints one. ``sparse`` is
``tree_`` by default, ``full`` the same tree before the projection (``sparsity=None``). All trees
are judged by their splits: leaves are filled with the training rows, the same way for all, by
shares with one more row of each class, or by a normal distribution whose variance has two more rows
of the mean variance. Other trees have at least 10 rows on each side of a split, as ours do, and
settings (depth, penalty or number of leaves, criterion) chosen on the training rows: of those whose
tree prints at least as many numbers as the sparse one and at most a quarter more (if there are
none, of the shortest that are longer, or else of the longest) the one of the lowest log loss there.
Differences are means over the test rows of all folds with their standard error; seconds are CPU
time on one thread. With ``--points``, the sparse tree is compared with its scores of so many points
instead, also on the sets of ``data.py``; *stated* is the cost of points that the fit reports, the
mean over the folds.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from data import load_all
from scipy import stats
from scipy.optimize import linear_sum_assignment
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tables import SEED, TABLES, Table

import bayestree as bt
from bayestree.estimators import cpt

MOST_ROWS = 1500
MIN_LEAF = 10  # as of polytope trees
DEPTHS = (1, 2, 3, 4, 6)
PENALTIES = (0.01, 100.0)  # lowest and highest l1 of TAO
STEPS = 7  # of the bisection
LONGER = 1.25  # times the numbers of the sparse tree, that others may print
NAMES = ("full", "sparse", "sparse TAO", "bivariate TAO", "CART")


class Printed(NamedTuple):
    """A tree: something with ``apply``, its numbers, and its facets."""

    tree: Any
    length: int
    facets: int = 0


class Scores(NamedTuple):
    """Of test rows: errors (0 or 1, or squared) and losses (nats), and the leaves."""

    error: np.ndarray
    loss: np.ndarray
    leaf: np.ndarray


class Fold(NamedTuple):
    """The five trees and their scores, and the CPU seconds of fit and projection."""

    trees: list[Printed]
    scores: list[Scores]
    fit: float
    projection: float


def linear(tree: Any) -> Printed:
    if not tree.n_nodes:
        return Printed(tree, 0)
    return Printed(tree, int(np.count_nonzero(tree.hyperplane)), len(tree.hyperplane))


def ours(
    X: np.ndarray, y: np.ndarray, *, classifies: bool
) -> tuple[Printed, Printed, float, float]:
    """The tree before and after the projection, seconds of the fit, and of the projection alone."""
    kept: dict[str, Any] = {}
    project = cpt.with_sparse_tree

    def timed(estimator: Any, found: Any, rows: Any) -> Any:
        kept["full"], begin = found.shown.tree, time.process_time()
        sparse = project(estimator, found, rows)
        kept["seconds"] = time.process_time() - begin
        return sparse

    made = bt.ConvexPolytopeTreeClassifier if classifies else bt.ConvexPolytopeTreeRegressor
    begin = time.process_time()
    with mock.patch.object(cpt, "with_sparse_tree", timed):
        model = made(random_state=SEED).fit(X, y)
    seconds = time.process_time() - begin
    return linear(kept["full"]), linear(model.tree_), seconds, kept["seconds"]


def alternating(
    X: np.ndarray, y: np.ndarray, least: int, *, classifies: bool, split: str
) -> Iterator[Printed]:
    """Trees of each depth, with the penalty bisected to the shortest that is long enough."""
    made = bt.AlternatingTreeClassifier if classifies else bt.AlternatingTreeRegressor
    widest = {"oblique": X.shape[1], "bivariate": 2}[split]
    long_enough = [depth for depth in DEPTHS if widest * (2**depth - 1) >= least]
    for depth in long_enough or DEPTHS[-1:]:
        low, high = PENALTIES
        for step in range(STEPS):
            l1 = low if step == 0 else np.sqrt(low * high)
            model = made(
                split=split, l1=l1, max_depth=depth, min_leaf=MIN_LEAF, random_state=SEED
            ).fit(X, y)
            yield linear(model.tree_)
            if linear(model.tree_).length >= least:
                low = l1
            elif step == 0:
                break
            else:
                high = l1


def cart(X: np.ndarray, y: np.ndarray, least: int, *, classifies: bool) -> Iterator[Printed]:
    made = DecisionTreeClassifier if classifies else DecisionTreeRegressor
    criteria = ("gini", "log_loss") if classifies else ("squared_error",)
    for criterion in criteria:
        settings = {"max_leaf_nodes": least + 1} if least else {"max_depth": 1}
        model = made(
            criterion=criterion, min_samples_leaf=MIN_LEAF, random_state=SEED, **settings
        ).fit(X, y)
        yield Printed(model, model.get_n_leaves() - 1)


def scored(tree: Any, rows: Table, kept: np.ndarray, held: np.ndarray) -> Scores:
    """Scores of held rows by leaves that are filled with the kept ones."""
    place, leaf = tree.apply(rows.X[kept]), tree.apply(rows.X[held])
    some, place = np.unique(place, return_inverse=True)
    # a leaf without training rows predicts like all of them together
    own = np.searchsorted(some, leaf).clip(max=len(some) - 1)
    known = some[own] == leaf
    found = shares if rows.classifies else normals
    there = found(rows.y[kept], place, rows.y[held], own)
    everywhere = found(rows.y[kept], np.zeros_like(place), rows.y[held], np.zeros_like(own))
    error, loss = (np.where(known, a, b) for a, b in zip(there, everywhere, strict=True))
    return Scores(error, loss, leaf)


def shares(
    y: np.ndarray, place: np.ndarray, new: np.ndarray, leaf: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    labels = np.unique(y)
    count = np.ones((place.max() + 1, len(labels)))
    np.add.at(count, (place, np.searchsorted(labels, y)), 1)
    share = count / count.sum(axis=1, keepdims=True)
    code = np.searchsorted(labels, new)
    return (share[leaf].argmax(axis=1) != code).astype(float), -np.log(share[leaf, code])


def normals(
    y: np.ndarray, place: np.ndarray, new: np.ndarray, leaf: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    n = np.bincount(place)
    mean = np.bincount(place, y) / n
    squares = np.bincount(place, (y - mean[place]) ** 2)
    pooled = squares.sum() / (len(y) - len(n))
    sd = np.sqrt((squares + 2 * pooled) / (n + 1) * (1 + 1 / n))  # of a new row
    return (new - mean[leaf]) ** 2, -stats.norm.logpdf(new, mean[leaf], sd[leaf])


def chosen(candidates: Iterator[Printed], least: int, rows: Table, kept: np.ndarray) -> Printed:
    """The best on the training rows of those that are about as long."""
    every = list(candidates)
    about = [one for one in every if least <= one.length <= LONGER * least]
    longer = [one.length for one in every if one.length >= least]
    length = min(longer) if longer else max(one.length for one in every)
    about = about or [one for one in every if one.length == length]
    return min(about, key=lambda one: scored(one.tree, rows, kept, kept).loss.mean())


def one_fold(rows: Table, kept: np.ndarray, held: np.ndarray) -> Fold:
    X, y = rows.X[kept], rows.y[kept]
    full, sparse, fit, projection = ours(X, y, classifies=rows.classifies)
    rivals = [partial(alternating, split=kind) for kind in ("oblique", "bivariate")]
    trees = [full, sparse]
    for rival in (*rivals, cart):
        candidates = rival(X, y, sparse.length, classifies=rows.classifies)
        trees.append(chosen(candidates, sparse.length, rows, kept))
    return Fold(trees, [scored(one.tree, rows, kept, held) for one in trees], fit, projection)


def difference(a: np.ndarray, b: np.ndarray) -> str:
    """The mean of a - b over the test rows, and its standard error."""
    lost = a - b
    return f"{lost.mean():+.3f} ± {lost.std() / np.sqrt(len(lost)):.3f}"


def moved(folds: list[Fold]) -> float:
    """Share of the test rows in another leaf, of leaves matched by most rows."""
    total = matched = 0
    for fold in folds:
        full, sparse = fold.scores[0].leaf, fold.scores[1].leaf
        common = np.zeros((full.max() + 1, sparse.max() + 1))
        np.add.at(common, (full, sparse), 1)
        total, matched = (
            total + len(full),
            matched + common[linear_sum_assignment(common, maximize=True)].sum(),
        )
    return 1 - matched / total


def report(name: str, rows: Table, folds: list[Fold]) -> None:
    error, loss = (
        [np.concatenate([fold.scores[t][part] for fold in folds]) for t in range(len(NAMES))]
        for part in range(2)
    )
    if not rows.classifies:
        error = [one / rows.y.var() for one in error]
    length = [np.mean([fold.trees[t].length for fold in folds]) for t in range(len(NAMES))]
    facets = [sum(fold.trees[t].length for fold in folds) for t in (0, 1)]
    of_facet = [
        total / max(sum(fold.trees[t].facets for fold in folds), 1)
        for t, total in enumerate(facets)
    ]
    share = sum(fold.projection for fold in folds) / sum(fold.fit for fold in folds)
    score = [1 - one.mean() if rows.classifies else np.sqrt(one.mean()) for one in error]
    shape = f"{name} ({len(rows.X)} x {rows.X.shape[1]})"
    print(
        f"A | {shape} | {of_facet[0]:.1f} → {of_facet[1]:.1f} | "
        f"{length[0]:.1f} → {length[1]:.1f} | {score[0]:.3f} → {score[1]:.3f} | "
        f"{loss[0].mean():.3f} → {loss[1].mean():.3f} | "
        f"{difference(loss[1], loss[0])} | {difference(error[1], error[0])} | "
        f"{moved(folds):.1%} | {share:.0%} |"
    )
    print(f"B | {shape} | {length[1]:.1f}; {loss[1].mean():.3f} | ", end="")
    for t in range(2, len(NAMES)):
        print(f"{length[t]:.1f}; {score[t]:.3f}; {difference(loss[t], loss[1])} | ", end="")
    print(flush=True)


def in_points(
    name: str, rows: Table, parts: list[tuple[np.ndarray, np.ndarray]], points: list[int]
) -> None:
    """Print what scores of whole points cost on test rows, and what the fits say about it."""
    made = bt.ConvexPolytopeTreeClassifier if rows.classifies else bt.ConvexPolytopeTreeRegressor
    scores: dict[int | None, list[Scores]] = {most: [] for most in (None, *points)}
    stated: dict[int, list[float]] = {most: [] for most in points}
    length = []
    project = cpt.with_sparse_tree

    def compared(kept: Any, held: Any, estimator: Any, found: Any, given: Any) -> Any:
        for most, done in scores.items():
            estimator.points = most
            shown = project(estimator, found, given).shown
            done.append(scored(shown.tree, rows, kept, held))
            if most is None:
                length.append(linear(shown.tree).length)
            elif shown.sparsity is not None:
                stated[most].append(float(shown.sparsity.rounding[0]))
        return found

    for kept, held in parts:
        with mock.patch.object(cpt, "with_sparse_tree", partial(compared, kept, held)):
            made(random_state=SEED).fit(rows.X[kept], rows.y[kept])
    plain, *others = (np.concatenate([one.loss for one in each]) for each in scores.values())
    print(f"| {name} ({len(rows.X)} x {rows.X.shape[1]}) | {np.mean(length):.1f} ", end="")
    print(f"| {plain.mean():.3f} | ", end="")
    for most, loss in zip(points, others, strict=True):
        print(f"{difference(loss, plain)} | {np.mean(stated[most]):+.3f} | ", end="")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--points", type=int, nargs="*", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of constant columns, and of trees of a single leaf
    for name in options.tables:
        rows = TABLES[name]() if name in TABLES else Table(*load_all(name))
        order = np.random.default_rng(SEED).permutation(len(rows.X))[:MOST_ROWS]
        rows = Table(rows.X[order], rows.y[order])
        kind = StratifiedKFold if rows.classifies else KFold
        parts = kind(options.folds, shuffle=True, random_state=SEED).split(rows.X, rows.y)
        if options.points:
            in_points(name, rows, list(parts), options.points)
            continue
        report(name, rows, [one_fold(rows, *part) for part in parts])


if __name__ == "__main__":
    main()
