"""What is read from the mixture of several modes, beyond what one of its trees says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bayestree import diagnostics
from bayestree._utils import arviz_compat
from bayestree._utils.arrays import AnyArray, FloatArray
from bayestree._utils.progress import fitting, steps_of
from bayestree._utils.seed import RandomState, draw_seed
from bayestree.diagnostics import Convergence, Loo, PolytopeSize, SplitUncertainty, TreeSize
from bayestree.diagnostics.label_free import spread_rows
from bayestree.diagnostics.stacking import mixed_loo
from bayestree.diagnostics.tree_size import number_probabilities
from bayestree.diagnostics.uncertainty import mixed_uncertainty
from bayestree.estimators._checks import held_out_of
from bayestree.estimators._numbers import fitted_rows
from bayestree.estimators._stages import StagedTree
from bayestree.inference.attributes import attributes_of

if TYPE_CHECKING:
    import xarray as xr

MIXED_GROUPS = (
    "posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data",
)  # fmt: skip


class Mixture(StagedTree):
    """Readers of a posterior that has several modes; with one, those of :class:`StagedTree`."""

    n_jobs: int | None
    _modes: Sequence[Self] = ()  # empty if there is one: the estimator itself
    _weights: FloatArray
    _medoid: int
    _distilled: Self | None = None  # the single tree that is shown instead of the medoid's
    _split_seed: int | None = None  # of the held-out rows, which all modes share

    @property
    def modes_(self) -> Sequence[Self]:
        """The fitted trees of the mixture: the estimator itself if ``n_modes`` is 1."""
        check_is_fitted(self)
        return self._modes or [self]

    @property
    def mode_weights_(self) -> FloatArray:
        """The weights of ``modes_``, shape (M,), with sum 1."""
        check_is_fitted(self)
        return self._weights if self._modes else np.ones(1)

    def _averages(self) -> bool:
        several = len(self.modes_) > 1 and self.prediction != "tree"
        return several or super()._averages()

    def _expectation(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        modes = self.modes_
        if len(modes) == 1 or self.prediction == "tree":
            return super()._expectation(rows)
        averages = super()._averages()
        # Relative to the first mode, because squares of values of y may be too large to subtract.
        first, sd = modes[0]._moments(rows, averages=averages)
        shift: Any = 0.0
        square = self.mode_weights_[0] * sd**2
        for mode, weight in zip(modes[1:], self.mode_weights_[1:], strict=True):
            mean, sd = mode._moments(rows, averages=averages)
            shift = shift + weight * (mean - first)
            square = square + weight * (sd**2 + (mean - first) ** 2)
        return first + shift, np.sqrt(np.maximum(square - shift**2, 0.0))  # of rounding errors

    def split_uncertainty(self, X: ArrayLike, *, level: float = 0.9) -> SplitUncertainty:
        own = super().split_uncertainty(X, level=level)
        modes = self.modes_
        if len(modes) == 1:
            return own
        each = [mode.split_uncertainty(X, level=level) for mode in modes]
        return mixed_uncertainty(own, each, self.mode_weights_)

    def polytope_size(self, max_draws: int = 100) -> PolytopeSize:
        if len(self.modes_) == 1:
            return super().polytope_size(max_draws)
        weights = self.mode_weights_
        with fitting(self.verbose):
            each = [mode.polytope_size(max_draws) for mode in steps_of(self.modes_, "modes")]
        shown = self._distilled
        own = each[self._medoid] if shown is None else shown.polytope_size(max_draws)
        leaves = [one.n_leaves for one in each if one.n_leaves is not None]
        sizes = TreeSize(
            facets=number_probabilities([one.sizes()[:, :1].sum(axis=1) for one in each], weights),
            splits=number_probabilities([one.sizes().sum(axis=1) for one in each], weights),
            leaves=number_probabilities(leaves, weights) if len(leaves) == len(each) else None,
            depth=number_probabilities(
                [np.array([mode.get_depth()]) for mode in self.modes_], weights
            ),
        )
        return replace(own, over_modes=sizes)

    def co_membership(self, X: ArrayLike, other: ArrayLike | None = None) -> FloatArray:
        """Posterior probability that two rows share a leaf, over all modes and draws.

        Given the parameters, each row is routed at random, as in the model; a row on the border
        of a split may thus be parted from its own copy, and the diagonal be below 1.

        Parameters
        ----------
        X : array or DataFrame, shape (n, d)
        other : array or DataFrame, shape (m, d), optional
            By default X.

        Returns
        -------
        array, shape (n, m)
            In memory as a whole: give a part of the rows as X if there are many.
        """
        rows = self._standardise(fitted_rows(self, X))
        columns = rows if other is None else self._standardise(fitted_rows(self, other))
        total = np.zeros((len(rows), len(columns)))
        for mode, weight in zip(self.modes_, self.mode_weights_, strict=True):
            posterior = mode.posterior_
            share = weight / (posterior.n_chains * posterior.n_draws)
            for sites in posterior.each():
                leaf = posterior.leaf_probs(rows, sites)
                same = leaf if other is None else posterior.leaf_probs(columns, sites)
                total += share * (leaf @ same.T)
        return total

    def loo(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Loo:
        if len(self.modes_) == 1:
            return super().loo(X, y, sample_weight)
        return mixed_loo(
            [mode.loo(X, y, sample_weight) for mode in self.modes_], self.mode_weights_
        )

    def label_free(self, X: ArrayLike | None = None, *, n_rows: int = 20) -> xr.Dataset:
        self._one_output("label_free")
        modes = self.modes_
        if len(modes) == 1:
            return super().label_free(X, n_rows=n_rows)
        if n_rows < 1:
            raise ValueError(f"n_rows must be 1 or more, got {n_rows}.")
        if X is None:
            rows, _ = self._generated_rows(n_rows, n_rows)
        else:
            rows = spread_rows(self._standardise(fitted_rows(self, X)), n_rows)
        found = [mode._compared(rows) for mode in modes]
        return _as_chains(found).assign_attrs(mode_weights=self.mode_weights_.tolist())

    def _compared(self, rows: FloatArray) -> xr.Dataset:
        """The quantities of a mode that are compared with those of others."""
        posterior = self.posterior_
        found = diagnostics.label_free(
            posterior.described_draws,
            posterior.model.topology,
            rows,
            steepness=posterior.model.steepness,
            class_names=self.tree_.class_names,
        )[["prediction"]]
        leaves = self._reach.leaves
        return found if leaves is None else found.assign(leaves=(("chain", "draw"), leaves))

    def check_convergence(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, *, n_rows: int = 20
    ) -> Convergence:
        if len(self.modes_) == 1:
            return super().check_convergence(X, y, n_rows=n_rows)
        return diagnostics.mixed_convergence(
            [mode.check_convergence(X, n_rows=n_rows) for mode in self.modes_],
            self.mode_weights_,
            self.label_free(X, n_rows=n_rows),
            held_out=None if y is None else held_out_of(self, X, y),
            distilled=self._distilled and self._distilled.check_convergence(X, n_rows=n_rows),
        )

    def to_arviz(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: Iterable[str] | None = None,
        n_prior: int = 200,
        random_state: RandomState = 0,
    ) -> Any:
        if len(self.modes_) == 1:
            return super().to_arviz(
                X, y, sample_weight, groups=groups, n_prior=n_prior, random_state=random_state
            )
        known = list(MIXED_GROUPS[: 2 if X is None and y is None else None])
        if self.n_outputs_ > 1:
            known.remove("posterior")  # label_free is for one output
        if not all(mode.posterior_.stats for mode in self.modes_):
            known.remove("sample_stats")
        wanted = known if groups is None else [groups] if isinstance(groups, str) else [*groups]
        for name in wanted:
            if name not in known:
                others = "" if "observed_data" in known else ", and others if X and y are given"
                raise ValueError(
                    f"the mixture of {len(self.modes_)} modes has the groups {known}{others}, got "
                    f"{name!r}; for the parameters of one mode, use modes_[m].to_arviz()."
                )
        if X is None and y is None and sample_weight is not None:
            raise ValueError("sample_weight needs the rows; give X and y.")
        of_modes = [name for name in known if name in wanted and name != "posterior"]
        seeds = check_random_state(draw_seed(random_state))
        with fitting(self.verbose):
            each = [
                mode.to_arviz(X, y, sample_weight, groups=of_modes, random_state=seeds)
                for mode in steps_of(self.modes_ if of_modes else (), "modes")
            ]
        built = {"posterior": self.label_free(X)} if "posterior" in wanted else {}
        for name in of_modes:
            found = [arviz_compat.group(one, name) for one in each]
            if name == "sample_stats":  # of the draws: traces may differ in length
                found = [one[[key for key in one if "draw" in one[key].dims]] for one in found]
            built[name] = found[0] if name == "observed_data" else _as_chains(found)
        attributes = attributes_of(self.posterior_) | self._attributes()
        del attributes["scale"]  # of the parameters
        attributes["mode_weights"] = json.dumps(self.mode_weights_.tolist())
        return arviz_compat.container(
            {name: one.assign_attrs(attributes) for name, one in built.items()}, attributes
        )

    def _sampled(
        self,
        X: ArrayLike,
        draws: int | None,
        random_state: RandomState,
        known: FloatArray | None = None,
    ) -> AnyArray:
        modes = self.modes_
        if len(modes) == 1:
            return super()._sampled(X, draws, random_state, known)
        posteriors = [mode.posterior_ for mode in modes]
        total = sum(one.n_chains * one.n_draws for one in posteriors) if draws is None else draws
        if total < 1:
            raise ValueError(f"draws must be 1 or more, got {draws}.")
        seeds = check_random_state(draw_seed(random_state))
        # Systematic: a mode of weight w gets w * total draws on average, less than one off.
        ends = np.floor(np.cumsum(self.mode_weights_) * total + seeds.uniform()).astype(int)
        ends[-1] = total
        return np.concatenate(
            [
                mode._sampled(X, int(count), seeds, known)
                for mode, count in zip(modes, np.diff(ends, prepend=0), strict=True)
                if count
            ]
        )


def _as_chains(found: Sequence[xr.Dataset]) -> xr.Dataset:
    """The draws of each mode as chains, numbered in the order of the modes."""
    import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

    joined = xr.concat(found, dim="chain")
    modes = np.repeat(np.arange(len(found)), [one.sizes["chain"] for one in found])
    return joined.assign_coords(chain=np.arange(len(modes)), mode=("chain", modes))
