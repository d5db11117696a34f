"""HHCART: axis-parallel cuts of Householder reflections of the rows."""

from typing import Annotated, Literal

import numpy as np

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Inference, declare
from bayestree.inference.splitters.planes import NodeRows, PlaneSearch

DEGENERATE = 1e-12  # squares below this are rounding errors, as features have unit scale


@declare
class HHCart(PlaneSearch):
    """HHCART (Wickramarachchi, Robertson, Reale, Price and Brown, 2016).

    For each eigenvector of the covariance matrix of each class, the rows are reflected such that
    the eigenvector becomes the first axis. The split is the best axis-parallel cut of all
    reflections and of the original features, which win ties. For regression, the quartiles of y
    stand for classes (the paper treats classes only).

    {parameters}
    """

    eigenvectors: Annotated[
        Literal["dominant", "all"],
        Inference("Eigenvectors of each class: the one of the largest eigenvalue, or all."),
    ] = "dominant"

    def find(self, node: NodeRows, rng: np.random.Generator) -> FloatArray | None:
        directions, groups = [np.eye(node.n_features)], node.groups()
        for group in range(groups.max() + 1):
            rows = groups == group
            vectors = self._vectors(node.X[rows], node.weights[rows])
            directions += [reflection(vector) for vector in vectors]
        return node.best(np.concatenate(directions))

    def _vectors(self, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Find unit eigenvectors of the covariance of rows, as rows, the dominant one first."""
        centred = X - np.average(X, axis=0, weights=weights)
        value, vector = np.linalg.eigh((centred * weights[:, None]).T @ centred)
        if value[-1] <= DEGENERATE:  # the rows are alike
            return vector[:0]
        found = vector.T[::-1]
        # the sign, which LAPACK leaves open, decides about the reflection
        largest = np.take_along_axis(found, np.abs(found).argmax(axis=1)[:, None], axis=1)
        found = found * np.sign(largest)
        return found[:1] if self.eigenvectors == "dominant" else found


def reflection(vector: FloatArray) -> FloatArray:
    """Return the Householder matrix I - 2 u u' that maps a unit vector (d,) to the first axis."""
    normal = -vector
    normal[0] += 1.0
    square = float(normal @ normal)
    if square < DEGENERATE:  # the vector is the first axis
        return np.eye(len(vector))
    return np.eye(len(vector)) - 2.0 * np.outer(normal, normal) / square
