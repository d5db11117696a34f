"""Notes at the top of exports: what the numbers of a tree are."""

import numpy as np

from bayestree._utils.wording import counted, one_line, plain
from bayestree.description import has_draws, sparsity_of, trees_of, words_of_mode
from bayestree.routed_tree import RoutedTree
from bayestree.tree import Tree

SCORES = "Facets are scores: 2 per 10 x, for example, are 2 points for each 10 of x."


def notes_on_numbers(tree: object, digits: int | None) -> list[str]:
    """Say in lines what numbers are: the point estimate, if there is a posterior, and points.

    What missing values count as has so many significant ``digits``; None shows all.
    """
    path, found = sparsity_of(tree), trees_of(tree, several_outputs=True)
    scores = SCORES if getattr(found[0], "unit", None) is not None else ""
    cost = "" if path is None else path.cost_of_points
    lines = [f"{scores} {cost}".strip(), filled_values(tree, digits)]
    return [*_point_estimate_note(tree), *filter(None, lines)]


def filled_values(
    estimator: object, digits: int | None = 3, *, tree: RoutedTree | None = None
) -> str:
    """Say what missing values count as in the facets of a sparse tree; empty if all are 0.

    ``tree`` is another tree of the estimator's features than its own.
    These are the columns that lack values of training rows; the indicators of levels are then 0.
    """
    encoding, tree = (
        getattr(estimator, "encoding_", None),
        tree or getattr(estimator, "tree_", None),
    )
    if encoding is None or not (isinstance(tree, Tree) and tree.is_conjunction.all()):
        return ""
    used = np.any(tree.hyperplane != 0, axis=0).tolist()
    found = [
        f"{one_line(name)} = {plain(fill, digits)}"
        for column, own in zip(encoding.columns, encoding.places, strict=True)
        for name, fill, j in zip(column.labels, column.fill or (), own.tolist(), strict=False)
        if column.gaps and used[j] and fill
    ]
    return f"Missing values count as {', '.join(found)}." if found else ""


def _point_estimate_note(tree: object) -> list[str]:
    words = words_of_mode(tree)
    lines = [f"This is {words}."] if words else []
    if not has_draws(tree):
        return lines
    shown, posterior = trees_of(tree, several_outputs=True)[0], ""
    if isinstance(shown, Tree):
        own = "polytope_size() and facets(node) give" if shown.n_nodes else "polytope_size() gives"
        posterior = f"; {own} the posterior"
    path = sparsity_of(tree)
    kind = "the point estimate (the deterministic tree)"
    if path is not None:
        left = counted(int(path.coefficients[-1]), "coefficient")
        kind = (
            f"those of a sparse tree, the projection of the posterior onto {left} instead of "
            f"{path.coefficients[0]}"
        )
    return [*lines, f"All numbers are {kind}{posterior}."]
