"""Maximum a posteriori: joint refinement of all splits and leaves with soft routing."""

import copy
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bayestree import routing
from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.improper import check_differentiable
from bayestree.inference.posterior import Posterior
from bayestree.inference.settings import Minibatches, Stage, as_function
from bayestree.inference.training import (
    RunningSums,
    Schedule,
    adam,
    additive_parts,
    at_prior_mean,
    calibrated,
    check_linear,
    default_epochs,
    expert_size,
    joined,
    leaf_sums,
)
from bayestree.models import likelihoods, splits
from bayestree.models.soft_tree import SoftTree


@declare
class Map(Minibatches, Stage):
    """Settings of maximum a posteriori: joint refinement of all splits and leaves.

    {parameters}
    """

    optimiser: Annotated[
        Literal["adam", "lbfgs"],
        Inference(
            "Minibatches with Adam, or all rows with L-BFGS, of which an epoch is a "
            "round of 20 iterations, by default 30."
        ),
    ] = "adam"
    steepness: Annotated[
        tuple[Positive, Positive],
        Inference(
            "Steepness of the splits at the start and at the end, annealed in "
            "between. The result has the latter."
        ),
    ] = (1.0, 6.0)
    patience: Annotated[
        Count,
        Inference("Epochs without a higher likelihood of the validation rows after which to stop."),
    ] = 10

    @property
    def default_steepness(self) -> float:
        return 20.0

    @property
    def in_chunks(self) -> bool:
        return True

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Posterior,
        validation: Data | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Climb the log joint density from a grown tree, all nodes and leaves together.

        Weights are optimised on the log scale, where the gamma prior's density is bounded. Leaves
        take their conjugate estimate from the soft memberships, kept up to date over the
        minibatches. The shrinkages b of ``InverseGammaScale`` are kept at their prior mean, as in
        eq. 15: their joint mode with the hyperplanes is a pole at zero.

        Parameters
        ----------
        model : SoftTree
            Its topology must be that of ``init``.
        data : Data
            n rows.
        init : Posterior
            From ``grow``, or any other with the same sites.
        validation : Data, optional
            Keep the state that gives these rows the highest likelihood, and stop when it has not
            risen for ``patience`` epochs (once the annealing is over).
        random_state : int, RandomState or Generator, optional
        progress : bool
            Show a progress bar.
        {parameters}

        Returns
        -------
        Posterior
            One draw; ``stats["log_joint"]`` holds the objective by epoch.

        Raises
        ------
        ValueError
            For invalid settings, an ``init`` of another topology, or a prior on hyperplanes
            without a gradient.
        TypeError
            For splits without hyperplanes.
        """
        if init.model.topology != model.topology:
            raise ValueError("init has another topology than model.")
        self.check(model)
        check_differentiable(model)
        check_linear(model, data, "map")
        batched = self.optimiser == "adam"
        epochs = default_epochs(len(data.X), self.batch_size) if batched else 30
        settings = {
            "optimiser": self.optimiser,
            "epochs": self.epochs or epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "steepness": self.steepness,
        }
        climb = _adam if batched else _lbfgs
        with seeded(draw_seed(random_state)):
            point = Point(model, init, data)
            keep = _Best(point, validation, self.patience)
            trace = climb(point, data, settings, keep, progress)
        point = keep.best or point
        final = model.with_(steepness=self.steepness[1])
        recorded = {"stats": {"log_joint": np.array(trace)}, "settings": settings}
        return Posterior.from_point(final, point.sites(), "map", **recorded)

    def run(
        self,
        found: Posterior,
        data: Data,
        *,
        validation: Data | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        return self.fit(
            calibrated(found, data),
            data,
            init=found,
            validation=validation,
            random_state=random_state,
            progress=progress,
        )


map = as_function(Map, "map")  # noqa: A001 - the name of the method


class Point(nn.Module):
    """The parameters of all splits, and leaves that follow from soft memberships.

    Coefficients (V, K, d + 1), the intercept last, are in units of their node's size, so that
    one learning rate suits every node.
    """

    sums: Tensor

    def __init__(self, model: SoftTree, init: Posterior, data: Data) -> None:
        super().__init__()
        self.model = model.collapsed()
        sites = {name: value.to(data.X) for name, value in init.point_sites().items()}
        self.size = expert_size(sites["hyperplane"], sites["intercept"])
        self.unit = nn.Parameter(joined(sites) / self.size)
        if model.split.weighted:
            self.log_weight = nn.Parameter(sites["log_weight"].clone())
        self.register_buffer("sums", leaf_sums(init.model, sites, data))

    def sites(self) -> dict[str, Tensor]:
        """All sites, the leaves at their conjugate estimates."""
        return self._splits(self.unit * self.size) | self.model.leaf.estimate(self.sums)

    def fit(self, batch: Data, steepness: float) -> tuple[Tensor, Tensor, Tensor]:
        """Log-likelihood of a batch, log prior, and the memberships (n, L) that follow.

        ``batch.X`` ends with a column of ones.
        """
        coefficient = self.unit * self.size
        sites = self._splits(coefficient)
        log_weight = splits.log_weight(self.model.split, sites)
        score = routing.joint_score(batch.X, log_weight, coefficient)
        log_prob = routing.tree_log_probs(score, steepness, self.model.topology)
        leaves = self.model.leaf.estimate(self.sums)
        prior = self.model.log_prior(sites | leaves)
        if self.model.likelihood == "mixture":
            joint = log_prob + self.model.leaf.log_density(leaves, batch.y)
            value = likelihoods.mixture(joint) @ batch.weights
            return value, prior, joint.detach().softmax(-1)
        value = self.model.objective(log_prob, batch.y, batch.weights)
        return value, prior, log_prob.detach().exp()

    def _splits(self, coefficient: Tensor) -> dict[str, Tensor]:
        sites = {"hyperplane": coefficient[..., :-1], "intercept": coefficient[..., -1]}
        if self.model.split.weighted:
            sites["log_weight"] = self.log_weight
        return sites | at_prior_mean(self.model.priors.hyperplane, sites)


class _Best:
    """The state that predicts held-out rows best."""

    def __init__(self, point: Point, validation: Data | None, patience: int) -> None:
        self.point = point
        self.validation = validation
        self.patience = patience
        self.best: Point | None = None
        self.score = -np.inf
        self.age = 0

    def state_dict(self) -> dict[str, Any]:
        best = None if self.best is None else self.best.state_dict()
        return {"best": best, "score": self.score, "age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score, self.age = state["score"], state["age"]
        self.best = None
        if state["best"] is not None:
            self.best = copy.deepcopy(self.point)
            self.best.load_state_dict(state["best"])

    def stop(self, steepness: float, *, ready: bool) -> bool:
        """Look at the state after an epoch; states before ``ready`` do not count."""
        if self.validation is None or not ready:
            return False
        with torch.no_grad():
            parts = additive_parts(self.point.model, self.validation, ones=True)
            score = sum(float(self.point.fit(part, steepness)[0]) for part in parts)
        self.age += 1
        if score > self.score:
            self.best, self.score, self.age = copy.deepcopy(self.point), score, 0
        return self.age >= self.patience


def _adam(
    point: Point, data: Data, settings: dict[str, Any], keep: _Best, progress: bool
) -> list[float]:
    epochs, size = settings["epochs"], settings["batch_size"]
    per_epoch = -(-len(data.X) // size)
    schedule = Schedule(epochs * per_epoch, settings["steepness"])
    optimiser = adam(point)
    running = RunningSums(point.model.leaf, point.sums, per_epoch)
    total = float(data.weights.sum())
    trace: list[float] = []
    parts = {"point": point, "optimiser": optimiser, "keep": keep, "trace": trace}
    track = Track(range(epochs), "map", show=progress, parts=parts)
    for epoch in track:
        value = 0.0
        for step, batch in enumerate(data.batches(size, ones=True), epoch * per_epoch):
            share = len(batch.X) / len(data.X)
            optimiser.param_groups[0]["lr"] = settings["learning_rate"] * schedule.rate(step)
            optimiser.zero_grad(set_to_none=True)
            likelihood, prior, member = point.fit(batch, schedule.gamma(step))
            (-(likelihood / share + schedule.prior(step) * prior) / total).backward()
            optimiser.step()
            running.update(member, batch, share)
            value += float(likelihood.detach() + share * prior.detach())
        trace.append(value)
        track.note(f"log joint {value:,.0f}")
        ready = epoch >= schedule.annealed * epochs
        if keep.stop(schedule.gamma((epoch + 1) * per_epoch), ready=ready):
            track.finish()
            break
    return trace


def _lbfgs(
    point: Point, data: Data, settings: dict[str, Any], keep: _Best, progress: bool
) -> list[float]:
    """Rounds of L-BFGS on the splits, the leaves brought up to date after each."""
    epochs, data = settings["epochs"], data.with_ones()
    schedule = Schedule(epochs, settings["steepness"])
    running = RunningSums(point.model.leaf, point.sums, batches=1)
    total = float(data.weights.sum())
    trace: list[float] = []
    parts = {"point": point, "keep": keep, "trace": trace}
    track = Track(range(epochs), "map", show=progress, parts=parts)
    for epoch in track:
        gamma = schedule.gamma(epoch)
        optimiser = torch.optim.LBFGS(point.parameters(), line_search_fn="strong_wolfe")

        def closure(gamma: float = gamma, optimiser: torch.optim.LBFGS = optimiser) -> Tensor:
            optimiser.zero_grad()
            likelihood, prior, _ = point.fit(data, gamma)
            loss = -(likelihood + prior) / total
            loss.backward()
            return loss

        loss = optimiser.step(closure)
        with torch.no_grad():
            running.update(point.fit(data, gamma)[2], data, 1.0)
        trace.append(-float(loss.detach()) * total)
        track.note(f"log joint {trace[-1]:,.0f}")
        if keep.stop(gamma, ready=epoch >= schedule.annealed * epochs):
            track.finish()
            break
    return trace
