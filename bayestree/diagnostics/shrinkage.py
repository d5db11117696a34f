"""Shrinkage by the priors: weights of the experts and coefficients of their hyperplanes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr

from bayestree._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from bayestree.diagnostics.draws import (
    SHARE,
    Draws,
    effective_number,
    flat,
    listed,
    log_weight_of,
    named_features,
    node_index,
    split_of,
    tails,
)
from bayestree.diagnostics.polytopes import Reach
from bayestree.tree import LOG2

SHRUNK = 0.5  # a coefficient with a larger factor counts as shrunk away, ...
SAME_SIGN = 0.95  # ... unless this share of the draws agrees on its sign
ONE_SD = ndtr([-1.0, 1.0])  # probabilities at -1 and +1 standard deviations of a normal
N_POINTS = 200  # points at which experts are compared
MAX_DIFFERENCE = 0.5  # largest relative squared distance between the votes of two matching experts
KNOWN = 0.5  # share of the draws that must have an expert for its factors to be reported


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """Posterior of the weights compared with their prior, and shrinkage of each coefficient.

    Attributes
    ----------
    weight : array, shape (chain, draw, V, K)
        Weights of the experts of each node in descending order: the k-th largest of each draw,
        whichever expert has it.
    prior_weight : array, shape (prior draw, K)
        The same under the prior, which is the same for every node; empty if it is improper.
    effective : array, shape (chain, draw, V)
        The effective number of weights, (sum r)^2 / sum r^2; ``polytope_size()`` has that of votes.
    prior_effective : array, shape (prior draw,)
    largest_share : array, shape (chain, draw, V)
        Largest weight as a share of their sum.
    prior_largest_share : array, shape (prior draw,)
    kappa : array, shape (V, K, d)
        Shrinkage factor of each coefficient of the experts of the point estimate: the share of
        its posterior precision that comes from the prior. 1 means shrunk to zero, 0 not shrunk;
        NaN for a single draw, if fewer than half of the draws have a matching expert (see
        :func:`node_shrinkage`), or for a feature that takes no part, such as a constant one, whose
        coefficient is 0 in every draw.
    matched : array, shape (V, K)
        Share of the draws with an expert that votes like this expert of the point estimate.
    positive : array, shape (V, K, d)
        Share of these draws in which the coefficient is positive; NaN where ``kappa`` is.
    sparsity : array, shape (V, K)
        Share of an expert's coefficients that are shrunk away: ``kappa`` is above 1/2, and each
        sign has at least 5 % of the draws. Features that take no part do not count; NaN where
        ``kappa`` is NaN for all features.
    coefficient : array, shape (V, K, d)
        Coefficients of the point estimate, on standardised features.
    counts : array of bool, shape (V, K)
        Experts of the point estimate that matter: their largest vote over the node's rows is at
        least 1 % of log 2 in half of the draws. Tables show only these.
    labels : tuple of str
        Path of each node from the root.
    feature_names : tuple of str
    """

    weight: FloatArray
    prior_weight: FloatArray
    effective: FloatArray
    prior_effective: FloatArray
    largest_share: FloatArray
    prior_largest_share: FloatArray
    kappa: FloatArray
    matched: FloatArray
    positive: FloatArray
    sparsity: FloatArray
    coefficient: FloatArray
    counts: BoolArray
    labels: tuple[str, ...]
    feature_names: tuple[str, ...]

    @property
    def shrunk_away(self) -> BoolArray:
        """Which coefficients the prior shrinks to zero, shape (V, K, d); False where unknown."""
        return _shrunk_away(self.kappa, self.positive)

    def features_in_use(self, node: int) -> IntArray:
        """Return the features with a known factor at a node, which take part there."""
        return np.flatnonzero(~np.isnan(self.kappa[node]).all(axis=0))

    def to_frame(
        self, by: Literal["node", "expert", "coefficient"] = "node", *, level: float = 0.9
    ) -> pd.DataFrame:
        """Tabulate the shrinkage.

        Parameters
        ----------
        by : {"node", "expert", "coefficient"}
            For each node: number of experts that matter, effective number of weights with its
            central interval, and mean share of the largest weight, each with its prior mean.
            For each expert that matters: share of the draws that have it, sparsity, and the
            features that take part and are not shrunk away, the largest coefficient first (none
            is shrunk away where ``kappa`` is NaN). For each of its coefficients: value, ``kappa``
            and ``positive``.
        level : float
            Probability of the interval.

        Raises
        ------
        ValueError
            If ``by`` is anything else, or ``level`` is not between 0 and 1.
        """
        if by == "node":
            return self._by_node(level)
        if by == "expert":
            return self._by_expert()
        if by == "coefficient":
            return self._by_coefficient()
        raise ValueError(f"by must be 'node', 'expert' or 'coefficient', got {by!r}.")

    def __str__(self) -> str:
        n_chains, n_draws, n_nodes, n_experts = self.weight.shape
        if n_nodes == 0:
            return "Shrinkage: a tree without a split; polytope_size() has the leaves of its draws"
        head = (
            f"Shrinkage: {n_chains} x {n_draws} draws (chain x draw), {n_experts} experts per "
            "node, 90 % intervals\neffective: number of weights, (sum r)^2 / sum r^2"
        )
        return f"{head}\n{self.to_frame().to_string(float_format='{:.2f}'.format)}"

    def _by_node(self, level: float) -> pd.DataFrame:
        effective = flat(self.effective)
        low, high = np.quantile(effective, tails(level), axis=0)
        columns: dict[str, Any] = {
            "experts": self.counts.sum(axis=1),
            "effective_mean": effective.mean(axis=0),
            "effective_low": low,
            "effective_high": high,
            "largest_share_mean": self.largest_share.mean(axis=(0, 1)),
        }
        if len(self.prior_weight):
            columns["prior_effective_mean"] = self.prior_effective.mean()
            columns["prior_largest_share_mean"] = self.prior_largest_share.mean()
        return pd.DataFrame(columns, index=node_index(self.labels))

    def _by_expert(self) -> pd.DataFrame:
        found = np.argwhere(self.counts)
        columns = {
            "matched": self.matched[self.counts],
            "sparsity": self.sparsity[self.counts],
            "features": [self._features(node, expert) for node, expert in found],
        }
        index = pd.MultiIndex.from_tuples(
            [(self.labels[node], int(expert)) for node, expert in found], names=["node", "expert"]
        )
        return pd.DataFrame(columns, index=index)

    def _by_coefficient(self) -> pd.DataFrame:
        index = pd.MultiIndex.from_tuples(
            [
                (self.labels[node], int(expert), name)
                for node, expert in np.argwhere(self.counts)
                for name in self.feature_names
            ],
            names=["node", "expert", "feature"],
        )
        columns = {
            "coefficient": self.coefficient[self.counts].ravel(),
            "kappa": self.kappa[self.counts].ravel(),
            "positive": self.positive[self.counts].ravel(),
        }
        return pd.DataFrame(columns, index=index)

    def _features(self, node: int, expert: int) -> str:
        """Name the features that take part and are not shrunk away."""
        strength = np.abs(self.coefficient[node, expert])
        order = np.argsort(-strength, kind="stable")
        remains = (strength > 0) & ~self.shrunk_away[node, expert]
        return listed([self.feature_names[j] for j in order if remains[j]])


def node_shrinkage(
    draws: Draws,
    point: Draws,
    reach: Reach,
    *,
    scale_shape: float | None = None,
    coefficient_scale: float = 1.0,
    l1: float | None = None,
    scale_groups: Sequence[Sequence[int]] = (),
    prior: Draws | None = None,
    prior_power: float = 1.0,
    labels: Sequence[str] = (),
    feature_names: Sequence[str] = (),
) -> Shrinkage:
    """Measure the shrinkage of the weights and hyperplanes of some nodes.

    The factor of a coefficient beta is kappa = P / (P + I), where P is its prior precision and I
    the information in the rows: the 1 / (1 + I sigma^2) of Carvalho, Polson and Scott (2010) and
    Piironen and Vehtari (2017), by which the prior pulls an estimate towards zero. With an
    inverse-gamma scale (CPT, eq. 6), sigma^2 given beta and b is InvGamma(a + 1/2, b + beta^2 / 2).
    For beta of location m and spread s, P = (a + 1/2) / (b + (m^2 + s^2) / 2), with b at its
    median. A Laplace distribution of rate l is also a scale mixture of normals: given beta, the
    mean precision is l / |beta| (Park and Casella, 2008). So P = l / sqrt(m^2 + s^2). The total
    posterior precision P + I is 1 / s^2, hence

        kappa = min(1, P s^2).

    These posteriors can have tails so heavy that the moments of draws do not converge: m is
    the median, and s half the width of the central 68 % interval (the mean and standard deviation
    of a normal posterior).

    Without information in the rows kappa is 1; for m >> s and small b it is (2 a + 1) s^2 / m^2.
    It compares prior and rows: a small coefficient that the rows determine well has a small
    factor. A large one has a factor near 1 where the rows imply a sharp split, but not how sharp:
    the prior limits its size while its sign is certain.

    Experts are exchangeable, so the experts of each draw are first matched to the point
    estimate by their votes. If a draw has no counterpart of an expert, an idle expert is left
    over, whose coefficients are draws from the prior. An expert's factors are therefore computed
    from the draws that have it (the share ``matched``), and NaN if these are fewer than half.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, nodes, K, d), ``intercept``, ``shrinkage`` and, unless
        every weight is 1, ``log_weight`` (chain, draw, nodes, K).
    point : mapping of arrays
        The same sites of the point estimate, (nodes, K, ...).
    reach : Reach
        The nodes to measure, with their boxes and votes.
    scale_shape : float, optional
        Shape a of the inverse-gamma scales; None for other priors.
    coefficient_scale : float
        Factor s of these scales: ``b`` above is s^2 times the draws of ``shrinkage``.
    l1 : float, optional
        Rate of a Laplace prior of the hyperplanes. If neither is given, the prior does not shrink
        and the factors are 0.
    scale_groups : sequence of sequences of int
        Features whose coefficients share an inverse-gamma scale: with n of them, P is
        (a + n / 2) / (b + the sum of (m^2 + s^2) / 2).
    prior : mapping of arrays, optional
        Prior draws of one node, (prior draw, K, ...).
    prior_power : float
        Power of the prior in a tempered posterior, which multiplies P.
    labels, feature_names : sequences of str, optional
        Numbers, and ``x0``, ``x1``, ..., by default.
    """
    nodes = reach.nodes
    coefficient = point["hyperplane"][nodes].astype(np.float64)
    log_weight = -np.sort(-log_weight_of(draws, (slice(None), slice(None), nodes)), axis=-1)
    no_prior = np.empty((0, coefficient.shape[1]))
    expected = no_prior if prior is None else -np.sort(-log_weight_of(prior, ...), axis=-1)
    scaled = dict(draws)
    if "shrinkage" in draws:
        scaled["shrinkage"] = coefficient_scale**2 * draws["shrinkage"]
    kappa = np.full(coefficient.shape, np.nan)
    positive = kappa.copy()
    matched = np.zeros(coefficient.shape[:2])
    counts = np.zeros(coefficient.shape[:2], dtype=bool)
    for place, node in enumerate(nodes):
        order, agrees = _match_experts(draws, point, int(node), reach.low[place], reach.high[place])
        matched[place] = agrees.mean(axis=0)
        votes = _flat(reach.largest[:, :, place])
        counts[place] = np.median(_reordered(votes, order), axis=0) >= SHARE * LOG2
        share, positive[place] = _share_of_prior(
            scaled, int(node), order, agrees, scale_shape, l1, scale_groups=scale_groups
        )
        kappa[place] = np.minimum(prior_power * share, 1.0)
    return Shrinkage(
        weight=np.exp(log_weight),
        prior_weight=np.exp(expected),
        effective=effective_number(_relative(log_weight)),
        prior_effective=effective_number(_relative(expected)),
        largest_share=1 / _relative(log_weight).sum(axis=-1),
        prior_largest_share=1 / _relative(expected).sum(axis=-1),
        kappa=kappa,
        matched=matched,
        positive=positive,
        sparsity=_sparsity(kappa, positive),
        coefficient=coefficient,
        counts=counts,
        labels=tuple(labels) or tuple(str(place) for place in range(len(nodes))),
        feature_names=named_features(feature_names, coefficient.shape[2]),
    )


def _share_of_prior(
    draws: Draws,
    node: int,
    order: IntArray,
    agrees: BoolArray,
    scale_shape: float | None,
    l1: float | None,
    *,
    scale_groups: Sequence[Sequence[int]],
) -> tuple[FloatArray, FloatArray]:
    """Compute P s^2 of a node's coefficients and the share of draws in which they are positive.

    Both have shape (K, d) and are NaN where unknown, and for features that take no part.
    """
    plane = _reordered(_flat(draws["hyperplane"][:, :, node]), order)
    share, positive = np.full((2, *plane.shape[1:]), np.nan)
    if not np.ptp(plane, axis=0).any():  # one draw, or many of a point-mass guide
        return share, positive
    b = None if scale_shape is None else _reordered(_flat(draws["shrinkage"][:, :, node]), order)
    for expert, has_expert in enumerate(agrees.T):
        if has_expert.sum() < max(2.0, KNOWN * len(has_expert)):
            continue
        some = plane[has_expert, expert]
        takes_part = some.any(axis=0)
        positive[expert] = np.where(takes_part, (some > 0).mean(axis=0), np.nan)
        low, high = np.quantile(some, ONE_SD, axis=0)
        square = ((high - low) / 2) ** 2
        moment = np.median(some, axis=0) ** 2 + square
        share[expert] = 0.0
        if scale_shape is not None and b is not None:
            count = np.ones_like(moment)
            for own in map(list, scale_groups):
                moment[own], count[own] = moment[own].sum(), takes_part[own].sum()
            rate = np.median(b[has_expert, expert]) + moment / 2
            share[expert] = (scale_shape + count / 2) * square / rate
        elif l1 is not None:
            share[expert] = l1 * square / np.sqrt(np.where(takes_part, moment, 1.0))
        share[expert, ~takes_part] = np.nan
    return share, positive


def _shrunk_away(kappa: FloatArray, positive: FloatArray) -> BoolArray:
    return (kappa > SHRUNK) & (np.maximum(positive, 1 - positive) < SAME_SIGN)


def _sparsity(kappa: FloatArray, positive: FloatArray) -> FloatArray:
    """Share of the known coefficients (V, K, d) of each expert that are shrunk away, (V, K)."""
    away = _shrunk_away(kappa, positive).sum(axis=-1)
    known = (~np.isnan(kappa)).sum(axis=-1)
    return np.where(known, away / np.maximum(known, 1), np.nan)


def _match_experts(
    draws: Draws, point: Draws, node: int, low: FloatArray, high: FloatArray
) -> tuple[IntArray, BoolArray]:
    """Match the experts of each draw to the point estimate, and test whether they agree.

    Both results have shape (draws, K). Two experts that hardly vote agree wherever they are.
    """
    generator = np.random.default_rng(0)
    middle = np.clip(0.0, low, high)  # the mean of the data, or the point of the box nearest to it
    ends = generator.uniform(low, high, size=(N_POINTS, len(low)))
    points = middle + (ends - middle) * generator.uniform(size=(N_POINTS, 1))
    target = _p_right_alone(point, node, points)
    order, agrees = [], []
    for one in np.ndindex(*draws["intercept"].shape[:2]):
        p_right = _p_right_alone(draws, (*one, node), points)
        squares = (target**2).sum(axis=0)[:, None] + (p_right**2).sum(axis=0)
        cost = squares - 2 * target.T @ p_right  # squared distances
        pairs = linear_sum_assignment(cost)
        order.append(pairs[1])
        agrees.append(
            cost[pairs] <= np.maximum(MAX_DIFFERENCE * squares[pairs], N_POINTS * SHARE**2)
        )
    return np.array(order), np.array(agrees)


def _p_right_alone(draws: Draws, one: Any, X: FloatArray) -> FloatArray:
    """Compute P(right) of each row if each expert were alone, shape (n, K)."""
    weight, plane, intercept = split_of(draws, one)
    return -np.expm1(-weight * np.logaddexp(0.0, X @ plane.T + intercept))


def _reordered(values: FloatArray, order: IntArray) -> FloatArray:
    """Reorder the experts of each draw (draws, K, ...) as in the point estimate."""
    index = order.reshape(*order.shape, *([1] * (values.ndim - 2)))
    return np.take_along_axis(values, index, axis=1)


def _flat(values: AnyArray) -> FloatArray:
    return flat(values).astype(np.float64)


def _relative(log_weight: FloatArray) -> FloatArray:
    """Divide weights by the largest, which comes first; exp avoids underflow of all of them."""
    return np.exp(log_weight - log_weight[..., :1])
