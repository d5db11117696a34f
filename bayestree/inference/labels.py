"""Coordinates of draws: labels of nodes, leaves, features, classes and rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bayestree.inference.draws import Draws
from bayestree.topology import Topology


@dataclass(frozen=True, eq=False)
class Labels:
    """Coordinates by dimension; rows are numbered by default."""

    topology: Topology
    features: Sequence[str]
    classes: Sequence[str]
    rows: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        posterior: Draws,
        feature_names: Sequence[str] = (),
        class_names: Sequence[str] = (),
        rows: NDArray[np.int64] | None = None,
    ) -> "Labels":
        """Labels of a posterior's draws; by default ``x0``, ... and ``0``, ...."""
        if "hyperplane" not in posterior.draws:
            raise TypeError(
                "The dimensions of draws are experts and features, which the splits of this "
                f"posterior do not have: {posterior.model.split!r}; use posterior.draws."
            )
        n_features = posterior.draws["hyperplane"].shape[-1]
        n_classes = posterior.model.leaf.n_classes
        _check_length("feature_names", feature_names, n_features)
        _check_length("class_names", class_names, n_classes)
        return cls(
            posterior.model.topology,
            feature_names or [f"x{j}" for j in range(n_features)],
            class_names or [str(number) for number in range(n_classes)],
            rows,
        )

    def dataset(self, variables: Mapping[str, Any]) -> xr.Dataset:
        """Create a dataset of variables with the coordinates of their dimensions."""
        found = xr.Dataset(dict(variables))
        return found.assign_coords(
            {dim: (dim, self._labels(str(dim), length)) for dim, length in found.sizes.items()}
        )

    def _labels(self, dim: str, length: int) -> NDArray[Any]:
        named: dict[str, Sequence[str]] = {
            "node": self.topology.node_labels,
            "leaf": self.topology.leaf_labels,
            "side": ("left", "right"),
            "feature": self.features,
            "class": self.classes,
        }
        if dim in named:
            return np.array(named[dim], dtype=np.str_)
        return np.arange(length) if dim != "row" or self.rows is None else self.rows


def _check_length(name: str, names: Sequence[str], length: int) -> None:
    if len(names) not in (0, length):
        raise ValueError(
            f"{name} must have {length} entries, as many as the draws, got {len(names)}."
        )
