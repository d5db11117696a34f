"""The state of a fitted tree, and rows in the units of its draws."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.parameters import Seed
from bayestree._utils.progress import Verbose
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._file_rows import FileRows, checked
from bayestree.estimators.files import save
from bayestree.inference import Posterior, Units
from bayestree.tables import Encoding


class _Unmeasured:
    """Explains, when it is read, why a fit has no measurements of polytopes."""

    def __get__(self, tree: "FittedTree", owner: type) -> Reach:
        raise AttributeError(
            "this diagnostic needs the polytopes of a soft tree with linear experts, but this fit "
            f"has none: its splits are of the kind {tree.tree_.split_name!r}."
        )


class FittedTree:
    """Results of a fit, for the methods that read them."""

    tree_: Any  # a Tree, or a NetworkTree if splits are networks
    posterior_: Posterior
    n_features_in_: int
    random_state: Seed
    verbose: Verbose
    validation_fraction: float
    encoding_: Encoding
    _row_weights: Callable[[ArrayLike | None, AnyArray], FloatArray]
    _encode: Callable[[AnyArray], AnyArray]  # to class numbers, or standardised values
    _decode: Callable[[AnyArray], AnyArray]
    _source: IntArray  # see ``columns_in_use``
    _averages: Callable[[], bool]
    _expectation: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    _reach: Reach = cast(Reach, _Unmeasured())  # replaced by a fit of linear experts
    _units = Units(np.zeros(0), np.ones(0))

    def save(self, path: str | Path) -> None:
        """Write the fitted tree or forest and its posterior to a file (see ``bayestree.load``)."""
        save(self, path)

    def _separate(self, y: Any) -> tuple[Any, FloatArray | None]:
        """y, and the further number of each row (see ``Leaf.extra``) that it comes with."""
        return y, None

    @property
    def n_outputs_(self) -> int:
        """Number of outputs of the fit: columns of y, 1 for y (n,)."""
        check_is_fitted(self)
        posterior: Posterior | None = getattr(self, "posterior_", None)  # which forests lack
        return 1 if posterior is None else posterior.model.leaf.n_outputs

    def _one_output(self, method: str) -> None:
        """Refuse a method that is defined for one output."""
        if self.n_outputs_ > 1:
            raise ValueError(
                f"{method} is for one output, but y had {self.n_outputs_} in the fit: use "
                f"output(0).{method}, or another up to output({self.n_outputs_ - 1})."
            )

    def _check_outputs(self, y: AnyArray) -> None:
        """Refuse y with another number of outputs than in the fit."""
        given = y.shape[1] if y.ndim == 2 else 1
        if given != self.n_outputs_:
            raise ValueError(
                f"y must have {self.n_outputs_} outputs, as in the fit, got the shape {y.shape}."
            )

    def _y_checks(self, y: Any) -> dict[str, bool]:
        """Arguments of scikit-learn's checks of y."""
        return {}

    def _check_response(self, y: AnyArray, extra: FloatArray | None) -> None:
        """Refuse y that the leaves cannot generate."""

    def _response(self, y: AnyArray, extra: FloatArray | None, rows: AnyArray) -> AnyArray:
        """y as the fit takes it, with the further numbers, of some of the rows; all are checked."""
        self._check_response(y, extra)
        found = self._encode(y[rows])
        return found if extra is None else np.column_stack((found, extra[rows]))

    def _by_parts(
        self, X: ArrayLike, function: Callable[..., Any], *columns: FloatArray | None
    ) -> Any:
        """One array or several with a row for each row of X, in chunks if X is a large file.

        ``function`` also takes the rows of ``columns``, of which any may be None.
        """
        check_is_fitted(self)
        rows = checked(self, X, in_parts=True, reset=False)
        if not isinstance(rows, FileRows):
            return function(rows, *columns)
        parts = [
            function(rows[part], *(None if one is None else one[part] for one in columns))
            for part in rows.slices()
        ]
        if not isinstance(parts[0], tuple):
            return np.concatenate(parts)
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    @overload
    def _standardise(self, X: FloatArray) -> FloatArray: ...
    @overload
    def _standardise(self, X: FileRows) -> FileRows: ...
    def _standardise(self, X: FloatArray | FileRows) -> FloatArray | FileRows:
        if isinstance(X, FileRows):
            return X.standardised(self._units.center, self._units.scale)
        return self._units.standardise(X)
