"""The deterministic trees of a tree, an estimator or a forest."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from bayestree.routed_tree import RoutedTree


def trees_of(tree: object) -> list[RoutedTree]:
    """The deterministic trees of a tree, of a fitted estimator, or of a fitted forest.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If it is an estimator that was not fitted.
    TypeError
        If ``tree`` is neither a tree nor an estimator of this package.
    """
    members = getattr(tree, "estimators_", [tree])
    found = [getattr(member, "tree_", member) for member in members]
    if found and all(isinstance(one, RoutedTree) for one in found):
        return found
    if hasattr(tree, "fit"):
        check_is_fitted(tree)
    raise TypeError(
        f"tree must be a Tree or a fitted estimator of this package, got {type(tree).__name__}."
    )


def tree_of(estimator: object) -> RoutedTree:
    """The one deterministic tree of a tree or of a fitted estimator.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If it is an estimator that was not fitted.
    TypeError
        If it is a forest, or neither a tree nor an estimator of one.
    """
    found = trees_of(estimator)
    if hasattr(estimator, "estimators_"):
        raise TypeError(
            f"one tree is needed, got {type(estimator).__name__}; of a forest pass one tree, such "
            "as estimators_[0]."
        )
    return found[0]


def has_draws(estimator: object) -> bool:
    """Whether an estimator has a posterior of several draws."""
    posterior: Any = getattr(estimator, "posterior_", None)
    return posterior is not None and posterior.n_chains * posterior.n_draws > 1
