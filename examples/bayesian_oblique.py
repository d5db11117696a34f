"""A Bayesian oblique tree: how certain are the splits of a fitted tree?

An end-to-end tree (E2EDT) is fitted to points of a known soft tree. Starting from it, SVI computes
the posterior of its splits under a Laplace and a flat prior, and NUTS checks both. The plot shows
borders drawn from the posterior. Under the flat prior the posterior is improper: SVI finds the mode
near the start, NUTS leaves it where the rows are too few, and a warning names the node.
Run: python examples/bayesian_oblique.py [--quick] [--rows 1500] [--out FOLDER]
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import bayestree as bt
from bayestree import inference
from bayestree.inference import Data, Posterior
from bayestree.models import Categorical, Flat, Laplace, Oblique, Priors, SoftTree
from bayestree.models.priors import HyperplanePrior
from bayestree.topology import Topology

# The root sends a row right with log-odds 3 x0 + x1 + 1.5; the second node is its right child.
TRUTH = {
    "hyperplane": [[[3.0, 1.0]], [[-1.5, 3.0]]],
    "intercept": [[1.5], [-3.0]],
    "leaf_probs": [[0.95, 0.05], [0.05, 0.95], [0.9, 0.1]],
}
PRIORS: dict[str, HyperplanePrior] = {
    "Laplace": Laplace(rate=0.3, intercept_scale=10.0),
    "flat": Flat(),
}
NAMES = ["x0", "x1", "intercept"]
CLASS, NODE = ("#0072B2", "#E69F00"), ("#D55E00", "#009E73")
METHOD = {
    "SVI, Laplace": "#0072B2",
    "NUTS, Laplace": "#56B4E9",
    "SVI, flat": "#D55E00",
    "NUTS, flat": "#E69F00",
}


def planted(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the square, and classes from the true tree."""
    truth = SoftTree(Topology(np.array([[~0, 1], [~1, ~2]])), Oblique(), leaf=Categorical(2))
    sites = {name: torch.tensor(value, dtype=torch.float64) for name, value in TRUTH.items()}
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    right = truth.leaf_log_probs(sites, torch.as_tensor(X)).exp() @ sites["leaf_probs"][:, 1]
    return X, (rng.random(n) < right.numpy()).astype(int)


def start(clf: bt.EndToEndTreeClassifier) -> Posterior:
    """The fitted tree with the same routing at steepness 1, in the units of the points."""
    found, tree = clf.posterior_, clf.tree_
    sites = found.point_sites()
    plane = found.model.steepness * sites["hyperplane"] / torch.as_tensor(tree.scale)
    sites["intercept"] = found.model.steepness * sites["intercept"]
    sites["intercept"] -= plane @ torch.as_tensor(tree.center)
    sites["hyperplane"] = plane
    return Posterior.from_point(found.model.with_(steepness=1.0), sites, found.inference)


def coefficients(draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Coefficients of each draw and node, the intercept last, shape (draws, V, d + 1)."""
    joined = np.concatenate([draws["hyperplane"], draws["intercept"][..., None]], axis=-1)
    return joined.reshape(-1, *joined.shape[-3:])[:, :, 0]


def intervals(posteriors: dict[str, Posterior]) -> pd.DataFrame:
    """Median and central 90 % interval of each coefficient, with the truth."""
    true = coefficients({name: np.array(value)[None, None] for name, value in TRUTH.items()})[0]
    columns = {"truth": [f"{value:.1f}" for value in true.ravel()]}
    for name, posterior in posteriors.items():
        ends = np.quantile(coefficients(posterior.draws), [0.05, 0.5, 0.95], axis=0)
        columns[name] = [f"{m:.1f} ({a:.1f} to {b:.1f})" for a, m, b in ends.reshape(3, -1).T]
    rows = pd.MultiIndex.from_product([range(len(true)), NAMES], names=["node", ""])
    return pd.DataFrame(columns, index=rows)


def borders(ax: Axes, planes: np.ndarray, **style: Any) -> None:
    """Draw the borders P(right) = 1/2 of planes (lines, d + 1)."""
    across = np.array([-2.0, 2.0])
    for one, other, offset in planes:
        if abs(other) > abs(one):
            ax.plot(across, -(offset + one * across) / other, **style)
        else:
            ax.plot(-(offset + other * across) / one, across, **style)


def draw_borders(ax: Axes, posterior: Posterior, X: np.ndarray, y: np.ndarray) -> None:
    """Points, borders of 60 draws, and the true ones."""
    for label, colour in enumerate(CLASS):
        ax.scatter(X[y == label, 0], X[y == label, 1], s=5, color=colour, alpha=0.6, linewidths=0)
    draws = coefficients(posterior.draws)
    true = coefficients({name: np.array(value)[None, None] for name, value in TRUTH.items()})
    for node in range(draws.shape[1]):
        some = draws[:: max(1, len(draws) // 60), node]
        borders(ax, some, color=NODE[node], alpha=0.15, linewidth=0.8)
        borders(ax, true[:, node], color="black", linestyle="--", linewidth=1.2)
    ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xlabel="x0", ylabel="x1")


def draw_spread(ax: Axes, posterior: Posterior) -> Any:
    """Standard deviation of P(class 1 | x) over the draws."""
    ends = np.linspace(-2, 2, 81)
    grid = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    _, spread = posterior.predictive(grid)
    image = ax.imshow(
        spread[:, 1].reshape(81, 81), origin="lower", extent=(-2, 2, -2, 2), cmap="magma", vmin=0
    )
    ax.set(xlabel="x0", ylabel="x1")
    return image


def draw_intervals(ax: Axes, posteriors: dict[str, Posterior]) -> None:
    """90 % intervals of each coefficient by each posterior, and the truth."""
    true = coefficients({name: np.array(value)[None, None] for name, value in TRUTH.items()})[0]
    count = true.size
    for place, (name, posterior) in enumerate(posteriors.items()):
        low, middle, high = np.quantile(coefficients(posterior.draws), [0.05, 0.5, 0.95], axis=0)
        height = np.arange(count) + 0.18 * (place - 1.5)
        ends = np.stack([middle - low, high - middle]).reshape(2, -1)
        ax.errorbar(
            middle.ravel(), height, xerr=ends, label=name, color=METHOD[name], fmt="o", markersize=3
        )
    ax.plot(true.ravel(), np.arange(count), "k|", markersize=16, label="truth")
    labels = [f"node {node}, {name}" for node in range(len(true)) for name in NAMES]
    ax.set_yticks(np.arange(count), labels)
    ax.invert_yaxis()
    ax.axvline(0, color="0.85", zorder=0)
    ax.set(xlim=(-10, 10), box_aspect=1)  # diverging draws are cut off
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def picture(posteriors: dict[str, Posterior], X: np.ndarray, y: np.ndarray) -> Figure:
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    shown = posteriors["SVI, Laplace"]
    draw_borders(axes[0], shown, X, y)
    axes[0].set_title("Borders of 60 draws; true ones dashed", fontsize=10)
    image = draw_spread(axes[1], shown)
    axes[1].set_title("Uncertainty of P(class 1 | x)", fontsize=10)
    figure.colorbar(image, ax=axes[1], label="standard deviation over the draws", shrink=0.8)
    draw_intervals(axes[2], posteriors)
    axes[2].set_title("90 % intervals of the coefficients", fontsize=10)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, steps and draws")
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("results/bayesian_oblique"))
    options = parser.parse_args()
    epochs, n_draws, n_warmup = (5, 8, 8) if options.quick else (400, 300, 200)

    X, y = planted(options.rows // 5 if options.quick else options.rows, seed=2)
    clf = bt.EndToEndTreeClassifier(
        max_depth=2, max_leaves=3, epochs=40, learning_rate=0.05, scaling="common", random_state=0
    ).fit(X, y)
    print(bt.export_text(clf))

    init, data = start(clf), Data.of(X, y)
    posteriors = {}
    for name, prior in PRIORS.items():
        model = init.model.with_(priors=Priors(hyperplane=prior))
        fit = inference.svi(
            model,
            data,
            init=init,
            covariance="expert",
            epochs=epochs,
            batch_size=len(X),
            n_draws=n_draws,
            random_state=0,
        )
        posteriors[f"SVI, {name}"] = fit
        posteriors[f"NUTS, {name}"] = inference.nuts(
            model,
            data,
            init=fit,
            n_chains=2,
            n_warmup=n_warmup,
            n_draws=n_draws,
            random_state=0,
        )
    print(intervals(posteriors).to_string())
    balance = posteriors["SVI, flat"].stats["coefficient_balance"]
    print("Do the rows bound the coefficients under the flat prior? (-1: yes, 0: not at all)")
    print(f"balance by node: {', '.join(f'{value:.2f}' for value in balance)}")

    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "bayesian-oblique.png"
    picture(posteriors, X, y).savefig(path, dpi=110)
    print(f"Plot: {path.resolve()}")


if __name__ == "__main__":
    main()
