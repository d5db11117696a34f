"""Predictions, log-densities and draws of y for each row, given draws of the parameters.

They use sparse routing where it pays.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor
from torch.distributions import Categorical

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.inference import memory_mapped
from bayestree.inference.data import PART, Data, part_size
from bayestree.inference.sparse_routing import (
    DensityTable,
    Evaluation,
    Experts,
    PathMembership,
    Paths,
    memberships,
    route,
)
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import joined, log_weight
from bayestree.routing import tree_log_probs

ROWS = 8_192  # rows routed at a time
PAIRS = 2**18  # rows times experts of several draws, so that temporaries fit in a cache
PROBS = 2**22  # P(leaf | x) of several draws in memory
EXACT = 1e-6  # share of a row's likelihood that predictions and densities may leave out


def leaf_probs(model: SoftTree, sites: Sites, parts: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield P(leaf | x), (n, L), of parts of the rows, to within ``EXACT`` of each row."""
    for X, _, found in _explored(model, sites, ((X, None) for X in parts)):
        if found is None:
            yield torch.cat(
                [model.leaf_log_probs(sites, some).exp() for some in X.split(part_size(X))]
            )
        else:
            paths, member = found
            every = X.new_zeros(len(X), model.topology.n_leaves)
            every[paths.leaf_row, paths.leaf - model.topology.n_nodes] = member.leaves
            yield every


@torch.no_grad()
def leaf_sums(model: SoftTree, sites: Sites, data: Data) -> Tensor:
    """Sum the leaves' statistics (L, c), weighted by soft memberships, in parts of the rows."""
    parts = (part.for_leaf(model.leaf) for part in data.parts(ROWS))
    probs = leaf_probs(model, sites, (part.X for part in data.parts(ROWS)))
    return summed(
        member.T @ model.leaf.statistics(part.y, part.weights)
        for member, part in zip(probs, parts, strict=True)
    )


def summed(terms: Iterable[Tensor]) -> Tensor:
    """Sum one or more tensors of one shape; only a few large ones are held at a time."""
    waiting: list[Tensor] = []
    for term in terms:
        waiting.append(term)
        if len(waiting) * term.numel() >= memory_mapped.HELD:
            waiting = [torch.stack(waiting).sum(0)]
    return torch.stack(waiting).sum(0)


def draws_at_once(model: SoftTree, n_rows: int, n_features: int) -> int:
    """Number of draws that are evaluated as one wide tree: one where sparse routing may pay."""
    if pays(model, n_rows, n_features, gradient=False):
        return 1
    pairs = min(n_rows, PART) * model.topology.n_nodes * model.split.n_experts
    return max(1, min(PAIRS // max(pairs, 1), PROBS // max(n_rows * model.topology.n_leaves, 1)))


def wide_leaf_log_probs(model: SoftTree, sites: Sites, X: Tensor, n_draws: int) -> Tensor:
    """log P(leaf | x), (n, S, L), of S draws whose nodes follow each other as those of one tree."""
    score = model.scores(sites, X).unflatten(1, (n_draws, model.topology.n_nodes))
    return tree_log_probs(score, model.steepness, model.topology)


def log_likelihood_rows(model: SoftTree, sites: Sites, data: Data) -> Tensor:
    """Compute log p(y | x) of each row without its weight, (n,), to within ``EXACT``."""
    like = next(value for value in sites.values() if value.is_floating_point())
    parts = (part.to(like).for_leaf(model.leaf) for part in data.parts(ROWS))
    found = [like.new_zeros(0)]
    for X, y, routed in _explored(model, sites, ((part.X, part.y) for part in parts)):
        if routed is not None:
            found.append(routed[1].log_likelihood)
        elif y is not None:
            few = zip(X.split(part_size(X)), y.split(part_size(X)), strict=True)
            found += [model.log_likelihood_rows(sites, *some) for some in few]
    return torch.cat(found)


@torch.no_grad()
def _explored(
    model: SoftTree, sites: Sites, parts: Iterable[tuple[Tensor, Tensor | None]]
) -> Iterator[tuple[Tensor, Tensor | None, tuple[Paths, PathMembership] | None]]:
    """Yield each part, and its paths if sparse routing pays, as a few rows show.

    A part is X (n, d) and y (n,), or None to route by P(leaf | x) alone.
    """
    possible = "hyperplane" in sites and model.likelihood.additive
    possible = possible and math.isfinite(model.steepness)
    share = 0.0  # of the pairs that matter; 0 until it is measured
    for X, y in parts:
        possible = possible and X.device.type == "cpu"
        if possible and share == 0 and pays(model, len(X), X.shape[1], gradient=False):
            few = X[:PART]
            paths, _ = _explored_part(model, sites, few, None if y is None else y[:PART])
            share = len(paths.node) / (len(few) * model.topology.n_nodes)
        sparse = share > 0 and pays(model, len(X), X.shape[1], share, gradient=False)
        yield X, y, _explored_part(model, sites, X, y) if sparse else None


def _explored_part(
    model: SoftTree, sites: Sites, X: Tensor, y: Tensor | None
) -> tuple[Paths, PathMembership]:
    ones = torch.cat((X, X.new_ones(len(X), 1)), dim=1)
    experts = Experts(log_weight(model.split, sites), joined(sites))
    table = DensityTable.of(partial(model.leaf.log_density, sites), y, model, X)
    evaluation = Evaluation(experts, ones, model.steepness, keep=False)
    paths = route(evaluation, table, model.topology, EXACT)
    return paths, memberships(paths.log_odds, paths, table)


def pays(
    model: SoftTree, n_rows: int, n_features: int, share: float = 0.0, *, gradient: bool = True
) -> bool:
    """Return whether sparse routing is faster than a dense pass, for this share of the pairs.

    By measured nanoseconds: an expert of a pair costs 7 + 0.06 d in a dense step, and a third of
    this without gradients; in a sparse step three times as much as in a dense one, each level of
    which costs another millisecond.
    """
    depth, n_nodes = model.topology.depth, model.topology.n_nodes
    dense = n_rows * n_nodes * model.split.n_experts * (7 + 0.06 * n_features)
    dense = dense if gradient else dense / 3
    return 3 * share * dense + 1e6 * depth < dense


@torch.no_grad()
def log_likelihood(model: SoftTree, draws: Iterable[Sites], data: Data) -> FloatArray:
    """Compute the weighted log-likelihood of each row under each draw, (draws, n).

    Raises ValueError for plug-in leaves, whose objective is not a sum over rows.
    """
    found, each = [], iter(draws)
    size = draws_at_once(model, len(data.X), data.X.shape[1])
    while some := list(islice(each, size)):
        values = _rows_of_draws(model, some, data)
        found.append((data.weights.to(values) * values).numpy(force=True).astype(np.float64))
    return np.concatenate(found)


def _rows_of_draws(model: SoftTree, draws: Sequence[Sites], data: Data) -> Tensor:
    """Compute :func:`log_likelihood_rows` of each draw, (draws, n)."""
    if len(draws) == 1 or not model.likelihood.additive:
        return torch.stack([log_likelihood_rows(model, sites, data) for sites in draws])
    wide = {n: torch.cat([one[n] for one in draws]) for n, v in draws[0].items() if v.ndim}
    found, leaf = [], model.leaf
    for part in data.parts():
        X, y, _ = part.to(_like(wide)).for_leaf(leaf)
        prob = wide_leaf_log_probs(model, wide, X, len(draws))
        joint = prob + leaf.log_density(wide, leaf.response(X, y)).view(prob.shape)
        found.append(model.likelihood.rows(joint))
    return torch.cat(found).T


def log_density(model: SoftTree, draws: Iterable[Sites], data: Data) -> FloatArray:
    """Compute the weighted log predictive density of each row, (n,): the log of its mean."""
    terms = log_likelihood(model, draws, data)
    found: FloatArray = logsumexp(terms, axis=0) - np.log(len(terms))
    return found


@torch.no_grad()
def log_joint(model: SoftTree, draws: Sequence[Sites], data: Data) -> FloatArray:
    """Compute the log-density of the parameters and all rows, in double precision, (draws,)."""
    prior = np.array([float(model.log_prior(sites)) for sites in draws])
    if model.likelihood.additive:
        return prior + log_likelihood(model, draws, data).sum(axis=1)
    return prior + [float(model.log_likelihood(s, *data.to(_like(s)))) for s in draws]


@torch.no_grad()
def sample_y(
    model: SoftTree,
    draws: Iterable[Sites],
    X: FloatArray,
    random_state: RandomState,
    known: Tensor | None = None,
) -> IntArray | FloatArray:
    """Draw y for each row and each draw of the parameters, (draws, n), in the model's units.

    ``known`` (n,) is what draws of the leaves need next to the features (see ``Leaf.known``).
    Raises ValueError for plug-in leaves, which have no distribution of y.
    """
    model.likelihood.check_mixture("Drawing y")
    found = []
    with seeded(draw_seed(random_state)):
        for sites in draws:
            rows = torch.as_tensor(X, dtype=_like(sites).dtype)
            probs = leaf_probs(model, sites, rows.split(ROWS))
            leaf = torch.cat([Categorical(some).sample() for some in probs])
            found.append(model.leaf.draw(sites, leaf, rows, known).numpy())
    return np.stack(found)


def _like(sites: Sites) -> Tensor:
    """Return any floating-point site; all have the same dtype and device."""
    return next(value for value in sites.values() if value.is_floating_point())
