"""Experts proposed from the data: nearly axis-aligned cuts that separate the y of a node's rows.

A feature j and a bin of its thresholds are drawn with probabilities proportional to exp(t gain), t
the temperature and gain that of the hard split of the rows that reach the node, in nats. Given the
weight r and shrinkage of an expert, which follow their priors, its coefficient b_j and intercept
b_0 become

    b_j = +-s,  b_0 = l - b_j c,

with c uniform in the bin, l the activation at which the expert alone splits at 1/2, and s a
half-Cauchy variable in units in which the log-odds have a fixed slope there. All other
coefficients follow the prior, so that the density of the proposal relative to the prior,

    g / p = sum_j g_j(b_j, b_0 | r) / (p(b_j) p(b_0)),

is exact whichever feature the expert was drawn with. Where the weight is negligible the proposal
is the prior. A candidate comes from g or from the prior with equal probabilities.
"""

import math

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.potential import Sites
from bayestree.inference.slides import border
from bayestree.inference.smc.likelihood import Rows

BINS = 16  # at most, for each feature
SHARE = 0.5  # of candidates that are proposed from the data
SLOPE = 0.5  # scale of the slope of an expert's score at its boundary


class Cuts:
    """Bins of thresholds, and the experts that they propose."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.prior = rows, rows.model.priors.hyperplane
        X = rows.X[:, :-1].numpy()
        self.edges = [np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1))) for column in X.T]
        n_bins = [len(edges) - 1 for edges in self.edges]
        self.feature = np.repeat(np.arange(len(n_bins)), n_bins)
        self.start = np.cumsum([0, *n_bins])  # the first bin of each feature
        self.low = np.concatenate([edges[:-1] for edges in self.edges])
        self.high = np.concatenate([edges[1:] for edges in self.edges])
        self.log_width = np.log(self.high - self.low)
        right = X[:, self.feature] > (self.low + self.high) / 2
        self.right = torch.from_numpy(right).to(rows.X.dtype)  # (n, B)

    def log_chance(self, reach: Tensor, power: float) -> FloatArray:
        """Log-probabilities of the bins of all features (A, B), from log P(reach), (A, n)."""
        statistics, criterion = self.rows.statistics, self.rows.model.leaf.criterion
        share = reach.exp()
        each = share.unsqueeze(1) * statistics.T  # (A, C, n)
        side = (each.flatten(0, 1) @ self.right).view(*each.shape[:2], len(self.low))
        whole = (share @ statistics).unsqueeze(1)
        gain = criterion.gain(criterion.split_value(side.transpose(1, 2), whole), whole)
        gain = gain.nan_to_num(nan=0.0)  # of a node that no row reaches
        chance: FloatArray = torch.log_softmax(power * gain, -1).numpy()
        return chance

    def draw(self, sites: Sites, log_chance: FloatArray, rng: np.random.Generator) -> None:
        """Replace about half of the experts (A, M, ...), draws from the prior, in place."""
        if not len(self.low):
            return
        shape = sites["intercept"].shape
        gumbel = -np.log(rng.standard_exponential((*shape, len(self.low))))
        place = (log_chance[:, None] + gumbel).argmax(-1)
        level, scale = self._units(sites)
        cut = self.low[place] + (self.high[place] - self.low[place]) * rng.random(shape)
        slope = scale * rng.standard_cauchy(shape)
        where = np.nonzero((rng.random(shape) < SHARE) & np.isfinite(level))
        sites["hyperplane"][(*where, self.feature[place[where]])] = slope[where]
        sites["intercept"][where] = (level - slope * cut)[where]

    def draw_nodes(self, sites: Sites, log_chance: FloatArray, rng: np.random.Generator) -> None:
        """The same for one random expert of each node (A, M, K, ...)."""
        shape = sites["intercept"].shape
        chosen = (*np.indices(shape[:2]), rng.integers(shape[2], size=shape[:2]))
        own = {name: value[chosen] for name, value in sites.items()}
        self.draw(own, log_chance, rng)
        for name, value in own.items():
            sites[name][chosen] = value

    def log_ratio(self, sites: Sites, log_chance: FloatArray) -> FloatArray:
        """log q / p of experts (A, M, ...) that :meth:`draw` proposes, (A, M)."""
        return self._mixture(self._log_ratio(sites, log_chance))

    def log_node_ratio(self, sites: Sites, log_chance: FloatArray) -> FloatArray:
        """log q / p of nodes (A, M, K, ...) that :meth:`draw_nodes` proposes, (A, M)."""
        each = self._log_ratio(sites, log_chance)
        return self._mixture(np.logaddexp.reduce(each, axis=-1) - math.log(each.shape[-1]))

    def _mixture(self, ratio: FloatArray) -> FloatArray:
        """log q / p of the mixture with the prior, from log g / p."""
        return np.logaddexp(math.log(1 - SHARE), math.log(SHARE) + ratio)

    def _log_ratio(self, sites: Sites, log_chance: FloatArray) -> FloatArray:
        """log g / p of each expert, of the shape of its intercept."""
        level, scale = self._units(sites)
        if not len(self.low):
            return np.zeros_like(level)
        slope, offset = sites["hyperplane"], sites["intercept"][..., None]
        prior = self.prior.coefficient_log_density(sites)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            cut = (level[..., None] - offset) / slope
            size = np.log(np.abs(slope))
            unit = np.log(scale)[..., None]
            # of the cut, of a Cauchy slope, and the Jacobian of the intercept
            own = self._log_density(cut, log_chance) - size
            own -= np.logaddexp(0.0, 2 * (size - unit)) + math.log(math.pi) + unit
        own = np.where(np.isfinite(own), own, -np.inf) - prior[..., :-1] - prior[..., -1:]
        return np.where(np.isfinite(level), np.logaddexp.reduce(own, axis=-1), 0.0)

    def _log_density(self, cut: FloatArray, log_chance: FloatArray) -> FloatArray:
        """Log-density of thresholds (A, ..., d), -inf outside of all bins."""
        found = np.full(cut.shape, -np.inf)
        each = np.arange(len(cut)).reshape(-1, *(1,) * (cut.ndim - 2))
        for j, edges in enumerate(self.edges):
            own = np.searchsorted(edges, cut[..., j], side="right") - 1
            inside = (own >= 0) & (own < len(edges) - 1)
            place: IntArray = self.start[j] + np.where(inside, own, 0)
            if inside.any():
                value = log_chance[each, place] - self.log_width[place]
                found[..., j] = np.where(inside, value, -np.inf)
        return found

    def _units(self, sites: Sites) -> tuple[FloatArray, FloatArray]:
        """The activation at the boundary, NaN for a negligible weight, and the scale of b_j."""
        weight = sites.get("log_weight", np.zeros_like(sites["intercept"]))
        level = border({"log_weight": weight}, (..., slice(None)))
        with np.errstate(over="ignore", invalid="ignore"):
            scale = SLOPE * np.exp(np.logaddexp(0.0, -level) - weight)
        return level, scale
