"""What is written at the nodes and leaves of a drawn tree."""

from typing import NamedTuple

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree._utils.inequality import inequality, limit
from bayestree.report.html import words
from bayestree.report.html.study import Study
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree, facet_threshold

TINY = float(np.finfo(np.float64).tiny)
TERMS = 2  # of the condition of a node in a drawing


class Labels(NamedTuple):
    """What is written, and drawn as widths, at the nodes and leaves of one tree.

    Attributes
    ----------
    tree : RoutedTree
    prefix : str
        Before the path in the names of the page: ``""``, or ``"t2-"`` in a forest.
    nodes : tuple of str
        What each node asks in the point estimate.
    posterior : tuple of str
        Number of facets of each node by the posterior; empty where there is none.
    rows : array, shape (V,)
        Rows that reach each node.
    means : array, shape (V, C) or (V, 1)
        Shares of the classes among them, or the mean of y.
    unsure : array, shape (V,), optional
        Share of the rows asked whose side at a node is open.
    sides : (str, str)
        What the two ways are called.
    classes : tuple of str
    """

    tree: RoutedTree
    prefix: str
    nodes: tuple[str, ...]
    posterior: tuple[str, ...]
    rows: FloatArray
    means: FloatArray
    unsure: FloatArray | None
    sides: tuple[str, str]
    classes: tuple[str, ...]

    def path(self, child: int) -> str:
        """Path of a node, or of a leaf ``~leaf``, from the root."""
        own = self.tree.topology
        return own.node_labels[child] if child >= 0 else own.leaf_labels[~child]

    def rows_of(self, child: int) -> float:
        """Rows that reach a node, or a leaf ``~leaf``."""
        return float(self.rows[child] if child >= 0 else self.tree.leaf_rows[~child])

    def mean_of(self, child: int) -> FloatArray:
        """Shares of the classes, or the mean, of a node or a leaf ``~leaf``."""
        return self.means[child] if child >= 0 else np.atleast_1d(self.tree.value[~child])

    def says(self, mean: FloatArray) -> str:
        """Shares of the classes, or a mean, in words."""
        if self.tree.value.ndim == 1:
            return f"mean {words.number(float(mean[0]))}"
        best = int(mean.argmax())
        return f"{self.classes[best]} ({words.percent(float(mean[best]))})"

    def leaf_text(self, leaf: int) -> str:
        """What a leaf predicts."""
        value = self.tree.value[leaf]
        if self.tree.value.ndim == 1:
            return words.number(float(value))
        best = int(value.argmax())
        return f"{self.classes[best]} ({value[best]:.2f})"

    def spoken(self, child: int) -> str:
        """A node or leaf in a line, for the pointer and for readers aloud."""
        rows = words.count(self.rows_of(child), "row")
        if child < 0:
            return f"Leaf {self.path(child)}: {self.leaf_text(~child)}, {rows}"
        unsure = "" if self.unsure is None else f", {words.percent(self.unsure[child])} unsure"
        return f"Node {self.path(child)}: {self.asks(child)}, {rows}{unsure}"

    def asks(self, node: int) -> str:
        """What a node asks, by the point estimate and the posterior, on one line."""
        return " \N{MIDDLE DOT} ".join([self.nodes[node], *self.posterior[node : node + 1]])


def labels_of(study: Study, tree: RoutedTree, prefix: str = "") -> Labels:
    """What is written at one of the trees of a study."""
    unsure = None
    if study.uncertainty is not None and not study.is_forest:
        unsure = np.nan_to_num(study.doubt_table["unsure"].to_numpy())
    rows = tree.topology.sum_below(tree.leaf_rows)
    weighted = tree.leaf_rows[:, None] * tree.value.reshape(tree.n_leaves, -1)
    return Labels(
        tree=tree,
        prefix=prefix,
        nodes=_questions(study, tree),
        posterior=_posterior(study),
        rows=rows,
        means=tree.topology.sum_below(weighted) / np.maximum(rows, TINY)[:, None],
        unsure=unsure,
        sides=side_names(study, tree),
        classes=study.classes,
    )


def side_names(study: Study, tree: RoutedTree) -> tuple[str, str]:
    """What the ways from a node are called: a condition holds or not, a polytope has insides."""
    if not isinstance(tree, Tree):
        return tree.side_names
    several = study.splits_drawn and study.estimator.posterior_.model.split.n_experts > 1
    if several or (tree.n_facets > 1).any():
        return tree.side_names
    whole = (np.count_nonzero(tree.hyperplane, axis=1) <= TERMS).all()
    return ("yes", "no") if whole else ("left", "right")


def condition(tree: Tree, expert: int, names: tuple[str, ...], most: int) -> tuple[str, str, float]:
    """A facet of the deterministic tree in words: left side with sign, limit, and the limit itself.

    A facet without a coefficient holds for all rows or for none.
    """
    plane, strength = tree.hyperplane[expert], np.abs(tree.standardised_hyperplane[expert])
    away = float(facet_threshold(tree.weight[[expert]])[0] - tree.intercept[expert])
    if not strength.any():
        return ("every row" if away >= 0 else "no row"), "", away
    left, first = inequality(plane, strength, names, max_features=most)
    bound = away / float(plane[first])
    return words.relation(left), limit(bound, float(tree.scale[first])), bound


def _questions(study: Study, tree: RoutedTree) -> tuple[str, ...]:
    """What each node asks, in few words."""
    if not isinstance(tree, Tree):
        return (tree.split_name,) * tree.n_nodes
    asked = []
    several = study.splits_drawn and study.estimator.posterior_.model.split.n_experts > 1
    for node in range(tree.n_nodes):
        own = tree.experts(node)
        if own.stop - own.start == 1 and not several:
            asked.append(_hyperplane(study, tree, own.start))
        else:
            asked.append(words.count(own.stop - own.start, "facet"))
    return tuple(asked)


def _posterior(study: Study) -> tuple[str, ...]:
    """The number of facets of each node by the posterior, where it may vary."""
    if study.sizes is None or study.estimator.posterior_.model.split.n_experts == 1:
        return ()
    spans = study.sizes.interval().astype(int).tolist()
    return tuple(
        f"posterior {words.posterior(median, *span)}"
        for median, span in zip(study.sizes.median().tolist(), spans, strict=True)
    )


def _hyperplane(study: Study, tree: Tree, expert: int) -> str:
    """A split by one hyperplane: its condition, or the chief of its many features."""
    strength = np.abs(tree.standardised_hyperplane[expert])
    used = np.count_nonzero(strength)
    if used <= TERMS:
        left, bound, _ = condition(tree, expert, study.features, TERMS)
        return f"{left} {bound}".strip()
    chief = np.argsort(-strength, kind="stable")[:TERMS]
    return f"{', '.join(study.features[j] for j in chief)} + {used - TERMS} more"
