"""Trees and texts that the tests of the plots share."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from bayestree.diagnostics import PolytopeSize, SplitUncertainty
from bayestree.diagnostics.uncertainty import PARTS
from bayestree.topology import Topology
from bayestree.tree import LOG2, Tree


def make_tree(*, topology=None, n_experts=1, n_features=2, n_classes=2, seed=0, **changes):
    rng = np.random.default_rng(seed)
    topology = topology or Topology.complete(2)
    n_nodes = topology.n_nodes
    tree = Tree.from_standardised(
        topology,
        np.full((n_nodes, n_experts), LOG2),
        3 * rng.normal(size=(n_nodes, n_experts, n_features)),
        rng.normal(size=(n_nodes, n_experts)),
        center=np.zeros(n_features),
        scale=np.ones(n_features),
        **changes,
    )
    X = rng.normal(size=(200, n_features))
    y = rng.integers(n_classes, size=200) if n_classes else rng.normal(size=200)
    return tree.fill(X, y, np.ones(200), n_classes)


def estimator_of(tree, **more):
    """The least that a fitted estimator has."""
    return SimpleNamespace(tree_=tree, predict_proba=tree.predict, predict=tree.predict, **more)


def texts(ax):
    """Every text of a picture that is not empty."""
    return [found.get_text() for found in ax.findobj(Text) if found.get_text()]


def drawn(ax):
    """The figure of one Axes or of an array of them, rendered."""
    figure = np.ravel(np.array(ax, dtype=object))[0].figure
    # The canvas of a Figure that pyplot does not know of draws nothing.
    FigureCanvasAgg(figure).draw()
    return figure


def make_sizes(facets, *, prior=None, n_leaves=None, labels=None, rows=None):
    """Sizes from facets (draw, V), and optionally from the prior (prior draw, V)."""
    facets = np.asarray(facets)[None]
    n_nodes = facets.shape[2]
    if prior is not None:
        prior = np.asarray(prior)
        prior = SimpleNamespace(facets=prior, weights=prior + 1, effective=prior + 0.4)
    return PolytopeSize(
        weights=facets + 1,
        facets=facets,
        effective=facets + 0.4,
        labels=labels or Topology.complete(4).node_labels[:n_nodes],
        rows=np.arange(100.0, 100.0 - n_nodes, -1) if rows is None else np.asarray(rows),
        prior=prior,
        n_leaves=None if n_leaves is None else np.asarray(n_leaves)[None],
    )


def make_uncertainty(low, mean, high, *, reached=None, regression=False):
    """Uncertainty of n rows at V nodes, from arrays of shape (n, V)."""
    low, mean, high = (np.asarray(part, dtype=float) for part in (low, mean, high))
    n_rows, n_nodes = mean.shape
    known, unknown = [np.zeros(n_rows)] * 3, [None] * 3
    parts = [*unknown, *known] if regression else [*known, *unknown]
    named: dict[str, Any] = dict(zip(PARTS, parts, strict=True))
    topology = Topology.complete(4)
    return SplitUncertainty(
        mean,
        np.zeros_like(mean),
        np.stack([low, high], axis=-1),
        mean,
        np.minimum(mean, 1 - mean),
        np.ones_like(mean) if reached is None else np.asarray(reached, dtype=float),
        mean > 0.5,
        np.ones((n_rows, n_nodes + 1)),
        np.zeros(n_rows, dtype=int),
        np.ones(n_rows),
        **named,
        expected_y=None,
        level=0.9,
        labels=topology.node_labels[:n_nodes],
        leaf_labels=topology.leaf_labels[: n_nodes + 1],
    )


def rows_of(tree, n=200, seed=0):
    """Rows and responses of the kind that the tree predicts."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, tree.n_features))
    y = rng.integers(tree.value.shape[1], size=n) if tree.value.ndim == 2 else rng.normal(size=n)
    return X, y
