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
from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.progress import fitting, steps_of
from bayestree._utils.seed import RandomState, draw_seed
from bayestree.diagnostics import Convergence, PolytopeSize, SplitUncertainty, TreeSize
from bayestree.diagnostics.label_free import spread_rows
from bayestree.diagnostics.size import number_probabilities
from bayestree.diagnostics.uncertainty import mixed_uncertainty
from bayestree.estimators._checks import held_out_of
from bayestree.estimators._mixed_draws import MIXED_GROUPS, MixedContainer, mode_counts
from bayestree.estimators._numbers import fitted_rows
from bayestree.estimators._stages import StagedTree
from bayestree.inference import Data

if TYPE_CHECKING:
    import xarray as xr

MAX_SHOWN = 20  # rows at which a container has predictions


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

    def label_free(self, X: ArrayLike | None = None, *, n_rows: int = 20) -> xr.Dataset:
        self._one_output("label_free")
        modes = self.modes_
        if len(modes) == 1:
            return super().label_free(X, n_rows=n_rows)
        if n_rows < 1:
            raise ValueError(f"n_rows must be 1 or more, got {n_rows}.")
        if X is None:
            (rows, _), numbers = self._generated_rows(n_rows, n_rows), None
        else:
            rows, numbers = self._spread(fitted_rows(self, X), n_rows)
        found = [mode._compared(rows, numbers) for mode in modes]
        return _as_chains(found).assign_attrs(mode_weights=self.mode_weights_.tolist())

    def _compared(self, rows: FloatArray, numbers: IntArray | None) -> xr.Dataset:
        """The quantities of a mode that are compared with those of others."""
        posterior = self.posterior_
        found = diagnostics.label_free(
            posterior.described_draws,
            posterior.model.topology,
            rows,
            row_labels=numbers,
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

    def _container(
        self,
        data: Data | None,
        row_labels: IntArray | None,
        *,
        groups: Iterable[str] | None,
        n_prior: int,
        random_state: RandomState,
    ) -> Any:
        modes = self.modes_
        if len(modes) == 1:
            return super()._container(
                data, row_labels, groups=groups, n_prior=n_prior, random_state=random_state
            )
        from bayestree.inference.arviz_groups import attributes_of  # noqa: PLC0415 - imports xarray

        wanted = self._mixed_groups(groups, data)
        of_modes = [name for name in wanted if name != "posterior"]
        seeds = check_random_state(draw_seed(random_state))
        # 0 or less is refused by the modes, and a mode of weight 0 has a draw that is not taken
        shares = np.ceil(n_prior * self.mode_weights_).astype(int).clip(min(n_prior, 1))
        of_prior = shares.tolist()
        made = MixedContainer(
            modes,
            self.mode_weights_,
            [
                mode._container(
                    data, row_labels, groups=of_modes, n_prior=count, random_state=seeds
                )
                for mode, count in steps_of([*zip(modes, of_prior, strict=True)], "modes")
            ],
            self._shown_rows(data, row_labels),
            None if data is None else data.weights.numpy(force=True).astype(np.float64),
            of_prior,
            n_prior,
            seeds,
        )
        attributes = attributes_of(self.posterior_) | self._attributes()
        del attributes["scale"]  # of the parameters
        attributes["mode_weights"] = json.dumps(self.mode_weights_.tolist())
        return arviz_compat.container(
            {name: made.group(name).assign_attrs(attributes) for name in wanted}, attributes
        )

    def _mixed_groups(self, groups: Iterable[str] | None, data: Data | None) -> list[str]:
        """The groups to create: those that all modes have, or the given ones."""
        point = max(mode.posterior_.n_chains * mode.posterior_.n_draws for mode in self.modes_) == 1
        if groups is None:
            from bayestree.inference import arviz_groups  # noqa: PLC0415 - imports xarray

            each = [arviz_groups.available(mode.posterior_, data) for mode in self.modes_]
            known = [name for name in MIXED_GROUPS if all(name in one for one in each)]
            return [name for name in known if not (point and name == "log_likelihood")]
        wanted = [groups] if isinstance(groups, str) else [*groups]
        for name in wanted:
            if name not in MIXED_GROUPS:
                raise ValueError(
                    f"the mixture of {len(self.modes_)} modes has the groups {[*MIXED_GROUPS]}, "
                    f"got {name!r}; for the parameters of one mode, use modes_[m].to_arviz()."
                )
        if point and "log_likelihood" in wanted:
            raise ValueError(
                "group 'log_likelihood' cannot be created: the modes are point estimates, whose "
                "leave-one-out score is not known; loo(X, y, method='kfold') refits them."
            )
        return wanted

    def _shown_rows(self, data: Data | None, row_labels: IntArray | None) -> xr.DataArray:
        """The rows at which the container has predictions, on the scale of the draws."""
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

        if data is None or row_labels is None:
            return xr.DataArray(self._generated_rows(MAX_SHOWN, 1)[0], dims=("point", "feature"))
        standard = data.X.numpy(force=True)
        some = np.sort(spread_rows(standard, MAX_SHOWN))
        labels = {"row": row_labels[some]}
        return xr.DataArray(standard[some], dims=("row", "feature"), coords=labels)

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
        counts = mode_counts(self.mode_weights_, total, seeds)
        return np.concatenate(
            [
                mode._sampled(X, int(count), seeds, known)
                for mode, count in zip(modes, counts, strict=True)
                if count
            ]
        )


def _as_chains(found: Sequence[xr.Dataset]) -> xr.Dataset:
    """The draws of each mode as chains, numbered in the order of the modes."""
    import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and this module is imported by estimators

    joined = xr.concat(found, dim="chain")
    modes = np.repeat(np.arange(len(found)), [one.sizes["chain"] for one in found])
    return joined.assign_coords(chain=np.arange(len(modes)), mode=("chain", modes))
