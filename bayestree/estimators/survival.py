"""Convex polytope trees of right-censored survival times."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from bayestree._utils.arrays import FloatArray
from bayestree._utils.monte_carlo import central_interval
from bayestree._utils.parameters import Model, declare
from bayestree.diagnostics.draws import tails
from bayestree.diagnostics.scores import concordance
from bayestree.estimators._regressor import Regressor
from bayestree.estimators.cpt import BasePolytopeTree
from bayestree.fitted import predictions
from bayestree.fitted.predictions import quantiles
from bayestree.fitted.validation import checked_weights
from bayestree.models import Survival
from bayestree.models.leaves import Leaf

PART = 256  # rows whose survival functions are computed together


@declare
class ConvexPolytopeTreeSurvival(Regressor, BasePolytopeTree):
    """Survival tree whose splits are convex polytopes, with a posterior.

    Times may be right-censored. A leaf has the survival function exp(-rate h(t)), with
    h(t) = u (t / u)^power, u the mean of the times, and a gamma prior on its rate: the number of
    events per unit of time, on average up to the time u. The power is common to all leaves and
    chosen by empirical Bayes, or 1 with ``leaf="exponential"``.

    {parameters}

    {attributes}
    tree_ : Tree
        The deterministic tree; its values are the rates of the leaves, in events per unit of time.
        Of several modes, the tree of the medoid.
    posterior_ : Posterior
        Named draws of the same mode, on the standardised features. ``posterior_.model.leaf`` has
        the ``power`` and the time ``unit``.

    Notes
    -----
    Wherever a method takes y, it may be a structured array with a boolean field (event) and a field
    of times, as in scikit-survival; an array (n, 2) of times and events; or the times alone, if all
    events were observed. These methods also take ``event`` as an argument.

    Examples
    --------
    >>> import numpy as np
    >>> from bayestree import ConvexPolytopeTreeSurvival
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> time = rng.exponential(np.where(X[:, 0] > 0, 1.0, 5.0))
    >>> event = time < 6  # the study ends at 6
    >>> tree = ConvexPolytopeTreeSurvival(max_depth=1, random_state=0)
    >>> tree = tree.fit(X, np.minimum(time, 6), event=event)
    >>> tree.predict_survival_function(X, [1.0, 5.0]).shape
    (300, 2)
    """

    leaf: Annotated[
        Literal["weibull", "exponential"],
        Model("Distribution of times in a leaf: hazards that rise or fall, or constant ones."),
    ] = "weibull"

    _extra = "event"
    __metadata_request__fit = __metadata_request__score = {"event": True}
    _families: ClassVar[Mapping[str, Callable[[], Leaf]]] = {
        "weibull": Survival,
        "exponential": partial(Survival, learned=False),
    }

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        event: ArrayLike | None = None,
    ) -> Self:
        """Fit the tree.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
            Numbers, categories or dates; any may be missing (see ``encoding_``).
        y : array, shape (n,) or (n, 2)
            Times above 0 of events or censoring; with their events in a form above.
        sample_weight : array, shape (n,), optional
            Weight of each row, as a number of equal rows; or shares with a sum of 1.
        event : array of bool, shape (n,), optional
            Whether the event was observed at this time; false if the row was censored then.

        Raises
        ------
        ValueError
            For infinite values, missing ones in y, times that are not above 0, events other than
            true and false or given twice, no event at all, or other shapes.
        """
        return super().fit(X, self._joined(y, event), sample_weight)

    @overload
    def predict(self, X: ArrayLike, *, return_std: Literal[False] = ...) -> FloatArray: ...
    @overload
    def predict(
        self, X: ArrayLike, *, return_std: Literal[True]
    ) -> tuple[FloatArray, FloatArray]: ...
    def predict(
        self, X: ArrayLike, *, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict risk scores, shape (n,): expected rates of events, larger for shorter survival.

        With ``return_std``, also return its standard deviation over the posterior draws.
        """
        mean, sd = self._by_parts(X, self._expectation)
        return (mean, sd) if return_std else mean

    @overload
    def predict_survival_function(
        self, X: ArrayLike, times: ArrayLike, *, level: None = ...
    ) -> FloatArray: ...
    @overload
    def predict_survival_function(
        self, X: ArrayLike, times: ArrayLike, *, level: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]: ...
    def predict_survival_function(
        self, X: ArrayLike, times: ArrayLike, *, level: float | None = None
    ) -> FloatArray | tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the probability of survival beyond given times.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        times : array, shape (T,)
        level : float, optional
            Probability of credible bands, whose ends are then returned as well.

        Returns
        -------
        survival : array, shape (n, T)
            Mean over all modes and draws.
        low, high : arrays, shape (n, T)
            Ends of the central interval of each survival probability over the draws, with
            ``level``.

        Raises
        ------
        ValueError
            If ``times`` is not a list of times of 0 or more, or ``level`` not between 0 and 1.
        """
        at = np.asarray(times, dtype=np.float64)
        if at.ndim != 1 or not (at >= 0).all():
            raise ValueError(f"times must be a list of times of 0 or more, got {times!r}.")
        if level is not None:
            tails(level)
        parts = self._by_parts(X, partial(self._survival, times=at, level=level))
        return parts[0] if level is None else parts

    def _survival(
        self, rows: FloatArray, times: FloatArray, level: float | None
    ) -> tuple[FloatArray, ...]:
        """Return the mean survival probabilities (n, T), and their intervals."""
        found, mixture = [], self.fitted_
        used = [(one, weight) for one, weight in mixture.by_weight() if weight]
        for start in range(0, max(len(rows), 1), PART):
            X = mixture.scaling.standardise(rows[start : start + PART])
            each = [1 - one.posterior.distributions(X, times) for one, _ in used]
            counts = [len(one) for one in each]
            weights = np.repeat([w / n for (_, w), n in zip(used, counts, strict=True)], counts)
            values = np.concatenate(each)
            mean = np.tensordot(weights, values, axes=1)
            own = values, weights, mixture.chains
            bounds = () if level is None else central_interval(*own, level)
            found.append((mean, *bounds))
        return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))

    def predict_median(self, X: ArrayLike) -> FloatArray:
        """Predict the time, shape (n,), by which half of such rows have had the event."""
        median = np.array([0.5])
        return self._by_parts(X, lambda rows: quantiles(self.fitted_, rows, None, median)[0])

    predict_interval = predictions.predict_interval

    def in_interval(self, X: ArrayLike, y: ArrayLike, level: ArrayLike = 0.9) -> FloatArray:
        time, event = self.fitted_.response.separate(y)
        until = predictions.below(self, X, time, None)[1]
        low, high = predictions.ends_of(level, until.ndim)
        inside = ((low <= until) & (until < high)).astype(np.float64)
        if event is None:
            return inside
        # of the rows that survived until they were censored, this share dies inside
        later = np.maximum(high - np.maximum(until, low), 0.0) / np.maximum(1 - until, 1 - high)
        return np.where(event > 0, inside, later)

    in_interval.__doc__ = predictions.in_interval.__doc__

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the concordance of risk scores and times (see ``diagnostics.concordance``)."""
        weights = checked_weights(sample_weight, len(np.asarray(y)))
        return self.scores(y, self.predict(X), weights)["concordance"]

    def scores(self, y: ArrayLike, predicted: FloatArray, weights: FloatArray) -> dict[str, float]:
        """Return the ``concordance`` of risk scores (n,), by its name."""
        time, event = self.fitted_.response.separate(y)
        known = np.ones(len(time)) if event is None else event
        return {"concordance": concordance(time, known, predicted, weights)}
