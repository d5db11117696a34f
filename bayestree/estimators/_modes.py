"""Several modes of a posterior: trees grown from different seeds, and the weights of their mixture.

The modes of the posterior over trees are topologies, between which no inference for one topology
moves. Each mode is therefore a whole fit; their mixture is the posterior that is reported.
"""

import warnings
from collections.abc import Sequence
from copy import copy
from numbers import Integral
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, ParameterError, declare
from bayestree._utils.seed import draw_seed
from bayestree.diagnostics.loo import elbo_weights, loo, stacking_weights
from bayestree.estimators._base import TrainingRows
from bayestree.estimators._contents import Arrays, describe
from bayestree.estimators._distil import distil, mean_predictions
from bayestree.estimators._members import built_members, fit_members, member_arrays, member_of
from bayestree.estimators._mixture import Mixture
from bayestree.inference import Data, Stage, Svi, pointwise
from bayestree.inference.single_leaf import SingleLeafWarning
from bayestree.models import Network, SoftTree
from bayestree.models.leaves import Leaf

SCORED_ROWS = 2000  # a weight is estimated from as many; its standard error is then about 1 %
PRIOR_ROWS = 5.0  # in favour of each mode: few rows would otherwise often leave a single one
EVERY_MODE = (
    "no mode has kept a split with min_leaf rows on both sides; there may be nothing to find, or "
    "try another random_state"
)


@declare
class Modes(Mixture):
    """How many trees are fitted, and how they are weighted.

    Attributes
    ----------
    modes_ : sequence of M estimators
        The fitted trees of the mixture.
    mode_weights_ : array, shape (M,)
    """

    n_modes: Annotated[
        Count | None,
        Inference(
            "Number of trees; by default 3 with inference='svi', but 1 with search_facets and with "
            "other methods. Each is grown, refined and drawn from with a seed of its own, and "
            "predictions average over all of them with the weights mode_weights_. tree_ and all "
            "that refers to its nodes belong to the medoid, the tree whose predictions differ "
            "least from the others; modes_ has all trees. The first has the seed random_state, as "
            "with n_modes=1."
        ),
    ] = None
    mode_weights: Annotated[
        Literal["auto", "stacking", "equal", "elbo"],
        Inference(
            "Weights of the trees. 'stacking' maximises the log score of the mixture for rows that "
            "are left out one by one, or for those that validation_fraction holds out, and needs "
            "draws or such rows; 'elbo' makes them proportional to exp(ELBO), for inference='svi', "
            "which often leaves a single tree. 'auto': stacking where it is possible, otherwise "
            "equal."
        ),
    ] = "auto"
    mode_tree: Annotated[
        Literal["medoid", "distilled"],
        Inference(
            "tree_ with several modes: the tree of the medoid, the mode whose predictions differ "
            "least from the others, or a single tree fitted to the predictions of the mixture, at "
            "the training rows and at simulated ones, with at most max_leaves leaves (by default "
            "as many as the medoid)."
        ),
    ] = "medoid"

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        if self.n_modes is not None and self._continues() and len(self.modes_) != self.n_modes:
            raise ParameterError(
                f"warm_start=True continues from {len(self.modes_)} fitted modes: set "
                f"n_modes={len(self.modes_)}, or warm_start=False to fit new trees."
            )
        if self._number() == 1:
            if self.mode_tree == "distilled":
                raise ParameterError(
                    "mode_tree='distilled' fits a tree to the predictions of several modes, got "
                    f"n_modes={self.n_modes}: set n_modes to 2 or more, or mode_tree='medoid'."
                )
            return
        last = self._stages()[-1]
        if self.mode_weights == "elbo" and not isinstance(last, Svi):
            raise ParameterError(
                f"mode_weights='elbo' needs inference='svi', got {self.inference!r}; use "
                "mode_weights='equal' or 'stacking'."
            )
        if self.mode_weights == "stacking" and not self._stacks():
            raise ParameterError(
                f"mode_weights='stacking' needs several draws or held-out rows, and "
                f"inference={self.inference!r} is a point estimate: use mode_weights='equal', or "
                "hold rows out by validation_fraction."
            )

    def _number(self) -> int:
        """The number of modes: as given, as in the fit that is continued, or by the method."""
        if self.n_modes is not None:
            return self.n_modes
        if self._continues():
            return len(self.modes_)
        if not isinstance(self.inference, str):
            return self.inference.default_modes
        last = self.pipelines[self.inference][-1]
        return last.from_keywords(self._keywords(last)).default_modes

    def _check_ignored(self, kinds: tuple[type[Stage], ...], given: Stage) -> None:
        plain = copy(self)
        if self._number() > 1:
            plain.n_jobs = None  # it is that of the modes
        super(Modes, plain)._check_ignored(kinds, given)

    def _stacks(self) -> bool:
        """Whether the modes can be scored on rows that they have not seen."""
        one = self._stages()[-1].draws in (None, (1, 1))
        return self.mode_weights in ("auto", "stacking") and bool(
            self.validation_fraction or not one
        )

    def _fit(self, rows: TrainingRows, leaf: Leaf) -> Self:
        if self._number() == 1:
            found = super()._fit(rows, leaf)
            self._modes = ()
            return found
        self._check_combination(self._model(leaf))
        modes = fit_members(
            self._new_modes(), rows, leaf, label="modes", n_jobs=self.n_jobs, verbose=self.verbose
        )
        rows = rows.counted()
        data = modes[0]._data(rows, 1.0)
        scored = _scored_rows(modes[0], data)
        weights = self._weigh(modes, scored)
        medoid = _medoid(modes, weights, scored)
        self._keep(modes, weights, medoid, self._distil(modes, weights, medoid, rows, leaf))
        if not any(mode.tree_.n_nodes for mode in modes):
            self._warn_if_single_leaf(self.tree_.topology, leaf, data, EVERY_MODE)
        self._warn_if_unconverged()
        return self

    def _new_modes(self) -> list[Self]:
        """The modes before their fit; those of a warm start have the trees of the last fit."""
        given = self.random_state
        first = int(given) if isinstance(given, Integral) else draw_seed(given)
        others = check_random_state(draw_seed(first)).randint(2**31 - 1, size=self._number())[1:]
        modes = [
            self._single(random_state=seed, n_jobs=None, verbose=False)
            for seed in (first, *others.tolist())
        ]
        for number, mode in enumerate(modes):
            mode._split_seed = first if number else None
            if self._continues():
                mode.tree_ = self.modes_[number].tree_
                mode.posterior_ = self.modes_[number].posterior_
        return modes

    def _single(self, **changes: Any) -> Self:
        """An estimator of one tree, before its fit, with some parameters changed."""
        shared = self.get_params(deep=False) | {"n_modes": 1, "mode_tree": "medoid"}
        return member_of(self, type(self)(**shared | changes))

    def _distil(
        self,
        modes: Sequence[Self],
        weights: FloatArray,
        medoid: int,
        rows: TrainingRows,
        leaf: Leaf,
    ) -> Self | None:
        """The tree that is distilled from the modes; None for that of the medoid."""
        n_leaves = modes[medoid].get_n_leaves()
        if self.mode_tree == "medoid" or n_leaves == 1:
            return None
        seed = draw_seed(modes[-1].random_state)
        students = [
            self._single(
                inference="map",
                max_leaves=self.max_leaves or n_leaves,
                validation_fraction=0.0,
                warm_start=starts,
                random_state=seed,
            )
            for starts in (False, True)
        ]
        nearest = modes[medoid]
        students[1].tree_, students[1].posterior_ = nearest.tree_, nearest.posterior_
        if nearest.posterior_.model.split != nearest._model(leaf).split:
            students.pop()  # of another form, which the fit cannot continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SingleLeafWarning)  # the medoid is shown instead
            found = distil(students, modes, weights, medoid, rows, leaf)
        return found if found.tree_.n_nodes else None

    def _hold_out(self, data: Data, seeds: np.random.RandomState) -> tuple[Data, Data | None]:
        if self._split_seed is not None:
            seeds = check_random_state(draw_seed(self._split_seed))
        return super()._hold_out(data, seeds)

    def _weigh(self, modes: Sequence[Self], scored: Data) -> FloatArray:
        """The weights of the modes, shape (M,)."""
        if self.mode_weights == "elbo":
            return elbo_weights([_elbo(mode.posterior_.stats) for mode in modes])
        if not self._stacks():
            return np.full(len(modes), 1 / len(modes))
        held_out = self.validation_fraction > 0
        rows = scored.weights.numpy(force=True).astype(np.float64)
        each = scored._replace(weights=torch.ones_like(scored.weights)) if held_out else scored
        columns = []
        for mode in modes:
            posterior = mode.posterior_
            if held_out:
                columns.append(pointwise.log_density(posterior.model, posterior.each(), each))
            else:  # all copies of a row are left out together: the score of each of them
                terms = pointwise.log_likelihood(posterior.model, posterior.each(), each)
                columns.append(loo(terms[None]).elpd_row / rows)
        scores = np.stack(columns, axis=1)
        return stacking_weights(scores, row_weights=rows, prior_rows=PRIOR_ROWS)

    def _keep(
        self, modes: Sequence[Self], weights: FloatArray, medoid: int, distilled: Self | None
    ) -> None:
        """Take over the distilled or the medoid's tree, for all that reads a single tree."""
        self._modes, self._weights, self._medoid = modes, weights, medoid
        self._distilled = distilled
        for name in ("tree_", "posterior_", "_reach", "_units", "_source"):
            setattr(self, name, getattr(distilled or modes[medoid], name))

    # Files.

    def _fitted_trees(self) -> list[Self]:
        return [*self.modes_]

    def _describe(self) -> dict[str, Any]:
        if not self._modes:
            return super()._describe()
        described = {"modes": [describe(mode) for mode in self._modes], "medoid": self._medoid}
        if self._distilled is not None:
            described["distilled"] = describe(self._distilled)
        return described

    def _arrays(self) -> Arrays:
        if not self._modes:
            return super()._arrays()
        own = [] if self._distilled is None else [self._distilled]
        trees = member_arrays("modes", self._modes) | member_arrays("distilled", own)
        return {"mode_weights": self._weights} | trees

    def _restore(self, described: dict[str, Any], arrays: Arrays, network: Network | None) -> None:
        if "modes" not in described:
            super()._restore(described, arrays, network)
            return
        modes = built_members(type(self), described["modes"], "modes", arrays)
        weights = arrays["mode_weights"]
        if not (len(modes) > 1 and weights.shape == (len(modes),) and (weights >= 0).all()):
            raise ValueError(f"mode_weights are not those of {len(modes)} modes: {weights}")
        if not np.isclose(weights.sum(), 1):
            raise ValueError(f"mode_weights have the sum {weights.sum()}, not 1")
        if described["medoid"] not in range(len(modes)):
            raise ValueError(f"medoid is {described['medoid']!r}, not one of {len(modes)} modes")
        own = [described["distilled"]] if "distilled" in described else []
        distilled = next(iter(built_members(type(self), own, "distilled", arrays)), None)
        self._keep(modes, weights, described["medoid"], distilled)


def _scored_rows(mode: Modes, data: Data) -> Data:
    """The rows that the modes held out, or else those of the fit: at most ``SCORED_ROWS``."""
    seeds = check_random_state(draw_seed(mode.random_state))
    _, held_out = mode._hold_out(data, seeds)
    found = data if held_out is None else held_out
    if len(found.X) <= SCORED_ROWS:
        return found
    some = np.sort(seeds.choice(len(found.X), SCORED_ROWS, replace=False))
    return found.take(torch.as_tensor(some, device=found.X.device))


def _medoid(modes: Sequence[Modes], weights: FloatArray, scored: Data) -> int:
    """The mode whose predictions differ least from those of the others."""
    means = mean_predictions(modes, scored.X.numpy(force=True))
    distance = np.array([[np.abs(a - b).mean() for b in means] for a in means]) @ weights
    return int(np.where(weights > 0, distance, np.inf).argmin())


def _elbo(stats: Any) -> float:
    """The ELBO of a mode; of a single leaf, whose draws are exact, the log-evidence."""
    if "final_elbo" in stats:
        return float(stats["final_elbo"])
    return float(np.mean(stats["log_p"] - stats["log_q"]))
