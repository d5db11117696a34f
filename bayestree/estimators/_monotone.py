"""Predictions that rise or fall with given columns (``monotonic_cst``)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Model, ParameterError, declare
from bayestree.inference import Data, Posterior
from bayestree.inference.training import leaf_sums
from bayestree.models.soft_tree import isotonic, larger_side, leaf_order
from bayestree.tables import Encoding
from bayestree.tables.kinds import Numbers, Ordered
from bayestree.tree import Tree

Direction = Literal[-1, 0, 1]


@declare
class Monotone:
    """The columns in which predictions are monotone."""

    monotonic_cst: Annotated[
        tuple[Direction, ...] | dict[str, Direction] | None,
        Model(
            "Columns with which predictions may only rise (1) or only fall (-1), as in "
            "scikit-learn: one number for each column, 0 for those that are free, or a dict by the "
            "names of columns. Predictions are means or rates, or probabilities of the second of "
            "two classes. For columns of numbers and ordered categories, with leaf='constant' or "
            "'poisson', and inference='grow', 'map' or 'svi'."
        ),
    ] = None


def directions(given: Any, encoding: Encoding) -> tuple[int, ...]:
    """The direction of predictions in each feature; () if all are free."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) and len(given) != len(encoding.columns):
        raise ParameterError(
            "monotonic_cst must have a number for each column of X, "
            f"{len(encoding.columns)}, got {len(given)}."
        )
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else enumerate(given)
    found = [0] * len(encoding.feature_names)
    for key, direction in pairs:
        try:
            column, features = encoding.part(key)
        except ValueError as error:
            raise ParameterError(f"monotonic_cst: {error}") from None
        if direction and not isinstance(column, Numbers | Ordered):
            raise ParameterError(
                "monotonic_cst needs columns of numbers or ordered categories, but "
                f"{column.name!r} contains {column.kind}: set it to 0."
            )
        for feature in features[: len(column.labels)]:
            found[feature] = int(direction)
    return tuple(found) if any(found) else ()


def ordered_tree(tree: Tree, directions: tuple[int, ...]) -> Tree:
    """The deterministic tree with its leaves in the order that its splits demand."""
    if not (directions and tree.n_nodes):
        return tree
    risen = tree.hyperplane @ np.array(directions, dtype=np.float64)
    order = leaf_order(tree.topology, larger_side(np.add.reduceat(risen, tree.expert_start[:-1])))
    classes = len(tree.class_names) > 0
    return tree.with_value(_in_order(tree.value, tree.leaf_rows, order, classes))


def ordered(found: Posterior, data: Data) -> Posterior:
    """A posterior whose leaves have the order that its splits demand, in every draw."""
    model, point = found.model, found.point
    if model.topology.n_nodes == 0:
        return found
    sums = leaf_sums(model, found.point_sites(data.X), data)
    mass = model.leaf.level(sums)[0].numpy(force=True).astype(np.float64)
    risen = (point["hyperplane"] * np.array(model.monotone)).sum(axis=(1, 2))
    order, site = leaf_order(model.topology, larger_side(risen)), str(model.leaf.level_site)
    classes = model.leaf.n_classes > 0
    changed = [
        {**sites, site: _in_order(sites[site], mass, order, classes)}
        for sites in (found.draws, point)
    ]
    return replace(found, draws=changed[0], point=changed[1])


def _in_order(
    values: NDArray[Any], mass: FloatArray, order: NDArray[np.int64], classes: bool
) -> NDArray[Any]:
    """Predictions (..., L), or probabilities of two classes (..., L, 2), in the given order."""
    if not classes:
        return isotonic(values, mass, order)
    second = isotonic(values[..., 1], mass, order)
    moved = second != values[..., 1]
    return np.where(moved[..., None], np.stack((1 - second, second), axis=-1), values)
