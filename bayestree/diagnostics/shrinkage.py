"""What the priors shrank: weights of the experts, and coefficients of their hyperplanes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree.diagnostics.draws import SHARE, Draws, effective_number, log_weight_of, tails
from bayestree.diagnostics.reach import Reach
from bayestree.tree import LOG2

SHRUNK = 0.5  # factor above which a coefficient counts as shrunk away, ...
SETTLED = 0.95  # ... unless so many draws agree on its sign
ONE_SD = ndtr([-1.0, 1.0])  # tails of an interval that reaches a standard deviation, if normal
PLACES = 200  # points at which experts are compared
UNLIKE = 0.5  # squared distance of votes, over the sum of their squares, of two experts
KNOWN = 0.5  # share of the draws that must have an expert for its factors to be told
NAMED = 4  # features of an expert in tables


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """Posterior of the weights beside their prior, and how far each coefficient is shrunk.

    Attributes
    ----------
    weight : array, shape (chain, draw, V, K)
        Weights of the experts of each node, sorted in falling order: the k-th largest of each
        draw, whichever expert has it.
    prior_weight : array, shape (prior draw, K)
        The same from the prior, which is the same at every node; no rows where the prior is
        improper.
    effective : array, shape (chain, draw, V)
        Effective number of experts by weight, (sum of r)^2 / sum of r^2.
    prior_effective : array, shape (prior draw,)
    largest_share : array, shape (chain, draw, V)
        Share of the summed weight that the largest has.
    prior_largest_share : array, shape (prior draw,)
    kappa : array, shape (V, K, d)
        Shrinkage factor of each coefficient of the experts of the point estimate: the share of
        its posterior precision that comes from the prior. 1 is shrunk to zero, 0 not at all; nan
        where a single draw cannot tell, or fewer than half of the draws have such an expert (see
        :func:`node_shrinkage`).
    matched : array, shape (V, K)
        Share of the draws that have an expert which votes like this one of the point estimate.
    positive : array, shape (V, K, d)
        Share of these draws in which the coefficient is positive; nan where ``kappa`` is.
    sparsity : array, shape (V, K)
        Share of an expert's coefficients that are shrunk away: ``kappa`` is above 1/2, and each
        sign has 5 % of the draws or more. nan where ``kappa`` is.
    coefficient : array, shape (V, K, d)
        The coefficients of the point estimate, on standardised features.
    counts : array of bool, shape (V, K)
        Experts of the point estimate that matter: their largest vote over the node's rows is 1 %
        of log 2 or more in half of the draws. Tables show these alone.
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
        """Which coefficients the prior holds at zero, shape (V, K, d); False where not known."""
        return _shrunk_away(self.kappa, self.positive)

    def to_frame(
        self, by: Literal["node", "expert", "coefficient"] = "node", *, level: float = 0.9
    ) -> pd.DataFrame:
        """The shrinkage as a table.

        Parameters
        ----------
        by : {"node", "expert", "coefficient"}
            For each node: the experts that count, the effective number of experts with its
            central interval, and the mean share of the largest weight, each with its prior mean.
            For each expert that counts: the share of the draws that have it, its sparsity, and the
            features that are not shrunk away, the largest coefficient first (all where ``kappa``
            is nan). For each coefficient of these: its value, ``kappa`` and ``positive``.
        level : float
            Probability of the interval.

        Raises
        ------
        ValueError
            If ``by`` is none of these, or ``level`` is not between 0 and 1.
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
            return "Shrinkage: a tree without a split"
        head = (
            f"Shrinkage: {n_chains} x {n_draws} draws (chain x draw), {n_experts} experts a node, "
            "intervals of 90 %"
        )
        return f"{head}\n{self.to_frame().to_string(float_format='{:.2f}'.format)}"

    def _by_node(self, level: float) -> pd.DataFrame:
        n_chains, n_draws, n_nodes = self.effective.shape
        effective = self.effective.reshape(n_chains * n_draws, n_nodes)
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
        return pd.DataFrame(columns, index=pd.Index(self.labels, name="node", dtype=object))

    def _by_expert(self) -> pd.DataFrame:
        found = np.argwhere(self.counts)
        columns = {
            "matched": self.matched[self.counts],
            "sparsity": self.sparsity[self.counts],
            "features": [self._features(node, expert) for node, expert in found],
        }
        index = pd.MultiIndex.from_tuples(
            [(self.labels[node], int(expert)) for node, expert in found],
            names=["node", "expert"],
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
        """Names of the features that are not shrunk away; of all where that is not known."""
        strength = np.abs(self.coefficient[node, expert])
        order = np.argsort(-strength, kind="stable")
        away = self.shrunk_away[node, expert]
        kept = [self.feature_names[j] for j in order if not away[j]]
        more = len(kept) - NAMED
        return ", ".join(kept[:NAMED]) + (f" + {more} more" if more > 0 else "")


def node_shrinkage(
    draws: Draws,
    point: Draws,
    reach: Reach,
    *,
    scale_shape: float | None = None,
    l1: float | None = None,
    prior: Draws | None = None,
    prior_power: float = 1.0,
    labels: Sequence[str] = (),
    feature_names: Sequence[str] = (),
) -> Shrinkage:
    """Shrinkage of the weights and hyperplanes of some nodes.

    The factor of a coefficient beta is kappa = P / (P + I), where P is the precision that the
    prior gives it and I the information that the rows do: the 1 / (1 + I sigma^2) of Carvalho,
    Polson and Scott (2010) and Piironen and Vehtari (2017), by which the prior pulls an estimate
    towards zero. Under the inverse-gamma scale (CPT, eq. 6) sigma^2 given beta and b is
    InvGamma(a + 1/2, b + beta^2 / 2), so that P = (a + 1/2) / (b + (m^2 + s^2) / 2), with b at its
    median, and beta of location m and spread s. A Laplace law of rate l is a normal of random
    scale too, of mean precision l / |beta| given beta (Park and Casella, 2008), so that
    P = l / sqrt(m^2 + s^2). What a posterior knows in all is its precision, 1 / s^2, so that

        kappa = min(1, P s^2).

    Posteriors under this prior have tails so long that means and variances of draws may have no
    limit: m is the median, and s half of the interval that holds the middle 68 % of the draws,
    which are mean and standard deviation of a normal posterior.

    For a coefficient that the rows say nothing of kappa is 1. For m >> s and a small b it is
    (2 a + 1) s^2 / m^2. It compares prior and rows: a small coefficient that the rows hold fast
    has a small factor. And a large one has a factor near 1 where the rows say that a split is
    sharp, but not how sharp: the prior keeps it from growing, while its sign is settled.

    Experts are exchangeable: those of each draw are first matched to those of the point estimate
    by where they vote. A draw need not have an expert like each of these; what is left for it then
    is idle, and its coefficients are draws from the prior. So an expert's factors are those of
    the draws that have it, ``matched`` of them, and nan where these are fewer than half.

    Parameters
    ----------
    draws : mapping of arrays
        Sites ``hyperplane`` (chain, draw, nodes, K, d), ``intercept``, ``shrinkage`` and, unless
        every weight is 1, ``log_weight`` (chain, draw, nodes, K).
    point : mapping of arrays
        The same of the point estimate, (nodes, K, ...).
    reach : Reach
        Which nodes, and their boxes and votes.
    scale_shape : float, optional
        a of the inverse-gamma scales; None for other priors.
    l1 : float, optional
        Rate of Laplace hyperplanes. Where neither is given the prior draws no coefficient to 0,
        and the factors are 0.
    prior : mapping of arrays, optional
        Prior draws of one node, (prior draw, K, ...).
    prior_power : float
        Power of the prior in a tempered posterior, by which P is multiplied.
    labels, feature_names : sequences of str, optional
        Numbers, and ``x0``, ``x1``, ..., by default.

    Returns
    -------
    Shrinkage
    """
    nodes = reach.nodes
    coefficient = point["hyperplane"][nodes].astype(np.float64)
    log_weight = _falling(log_weight_of(draws, (slice(None), slice(None), nodes)))
    expected = (
        np.empty((0, coefficient.shape[1]))
        if prior is None
        else _falling(log_weight_of(prior, ...))
    )
    kappa = np.full(coefficient.shape, np.nan)
    positive = kappa.copy()
    matched = np.zeros(coefficient.shape[:2])
    counts = np.zeros(coefficient.shape[:2], dtype=bool)
    for place, node in enumerate(nodes):
        order, alike = _matched(draws, point, int(node), reach.low[place], reach.high[place])
        matched[place] = alike.mean(axis=0)
        votes = _flat(reach.largest[:, :, place])
        counts[place] = np.median(_taken(votes, order), axis=0) >= SHARE * LOG2
        share, positive[place] = _share_of_prior(draws, int(node), order, alike, scale_shape, l1)
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
        sparsity=np.where(np.isnan(kappa), np.nan, _shrunk_away(kappa, positive)).mean(axis=-1),
        coefficient=coefficient,
        counts=counts,
        labels=tuple(labels) or tuple(str(place) for place in range(len(nodes))),
        feature_names=tuple(feature_names) or tuple(f"x{j}" for j in range(coefficient.shape[2])),
    )


def _share_of_prior(
    draws: Draws,
    node: int,
    order: IntArray,
    alike: BoolArray,
    scale_shape: float | None,
    l1: float | None,
) -> tuple[FloatArray, FloatArray]:
    """P s^2 of the coefficients of a node's experts, and in how many draws they are positive.

    Both of shape (K, d); nan where not known.
    """
    plane = _taken(_flat(draws["hyperplane"][:, :, node]), order)
    share, positive = np.full((2, *plane.shape[1:]), np.nan)
    if not np.ptp(plane, axis=0).any():  # one draw, or many of a guide that is a point
        return share, positive
    b = None if scale_shape is None else _taken(_flat(draws["shrinkage"][:, :, node]), order)
    for expert, own in enumerate(alike.T):
        if own.sum() < max(2.0, KNOWN * len(own)):
            continue
        some = plane[own, expert]
        positive[expert] = (some > 0).mean(axis=0)
        low, high = np.quantile(some, ONE_SD, axis=0)
        square = ((high - low) / 2) ** 2
        moment = np.median(some, axis=0) ** 2 + square
        share[expert] = 0.0
        if scale_shape is not None and b is not None:
            rate = np.median(b[own, expert]) + moment / 2
            share[expert] = (scale_shape + 0.5) * square / rate
        elif l1 is not None:
            share[expert] = l1 * square / np.sqrt(moment)
    return share, positive


def _shrunk_away(kappa: FloatArray, positive: FloatArray) -> BoolArray:
    """Coefficients that the prior holds at zero."""
    away: BoolArray = (kappa > SHRUNK) & (np.maximum(positive, 1 - positive) < SETTLED)
    return away


def _matched(
    draws: Draws, point: Draws, node: int, low: FloatArray, high: FloatArray
) -> tuple[IntArray, BoolArray]:
    """Which expert of each draw is which of the point estimate, and whether they are alike.

    Both of shape (draws, K). Two that hardly vote are alike wherever they lie.
    """
    places = _places(low, high)
    goal = _chances(point, node, places)
    order, alike = [], []
    for one in np.ndindex(*draws["intercept"].shape[:2]):
        own = _chances(draws, (*one, node), places)
        squares = (goal**2).sum(axis=0)[:, None] + (own**2).sum(axis=0)
        cost = squares - 2 * goal.T @ own
        pairs = linear_sum_assignment(cost)
        order.append(pairs[1])
        alike.append(cost[pairs] <= np.maximum(UNLIKE * squares[pairs], PLACES * SHARE**2))
    return np.array(order), np.array(alike)


def _places(low: FloatArray, high: FloatArray) -> FloatArray:
    """Points at all distances from where the rows are dense, out to the walls of their box."""
    generator = np.random.default_rng(0)  # the same points at every call
    amid = np.clip(0.0, low, high)  # where the mean of the data lies, or nearest to it
    ends = generator.uniform(low, high, size=(PLACES, len(low)))
    return amid + (ends - amid) * generator.uniform(size=(PLACES, 1))


def _chances(draws: Draws, one: Any, X: FloatArray) -> FloatArray:
    """P(right) of each row if each expert were alone, shape (n, K)."""
    activation = X @ draws["hyperplane"][one].T.astype(np.float64) + draws["intercept"][one]
    weight = np.exp(log_weight_of(draws, one))
    return -np.expm1(-weight * np.logaddexp(0.0, activation))


def _taken(values: FloatArray, order: IntArray) -> FloatArray:
    """Values (draws, K, ...) of the experts of each draw in the order of the point estimate."""
    index = order.reshape(*order.shape, *([1] * (values.ndim - 2)))
    return np.take_along_axis(values, index, axis=1)


def _flat(values: NDArray[Any]) -> FloatArray:
    """(chain, draw, ...) as (draws, ...)."""
    return values.reshape(-1, *values.shape[2:]).astype(np.float64)


def _falling(log_weight: FloatArray) -> FloatArray:
    return -np.sort(-log_weight, axis=-1)


def _relative(log_weight: FloatArray) -> FloatArray:
    """Weights over the largest, which comes first; they may all have underflowed."""
    return np.exp(log_weight - log_weight[..., :1])
