"""The pass over all rows after a fit to a sample of them: sums for the leaves, and scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.parallel import one_thread
from bayestree.diagnostics.draws import spread
from bayestree.diagnostics.sample import score_sums
from bayestree.distributed.worker import Recipe, Rows
from bayestree.fitted.tree import FittedTree, Mixture
from bayestree.fitted.validation import counted_rows
from bayestree.inference.data import Data, part_size
from bayestree.tables import Features
from bayestree.tables.dataset import Piece

MOST_DRAWS = 8  # under which memberships and scores of a row are averaged


class LeafSums(NamedTuple):
    """Sums over rows for the leaves of a fitted tree.

    ``hard`` (L, c) are statistics of the rows in each leaf of the deterministic tree, of total
    weights ``rows`` (L,); ``soft`` (M, c) are weighted by P(leaf | x, y) under the posterior.
    """

    hard: Tensor
    rows: Tensor
    soft: Tensor


class Pass(NamedTuple):
    """What a pass over rows has found: sums for each tree, and ``score_sums`` (2, 6)."""

    trees: list[LeafSums]
    scores: FloatArray  # of the rows in the sample, and of the others


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
                found = joined(found, _of_chunk(recipe, estimator, rows))
    return found


def joined(one: Pass | None, other: Pass | None) -> Pass | None:
    """Add up what passes over different rows have found."""
    if one is None or other is None:
        return one or other
    pairs = zip(one.trees, other.trees, strict=True)
    trees = [LeafSums(*(a + b for a, b in zip(*pair, strict=True))) for pair in pairs]
    return Pass(trees, one.scores + other.scores)


def _of_chunk(recipe: Recipe, estimator: Any, own: Rows) -> Pass:
    mixture: Mixture = estimator.fitted_
    y = own.y if own.extra is None else np.column_stack((own.y, own.extra))
    rows, _ = counted_rows(estimator, Features.of(own.X, recipe.learned.encoding), y, None)
    sums, scores = [], []
    for fitted in mixture.trees:
        data = Data.of(fitted.scaling.standardise(rows.X), rows.response, own.weights)
        of_tree, score = summed(fitted, data, fitted.tree.apply(rows.X))
        sums.append(of_tree)
        scores.append(score)
    score = logsumexp(scores, axis=0, b=mixture.weights[:, None])
    score -= np.log(mixture.shown.scaling.units.y_scale)
    marks = recipe.sampled(own.numbers)
    each = [score_sums(score[some], own.weights[some]) for some in (marks, ~marks)]
    return Pass(sums, np.array(each))


def summed(fitted: FittedTree, data: Data, leaf: IntArray) -> tuple[LeafSums, FloatArray]:
    """Sum over rows, given their leaves (n,); also return their log-densities (n,)."""
    posterior, family = fitted.posterior, fitted.posterior.model.leaf
    data = data.for_leaf(family)
    each, place = family.statistics(data.y, data.weights), torch.as_tensor(leaf)
    hard = each.new_zeros(fitted.tree.n_leaves, each.shape[1]).index_add_(0, place, each)
    rows = each.new_zeros(fitted.tree.n_leaves).index_add_(0, place, data.weights)
    soft = each.new_zeros(posterior.model.topology.n_leaves, each.shape[1])
    draws, size = spread(fitted.n_draws, MOST_DRAWS), part_size(data.X)
    density = each.new_empty(len(draws), len(each))
    for own, draw in zip(density, draws.tolist(), strict=True):
        drawn = posterior.sites(*divmod(draw, posterior.n_draws))
        sites = {name: value.to(data.X) for name, value in drawn.items()}
        for part, terms, into in zip(data.parts(), each.split(size), own.split(size), strict=True):
            joint = posterior.model.leaf_log_probs(sites, part.X)
            joint = joint + family.log_density(sites, part.y)
            torch.logsumexp(joint, -1, out=into)
            soft += joint.softmax(-1).T @ terms / len(draws)
    return LeafSums(hard, rows, soft), (density.logsumexp(0) - np.log(len(draws))).numpy()
