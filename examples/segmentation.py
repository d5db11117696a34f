"""Membrane segmentation by an oblique tree on image windows (Hehn et al. 2020, Fig. 3 and 4).

The script simulates images of cells under an electron microscope: bright cells with blobs, dark
curved membranes, noise. A balanced tree of depth 6 on windows of 9 x 9 pixels is fitted by EM. The
first plot shows how the soft tree and its deterministic form converge as the steepness increases;
the second shows kernels of splits learnt with and without spatial regularisation (eq. 15), on
larger windows.
Run: python examples/segmentation.py [--quick] [--out FOLDER]
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.ndimage import distance_transform_edt, gaussian_filter
from scipy.spatial import cKDTree

from bayestree import inference
from bayestree.inference import Data, Posterior
from bayestree.models import Categorical, Flat, Oblique, Priors, SoftTree, Spatial
from bayestree.models.priors import HyperplanePrior
from bayestree.topology import Topology

EPOCHS = (4, 8, 24)  # epochs after which the posterior is shown
WINDOW, LARGE = 9, 15


def membranes(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An image of cells and, pixel by pixel, whether it is membrane; both (size, size)."""
    rng = np.random.default_rng(seed)

    def smooth(width: float) -> np.ndarray:
        field = gaussian_filter(rng.normal(size=(size, size)), width, mode="wrap")
        return field / field.std()

    places = np.moveaxis(np.mgrid[:size, :size], 0, -1).astype(float)
    places += np.stack([4.0 * smooth(14), 4.0 * smooth(14)], axis=-1)  # curved walls
    seeds = rng.uniform(-20, size + 20, size=(round(((size + 40) / 21) ** 2), 2))
    cell = np.asarray(cKDTree(seeds).query(places)[1])
    inner = np.ones(cell.shape, dtype=bool)
    inner[1:] &= cell[1:] == cell[:-1]
    inner[:, 1:] &= cell[:, 1:] == cell[:, :-1]
    distance = distance_transform_edt(inner)
    image = 0.75 + 0.06 * smooth(5) - 0.4 * np.exp(-((distance / 1.8) ** 2))
    for centre in seeds[rng.random(len(seeds)) < 0.5]:  # dark blobs that are not membranes
        offset = places - centre - rng.normal(scale=2, size=2)
        radius = np.hypot(offset[..., 0], offset[..., 1] * rng.uniform(0.7, 1.3))
        image -= 0.35 / (1 + np.exp(2 * (radius - rng.uniform(2.5, 3.5))))
    image = gaussian_filter(image, 0.7) + 0.14 * rng.normal(size=image.shape)
    return image, distance < 2


def windows(image: np.ndarray, side: int) -> np.ndarray:
    """The surroundings of every pixel as a row, shape (pixels, side * side)."""
    padded = np.pad(image, side // 2, mode="reflect")
    return np.lib.stride_tricks.sliding_window_view(padded, (side, side)).reshape(-1, side**2)


def rows(size: int, side: int, seeds: range) -> Data:
    """All windows of some images, centred and scaled, with the class of their middle pixel."""
    made = [membranes(size, seed) for seed in seeds]
    X = np.concatenate([windows((image - 0.6) / 0.2, side) for image, _ in made])
    return Data.of(X, np.concatenate([membrane.ravel() for _, membrane in made]).astype(int))


def balanced(depth: int, n_features: int, prior: HyperplanePrior) -> Posterior:
    """A complete, untrained tree with random directions."""
    model = SoftTree(
        Topology.complete(depth),
        split=Oblique(),
        priors=Priors(hyperplane=prior),
        leaf=Categorical(2),
    )
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(model.topology.n_nodes, 1, n_features))
    sites = {
        "hyperplane": plane / np.linalg.norm(plane, axis=-1, keepdims=True),
        "intercept": np.zeros(plane.shape[:2]),
        "leaf_probs": np.full((model.topology.n_leaves, 2), 0.5),
    }
    return Posterior.from_point(
        model, {name: torch.as_tensor(value) for name, value in sites.items()}, "random"
    )


def membrane_probability(posterior: Posterior, X: np.ndarray) -> np.ndarray:
    """P(membrane) of each row, as a square image."""
    mean, _ = posterior.predictive(X)
    return mean[:, 1].reshape(2 * [math.isqrt(len(X))])


def deterministic(posterior: Posterior) -> Posterior:
    """The same tree with hard splits."""
    return replace(posterior, model=posterior.model.with_(steepness=math.inf))


def gray(ax: Axes, image: np.ndarray, title: str, **limits: Any) -> None:
    ax.imshow(image, cmap="gray", interpolation="nearest", **limits)
    ax.set_title(title, fontsize=9)
    ax.set(xticks=[], yticks=[])


def draw_epochs(image: np.ndarray, membrane: np.ndarray, states: dict[int, Posterior]) -> Figure:
    """Image and truth, and P(membrane) by the soft (top) and the deterministic tree (bottom)."""
    figure = Figure(figsize=(8.8, 4.7), layout="constrained")
    axes = figure.subplots(2, 1 + len(states))
    gray(axes[0, 0], image, "image")
    gray(axes[1, 0], ~membrane, "membranes")
    X = windows((image - 0.6) / 0.2, WINDOW)
    for column, (epoch, posterior) in zip(axes.T[1:], states.items(), strict=True):
        gamma = posterior.model.steepness
        forms = {f"soft, epoch {epoch}, steepness {gamma:.1f}": posterior}
        forms["deterministic"] = deterministic(posterior)
        for ax, (name, form) in zip(column, forms.items(), strict=True):
            probability = membrane_probability(form, X)
            error = np.mean((probability > 0.5) != membrane)
            gray(
                ax,
                1 - probability,
                f"{name}\n{100 * error:.1f} % of the pixels wrong",
                vmin=0,
                vmax=1,
            )
    return figure


def draw_kernels(fits: dict[str, Posterior], side: int) -> Figure:
    """The coefficients of the first three levels of nodes as images, one row per fit."""
    figure = Figure(figsize=(8.8, 3.3), layout="constrained")
    panels = figure.subplots(len(fits), 7)
    for row, (name, posterior) in zip(panels, fits.items(), strict=True):
        kernels = posterior.point["hyperplane"][:, 0].reshape(-1, side, side)
        for node, ax in enumerate(row):
            bound = np.abs(kernels[node]).max()
            ax.imshow(kernels[node], cmap="gray", vmin=-bound, vmax=bound, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.set_title(f"node {node}", fontsize=8)
        row[0].set_ylabel(name, fontsize=9)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small images")
    parser.add_argument("--out", type=Path, default=Path("results/segmentation"))
    options = parser.parse_args()
    size, n_images = (40, 1) if options.quick else (160, 2)
    options.out.mkdir(parents=True, exist_ok=True)

    image, membrane = membranes(size, seed=100)
    start = balanced(6, WINDOW**2, Flat())
    states: dict[int, Posterior] = {}

    def keep(epoch: int, state: Posterior) -> None:
        if epoch in EPOCHS:
            states[epoch] = state

    settings: dict[str, Any] = {"epochs": EPOCHS[-1], "learning_rate": 0.01, "random_state": 0}
    data = rows(size, WINDOW, range(n_images))
    inference.em(start.model, data, init=start, callback=keep, **settings)
    draw_epochs(image, membrane, states).savefig(options.out / "epochs.png", dpi=110)

    data = rows(size, LARGE, range(n_images))
    X = windows((image - 0.6) / 0.2, LARGE)
    fits = {}
    priors: dict[str, HyperplanePrior] = {
        "without": Flat(),
        "spatial": Spatial(100.0, (LARGE, LARGE)),
    }
    for name, prior in priors.items():
        start = balanced(4, LARGE**2, prior)
        fits[name] = inference.em(start.model, data, init=start, **settings)
        wrong = (membrane_probability(deterministic(fits[name]), X) > 0.5) != membrane
        print(
            f"{name} regularisation: {100 * wrong.mean():.1f} % of the pixels of a new image wrong"
        )
    draw_kernels(fits, LARGE).savefig(options.out / "kernels.png", dpi=110)
    print(f"Plots: {options.out.resolve()}")


if __name__ == "__main__":
    main()
