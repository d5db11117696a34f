"""Explanations of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bayestree.estimators._fitted import FittedTree
from bayestree.estimators._numbers import fitted_rows
from bayestree.protocols import has_draws, modes_of

if TYPE_CHECKING:
    from bayestree.explain.explanation import Explanation
    from bayestree.explain.moves import Features


class Explained(FittedTree):
    """Explanations that every fitted tree inherits."""

    def explain(
        self,
        x: ArrayLike,
        *,
        features: Features = None,
        target: Any = None,
        level: float = 0.9,
        max_programs: int = 500,
    ) -> Explanation:
        """Explain the prediction for one row.

        The path and the facets are those of ``tree_``; the probabilities of the turns, the
        prediction and its uncertainty those of the posterior, if there is one. With several modes
        the turns are judged by the mode of ``tree_``.

        The nearest change makes ``predict`` return another class, or a mean beyond ``target``, with
        a small sum of absolute changes of numbers, in units of ``tree_.scale``, and of categories
        and booleans, which count 1 each (an ordered category for each step). Numbers stay within
        the range of the training rows, and whole if those are. The search begins at the nearest
        changes of the deterministic trees; where no average is taken, ``change.bound`` is a lower
        limit. If ``change.row`` is None, no change was found.

        Parameters
        ----------
        x : array, Series, mapping or DataFrame, shape (d,) or (1, d)
            A mapping has the value of each column by name.
        features : sequence of str or int, or mapping, optional
            Columns that the nearest change may alter, by default all; dates, and missing values of
            columns that are not named, stay. A mapping has for each column of numbers the least and
            the largest value, which may lie beyond those of the training rows; for each one of
            categories or booleans the levels that it may change to; or None.
        target : label or float, optional
            Class to predict after the change, by default any other; or, for regression, mean that
            the prediction should reach from the other side.
        level : float
            Probability of the intervals.
        max_programs : int
            Maximum number of linear programs in the search for the nearest change, about two
            milliseconds each, or ten where categories may change.

        Returns
        -------
        Explanation
            Can be printed; see also ``to_frame`` and ``plot``.

        Raises
        ------
        ValueError
            If x is not one row, or ``features`` or ``target`` is unknown.
        """
        from bayestree.explain.explanation import explanation  # noqa: PLC0415 - SciPy's optimisers

        check_is_fitted(self)
        self._one_output("explain")
        X = _one_row(x, self.encoding_.names)
        rows = fitted_rows(self, X)
        if len(rows) != 1:
            raise ValueError(f"x must be one row, got {len(rows)}; explain them one by one.")
        posterior = None
        if has_draws(self) and hasattr(self, "split_uncertainty"):
            posterior = self.split_uncertainty(X, level=level)
        others = [one for one in modes_of(self) if one.estimator.tree_ is not self.tree_]
        return explanation(
            self.tree_,
            rows[0],
            self._expectation,
            encoding=self.encoding_,
            cells=tuple(own[0] for own in self.encoding_.shown(X)),
            labels=getattr(self, "classes_", None),
            posterior=posterior,
            same_nodes=not self.posterior_.settings.get("mirror"),
            others=[one.estimator.tree_ for one in others],
            averages=self._averages(),
            features=features,
            target=target,
            max_programs=max_programs,
        )


def _one_row(x: Any, names: tuple[str, ...]) -> Any:
    """A row as a table with one row."""
    if isinstance(x, Mapping):
        own = names if x.keys() == {*names} else x
        return pd.DataFrame([[x[name] for name in own]], columns=[*own])
    if isinstance(x, pd.Series):
        return x.to_frame().T.infer_objects()
    return np.asarray(x, dtype=object)[None] if np.ndim(x) == 1 else x
