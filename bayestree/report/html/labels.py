"""Labels of the nodes and leaves of a drawn tree."""

import numpy as np

from bayestree._utils.wording import counted
from bayestree.description import HalfSpace, TreeDescription
from bayestree.report.html import text
from bayestree.report.html.study import Study
from bayestree.routed_tree import RoutedTree

TERMS, DIGITS = 2, 3  # of the condition of a node
DOT = " \N{MIDDLE DOT} "


class LabelledTree(TreeDescription):
    """The description of one of the trees of a study, with its labels and anchors on the page.

    ``prefix`` distinguishes the anchors of the trees of a forest or a mixture, of which the study
    has no posterior. ``conditions`` are those of the
    point estimate; ``posterior`` has the posterior number of facets of each node, if there is one;
    ``uncertain`` (V,) is the share of the evaluated rows about which each split is uncertain.
    """

    def __init__(self, study: Study, tree: RoutedTree, prefix: str = "") -> None:
        super().__init__(tree, TERMS, DIGITS, features=study.features, classes=study.classes)
        self.prefix = prefix
        self.posterior_polytopes = not prefix and study.n_experts > 1
        self.conditions = tuple(map(self._short_condition, range(tree.n_nodes)))
        self.posterior: tuple[str, ...] = ()
        if self.posterior_polytopes and study.sizes is not None:
            self.posterior = tuple(
                f"posterior {study.size_text(node)}" for node in range(tree.n_nodes)
            )
        self.uncertain = None
        if not prefix and study.uncertainty is not None:
            self.uncertain = np.nan_to_num(study.uncertainty_table["unsure"].to_numpy())

    @property
    def side_names(self) -> tuple[str, str]:
        """Names of the sides: of a condition that is written in full, of a polytope, or others."""
        if self.linear is None or self.posterior_polytopes or self.has_polytopes:
            return self.tree.side_names
        is_complete = (np.count_nonzero(self.linear.hyperplane, axis=1) <= TERMS).all()
        return ("yes", "no") if is_complete else ("left", "right")

    def side(self, child: int) -> str:
        return self.side_names["LR".index(self.path(child)[-1])]

    def anchor(self, child: int) -> str:
        return f"{self.prefix}{self.path(child)}"

    def line(self, node: int) -> str:
        """Condition of a node in the point estimate, and its posterior, on one line."""
        return DOT.join([self.conditions[node], *self.posterior[node : node + 1]])

    def leaf_label(self, leaf: int) -> str:
        value = self.tree.value[leaf]
        if not self.classifies:
            return text.number(float(value))
        best = int(value.argmax())
        return f"{self.classes[best]} ({value[best]:.2f})"

    def value_text(self, child: int) -> str:
        """The most frequent class of a node or leaf with its share, or the mean."""
        value = self.value(child)
        if not self.classifies:
            return f"{self.tree.quantity} {text.number(float(value[0]))}"
        best = int(value.argmax())
        return f"{self.classes[best]} ({text.percent(float(value[best]))})"

    def summary(self, child: int) -> str:
        """Description of a node or leaf in a line, for tooltips and screen readers."""
        rows = counted(self.rows(child), "row")
        if child < 0:
            return f"Leaf {self.path(child)}: {self.leaf_label(~child)}, {rows}"
        uncertain = ""
        if self.uncertain is not None:
            uncertain = f", {text.percent(self.uncertain[child])} uncertain"
        return f"Node {self.path(child)}: {self.line(child)}, {rows}{uncertain}"

    def _short_condition(self, node: int) -> str:
        """The condition of a hyperplane or its main features, or the number of facets."""
        if self.linear is None:
            return self.tree.split_name
        if self.n_facets(node) > 1 or self.posterior_polytopes:
            return counted(self.n_facets(node), "facet")
        expert = self.linear.experts(node).start
        strength = self._strength[expert]
        used = np.count_nonzero(strength)
        if used <= TERMS:
            return " ".join(printed(self.half_space(expert))).strip()
        order = np.argsort(-strength, kind="stable")[:TERMS]
        return f"{', '.join(self.features[j] for j in order)} + {used - TERMS} more"


def printed(facet: HalfSpace) -> tuple[str, str]:
    """The left side and the limit of a facet with typographic signs."""
    if not facet.left:
        return ("every row" if facet.bound >= 0 else "no row"), ""
    return text.relation(facet.left), facet.limit
