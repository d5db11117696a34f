"""Search for the number of facets of each polytope split of a tree.

An over-complete, accurate fit first; then moves (deletions, merges, births, exchanges, rotations),
each refitted to convergence in a race of a batch of candidates, and accepted by the evidence
lower bound. The nodes of a tree are searched one after the other.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from bayestree import routing
from bayestree._utils.arrays import BoolArray, FloatArray, IntArray
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, cached, draw_seed
from bayestree._utils.wording import counted
from bayestree.inference.data import Data
from bayestree.inference.growth.harden import collapsed
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.posterior import Posterior
from bayestree.inference.variational.facets.bound import (
    SIDE_STEPS,
    BaseDraws,
    FacetPrior,
    Fits,
    NodeGuide,
    Problem,
    SearchOptions,
    climb,
    drop_negligible,
    even_draws,
    fresh_draws,
    measure,
    race,
    refit,
)
from bayestree.inference.variational.facets.likelihood import (
    FixedSides,
    LeafSides,
    Sides,
    SideState,
    SplitRows,
)
from bayestree.inference.variational.facets.moves import (
    LOG2,
    Points,
    deletions,
    guide_around,
    merges,
    over_complete,
    pool_slot,
    proposals,
)
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import joined

RESELECTIONS = 3  # maximum number of times that the rows of the search are chosen
SAME_ELBO = 0.5  # fits whose ELBOs differ by fewer nats count as the same
NEAR_SHARE = 0.75  # share of the rows of the search that are near a boundary
MAX_WEIGHT = 3.0  # a mislabelled row of greater weight alone would justify a facet
CLIMBS = 5  # climbs to the guide of an idle expert
MIN_SHARE = 1e-3  # rows that reach a node with a smaller probability are left out
MIN_ROWS = 10  # a node with fewer rows has no facets
LEAF_STEPS = 10  # updates of the leaves after the splits
MEAN_DRAWS = 64  # draws over which a node's routing is averaged


class FacetSearch(NamedTuple):
    """Outcome of :func:`search_facets`."""

    guide: NodeGuide  # one fit of at most ``n_experts + 1`` slots
    sides: SideState
    elbo: float  # ELBO of all rows on fresh draws
    gain: float  # gain in nats over sending all rows one way
    trace: list[str]  # the moves that were tried, and the resulting ELBOs


def search_facets(
    problem: Problem, *, present: Points | None = None, guide: NodeGuide | None = None
) -> FacetSearch:
    """Find the posterior of a polytope split, with the number of facets that the ELBO supports.

    ``present`` are experts (slot, ...) of an additional start; ``guide`` is a guide to improve by
    moves, instead of all starts.
    """
    trace: list[str] = []
    fit = _from_starts(problem, present, trace) if guide is None else problem.adopt(guide)
    fit = finish(_explore(fit, problem, trace), problem)
    elbo = measure(fit, problem)
    gain = split_gain(elbo, problem)
    trace.append(f"end {fit.guide.n_facets} {elbo:.1f}, gain {gain:.1f}")
    return FacetSearch(fit.guide, fit.sides, elbo, gain, trace)


def _from_starts(problem: Problem, present: Points | None, trace: list[str]) -> Fits:
    """Return the best of several over-complete fits, pruned."""
    found = over_complete(core_rows([], problem), present)
    trace.extend(f"start {fit.guide.n_facets} {fit.best:.1f}" for fit in found)
    found = distinct(found, problem.options.keep_starts)
    core = core_rows(found, problem)
    found = [prune(core.adopt(fit.guide), core, trace) for fit in found]
    return distinct(found, 1)[0]


def _explore(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Move until no move is accepted, on a selection of the rows where there are many."""
    core = core_rows([fit], problem)
    if core is problem:
        return improve(refit(problem.adopt(fit.guide), problem, 40, 2), problem, trace)
    for _ in range(RESELECTIONS):
        before = fit.guide.n_facets
        fit = improve(refit(core.adopt(fit.guide), core, 40, 2), core, trace)
        if fit.guide.n_facets == before:
            break
        core = core_rows([fit], problem)
    return prune(problem.adopt(fit.guide), problem, trace)


def core_rows(fits: list[Fits], problem: Problem) -> Problem:
    """Select rows for the search, reweighted so that sums are unbiased.

    Three quarters are the rows nearest to a boundary of ``fits``, with unchanged weights; the rest
    are drawn from the others with weights above 1. Distances are in feature space: in units of the
    score, a steep facet would have few rows near it, and mislabelled rows of large weight beyond
    them. Without fits, all rows have the same probability.
    """
    design, size = problem.rows.design, problem.options.core_rows
    n = len(design)
    if n <= size:
        return problem
    chance = torch.full((n,), size / n, dtype=torch.float64)
    if fits:
        distance = torch.stack([boundary_distance(fit.guide, design) for fit in fits])
        nearest = distance.amin(0).argsort()[: int(NEAR_SHARE * size)]
        rest = (size - len(nearest)) / (n - len(nearest))
        chance[:] = max(rest, 1 / MAX_WEIGHT)
        chance[nearest] = 1.0
    uniform = torch.rand(n, generator=problem.generator, dtype=torch.float64)
    index = torch.nonzero(uniform < chance)[:, 0]
    return problem.on(index, 1 / chance[index])


def boundary_distance(guide: NodeGuide, design: Tensor) -> Tensor:
    """Measure how far each row is from the border, where P(right) by an expert is 1/2, (row,)."""
    coefficient, log_weight = (part[0, :-1] for part in guide.centre())
    if not len(coefficient):
        return torch.zeros_like(design[:, 0])
    border = routing.log_odds(LOG2 * torch.exp(-log_weight))
    activation = coefficient @ design.T - border[:, None]
    return (activation / coefficient[:, :-1].norm(dim=-1)[:, None]).amax(0).abs()


def distinct(fits: list[Fits], limit: int) -> list[Fits]:
    """Select the best fits, without fits that are similar to a better one."""
    chosen: list[Fits] = []
    for fit in sorted(fits, key=lambda fit: -fit.best):
        alike = any(
            fit.guide.n_facets == other.guide.n_facets and abs(fit.best - other.best) < SAME_ELBO
            for other in chosen
        )
        if len(chosen) < limit and not alike:
            chosen.append(fit)
    return chosen


def prune(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Eliminate facets backward, until no removal improves the ELBO."""
    fit = drop_negligible(refit(fit, problem, 40, 2), problem)
    while fit.guide.n_facets > 1:
        best = race([fit, *deletions(fit, problem, 4), *merges(fit, problem, 2)], problem)
        trace.append(f"prune {fit.guide.n_facets} -> {best.guide.n_facets} {best.best:.1f}")
        if best.guide.n_facets >= fit.guide.n_facets:
            return best if best.best > fit.best else fit
        fit = best
    return fit


def improve(fit: Fits, problem: Problem, trace: list[str]) -> Fits:
    """Make moves of all kinds, until none is accepted."""
    for _ in range(problem.options.rounds):
        best = race([fit, *proposals(fit, problem)], problem)
        gain = best.best - fit.best
        trace.append(f"move {fit.guide.n_facets} -> {best.guide.n_facets} {best.best:.1f}")
        fit = best if gain > 0 else fit
        if gain <= problem.options.min_gain:
            break
    return fit


def finish(fit: Fits, problem: Problem) -> Fits:
    """Fit on all rows with more draws, to convergence."""
    rough = drop_negligible(refit(problem.adopt(fit.guide), problem, 40, 2, 0.1), problem)
    draws = even_draws(problem.options.final_draws, problem.prior.n_experts + 1, problem.generator)
    return refit(rough, problem._replace(draws=draws), 60, 6, 0.02)


def split_gain(elbo: float, problem: Problem) -> float:
    """Compute the gain in nats of a node with that ELBO over the better of its sides alone.

    The divergence of idle experts is added back: the exact posterior of an expert that affects no
    row is its prior, which the guide's family does not contain.
    """
    idle = idle_cost(problem.prior, problem.rows.design.shape[1])
    return elbo + idle - max(_one_sided_bound(problem, side) for side in (0, 1))


def _one_sided_bound(problem: Problem, side: int) -> float:
    """Bound the evidence where all rows go left (0) or right (1), after optimising the sides."""
    rows, value = problem.rows, -torch.inf
    share = torch.ones_like(rows.weights)[None]
    for _ in range(SIDE_STEPS):
        nothing = torch.zeros_like(share)
        left, right = (share, nothing) if side == 0 else (nothing, share)
        state = problem.sides.update(left, right, rows.weights)
        value_here = state[side]
        whole = value_here if rows.log_else is None else torch.logaddexp(value_here, rows.log_else)
        share = torch.exp(value_here - whole)
        value = float(whole[0] @ rows.weights + state.value[0])
    return value


@cached
def idle_cost(prior: FacetPrior, width: int) -> float:
    """Return the minimum divergence from the prior of a node whose experts are all idle."""
    nothing = torch.zeros(1, width, dtype=torch.float64)
    rows = SplitRows(nothing, nothing[:, 0])
    flat = torch.zeros(1, 1, dtype=torch.float64)
    state = SideState(flat, flat, flat[0])
    guide = pool_slot(rows, prior)
    draws = even_draws(8, 1, torch.Generator().manual_seed(0))
    elbo = torch.zeros(1, dtype=torch.float64)
    for _ in range(CLIMBS):
        guide, elbo, _ = climb(guide, draws, rows, state, prior, iterations=60, tolerance=1e-4)
    return -float(elbo)


class TreeFacets(NamedTuple):
    """Outcome of :func:`improve_facets`."""

    nodes: tuple[NodeGuide, ...]  # of length V, one fit each
    leaf_sums: Tensor  # (L, c): sums of the leaves' statistics over soft memberships
    gain: FloatArray  # (V,): gain of each split in nats over sending all of its rows one way
    trace: tuple[str, ...] = ()  # the moves that were tried, node by node

    @property
    def needed(self) -> BoolArray:
        """Mask of the needed nodes, shape (V,); the experts of the others are near their prior."""
        return (self.gain > 0) & np.array([node.n_facets > 0 for node in self.nodes])

    @property
    def n_facets(self) -> IntArray:
        """Number of facets of each node, 0 where it is not needed, shape (V,)."""
        facets = np.array([node.n_facets for node in self.nodes], dtype=np.int64)
        return np.where(self.needed, facets, 0)


def improve_facets(
    posterior: Posterior,
    data: Data,
    *,
    sweeps: int = 2,
    options: SearchOptions = SearchOptions(),  # noqa: B008 - it is immutable
    random_state: RandomState = None,
    progress: bool = False,
) -> TreeFacets:
    """Search for the facets of every node, with the rest of the tree at its current expectation.

    Nodes are visited in breadth-first order. The leaves of a node without nodes below are updated
    during its search, other leaves after each node. The first sweep uses new starts and the
    current experts; later ones continue by moves from each split that has a gain. The start is the
    point estimate of ``posterior``. Computations are in double precision on the CPU.
    """
    tree = _Tree(posterior, data.to(torch.empty(0, dtype=torch.float64, device="cpu")))
    generator = torch.Generator().manual_seed(draw_seed(random_state))
    topology = posterior.model.topology
    order = np.argsort(topology.node_depth, kind="stable").tolist()
    visits = [(sweep, int(node)) for sweep in range(sweeps) for node in order]
    parts = {"tree": tree, "trace": tree.trace, "generator": generator}
    track = Track(visits, "facets", show=progress, parts=parts)
    for sweep, node in track:
        outcome = tree.improve(node, options, generator)
        label = topology.node_labels[node]
        tree.trace.extend(f"sweep {sweep} {label} {line}" for line in outcome.trace)
        track.note(f"{label}: {counted(outcome.guide.n_facets, 'facet')}")
    guides = tuple(tree.guides[node] for node in range(topology.n_nodes))
    return TreeFacets(guides, tree.leaf_sums, tree.gain, tuple(tree.trace))


def without_unneeded(
    model: SoftTree, facets: TreeFacets, data: Data
) -> tuple[SoftTree, TreeFacets]:
    """Drop nodes that are not needed; each is replaced by its heavier side.

    Such a node would add the divergence of its idle experts to the bound. A tree without any needed
    node is returned unchanged.
    """
    needed = facets.needed
    if needed.all() or not needed.any():
        return model, facets
    sites = polytope_guide(model, facets, data).point()
    topology, nodes, leaves = collapsed(model, sites, data, needed)
    smaller = model.with_(topology=topology)
    kept = TreeFacets(
        tuple(facets.nodes[node] for node in nodes),
        facets.leaf_sums[leaves],
        facets.gain[nodes],
        (*facets.trace, f"removed {len(needed) - len(nodes)} nodes"),
    )
    sums = leaf_sums(smaller, polytope_guide(smaller, kept, data).point(), data)
    return smaller, kept._replace(leaf_sums=sums)


def polytope_guide(model: SoftTree, facets: TreeFacets, data: Data) -> PolytopeGuide:
    """Create the guide of the whole tree; unused experts have the factor of their node's pool."""
    expert = torch.arange(model.split.n_experts)
    wide = [
        [part[0] for part in node.slots(expert.clamp_max(node.n_slots - 1))]
        for node in facets.nodes
    ]
    whole = NodeGuide(*(torch.stack(parts).to(data.X) for parts in zip(*wide, strict=True)))
    sites = {
        "hyperplane": whole.mean[..., :-1],
        "intercept": whole.mean[..., -1],
        "log_weight": whole.log_mean_weight,
    }
    guide = PolytopeGuide(model, sites, facets.leaf_sums.to(data.X), covariance="expert")
    guide.place(whole.mean, whole.factor, whole.tilt, whole.law)
    return guide


class _Tree:
    """Current routing, leaves and guides of all nodes."""

    def __init__(self, posterior: Posterior, data: Data) -> None:
        self.model, self.data = posterior.model, data
        self.prior = FacetPrior.of(self.model)
        self.topology = self.model.topology
        self.design = data.with_ones().X
        self.sites = {name: site.double() for name, site in posterior.point_sites().items()}
        scores = self.model.scores(self.sites, data.X)
        #: log-probabilities of left and right at each node, shape (2, V, n)
        self.branch = torch.stack(routing.branch_log_probs(scores.T, self.model.steepness))
        self.guides: dict[int, NodeGuide] = {}
        self.gain = np.zeros(self.topology.n_nodes)
        self.trace: list[str] = []
        self.statistics = self.model.leaf.statistics(data.y, data.weights)
        self.leaf_sums = self._paths().exp().T @ self.statistics
        self._update_leaves()

    def state_dict(self) -> dict[str, Any]:
        found = {
            node: (tuple(guide), float(self.gain[node])) for node, guide in self.guides.items()
        }
        return {"found": found, "branch": self.branch, "leaf_sums": self.leaf_sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for node, (guide, gain) in state["found"].items():
            self.guides[node], self.gain[node] = NodeGuide(*guide), gain
        self.branch.copy_(state["branch"])
        self.leaf_sums.copy_(state["leaf_sums"])

    # Likelihoods of the rows by the rest of the tree.

    def _paths(self) -> Tensor:
        """Compute log P(leaf | x), shape (n, L)."""
        paths = routing.path_matrix(self.topology, dtype=torch.float64, device="cpu")
        left, right = self.branch
        return routing.leaf_log_probs(left.T, right.T, paths)

    def _densities(self) -> Tensor:
        """Compute the expected log-density of each row in each leaf, shape (n, L)."""
        return self.model.leaf.posterior(self.leaf_sums).expected_log_density(self.data.y)

    def _update_leaves(self) -> None:
        paths = self._paths()
        for _ in range(LEAF_STEPS):
            member = (paths + self._densities()).softmax(-1)
            self.leaf_sums = member.T @ self.statistics

    def _below(self, child: int, densities: Tensor) -> Tensor:
        """Compute the log-likelihood of each row by the subtree of a child, shape (n,)."""
        if child < 0:
            return densities[:, ~child]
        left, right = self.topology.children[child].tolist()
        return torch.logaddexp(
            self.branch[0, child] + self._below(left, densities),
            self.branch[1, child] + self._below(right, densities),
        )

    def _above(self, node: int, densities: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the log-probability of reaching a node, and the log-likelihood elsewhere."""
        parent = int(self.topology.node_parent[node])
        if parent < 0:
            return torch.zeros_like(self.data.weights), None
        reach, elsewhere = self._above(parent, densities)
        children = self.topology.children[parent].tolist()
        side = children.index(node)
        passed = reach + self.branch[1 - side, parent] + self._below(children[1 - side], densities)
        if elsewhere is not None:
            passed = torch.logaddexp(passed, elsewhere)
        return reach + self.branch[side, parent], passed

    # One node.

    def problem(self, node: int, options: SearchOptions, generator: Generator) -> Problem:
        """Create the search problem of a node, on the rows that may reach it."""
        densities = self._densities()
        reach, elsewhere = self._above(node, densities)
        children = self.topology.children[node].tolist()
        rows = SplitRows(self.design, self.data.weights, elsewhere, self.model.steepness)
        sides: Sides
        if max(children) < 0:
            sides = LeafSides(self.model.leaf, self.data.y, reach)
        else:
            sides = FixedSides(*(reach + self._below(child, densities) for child in children))
        share = torch.zeros_like(reach)
        if elsewhere is not None:
            share = reach + self._below(node, densities)
            share = share - torch.logaddexp(share, elsewhere)
        near = torch.maximum(reach, share).exp() >= MIN_SHARE
        index = torch.nonzero(near & (self.data.weights > 0))[:, 0]
        return Problem.of(rows.take(index), sides.take(index), self.prior, generator, options)

    def improve(self, node: int, options: SearchOptions, generator: Generator) -> FacetSearch:
        """Search at a node, then update routing and leaves."""
        problem = self.problem(node, options, generator)
        if len(problem.rows.weights) < MIN_ROWS:
            found = _without_facets(problem)
        elif self.gain[node] > 0:
            found = search_facets(problem, guide=self.guides[node])
        else:
            present = Points(joined(self.sites)[node], self.sites["log_weight"][node])
            found = search_facets(problem, present=present)
        self.guides[node], self.gain[node] = found.guide, found.gain
        draws = fresh_draws(MEAN_DRAWS, found.guide.n_slots, generator)
        rows = SplitRows(self.design, self.data.weights, None, self.model.steepness)
        self.branch[:, node] = mean_split(found.guide, rows, draws)
        leaves = (~self.topology.children[node]).tolist()
        if min(leaves) >= 0:  # recompute them from the routing: they may have been exchanged
            self.leaf_sums[leaves] = self._paths()[:, leaves].exp().T @ self.statistics
        self._update_leaves()
        return found


def _without_facets(problem: Problem) -> FacetSearch:
    """Return the outcome for a node with too few rows."""
    design = problem.rows.design
    nothing = Points(design.new_zeros(0, design.shape[1]), design.new_zeros(0))
    fit = problem.adopt(guide_around(nothing, problem.rows, problem.prior))
    elbo = measure(fit, problem)
    return FacetSearch(fit.guide, fit.sides, elbo, 0.0, ["end 0, too few rows"])


def mean_split(guide: NodeGuide, rows: SplitRows, draws: BaseDraws) -> Tensor:
    """Average the probabilities of left and right over draws; their logarithms, (2, row)."""
    planes, log_weight = guide.realise(draws)
    one, weight = planes.one(0), log_weight[0].exp()
    parts = []
    for cut in one.pieces(len(rows.weights)):
        score = one.votes(weight, rows.design[cut]).score
        parts.append(torch.stack([side.exp().mean(0).log() for side in rows.split(score)]))
    return torch.cat(parts, 1)
