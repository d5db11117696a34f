"""The pass over all rows after a fit to a sample of them: sums for the leaves, and scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parallel import one_thread
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.sample import ScoreSums
from bayestree.distributed.worker import Recipe, Rows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitted.validation import counted_rows
from bayestree.inference.data import Data, part_size
from bayestree.tables import Features
from bayestree.tables.dataset import Piece

MOST_DRAWS = 8  # under which memberships and scores of a row are averaged


@dataclass
class LeafSums:
    """Sums over rows for the leaves of a fitted tree.

    ``hard`` (L, c) are statistics of the rows in each leaf of the deterministic tree, of total
    weights ``rows`` (L,); ``soft`` (M, c) are weighted by P(leaf | x, y) under the posterior.
    """

    hard: Tensor
    rows: Tensor
    soft: Tensor

    @classmethod
    def of(cls, fitted: FittedTree, data: Data, leaf: Any) -> tuple["LeafSums", FloatArray]:
        """Sum over rows, given their leaves; also return their log-densities (n,)."""
        posterior, family = fitted.posterior, fitted.posterior.model.leaf
        data = data.for_leaf(family)
        each, place = family.statistics(data.y, data.weights), torch.as_tensor(leaf)
        n_leaves, topology = fitted.tree.n_leaves, posterior.model.topology
        hard = each.new_zeros(n_leaves, each.shape[1]).index_add_(0, place, each)
        rows = data.weights.new_zeros(n_leaves).index_add_(0, place, data.weights)
        soft = each.new_zeros(topology.n_leaves, each.shape[1])
        draws = spread(fitted.n_draws, MOST_DRAWS)
        density = data.weights.new_empty(len(draws), len(data.X))
        for own, draw in zip(density, draws.tolist(), strict=True):
            sites = posterior.sites(*divmod(draw, posterior.n_draws))
            sites = {name: value.to(data.X) for name, value in sites.items()}
            size = part_size(data.X)
            for part, terms, into in zip(
                data.parts(), each.split(size), own.split(size), strict=True
            ):
                joint = posterior.model.leaf_log_probs(sites, part.X)
                joint = joint + family.log_density(sites, part.y)
                torch.logsumexp(joint, -1, out=into)
                soft += joint.softmax(-1).T @ terms / len(draws)
        scores = density.logsumexp(0) - np.log(len(draws))
        return cls(hard, rows, soft), scores.numpy()

    def plus(self, other: "LeafSums") -> "LeafSums":
        """Add the sums over other rows."""
        return LeafSums(self.hard + other.hard, self.rows + other.rows, self.soft + other.soft)


class Pass(NamedTuple):
    """What a pass over rows has found: sums for each tree, and scores in the sample and beyond."""

    trees: list[LeafSums]
    sample: ScoreSums
    others: ScoreSums

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.sample.sums[0] + self.others.sums[0])

    def plus(self, other: "Pass") -> "Pass":
        """Add what a pass over other rows has found."""
        trees = [one.plus(more) for one, more in zip(self.trees, other.trees, strict=True)]
        return Pass(trees, self.sample.plus(other.sample), self.others.plus(other.others))


@torch.no_grad()
def leaf_sums(shared: tuple[Recipe, Any], pieces: Sequence[Piece], first: int) -> Pass | None:
    """Pass through the training rows of some pieces; ``shared`` is the recipe and the estimator.

    None without rows of positive weight.
    """
    recipe, estimator = shared
    found: Pass | None = None
    with one_thread():
        for own, _ in recipe.chunks(pieces, first):
            rows = own.take(own.weights > 0)
            if len(rows.y):
                new = _of_chunk(recipe, estimator, rows)
                found = new if found is None else found.plus(new)
    return found


def _of_chunk(recipe: Recipe, estimator: Any, own: Rows) -> Pass:
    mixture: Mixture = estimator.fitted_
    y = own.y if own.extra is None else np.column_stack((own.y, own.extra))
    X = Features.of(own.X, recipe.learned.encoding)
    rows, _ = counted_rows(estimator, X, y, None)
    sums, scores = [], []
    for fitted in mixture.trees:
        data = Data.of(fitted.scaling.standardise(rows.X), rows.response, own.weights)
        of_tree, score = LeafSums.of(fitted, data, fitted.tree.apply(rows.X))
        sums.append(of_tree)
        scores.append(score)
    score = logsumexp(scores, axis=0, b=mixture.weights[:, None])
    score -= np.log(mixture.shown.scaling.units.y_scale)
    sampled = recipe.sampled(own.numbers)
    each = (ScoreSums.of(score, own.weights, marks) for marks in (sampled, ~sampled))
    return Pass(sums, *each)
