"""The deterministic tree as text."""

import numpy as np

from bayestree.tree import Tree, facet_threshold


def export_text(tree: object, *, max_features: int = 4, decimals: int = 3) -> str:
    """A tree as text: each facet by its largest weights, in the units of the data.

    Parameters
    ----------
    tree : Tree, or a fitted estimator
    max_features : int
        Terms shown of each facet: those of the largest weight per standard deviation.
    decimals : int
        Significant digits.

    Returns
    -------
    str
    """
    found = getattr(tree, "tree_", tree)
    if not isinstance(found, Tree):
        raise TypeError(f"tree must be a Tree or a fitted estimator, got {type(tree).__name__}.")
    return "\n".join(_lines(found, max_features, decimals)) + "\n"
