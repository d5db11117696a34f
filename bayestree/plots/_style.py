"""What the pictures share: colours that the colour-blind can tell apart, and new Axes."""

from typing import Any, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bayestree.tree import Tree

# Okabe and Ito's palette, the two that differ most in hue and in lightness first; its black is
# left to lines and text.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK = "#222222"
VALUES = "cividis"  # colour map of real values


class Fitted(Protocol):
    """A fitted estimator, as far as a picture needs it."""

    tree_: Tree

    def predict(self, X: Any) -> NDArray[Any]:
        """Class or value of each row."""


def tree_of(estimator: object) -> Tree:
    """The deterministic tree of a fitted estimator, or the tree itself."""
    found = getattr(estimator, "tree_", estimator)
    if not isinstance(found, Tree):
        raise TypeError(
            f"estimator must be a fitted tree estimator or a Tree, got {type(estimator).__name__}; "
            "call fit first."
        )
    return found


def new_axes(width: float, height: float) -> Axes:
    """Axes of a new Figure, in inches, outside pyplot's list of figures."""
    axes: Axes = Figure(figsize=(width, height), layout="constrained").subplots()
    return axes


def class_colours(n_classes: int) -> NDArray[np.float64]:
    """One colour for each class, shape (C, 3)."""
    if n_classes <= len(PALETTE):
        return np.array([to_rgb(colour) for colour in PALETTE[:n_classes]])
    return np.asarray(mpl.colormaps["turbo"](np.linspace(0.05, 0.95, n_classes)))[:, :3]


def class_names(tree: Tree) -> tuple[str, ...]:
    """Names of the classes; their numbers where the tree has none."""
    return tree.class_names or tuple(str(c) for c in range(tree.value.shape[1]))


def feature_names(tree: Tree) -> tuple[str, ...]:
    """Names of the features; x0, x1, ... where the tree has none."""
    return tree.feature_names or tuple(f"x{j}" for j in range(tree.n_features))
