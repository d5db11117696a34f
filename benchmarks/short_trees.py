"""The printed tree beside the posterior and other trees that print as many numbers.

Run: python benchmarks/short_trees.py [--tables ames ...] [--folds 5] [--rivals]

Folds of the tables of ``real_tables.py``, which see for the packages that it needs, with the
default fit. A facet of m terms prints m numbers (m - 1 ratios and a limit), a leaf and a slope one,
a split of CART one. CART is fitted to the predictions of the posterior at the training rows, or to
y, in the features of the estimator, with five rows in a leaf and as many leaves as the numbers of
the printed tree allow. With ``--rivals`` so are sparse oblique trees by alternating optimisation
(TAO) and bivariate trees, which are fitted to y: of those of several depths and penalties that
print no more numbers, the one that fits the training rows best. Losses are to the posterior: of
log score for classes, of log RMSE for numbers. Seconds are CPU time on one thread.
"""

import argparse
import time
import warnings

import numpy as np
import torch
from real_tables import SEED, TABLES, UNIFORM, Table
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.tree import DecisionTreeRegressor

import bayestree as bt
from bayestree.tree import Tree

MIN_LEAF = 5
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0)  # of l1, on coefficients of TAO


def loss(table: Table, y: np.ndarray, predicted: np.ndarray) -> float:
    """The negative log score of class numbers y, or the logarithm of the RMSE."""
    if table.classifies:
        mixed = (1 - UNIFORM) * predicted + UNIFORM / predicted.shape[1]
        return -float(np.log(mixed[np.arange(len(y)), y]).mean())
    return float(np.log(np.mean((predicted - y) ** 2)) / 2)


def lengths(tree: Tree) -> tuple[int, int]:
    """Numbers that are printed, and the terms of the longest facet."""
    terms = np.count_nonzero(tree.hyperplane, axis=1)
    slopes = 0 if tree.slope is None else int(np.count_nonzero(tree.slope))
    return int(terms.sum()) + tree.n_leaves + slopes, int(terms.max(initial=0))


def rivals(
    table: Table, y: np.ndarray, train: np.ndarray, test: np.ndarray, X: list[np.ndarray], most: int
) -> list[float]:
    """Losses of TAO and of a bivariate tree with at most so many numbers."""
    kind = "Classifier" if table.classifies else "Regressor"
    tao, pairs = (getattr(bt, f"{name}Tree{kind}") for name in ("Alternating", "Bivariate"))
    grids = [
        [
            tao(max_depth=depth, l1=l1, min_leaf=MIN_LEAF, random_state=SEED)
            for depth in (1, 2, 3)
            for l1 in PENALTIES
        ],
        [
            pairs(max_leaves=leaves, min_leaf=MIN_LEAF, pair_penalty=penalty)
            for leaves in range(2, max(2, most // 2) + 1)
            for penalty in (2.0, 1e3)  # by default, and so high that one column splits
        ],
    ]
    losses = []
    for grid in grids:
        found = []
        for one in grid:
            one.fit(X[0], y[train])
            if lengths(one.tree_)[0] <= max(most, 3):
                p = one.predict_proba if table.classifies else one.predict
                found.append((loss(table, y[train], p(X[0])), loss(table, y[test], p(X[1]))))
        losses.append(min(found)[1] if found else np.nan)
    return losses


def measure(table: Table, train: np.ndarray, test: np.ndarray, *, others: bool) -> list[float]:
    """Losses of the posterior and of other trees on the test rows, lengths, seconds."""
    made = bt.ConvexPolytopeTreeClassifier if table.classifies else bt.ConvexPolytopeTreeRegressor
    model, begin = made(random_state=SEED), time.process_time()
    model.fit(table.X.iloc[train], table.y[train])
    seconds = time.process_time() - begin
    y = np.searchsorted(model.classes_, table.y) if table.classifies else table.y

    def predicted(rows: np.ndarray) -> np.ndarray:
        of = model.predict_proba if table.classifies else model.predict
        return np.asarray(of(table.X.iloc[rows]))

    posterior, target = predicted(test), predicted(train)
    model.set_params(prediction="tree")
    numbers, longest = lengths(model.tree_)
    losses = [loss(table, y[test], posterior), loss(table, y[test], predicted(test))]
    own = np.eye(len(model.classes_))[y[train]] if table.classifies else y[train]
    features = [model.encoding_.encode(table.X.iloc[rows]) for rows in (train, test)]
    features = [np.asarray(one) for one in features]
    for aim in (target, own):
        cart = DecisionTreeRegressor(
            max_leaf_nodes=max(2, (numbers + 1) // 2), min_samples_leaf=MIN_LEAF, random_state=SEED
        )
        losses.append(loss(table, y[test], cart.fit(features[0], aim).predict(features[1])))
    if others:
        losses += rivals(table, y, train, test, features, numbers)
    return [*losses, numbers, longest, model.get_n_leaves(), seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--rivals", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    trees = ["printed", "CART, posterior", "CART, y", *("TAO", "bivariate")[: 2 * given.rivals]]
    print(f"| table | numbers | longest facet | leaves | {' | '.join(trees)} | s |")
    print(f"|{'---|' * (len(trees) + 5)}")
    for name in given.tables:
        table = TABLES[name]()
        kind = StratifiedKFold if table.classifies else KFold
        folds = kind(given.folds, shuffle=True, random_state=SEED).split(table.X, table.y)
        each = np.array([measure(table, *fold, others=given.rivals) for fold in folds])
        own, *others = each[:, :-4].mean(axis=0)
        lost = " | ".join(f"{one - own:+.3f}" for one in others)
        numbers, longest, leaves, seconds = each[:, -4:].mean(axis=0)
        print(
            f"| {name} | {numbers:.1f} | {longest:.1f} | {leaves:.1f} | {lost} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
