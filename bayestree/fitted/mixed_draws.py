"""Draws of a mixture of several modes, each of which is one of a mode's, and their ArviZ groups."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayestree._utils import arviz_compat
from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.diagnostics.loo import loo, mixed_loo
from bayestree.fitted.tree import FittedTree
from bayestree.inference import Posterior

if TYPE_CHECKING:
    import xarray as xr

MIN_DRAWS = 100  # of a mixture, so that the share of a mode is its weight to within a hundredth
MIXED_GROUPS = (
    "posterior", "sample_stats", "log_likelihood", "log_prior", "posterior_predictive", "prior",
    "prior_predictive", "observed_data", "constant_data",
)  # fmt: skip


class MixedDraws(NamedTuple):
    """Which draws of the modes are those of their mixture, in random order.

    Attributes
    ----------
    mode : array, shape (T,)
        The mode of each draw.
    draw : array, shape (T,)
        Its number among the draws of this mode, chain after chain.
    """

    mode: IntArray
    draw: IntArray

    @classmethod
    def of(
        cls,
        weights: FloatArray,
        lengths: Sequence[int],
        total: int,
        seeds: np.random.RandomState,
    ) -> MixedDraws:
        """``total`` draws, in proportion to weights, of modes that have ``lengths`` draws."""
        counts = mode_counts(weights, total, seeds)
        numbers = [spread_draws(*each) for each in zip(counts, lengths, strict=True)]
        order = seeds.permutation(total)
        return cls(np.repeat(np.arange(len(counts)), counts)[order], np.concatenate(numbers)[order])

    def dataset(self, of_modes: Sequence[xr.Dataset]) -> xr.Dataset:
        """These draws, as one chain, from those [chain, draw, ...] of each mode."""
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and estimators import this module

        parts = []
        for number, one in enumerate(of_modes):
            own = np.divmod(self.draw[self.mode == number], one.sizes["draw"])
            chain, draw = (xr.DataArray(index, dims="sample") for index in own)
            parts.append(one.isel(chain=chain, draw=draw).drop_vars(["chain", "draw"]))
        # ``parts`` have the draws mode by mode; these are their places in random order
        places = np.argsort(np.argsort(self.mode, kind="stable"))
        joined = xr.concat(parts, dim="sample").isel(sample=places).rename(sample="draw")
        numbers = np.arange(len(places))
        found = joined.expand_dims(chain=[0]).assign_coords(draw=numbers, mode=("draw", self.mode))
        return found.transpose("chain", "draw", ...)


def mode_counts(weights: FloatArray, total: int, seeds: np.random.RandomState) -> IntArray:
    """Numbers of draws of each mode: of weight w, w * ``total`` on average, less than one off."""
    ends = np.floor(np.cumsum(weights) * total + seeds.uniform()).astype(int)
    ends[-1] = total
    return np.diff(ends, prepend=0)


def spread_draws(count: int, length: int) -> IntArray:
    """``count`` of the draws 0 to length - 1: spread evenly, or repeated in order."""
    numbers = np.arange(count)
    return numbers * length // count if count < length else numbers % length


@dataclass(frozen=True, eq=False)
class MixedContainer:
    """The ArviZ groups of a mixture.

    ``trees`` have the ``weights`` (M,), and ``containers`` are theirs, with the same groups.
    Predictions are shown at ``rows`` [row or point, feature], on the scale of the draws, and
    ``row_weights`` (n,) are the weights of all rows.
    ``of_prior`` are the numbers of prior draws of the modes, of which ``n_prior`` are taken.
    """

    trees: Sequence[FittedTree]
    weights: FloatArray
    containers: Sequence[Any]
    rows: xr.DataArray
    row_weights: FloatArray | None
    of_prior: Sequence[int]
    n_prior: int
    seeds: np.random.RandomState

    def group(self, name: str) -> xr.Dataset:
        """A group by its name; ``posterior`` and ``prior`` have what all modes share."""
        if name == "posterior":
            return self._drawn.dataset([self._of_draws(tree) for tree in self.trees])
        each = [arviz_compat.group(one, name) for one in self.containers]
        if name == "observed_data":
            return each[0]
        if name == "constant_data":
            return self._constant(each[0])
        if name == "prior":
            each = [self._of_prior(*one) for one in zip(self.trees, each, strict=True)]
        elif name == "log_prior":
            each = [one - one.mean() for one in each]
        elif name == "log_likelihood":
            each = self._mixed_likelihood([one["obs"] for one in each])
        elif name == "sample_stats":  # what is recorded by step differs in length
            each = [one[[key for key in one if "draw" in one[key].dims]] for one in each]
        return (self._drawn_prior if name.startswith("prior") else self._drawn).dataset(each)

    @cached_property
    def _drawn(self) -> MixedDraws:
        lengths = [tree.n_draws for tree in self.trees]
        total = max(sum(lengths), MIN_DRAWS)
        return MixedDraws.of(self.weights, lengths, total, self.seeds)

    @cached_property
    def _drawn_prior(self) -> MixedDraws:
        return MixedDraws.of(self.weights, self.of_prior, self.n_prior, self.seeds)

    def _of_draws(self, tree: FittedTree) -> xr.Dataset:
        """Predictions and numbers of leaves of a tree's draws."""
        found = self._predictions(tree, tree.posterior)
        if any(one.polytopes.leaves is None for one in self.trees):  # of files of earlier versions
            return found
        return found.assign(leaves=(("chain", "draw"), tree.polytopes.leaves))

    def _of_prior(self, tree: FittedTree, drawn: xr.Dataset) -> xr.Dataset:
        """Predictions of draws from a tree's prior."""
        sites = {str(name): drawn[name].to_numpy() for name in drawn if name != "weight"}
        return self._predictions(tree, replace(tree.posterior, draws=sites))

    def _predictions(self, tree: FittedTree, posterior: Posterior) -> xr.Dataset:
        """E(y | x) of each draw, in the units of y."""
        import xarray as xr  # noqa: PLC0415 - takes 0.2 s, and estimators import this module

        each = np.concatenate([*posterior.expectations(self.rows.to_numpy())])
        values, _ = tree.in_units(each.astype(np.float64), each)
        shaped = values.reshape(posterior.n_chains, posterior.n_draws, *values.shape[1:])
        classes = tree.tree.class_names
        row, last = self.rows.dims[0], "class" if classes else "output"
        found = xr.DataArray(shaped, dims=("chain", "draw", row, last)[: shaped.ndim])
        own: dict[Hashable, Any] = {name: np.arange(size) for name, size in found.sizes.items()}
        own |= {"class": list(classes)} if classes else {}
        own |= {row: self.rows[row].to_numpy()}
        return found.assign_coords(own).to_dataset(name="prediction")

    def _mixed_likelihood(self, terms: Sequence[xr.DataArray]) -> list[xr.Dataset]:
        """Terms by which importance sampling gives the leave-one-out score of the mixture.

        Leaving a row out changes the draws of each mode, but not its weight. The ratio of a draw
        of mode m is therefore p_m(y_i | y_-i) / p(y_i | draw), while ArviZ takes exp(-term) for
        the ratio, and exp(term) for the density. A constant for each mode and row makes both
        right: exp(term) = p(y_i | draw) p(y_i | y_-i) / p_m(y_i | y_-i), where
        p(y_i | y_-i) = sum_m w_m p_m(y_i | y_-i).
        """
        scores = [loo(one.transpose("chain", "draw", "row")) for one in terms]
        mixed = mixed_loo(scores, self.weights, row_weights=self.row_weights).elpd_row
        return [
            (one + (mixed - score.elpd_row)).to_dataset(name="obs")
            for one, score in zip(terms, scores, strict=True)
        ]

    def _constant(self, found: xr.Dataset) -> xr.Dataset:
        """What the modes share, with their weights."""
        shared = found.drop_dims(["node", "side"]).assign(mode_weight=("mode", self.weights))
        shared = shared.assign_coords(mode=np.arange(len(self.weights)))
        if "X" in shared:
            return shared
        return shared.assign(X=self.rows * shared["scale"] + shared["center"])
