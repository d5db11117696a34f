"""Sparse routing: the experts of a node are evaluated only for the rows that may reach it.

In a large tree a row reaches few nodes with noticeable probability, so most pairs of a node and a
row do not matter. ``paths`` finds those that do and sums over them, ``pairs`` evaluates them. Here
are their users: predictions and densities of rows, and modules that are fitted.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayestree.inference.data import PART, Data
from bayestree.inference.pairs import Evaluation, Experts
from bayestree.inference.paths import (
    Membership,
    Paths,
    Table,
    log_likelihood,
    memberships,
    route,
    summed_by_leaf,
)
from bayestree.models.sites import Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import joined, log_weight

ROWS = 8_192  # rows routed at a time
EXACT = 1e-6  # share of a row's likelihood that predictions and densities may leave out


def leaf_probs(model: SoftTree, sites: Sites, parts: Iterable[Tensor]) -> Iterator[Tensor]:
    """P(leaf | x), shape (n, L), of parts of the rows, to within ``EXACT`` of each row."""
    for X, _, found in _explored(model, sites, ((X, None) for X in parts)):
        if found is None:
            yield torch.cat([model.leaf_log_probs(sites, some).exp() for some in X.split(PART)])
        else:
            paths, member = found
            every = X.new_zeros(len(X), model.topology.n_leaves)
            every[paths.leaf_row, paths.leaf - model.topology.n_nodes] = member.leaves
            yield every


def log_likelihood_rows(model: SoftTree, sites: Sites, data: Data) -> Tensor:
    """log p(y | x) of each row without its weight, shape (n,); its error is at most ``EXACT``."""
    like = next(value for value in sites.values() if value.is_floating_point())
    parts = (part.to(like).for_leaf(model.leaf) for part in data.parts(ROWS))
    found = [like.new_zeros(0)]
    for X, y, routed in _explored(model, sites, ((part.X, part.y) for part in parts)):
        if routed is not None:
            found.append(routed[1].log_likelihood)
        elif y is not None:
            few = zip(X.split(PART), y.split(PART), strict=True)
            found += [model.log_likelihood_rows(sites, *some) for some in few]
    return torch.cat(found)


@torch.no_grad()
def _explored(
    model: SoftTree, sites: Sites, parts: Iterable[tuple[Tensor, Tensor | None]]
) -> Iterator[tuple[Tensor, Tensor | None, tuple[Paths, Membership] | None]]:
    """Each part, and its paths if sparse routing pays, as a few rows show.

    A part is X (n, d) and y (n,), or None to route by P(leaf | x) alone.
    """
    possible = "hyperplane" in sites and model.likelihood.additive
    possible = possible and math.isfinite(model.steepness)
    share = 0.0  # of the pairs that matter; 0 until it is measured
    for X, y in parts:
        if possible and share == 0 and pays(model, len(X), X.shape[1], gradient=False):
            few = X[:PART]
            paths, _ = _explored_part(model, sites, few, None if y is None else y[:PART])
            share = len(paths.node) / (len(few) * model.topology.n_nodes)
        sparse = share > 0 and pays(model, len(X), X.shape[1], share, gradient=False)
        yield X, y, _explored_part(model, sites, X, y) if sparse else None


def _explored_part(
    model: SoftTree, sites: Sites, X: Tensor, y: Tensor | None
) -> tuple[Paths, Membership]:
    ones = torch.cat((X, X.new_ones(len(X), 1)), dim=1)
    experts = Experts(log_weight(model.split, sites), joined(sites))
    table = Table.of(partial(model.leaf.log_density, sites), y, model, X)
    evaluation = Evaluation(experts, ones, model.steepness, keep=False)
    paths = route(evaluation, table, model.topology, EXACT)
    return paths, memberships(paths.log_odds, paths, table)


def pays(
    model: SoftTree, n_rows: int, n_features: int, share: float = 0.0, *, gradient: bool = True
) -> bool:
    """Whether sparse routing is faster than a dense pass, if this share of the pairs matters.

    By measured nanoseconds: an expert of a pair costs 7 + 0.06 d in a dense step, and a third of
    this without gradients; in a sparse step three times as much as in a dense one, each level of
    which costs another millisecond.
    """
    depth, n_nodes = model.topology.depth, model.topology.n_nodes
    dense = n_rows * n_nodes * model.split.n_experts * (7 + 0.06 * n_features)
    dense = dense if gradient else dense / 3
    return 3 * share * dense + 1e6 * depth < dense


class RoutedModule(nn.Module, ABC):
    """Splits and leaves during a fit, evaluated at all nodes or only where they matter."""

    model: SoftTree
    tolerance: float
    sparse = False  # whether steps evaluate only the pairs that matter

    def get_extra_state(self) -> dict[str, Any]:
        """The choice of the routing, which is part of the state of a fit."""
        return {"sparse": self.sparse}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.sparse = state["sparse"]

    @abstractmethod
    def fit(self, batch: Data, steepness: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-likelihood of a batch, penalty, and sums (L, c) of the leaves' statistics.

        ``batch`` has a column of ones.
        """

    @abstractmethod
    def experts(self) -> Experts:
        """The experts with gradients, drawn where they are uncertain."""

    @abstractmethod
    def log_density(self, y: Tensor) -> Tensor:
        """log p(y_n | leaf), or its expectation, shape (n, L)."""

    def noise(self, like: Tensor) -> Tensor:
        """Standard normals of the shape of a tensor, for experts that have variances."""
        return torch.randn_like(like)

    def choose_routing(self, batch: Data, steepness: float) -> None:
        """Use sparse routing from now on if it is expected to save time on such batches."""
        n_rows, width = batch.X.shape
        possible = self.tolerance > 0 and self.model.likelihood.additive
        possible = possible and math.isfinite(steepness)
        sparse = possible and pays(self.model, n_rows, width)
        if sparse:
            with torch.no_grad():
                experts = self.experts()
            evaluation = Evaluation(experts, batch.X, steepness, self.noise, keep=False)
            paths, _ = self.explore(batch, evaluation, self.log_density, self.tolerance)
            share = len(paths.node) / (n_rows * self.model.topology.n_nodes)
            sparse = pays(self.model, n_rows, width, share)
        self.sparse = sparse

    def explore(
        self,
        batch: Data,
        evaluation: Evaluation,
        log_density: Callable[[Tensor], Tensor],
        tolerance: float,
    ) -> tuple[Paths, Table]:
        """Find the pairs that matter, given the log-densities (n, L) of values of y."""
        table = Table.of(log_density, batch.y, self.model, batch.X)
        return route(evaluation, table, self.model.topology, tolerance), table

    def sparse_fit(self, batch: Data, steepness: float, experts: Experts) -> tuple[Tensor, Tensor]:
        """Log-likelihood of a batch, with gradients, and sums (L, c)."""
        evaluation = Evaluation(experts, batch.X, steepness, self.noise)
        paths, table = self.explore(batch, evaluation, self.log_density, self.tolerance)
        scores = evaluation.scores(paths.slot)
        value, member = log_likelihood(scores, paths, table, batch.weights, steepness)
        statistics = self.model.leaf.statistics(batch.y, batch.weights)
        return value, summed_by_leaf(paths, member, statistics, self.model.topology)
