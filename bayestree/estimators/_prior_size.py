"""The prior of the number of facets, for given rows."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Seed
from bayestree.diagnostics.size import PolytopeSize, polytope_size
from bayestree.estimators._base import BaseTree
from bayestree.estimators._diagnostics import splits_of_prior
from bayestree.estimators._numbers import fitted_rows, validated
from bayestree.estimators._units import units
from bayestree.models import SoftTree
from bayestree.models.leaves import Categorical


class PriorPredictive(BaseTree):
    """What the prior of an estimator implies for given rows."""

    def prior_size(
        self, X: ArrayLike, *, n_draws: int = 1000, random_state: Seed = 0
    ) -> PolytopeSize:
        """Distribution of the number of facets of one node under the prior, before seeing y.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            The rows that reach the node. Before a fit they are those of the root, and determine
            the units of the features; after it, rows of any node.
        n_draws : int
            Number of draws from the prior; each takes a few milliseconds.
        random_state : int, RandomState or None

        Returns
        -------
        PolytopeSize
            As for a posterior of one node, ``"root"``, with one chain: see ``probabilities``,
            ``interval`` and ``to_frame``.

        Raises
        ------
        ValueError
            If the prior is improper, or for rows that ``fit`` or, after it, ``predict`` refuses.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bayestree import ConvexPolytopeTreeClassifier
        >>> X, _ = load_iris(return_X_y=True)
        >>> found = ConvexPolytopeTreeClassifier().prior_size(X, n_draws=50)
        >>> found.probabilities().shape[0]
        1
        """
        if hasattr(self, "posterior_"):
            model = self.posterior_.model
            rows = self._standardise(fitted_rows(self, X))[:, self._used]
        else:
            model, rows = clone(self)._before_fit(X)
        drawn = splits_of_prior(model, rows.shape[1], n_draws, random_state)
        draws = {site: values[None, :, None] for site, values in drawn.items()}
        everywhere = [np.arange(len(rows))]
        return polytope_size(draws, rows, everywhere, labels=["root"], max_draws=n_draws)

    def _before_fit(self, X: ArrayLike) -> tuple[SoftTree, FloatArray]:
        """The model, and the columns in use of X in the units that a fit to X would have."""
        rows: FloatArray = validated(self, X, dtype=np.float64)
        weights = np.ones(len(rows))
        self._choose_columns(rows, weights)
        center, scale = units(rows, weights, self._unit_rule())
        return self._model(Categorical(2)), ((rows - center) / scale)[:, self._used]
