"""Which columns take part in the facets that cut: posterior probabilities, with an error rate.

No coefficient of a draw is exactly 0, so that a column is judged by the size of its effect, next to
the sizes of all others. The effect of a column on a prediction f(x) = sum_l P(leaf l | x) value_l,
which only depends on x by the facets, is

    t_j = sd_j (mean over rows of g_j^2)^(1/2),   g_j = mean over all draws of df / dx_j,

the root mean square of what one standard deviation changes, over points between pairs of rows: the
changes from one row to another are sums of the gradient between them (expected gradients, Erion and
others, 2021), while at the rows themselves a sharp split of a category has a gradient of 0. f does
not depend on the numbers of experts, nodes and modes, which are exchangeable, so that its gradient
can be averaged. Draw s contributes t_sj = sd_j^2 (mean over points of g_sj g_j) / t_j, with the
mean t_j. The prior and the average over draws and modes shrink the effect of a column that does not
matter, but not to 0. What is small is told by two groups of columns (Efron, 2008; Stephens, 2017):

    t_j ~ w_0 Normal(0, s^2) + sum_k w_k Normal(0, s^2 (1 + c_k^2)),   c = 2, 4, 8, ..., 64.

The posterior standard deviation of a typical column, their median, is close to the s of simulated
sets. The prior is therefore N_NULL columns with an effect of that size in the first group, and one
in the others; it matters in tables of few columns. EM estimates w and s. The probability of
inclusion is the mean over the draws, by the weights of the modes, of the probability that t_sj is
of one of the other groups: a mode that does not use a column counts against it. The mean of its
complement over some columns is their Bayesian false discovery rate (Newton and others, 2004;
Mueller and others, 2004). What simulated sets have is in benchmarks/results/selection.md.

References
----------
Newton, Noueiry, Sarkar, Ahlquist, "Detecting differential gene expression with a semiparametric
hierarchical mixture method", Biostatistics 5 (2004). Mueller, Parmigiani, Robert, Rousseau,
"Optimal sample size for multiple testing", JASA 99 (2004). Efron, "Microarrays, empirical Bayes and
the two-groups model", Statistical Science 23 (2008). Stephens, "False discovery rates: a new deal",
Biostatistics 18 (2017). Erion, Janizek, Sturmfels, Lundberg, Lee, "Improving performance of deep
learning models with axiomatic attribution priors and expected gradients", Nature Machine
Intelligence 3 (2021).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.wording import written
from bayestree.diagnostics.draws import (
    Draws,
    branch_log_probs,
    classifies,
    kept_draws,
    leaf_log_probs,
    leaf_means,
    leaf_shares,
    scores,
    split_of,
)
from bayestree.topology import Topology

RATIOS = 2.0 ** np.arange(1, 7)  # c, the scales of effects in units of s
SPREADS = np.sqrt(1 + np.append(0.0, RATIOS) ** 2)  # of the groups
N_NULL = 4.0  # columns without an effect as which the prior counts; one with an effect
N_STEPS = 200  # of EM; more change probabilities in the third decimal


@dataclass(frozen=True, eq=False)
class ColumnInclusion:
    """Posterior probability that a column takes part in a facet that cuts.

    Print it, or see ``to_frame``; ``get_support`` and ``selected`` choose columns at a false
    discovery rate. All features of a column, such as the levels of a category and the mark of
    missing values, count as one.

    Attributes
    ----------
    columns : tuple of str, length c
    probability : array, shape (c,)
        The probability for the whole tree, over all draws and modes. It is 0 for columns that the
        fit ignored, and for a tree without a split.
    effect : array, shape (c,)
        Root mean square over the rows of the change in the prediction that one standard deviation
        of the column makes by the facets: in the mean of y or, summed in squares over the classes,
        in their probabilities (of two classes, the square root of 2 times that of one).
    sd : array, shape (c,)
        Posterior standard deviation of ``effect``.
    node_probability : array, shape (V, c)
        For each node of ``tree_`` and its draws, the probability that the column has an effect on
        the probability of going right.
    labels : tuple of str
        Path of each node from the root.
    """

    columns: tuple[str, ...]
    probability: FloatArray
    effect: FloatArray
    sd: FloatArray
    node_probability: FloatArray
    labels: tuple[str, ...]

    def false_discovery_rate(self, threshold: float, node: str | None = None) -> float:
        """Compute the Bayesian false discovery rate of columns of at least some probability.

        The rate is the mean of 1 - probability over these columns, and 0 if there is none.

        Parameters
        ----------
        threshold : float
        node : str, optional
            A node, by its label; by default the whole tree.

        Raises
        ------
        ValueError
            If ``threshold`` is not from 0 to 1, or there is no such node.
        """
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie from 0 to 1, got {threshold}.")
        probability = self._of(node)
        chosen = probability >= threshold
        return float((1 - probability[chosen]).mean()) if chosen.any() else 0.0

    def get_support(
        self, fdr: float = 0.1, *, node: str | None = None, indices: bool = False
    ) -> BoolArray | IntArray:
        """Choose as many columns as possible at a Bayesian false discovery rate of at most ``fdr``.

        The most probable columns come first: no other choice at this rate has more that are
        expected to be right (Mueller and others, 2004).

        Parameters
        ----------
        fdr : float
            Between 0 and 1.
        node : str, optional
            A node, by its label; by default the whole tree.
        indices : bool
            Whether to return the numbers of the columns, as scikit-learn's selectors do.

        Returns
        -------
        array of bool, shape (c,), or of int

        Raises
        ------
        ValueError
            If ``fdr`` is not between 0 and 1, or there is no such node.
        """
        if not 0 < fdr < 1:
            raise ValueError(f"fdr must lie between 0 and 1, got {fdr}.")
        probability = self._of(node)
        order = np.argsort(-probability, kind="stable")
        rate = np.cumsum(1 - probability[order]) / np.arange(1, len(order) + 1)
        chosen = np.zeros(len(order), dtype=bool)
        chosen[order[: np.searchsorted(rate, fdr, side="right")]] = True  # rates never fall
        return np.flatnonzero(chosen) if indices else chosen

    def selected(self, fdr: float = 0.1, *, node: str | None = None) -> tuple[str, ...]:
        """Name the columns of ``get_support``, the most probable first."""
        chosen = self.get_support(fdr, node=node, indices=True)
        order = np.argsort(-self._of(node)[chosen], kind="stable")
        return tuple(self.columns[j] for j in chosen[order])

    def _of(self, node: str | None) -> FloatArray:
        if node is None:
            return self.probability
        if node not in self.labels:
            known = ", ".join(map(repr, self.labels)) or "none, the tree is a single leaf"
            raise ValueError(
                f"node must be one of the nodes of the tree ({known}), got {written(node)}."
            )
        found: FloatArray = self.node_probability[self.labels.index(node)]
        return found

    def to_frame(self, by: Literal["column", "node"] = "column") -> pd.DataFrame:
        """Tabulate the probabilities.

        Parameters
        ----------
        by : {"column", "node"}
            Probability, effect and its standard deviation of each column, the most probable
            first; or the probability of each column (rows) at each node (columns).

        Raises
        ------
        ValueError
            If ``by`` is neither.
        """
        index = pd.Index(self.columns, name="column", dtype=object)
        if by == "node":
            return pd.DataFrame(self.node_probability.T, index=index, columns=[*self.labels])
        if by != "column":
            raise ValueError(f"by must be 'column' or 'node', got {by!r}.")
        columns = {"probability": self.probability, "effect": self.effect, "sd": self.sd}
        return pd.DataFrame(columns, index=index).sort_values(
            ["probability", "effect"], ascending=False, kind="stable"
        )

    def __str__(self) -> str:
        if not self.probability.any():
            return "Inclusion of columns: no facet of any draw uses a column"
        chosen = self.selected()
        head = (
            f"Inclusion of columns: {len(chosen)} of {len(self.columns)} at a Bayesian false "
            "discovery rate of 10 %\neffect: root mean square of what one standard deviation "
            "of a column changes,\nwith its posterior standard deviation"
        )
        table = self.to_frame().head(max(len(chosen) + 3, 10))
        return f"{head}\n{table.to_string(float_format='{:.3g}'.format)}"


class Routed(NamedTuple):
    """Draws of a tree, and the weight of their sum in a mixture of trees."""

    weight: float
    draws: Draws
    topology: Topology
    steepness: float

    def picks(self, max_draws: int) -> list[tuple[int, int]]:
        """Choose evenly spaced draws, as pairs of chain and number."""
        kept = kept_draws(self.draws, max_draws).tolist()
        return [(chain, draw) for chain in range(len(self.draws["intercept"])) for draw in kept]


class Effects(NamedTuple):
    """Effects (c,) of columns, and what each of S draws contributes to them.

    ``draws`` (S, c) are products of a draw's gradient and the mean gradient, summed and divided by
    the effect: the part of a draw's effect that agrees with the others, of mean ``size``.
    """

    size: FloatArray
    draws: FloatArray
    weights: FloatArray  # of the draws, with sum 1

    @property
    def sd(self) -> FloatArray:
        """Posterior standard deviation of the effects, (c,)."""
        found: FloatArray = np.sqrt(self.weights @ (self.draws - self.size) ** 2)
        return found


def tree_effects(
    parts: Sequence[Routed], X: FloatArray, places: Sequence[IntArray], max_draws: int
) -> Effects:
    """Measure the effects of columns on the predictions of a mixture by its facets.

    ``X`` (n, d) are rows on the scale of the draws, ``places`` the features of each column, and
    ``max_draws`` is the maximum number of draws of each part.
    """

    def gradients() -> Iterator[tuple[float, FloatArray]]:
        for part in parts:
            picks = part.picks(max_draws)
            for one in picks:
                yield part.weight / len(picks), _gradient(part, one, points)

    points = between(X)
    return _effects(gradients, X, places)


def node_effects(
    part: Routed,
    node: int,
    X: FloatArray,
    places: Sequence[IntArray],
    n_draws: int,
    exchanged: BoolArray,
) -> Effects:
    """Measure the effects of columns on P(right) at a node, whose sides may be ``exchanged``."""

    def gradients() -> Iterator[tuple[float, FloatArray]]:
        picks = part.picks(n_draws)
        for chain, draw in picks:
            at = (chain, draw, node)
            score = scores(part.draws, at, points)
            change = np.exp(np.sum(branch_log_probs(score, part.steepness), axis=0))
            change *= _slope_of_odds(score, part.steepness)
            votes, plane = _votes(part.draws, at, points)
            turn = -1.0 if exchanged[chain, draw] else 1.0
            yield 1 / len(picks), turn * ((change[:, None] * votes) @ plane)[..., None]

    points = between(X)
    return _effects(gradients, X, places)


def between(X: FloatArray) -> FloatArray:
    """Return random points between pairs of rows, shape (n, d); the same at every call."""
    rng = np.random.default_rng(0)
    return X + rng.random((len(X), 1)) * (X[rng.permutation(len(X))] - X)


def _gradient(part: Routed, one: tuple[int, int], X: FloatArray) -> FloatArray:
    """Differentiate the prediction of a draw by the features, given values of leaves, (n, d, C).

    P(leaf | x) is a product of probabilities of sides, whose logarithms have the derivatives
    P(left) a' (right) and -P(right) a' (left) for log-odds a of going right.
    """
    draws, topology = part.draws, part.topology
    if topology.n_nodes == 0:
        return np.zeros((*X.shape, 1))
    score = scores(draws, one, X)
    log_left, log_right = branch_log_probs(score, part.steepness)
    leaf = np.exp(leaf_log_probs(log_left, log_right, topology))
    if classifies(draws):
        value = leaf_shares(draws, one, X)
    else:
        value = leaf_means(draws, one, X)[..., None]
    weighted = leaf[..., None] * value
    goes_left, goes_right = (turns.astype(np.float64) for turns in topology.turns)
    by_odds = np.exp(log_left)[..., None] * np.einsum("vl,nlc->nvc", goes_right, weighted)
    by_odds -= np.exp(log_right)[..., None] * np.einsum("vl,nlc->nvc", goes_left, weighted)
    by_score = by_odds * _slope_of_odds(score, part.steepness)[..., None]
    votes, plane = _votes(draws, one, X)
    by_expert = by_score[:, :, None] * votes[..., None]  # (n, V, K, C)
    flat = np.moveaxis(by_expert, 3, 1).reshape(len(X) * value.shape[-1], -1)
    gradient = (flat @ plane.reshape(-1, X.shape[1])).reshape(len(X), -1, X.shape[1])
    return np.swapaxes(gradient, 1, 2)


def _slope_of_odds(score: FloatArray, steepness: float) -> FloatArray:
    """Differentiate the log-odds steepness * log(exp(s) - 1) of going right by the score s."""
    return -steepness / np.expm1(-score)


def _votes(draws: Draws, at: tuple[int, ...], X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Differentiate the votes of experts by their activations, (n, ..., K); and their planes."""
    weight, plane, intercept = split_of(draws, at)
    activation = X @ plane.reshape(-1, X.shape[1]).T + intercept.reshape(-1)
    return weight * expit(activation.reshape(len(X), *weight.shape)), plane


def _effects(
    gradients: Callable[[], Iterator[tuple[float, FloatArray]]],
    X: FloatArray,
    places: Sequence[IntArray],
) -> Effects:
    """Measure effects from weighted gradients (n, d, C), which are computed twice."""
    spread = X.std(axis=0)
    mean = np.asarray(sum(weight * gradient for weight, gradient in gradients()))

    def by_column(values: FloatArray) -> FloatArray:
        each = spread**2 * values.sum(axis=(0, 2)) / len(X)
        return np.array([each[own].sum() / max((spread[own] > 0).sum(), 1) for own in places])

    size = np.sqrt(by_column(mean**2))
    weights, products = zip(*((w, by_column(one * mean)) for w, one in gradients()), strict=True)
    return Effects(size, np.array(products) / np.where(size > 0, size, 1.0), np.array(weights))


def inclusion_probability(effects: Effects) -> FloatArray:
    """Compute the probability that each column has an effect, over the draws, (c,).

    Effects of exactly 0 have the probability 0, and say nothing about the others.
    """
    found, some = np.zeros(len(effects.size)), effects.size > 0
    if some.any():
        sd = float(np.median(effects.sd[some]))
        weight, scale = _two_groups(effects.size[some], sd or float(np.median(effects.size[some])))
        found[some] = 1 - effects.weights @ _shares(effects.draws[:, some], weight, scale)[0]
    return found


def _two_groups(size: FloatArray, sd: float) -> tuple[FloatArray, float]:
    """Estimate the weights (groups,) and s of the groups of effects (c,) by EM."""
    weight = np.append(0.9, np.full(len(RATIOS), 0.1 / len(RATIOS)))
    prior = np.append(N_NULL, np.full(len(RATIOS), 1 / len(RATIOS)))
    scale = sd
    for _ in range(N_STEPS):
        share = _shares(size, weight, scale)
        total = (share / SPREADS[:, None] ** 2 * size**2).sum() + N_NULL * sd**2
        scale = float(np.sqrt(total / (len(size) + N_NULL)))
        weight = (share.sum(axis=1) + prior) / (len(size) + prior.sum())
    return weight, scale


def _shares(effect: FloatArray, weight: FloatArray, scale: float) -> FloatArray:
    """Compute the probability of each group given effects (...), shape (groups, ...)."""
    unit = effect[..., None] / (scale * SPREADS)
    share = softmax(np.log(weight / SPREADS) - unit**2 / 2, axis=-1)
    return np.moveaxis(share, -1, 0)
