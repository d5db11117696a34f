"""A tree of ten leaves whose splits are small convolutional networks (Hehn et al. 2020, sec. 3.4).

Handwritten digits of 8 x 8 pixels. A plot shows, for each node, the images sent left and right.
Run: python examples/network_split.py [--quick] [--out FOLDER]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import bayestree as bt
from bayestree.models import Network


def small_network(n_features):
    """A module that maps rows of pixels to the log-odds of going right."""
    side = round(n_features**0.5)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 4, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * ((side - 2) // 2) ** 2, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
    )


def picture(tree, X, y) -> Figure:
    """For each node, the mean images sent left and right, and the number of images by digit."""
    side = round(X.shape[1] ** 0.5)
    figure = Figure(figsize=(6.0, 1.15 * tree.n_nodes), layout="constrained")
    panels = figure.subplots(tree.n_nodes, 3, squeeze=False, width_ratios=(1, 1, 3))
    for node, rows, right in tree.walk(X):
        *images, counts = panels[node]
        colours = ("#0072B2", "#E69F00")
        bottom = np.zeros(10)
        sides = (("left", rows[~right]), ("right", rows[right]))
        for ax, (name, sent), colour in zip(images, sides, colours, strict=True):
            ax.imshow(X[sent].mean(axis=0).reshape(side, side), cmap="gray_r")
            ax.set(xticks=[], yticks=[])
            ax.set_title(f"{name}: {len(sent)}", fontsize=8, color=colour)
            each = np.bincount(y[sent], minlength=10)
            counts.bar(range(10), each, bottom=bottom, color=colour)
            bottom += each
        images[0].set_ylabel(tree.topology.node_labels[node], fontsize=8)
        counts.set_xticks(range(10))
        counts.tick_params(labelsize=7)
    panels[0, 2].set_title("images of each digit", fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few epochs")
    parser.add_argument("--out", type=Path, default=Path("results/network_split"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    X, X_test, y, y_test = train_test_split(
        digits.data, digits.target, stratify=digits.target, random_state=0
    )
    settings: dict[str, Any] = {
        "order": "best",
        "max_leaves": 10,
        "scaling": "common",
        "steepness": 25.0,
        "batch_size": 50,
        "learning_rate": 0.003,
        "epochs": 2 if options.quick else 10,
        "dtype": "float32",
        "random_state": 0,
    }
    split = Network(small_network)
    clf = bt.EndToEndTreeClassifier(split=split, **settings).fit(X, y)
    print(bt.export_text(clf, max_features=2))
    print(f"{clf.get_n_leaves()} leaves, accuracy {clf.score(X_test, y_test):.3f} on new images")

    path = options.out / "nodes.png"
    picture(clf.tree_, X, y).savefig(path, dpi=110)
    bt.plots.tree(clf).figure.savefig(options.out / "tree.png", dpi=110)
    print(f"Plots: {path.resolve()} and tree.png in the same folder")

    model = options.out / "digits.safetensors"
    clf.save(model)
    again = bt.load(model, network=split)
    assert (again.predict(X_test) == clf.predict(X_test)).all()
    print(f"Model: {model.resolve()}, to be read by load(path, network=Network(small_network))")


if __name__ == "__main__":
    main()
