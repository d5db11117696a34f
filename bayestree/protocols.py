"""Protocols of fitted estimators, and access to their deterministic trees.

The protocols name only what plots, reports and exports use, and need no torch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree.routed_tree import RoutedTree


class FittedPosterior(Protocol):
    """The result of an inference: its draws, settings and statistics."""

    @property
    def inference(self) -> str: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def stats(self) -> Mapping[str, Any]: ...
    @property
    def model(self) -> Any: ...
    @property
    def n_chains(self) -> int: ...
    @property
    def n_draws(self) -> int: ...


class FittedModel(Protocol):
    """A fitted tree or forest."""

    @property
    def n_features_in_(self) -> int: ...
    def predict(self, X: Any) -> AnyArray:
        """Class or value of each row, shape (n,)."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


class FittedTree(FittedModel, Protocol):
    """A fitted estimator of one tree."""

    @property
    def tree_(self) -> RoutedTree: ...
    @property
    def posterior_(self) -> FittedPosterior: ...


class FittedClassifier(FittedModel, Protocol):
    """A fitted tree or forest that predicts classes."""

    @property
    def classes_(self) -> AnyArray: ...
    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, shape (n, C)."""


class BayesianTree(FittedTree, Protocol):
    """A fitted tree with several posterior draws of its splits.

    The methods return what :mod:`bayestree.diagnostics` defines.
    """

    def facets(self, node: str | int) -> Any: ...
    def polytope_size(self, max_draws: int = 100) -> Any: ...
    def shrinkage(self) -> Any: ...
    def split_uncertainty(self, X: Any, *, level: float = 0.9) -> Any: ...
    def check_convergence(self) -> Any: ...
    def learned_prior(self) -> Any: ...
    def predict_interval(self, X: Any, level: float) -> Any: ...
    def in_interval(self, X: Any, y: Any, level: float) -> Any: ...


def features_of(model: object, X: Any) -> FloatArray:
    """Rows as the deterministic trees of a tree or of a fitted estimator take them, (n, d)."""
    encoding = getattr(model, "encoding_", None)
    if encoding is None:
        return np.asarray(X, dtype=np.float64)
    if encoding.is_plain:
        return encoding.filled(np.asarray(X, dtype=np.float64))
    return encoding.encode(X).to_numpy()


def trees_of(tree: object, *, several_outputs: bool = False) -> list[RoutedTree]:
    """The deterministic trees of a tree, of a fitted estimator, or of a fitted forest.

    ValueError if they have several outputs, unless this is allowed.
    """
    members = getattr(tree, "estimators_", [tree])
    found = [getattr(member, "tree_", member) for member in members]
    if found and all(isinstance(one, RoutedTree) for one in found):
        if not several_outputs and any(one.several_outputs for one in found):
            n_outputs = found[0].value.shape[1]
            raise ValueError(
                f"the tree has {n_outputs} outputs, of which one can be shown here: "
                f"pass output(0) of the tree or of its estimator, or another up to "
                f"output({n_outputs - 1})."
            )
        return found
    if hasattr(tree, "fit"):
        check_is_fitted(tree)
    raise TypeError(
        f"tree must be a Tree or a fitted estimator of this package, got {kind_of(tree)}."
    )


def kind_of(model: object) -> str:
    """The type of what is not a fitted tree, and where in a meta-estimator there is one."""
    name = type(model).__name__
    if hasattr(model, "steps"):
        return (
            f"{name}; pass its last step, [-1], and rows that the steps before it have transformed"
        )
    inside = ("best_estimator_", "estimator_", "regressor_")
    return next((f"{name}; pass its {one}" for one in inside if hasattr(model, one)), name)


def tree_of(estimator: object) -> RoutedTree:
    """The deterministic tree of a tree or of a fitted estimator, but not of a forest."""
    found = trees_of(estimator)
    if hasattr(estimator, "estimators_"):
        raise TypeError(
            f"one tree is needed, got {type(estimator).__name__}; pass a single tree of a forest, "
            "such as estimators_[0]."
        )
    return found[0]


def has_single_leaf(tree: RoutedTree) -> bool:
    """Whether a tree predicts the same for all rows: one leaf, without slopes."""
    return tree.n_nodes == 0 and getattr(tree, "slope", None) is None


def has_draws(estimator: object) -> bool:
    """Whether an estimator has a posterior of more than one draw."""
    posterior: FittedPosterior | None = getattr(estimator, "posterior_", None)
    return posterior is not None and posterior.n_chains * posterior.n_draws > 1


def has_evidence(estimator: object) -> bool:
    """Whether the posterior of an estimator is that of all topologies, with its evidence."""
    posterior: FittedPosterior | None = getattr(estimator, "posterior_", None)
    return posterior is not None and "log_evidence" in posterior.stats


class Mode(NamedTuple):
    """One of the trees of a mixture: its number from 0, its weight, and the fitted estimator."""

    number: int
    weight: float
    estimator: Any


def modes_of(estimator: object) -> list[Mode]:
    """The trees of an estimator with several modes, the most probable first; else none."""
    found = getattr(estimator, "modes_", ())
    if len(found) < 2:
        return []
    weights: Any = estimator.mode_weights_  # type: ignore[attr-defined]
    modes = [Mode(number, float(weights[number]), one) for number, one in enumerate(found)]
    return sorted(modes, key=lambda mode: -mode.weight)


def shown_mode(estimator: object) -> Mode | None:
    """The mode whose tree is the ``tree_`` of an estimator with several modes; else None."""
    tree = getattr(estimator, "tree_", None)
    return next((mode for mode in modes_of(estimator) if mode.estimator.tree_ is tree), None)
