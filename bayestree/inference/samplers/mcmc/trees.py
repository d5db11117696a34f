"""Trees of several chains and what they say about each row, in arrays of all chains.

With p_v(n) = p(y_n | row n is at node v), and P(left), P(right) of the node at the row,

    p_v = P(left) p_left + P(right) p_right,

up to the root, whose value is the likelihood of the row. As a function of the score of one node it
is a + b P(left) + c P(right), where a, b and c depend on the other nodes and the leaves: a change
of an expert costs one pass over the rows, and no sum over paths.

Densities of y are relative to those of its best leaf, so that they are at most 1.
"""

from typing import NamedTuple

import numpy as np
import torch

from bayestree._utils.arrays import MIN_SCORE, FloatArray, IntArray, softplus
from bayestree.inference.data import Data
from bayestree.inference.samplers.density import Layout, Sites, constrained
from bayestree.models.soft_tree import SoftTree

TINY = 1e-300  # smallest likelihood of a row, relative to that in its best leaf
MAX_LOG_ODDS = 690.0  # whose exponential, and its inverse, are finite


class Branches(NamedTuple):
    """Probabilities of the two sides of a node, each of the shape of its score."""

    left: FloatArray
    right: FloatArray


def branches(score: FloatArray, steepness: float) -> Branches:
    """Compute P(left) and P(right) from a score, neither by subtraction from 1."""
    if steepness == 1.0:
        odds = np.expm1(np.minimum(score, MAX_LOG_ODDS))
    else:
        log_odds = score + MIN_SCORE
        log_odds += np.log(-np.expm1(-log_odds))
        log_odds *= steepness
        odds = np.exp(np.minimum(log_odds, MAX_LOG_ODDS))
    left = 1.0 / (1.0 + odds)
    return Branches(left, odds * left)


def left_slope(score: FloatArray, sides: Branches, steepness: float) -> FloatArray:
    """Compute the derivative of P(left) in the score.

    The log-odds s + log(1 - exp(-s)) of going right have the slope 1 / (1 - exp(-s)).
    """
    if steepness == 1.0:
        return -sides.left
    slope: FloatArray = steepness * sides.left * sides.right / np.expm1(-(score + MIN_SCORE))
    return slope


class RowLikelihood(NamedTuple):
    """The likelihood of each row as a function of one node: a + b P(left) + c P(right), (C, n)."""

    elsewhere: FloatArray
    if_left: FloatArray
    if_right: FloatArray

    def mixture(self, sides: Branches) -> FloatArray:
        """Return the likelihood of each row."""
        total = self.if_left * sides.left
        total += self.if_right * sides.right
        total += self.elsewhere
        return np.maximum(total, TINY, out=total)


class ChainTrees:
    """C trees of one topology: their parameters, and the probabilities of all rows.

    Parameters
    ----------
    model : SoftTree
        With collapsed scales.
    data : Data
        n rows.
    vectors : array, shape (C, D)
        Parameters in the order of a ``Layout``; moves change them in place.

    Attributes
    ----------
    free : dict of arrays
        The parameters by site, as views of the vectors, each (C, ...).
    votes : array, shape (C, V, K, n)
        softplus of the activations of the experts.
    scores : array, shape (C, V, n)
    below : list of V + L arrays (C, n)
        p(y | a row is at a node, or leaf), relative to its best leaf.
    """

    def __init__(self, model: SoftTree, data: Data, vectors: FloatArray) -> None:
        self.model, self.vectors = model, vectors
        self.layout = Layout(model, data.X.shape[1])
        self.free = self.layout.free(vectors)
        own = data.to(torch.empty(0, dtype=torch.float64)).for_leaf(model.leaf)
        self.y, self.columns = own.y, np.ascontiguousarray(own.X.numpy().T)  # (d, n)
        self.rows = np.concatenate((own.X.numpy(), np.ones((len(own.X), 1))), axis=1)
        self.weights = own.weights.numpy()[None]  # of all chains
        self.steepness = model.steepness
        children = model.topology.children
        self.n_nodes, self.n_leaves = model.topology.n_nodes, model.topology.n_leaves
        #: children of each node, leaf l as V + l
        self.children: IntArray = np.where(children < 0, self.n_nodes + ~children, children)
        self.parents = model.topology.node_parent.tolist()
        self.refresh()

    @property
    def n_chains(self) -> int:
        return len(self.vectors)

    def refresh(self) -> None:
        """Compute everything from the vectors, without the rounding errors of earlier moves."""
        free = self.free
        self.weight = np.exp(free["log_weight"]) if self.model.split.weighted else None
        self.votes = self.expert_votes(free)
        self.scores = self._sums(self.votes, self.weight)
        self.sides = [
            branches(self.scores[:, node], self.steepness) for node in range(self.n_nodes)
        ]
        self.below = [self.votes[:, 0, 0]] * (self.n_nodes + self.n_leaves)
        self.set_leaves()

    def expert_votes(self, free: Sites) -> FloatArray:
        """Compute softplus of the activations (..., n) of experts (...)."""
        activation = free["hyperplane"] @ self.columns
        activation += free["intercept"][..., None]
        return softplus(activation)

    @staticmethod
    def _sums(votes: FloatArray, weight: FloatArray | None) -> FloatArray:
        if weight is None:
            return votes.sum(axis=-2)
        total: FloatArray = np.matmul(weight[..., None, :], votes)[..., 0, :]
        return total

    # Leaves.

    def leaf_sites(self, free: Sites) -> dict[str, torch.Tensor]:
        """Return the sites of leaves (...), one after another, from their coordinates."""
        found = {}
        for name in self.model.leaf.sites:
            own = self.layout.free_shapes[name][1:]
            value = torch.from_numpy(np.ascontiguousarray(free[name]).reshape(-1, *own))
            support = self.layout.supports[name]
            found[name] = constrained(value, support)[0]
            if support == "simplex":
                found[name].clamp_min_(torch.finfo(value.dtype).tiny)
        return found

    def leaf_density(self, free: Sites) -> FloatArray:
        """Compute log p(y_n | leaf), (..., n), of leaves (...) given their coordinates."""
        first = next(iter(self.model.leaf.sites))
        shape = free[first].shape[: free[first].ndim - len(self.layout.free_shapes[first]) + 1]
        found = self.model.leaf.log_density(self.leaf_sites(free), self.y)
        density: FloatArray = found.numpy().T.reshape(*shape, -1)
        return density

    def set_leaves(self, log_density: FloatArray | None = None) -> None:
        """Take the coordinates of the leaves, or their log p(y_n | leaf) (C, L, n)."""
        self.log_density = self.leaf_density(self.free) if log_density is None else log_density
        self.best = self.log_density.max(axis=1)
        density = np.exp(self.log_density - self.best[:, None])
        for leaf in range(self.n_leaves):
            self.below[self.n_nodes + leaf] = density[:, leaf]
        #: log-likelihood of rows in their best leaves, (C,)
        self.base = (self.best * self.weights).sum(axis=-1)
        for node in range(self.n_nodes - 1, -1, -1):
            self._set_below(node)

    # Nodes.

    def _set_below(self, node: int) -> None:
        left, right = self.children[node]
        total = self.sides[node].left * self.below[left]
        total += self.sides[node].right * self.below[right]
        self.below[node] = total

    def set_score(self, node: int, score: FloatArray) -> None:
        """Take the score (C, n) of a node, whose experts have changed."""
        self.scores[:, node] = score
        self.sides[node] = branches(score, self.steepness)
        while node >= 0:
            self._set_below(node)
            node = self.parents[node]

    def reach(self) -> list[FloatArray]:
        """Return P(a row reaches a node, or leaf), V + L arrays (C, n)."""
        found = [np.ones_like(self.below[0])] * len(self.below)
        for node, (left, right) in enumerate(self.children):
            found[left] = found[node] * self.sides[node].left
            found[right] = found[node] * self.sides[node].right
        return found

    def of_node(self, node: int) -> RowLikelihood:
        """Return the likelihood of the rows as a function of the sides of a node."""
        path, last = [], node
        while last:
            path.append((self.parents[last], last))
            last = self.parents[last]
        elsewhere = np.zeros_like(self.below[0])
        reach = np.ones_like(elsewhere)
        for parent, child in reversed(path):
            left, right = self.children[parent]
            own, other = self.sides[parent], self.below[left]
            if child == left:
                other = self.below[right]
                elsewhere += reach * own.right * other
                reach *= own.left
            else:
                elsewhere += reach * own.left * other
                reach *= own.right
        left, right = self.children[node]
        return RowLikelihood(elsewhere, reach * self.below[left], reach * self.below[right])

    def total(self, mixture: FloatArray) -> FloatArray:
        """Return the log-likelihood of chains (C,), given the likelihoods of their rows (C, n)."""
        value = np.log(mixture)
        value *= self.weights
        total: FloatArray = value.sum(axis=-1) + self.base
        return total

    def log_likelihood(self) -> FloatArray:
        """Return the log-likelihood of each chain, shape (C,)."""
        return self.total(np.maximum(self.below[0], TINY))
