"""Expectation-maximisation of a whole soft tree, steepness annealed (E2EDT, section 2.3).

Each epoch fixes the posterior h over leaves (eq. 10) at its initial parameters. The splits
maximise Q (eq. 14) on minibatches with Adam; the leaves are estimated from the same h (eq. 13).
Computing h batch by batch is equivalent to an E-step on all rows, without an array of rows x
leaves. Splits are accessed only through methods that hyperplanes and networks share.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.parameters import Count, Inference, NonNegative, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.pointwise import summed
from bayestree.inference.posterior import Posterior
from bayestree.inference.stage import Stage, as_function
from bayestree.inference.training import Adam, at_prior_mean, check_differentiable, check_topology
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import SoftTree
from bayestree.routing import Membership, expectation, expected_slope


@declare
class Em(Stage):
    """Settings of expectation-maximisation.

    {parameters}
    """

    linear_only = False
    keeps_zeros = True

    epochs: Annotated[Count, Inference("E-steps.")] = 20
    steepness: Annotated[Positive, Inference("Steepness gamma in the first epoch.")] = 1.0
    steepness_step: Annotated[NonNegative, Inference("Increase of gamma after each epoch.")] = 0.1
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 1000
    learning_rate: Annotated[Positive, Inference("Learning rate of Adam.")] = 1e-3
    passes: Annotated[Count, Inference("Passes over the rows, in minibatches, per M-step.")] = 1
    keep_zeros: Annotated[
        bool,
        Inference("Coefficients that are initially 0 stay 0, so that splits keep their features."),
    ] = False

    in_chunks = True

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Posterior,
        callback: Callable[[int, Posterior], object] | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Maximise the log-likelihood (plus log prior) over all splits and leaves together.

        Parameters
        ----------
        callback : callable, optional
            Called after each epoch with its number, from 1, and the current tree.
        {parameters}

        Returns
        -------
        Posterior
            One draw, with the steepness of the last epoch. ``stats["log_likelihood"]`` holds that
            of each E-step: of the parameters before the epoch, at its steepness.

        Raises
        ------
        ValueError
            For invalid settings, an ``init`` of another topology, a likelihood other than
            ``"mixture"``, or a prior without a gradient.
        """
        self.check(model)
        check_topology(model, init)
        model.likelihood.check_mixture("em")
        check_differentiable(model)
        data = data.for_leaf(model.leaf)
        climb = Climb(model, init, data, self.learning_rate, keep_zeros=self.keep_zeros)
        trace: list[float] = []

        def found(gamma: float) -> Posterior:
            stats = {"log_likelihood": np.array(trace)}
            final, settings = model.with_(steepness=gamma), vars(self).copy()
            return Posterior.from_point(final, climb.sites(), "em", stats=stats, settings=settings)

        parts = {"climb": climb, "optimiser": climb.optimiser, "trace": trace}
        track = Track(range(self.epochs), "em", show=progress, parts=parts)
        with seeded(draw_seed(random_state)):
            for epoch in track:
                gamma = self.steepness + epoch * self.steepness_step
                trace.append(climb.epoch(gamma, self.batch_size, self.passes))
                track.note(f"log-likelihood {trace[-1]:,.0f}")
                if callback is not None:
                    callback(epoch + 1, found(gamma))
        return found(self.steepness + (self.epochs - 1) * self.steepness_step)


em = as_function(Em, "em")


class Climb:
    """Parameters of a tree during EM, with the state of Adam."""

    def __init__(
        self,
        model: SoftTree,
        init: Posterior,
        data: Data,
        learning_rate: float,
        *,
        keep_zeros: bool = False,
    ) -> None:
        self.model, self.data = model, data
        start = init.point_sites(data.X)
        names = model.split.parameters(start)
        self.splits = {name: start.pop(name).clone() for name in names}
        self.leaves = {name: start.pop(name) for name in model.leaf.sites}
        self.fixed = start | at_prior_mean(model.priors.hyperplane, self.splits)
        self.zeros = {name: value == 0 for name, value in self.splits.items() if keep_zeros}
        for value in self.splits.values():
            value.requires_grad_()
        self.optimiser = Adam(self.splits.values(), learning_rate, betas=(0.9, 0.999))
        self.total = float(data.weights.sum())

    def state_dict(self) -> dict[str, Any]:
        return {"splits": self.splits, "leaves": self.leaves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, value in self.splits.items():
                value.copy_(state["splits"][name])
        some = next(iter(self.leaves.values()))
        self.leaves = {name: value.to(some.device) for name, value in state["leaves"].items()}

    def sites(self) -> dict[str, Tensor]:
        """Return current values of all sites."""
        splits = {name: value.detach().clone() for name, value in self.splits.items()}
        return self.fixed | splits | self.leaves

    def epoch(self, steepness: float, batch_size: int, passes: int = 1) -> float:
        """Take an E-step and an M-step; return the log-likelihood of the rows before them."""
        held = self.sites()
        values = []

        def first() -> Iterator[Tensor]:
            for batch in self.data.batches(batch_size):
                value, sums = self.step(batch, held, steepness)
                values.append(value)
                yield sums

        sums = summed(first())
        for _ in range(1, passes):
            for batch in self.data.batches(batch_size):
                self.step(batch, held, steepness)
        self.leaves = self.model.leaf.estimate(sums)
        return float(torch.stack(values).sum())

    def step(self, batch: Data, held: Sites, steepness: float) -> tuple[Tensor, Tensor]:
        """Take a gradient step of the splits on Q, with h at the fixed parameters (eq. 10, 14)."""
        self.optimiser.zero_grad()
        split, share = self.model.split, len(batch.X) / len(self.data.X)
        member = self.members(batch, held, steepness)
        nodes = member.mass[: len(member.right)]
        # Rows that are elsewhere almost surely contribute less than the rounding error.
        here = nodes > torch.finfo(nodes.dtype).eps
        odds = steepness * split.log_odds(self.splits, batch.X, here.T).T
        per_row = batch.weights / (share * self.total)
        odds.backward(-expected_slope(odds.detach(), member) * per_row)
        prior = self._log_prior()
        if prior.requires_grad:
            (-prior / self.total).backward()
        self.optimiser.step()
        for name, zero in self.zeros.items():
            self.splits[name].detach().masked_fill_(zero, 0.0)
        return self.sums(batch, member)

    @torch.no_grad()
    def members(self, batch: Data, held: Sites, steepness: float) -> Membership:
        """Compute the posterior over the paths of the rows at fixed parameters (eq. 10)."""
        odds = steepness * self.model.split.log_odds(held, batch.X).T
        density = self.model.leaf.log_density(held, batch.y).T
        return expectation(odds, density, self.model.topology)

    def sums(self, batch: Data, member: Membership) -> tuple[Tensor, Tensor]:
        """Sum the log-likelihood of the rows, and the leaves' statistics, (L, c) (eq. 13)."""
        statistics = self.model.leaf.statistics(batch.y, batch.weights)
        leaves = member.mass[len(member.right) :]
        return member.log_likelihood @ batch.weights, leaves @ statistics

    def _log_prior(self) -> Tensor:
        sites = self.fixed | self.splits
        first, *others = self.model.split.log_priors(self.model.priors, sites).values()
        return sum(others, start=first)
