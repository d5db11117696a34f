"""Names of the dimensions of draws: nodes and leaves by their paths, features, classes, rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bayestree.topology import Topology

if TYPE_CHECKING:
    from bayestree.inference.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Labels:
    """Coordinates by dimension; those without names are numbered.

    Parameters
    ----------
    topology : Topology
    features, classes : sequence of str
    rows : array of int, shape (n,), optional
        0 to n - 1 by default.
    """

    topology: Topology
    features: Sequence[str]
    classes: Sequence[str]
    rows: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        posterior: "Posterior",
        feature_names: Sequence[str] = (),
        class_names: Sequence[str] = (),
        rows: NDArray[np.int64] | None = None,
    ) -> "Labels":
        """Labels of a posterior's draws; ``x0``, ... and ``0``, ... where no names are given.

        Raises
        ------
        ValueError
            If there are more or fewer names than the draws have features or classes.
        TypeError
            If the splits have no hyperplanes, whose dimensions these are.
        """
        if "hyperplane" not in posterior.draws:
            raise TypeError(
                "draws are named by expert and feature, which the splits of this posterior do not "
                f"have: {posterior.model.split!r}; read posterior.draws."
            )
        n_features = posterior.draws["hyperplane"].shape[-1]
        probs = posterior.draws.get("leaf_probs")
        n_classes = 0 if probs is None else probs.shape[-1]
        _check_length("feature_names", feature_names, n_features)
        _check_length("class_names", class_names, n_classes)
        return cls(
            posterior.model.topology,
            feature_names or [f"x{j}" for j in range(n_features)],
            class_names or [str(number) for number in range(n_classes)],
            rows,
        )

    def dataset(self, variables: Mapping[str, Any]) -> xr.Dataset:
        """Variables, with the coordinates of the dimensions that they have."""
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
        raise ValueError(f"{name} must have {length} entries, as the draws, got {len(names)}.")
