"""Maximum a posteriori: joint refinement of all splits and leaves with soft routing."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from sklearn.utils import check_random_state
from torch import Tensor, nn

from bayestree import routing
from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.inference import training
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.posterior import Posterior
from bayestree.inference.sparse_routing import Experts
from bayestree.inference.stage import Minibatches, Stage, as_function
from bayestree.inference.streaming import Memory
from bayestree.models import splits
from bayestree.models.priors.base import Plates
from bayestree.models.soft_tree import MonotonicityConstraints, SoftTree, support_of
from bayestree.models.splits import joined

STEEPNESS = (1.0, 6.0, 20.0)  # among which a fit chooses
CHOICE_SHARE = 0.1  # of the epochs, for each of them in each fold
FOLDS, MOST_ROWS = 3, 10_000  # of the rows that are left out


@declare
class Map(Minibatches, training.Engine, Stage):
    """Settings of maximum a posteriori: joint refinement of all splits and leaves.

    {parameters}
    """

    optimiser: Annotated[
        Literal["adam", "lbfgs"],
        Inference(
            "Adam on minibatches, or L-BFGS on all rows in rounds of 20 iterations, each counted "
            "as an epoch (default 30)."
        ),
    ] = "adam"
    steepness: Annotated[
        Positive | tuple[Positive, Positive] | None,
        Inference(
            "Steepness of the splits at the end, from 1, or first and last, annealed in between. "
            "None: that of 1, 6 and 20 under which the deterministic tree predicts left-out rows "
            "best, in three folds of up to 10,000 rows, or the validation rows."
        ),
    ] = (1.0, 6.0)
    objective: Annotated[
        Literal["likelihood", "impurity"],
        Inference(
            "What is maximised beside the prior: the log-likelihood of the mixture of all leaves, "
            "or the paper's objective with leaves that follow from the rows: the mutual "
            "information of classes and leaves (CPT, eq. 14), or the variance within leaves (16)."
        ),
    ] = "likelihood"
    patience: Annotated[
        Count,
        Inference("Epochs without a higher likelihood of the validation rows after which to stop."),
    ] = 10

    default_steepness = 20.0
    in_chunks = True

    @property
    def adds_rows(self) -> bool:
        return self.direct and self.objective == "likelihood"

    @property
    def keeps_signs(self) -> bool:  # type: ignore[override]
        return self.direct

    @property
    def keeps_groups(self) -> bool:  # type: ignore[override]
        return self.direct

    def check(self, model: SoftTree) -> None:
        super().check(model)
        if self.optimiser == "lbfgs" and not self.direct:
            raise ValueError("engine='pyro' takes steps of Adam: set optimiser='adam'.")
        if self.objective == "impurity" and model.leaf.impurity == "mixture":
            raise ValueError(
                f"objective='impurity' is for constant leaves of classes or numbers, got "
                f"{model.leaf}: use objective='likelihood'."
            )

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Posterior,
        validation: Data | None = None,
        memory: Memory | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Maximise the log joint density over all splits and leaves together.

        Weights are optimised on the log scale, where the density of the gamma prior is bounded.
        Leaves are conjugate estimates from the soft memberships, updated with each minibatch. The
        shrinkages b of ``InverseGammaScale`` are fixed at their prior mean, as in eq. 15: their
        joint mode with the hyperplanes is a pole at zero.

        Parameters
        ----------
        validation : Data, optional
            Keep the state that gives these rows the highest likelihood, and stop when it has not
            risen for ``patience`` epochs (once the annealing is over).
        memory : Memory, optional
            What earlier rows say, to be combined with ``data``.
        {parameters}

        Returns
        -------
        Posterior
            One draw; ``stats["log_joint"]`` holds the objective by epoch and, if the steepness was
            chosen, ``stats["left_out"]`` the log-likelihood of the left-out rows for each choice.

        Raises
        ------
        ValueError
            For invalid settings, an ``init`` of another topology, or a prior on hyperplanes
            without a gradient.
        TypeError
            For splits without hyperplanes.
        """
        training.check_topology(model, init)
        self.check(model)
        training.check_differentiable(model)
        training.check_linear(model, data, "map")
        start: dict[str, Any] = {"init": init, "memory": memory, "progress": progress}
        if isinstance(self.steepness, int | float):
            start |= {"validation": validation, "random_state": random_state}
            return replace(self, steepness=(1.0, self.steepness)).fit(model, data, **start)
        if self.steepness is None:
            # by other random numbers, so that the fit is that with the chosen steepness
            seeds = check_random_state(draw_seed(copy.deepcopy(random_state)))
            scores = _left_out(self, model, data, validation, random_state=seeds, **start)
            stage = replace(self, steepness=(1.0, STEEPNESS[int(scores.argmax())]))
            start["random_state"] = random_state
            found = stage.fit(model, data, validation=validation, **start)
            return replace(found, stats={**found.stats, "left_out": scores.numpy()})
        data = data.for_leaf(model.leaf)
        validation = None if validation is None else validation.for_leaf(model.leaf)
        epochs = self.epochs or self.default_epochs(len(data.X))
        aim = model
        if self.objective == "impurity":
            aim = model.with_(likelihood=model.leaf.impurity)
        with seeded(draw_seed(random_state)):
            point = Point(aim, init, data, self.routing_tolerance, memory)
            keep = _Best(point, validation, self.patience)
            trace = _climb(self, epochs, point, data, keep, progress=progress)
        names = ("optimiser", "objective", "epochs", "batch_size", "learning_rate", "steepness")
        return Posterior.from_point(
            model.with_(steepness=self.steepness[1]),
            (keep.best or point).sites(),
            "map",
            stats={"log_joint": np.array(trace)},
            settings=self.chosen(*names) | {"epochs": epochs},
        )

    def run(self, found: Posterior, data: Data, **common: Any) -> Posterior:
        return self.fit(training.calibrated(found, data), data, init=found, **common)

    def default_epochs(self, n_rows: int) -> int:
        return super().default_epochs(n_rows) if self.optimiser == "adam" else 30


map = as_function(Map, "map")  # noqa: A001 - the name of the method


def _left_out(
    settings: Map, model: SoftTree, data: Data, validation: Data | None, **start: Any
) -> Tensor:
    """Sum the log-likelihoods of left-out rows under the deterministic tree, by ``STEEPNESS``.

    The log joint cannot choose: steeper splits nearly always fit the training rows better. In each
    fold a fit goes on from one steepness to the next. All start from the tree grown on all rows.
    """
    total = torch.zeros(len(STEEPNESS), dtype=torch.float64)
    folds = _folds(data) if validation is None else [(data, validation)]
    parts = {"total": total, "seeds": start["random_state"]}
    usual = settings.default_epochs
    for kept, held in Track(folds, "steepness", show=start["progress"], parts=parts):
        epochs, first, here = settings.epochs or 0, 1.0, dict(start)
        if epochs in (0, usual(len(data.X))):  # not chosen: as suits the rows of the fold
            epochs = usual(len(kept.X))
        epochs = max(1, round(CHOICE_SHARE * epochs))
        for i, last in enumerate(STEEPNESS):
            stage = replace(settings, epochs=epochs, steepness=(first, last))
            here["init"] = stage.fit(model, kept, **here)
            total[i] += training.log_likelihood_of_tree(here["init"], kept, held)
            first = last
    return total


def _folds(data: Data) -> list[tuple[Data, Data]]:
    """Leave out each fold of the rows, or of up to ``MOST_ROWS`` of them, in turn.

    Every third of the sorted rows, y first, is in the same fold. Equal rows count as one: left-out
    rows are new, and a row of weight 2 is two rows.
    """
    some = data.take(torch.arange(0, len(data.X), -(-len(data.X) // MOST_ROWS)))
    some = some.take(some.weights > 0)
    table = torch.column_stack((some.y.to(some.X), some.X)).numpy(force=True)
    place = np.unique(table, axis=0, return_inverse=True)[1].ravel()
    fold = torch.as_tensor(place % FOLDS, device=some.X.device)
    each = ((fold != k, fold == k) for k in range(FOLDS))
    return [(some.take(a), some.take(b)) for a, b in each if a.any() and b.any()]


class Point(training.RoutedModule):
    """Parameters of all splits, and leaves estimated from soft memberships.

    Coefficients (V, K, d + 1), the intercept last, are in units of their node's size, so that
    one learning rate suits every node.
    """

    sums: Tensor

    def __init__(
        self,
        model: SoftTree,
        init: Posterior,
        data: Data,
        tolerance: float = 0.0,
        memory: Memory | None = None,
    ) -> None:
        super().__init__()
        self.memory = None if memory is None else memory.to(data.X)
        # The joint mode of parameters and hyperparameters may be a pole, as for shrinkages.
        self.model, self.tolerance = model.with_(priors=model.priors.fixed()).collapsed(), tolerance
        sites = init.point_sites(data.X)
        self.support = support_of(model, joined(sites))
        self.size = training.expert_size(sites["hyperplane"], sites["intercept"], self.support)
        self.unit = nn.Parameter(joined(sites) / self.size)
        if model.split.weighted:
            self.log_weight = nn.Parameter(sites["log_weight"].clone())
        self.monotone = MonotonicityConstraints.of(model, sites["hyperplane"])
        self.register_buffer("sums", leaf_sums(init.model, sites, data))

    @property
    def coefficient(self) -> Tensor:
        """Coefficients of the experts, shape (V, K, d + 1), the intercept last."""
        free = self.unit * self.size
        if self.support is not None:
            free = torch.where(self.support, free, 0.0)
        return free if self.monotone is None else self.monotone.fold(free)

    def sites(self) -> dict[str, Tensor]:
        """Return all sites, with leaves at their conjugate estimates."""
        return self._splits(self.coefficient) | self._leaves()

    def _leaves(self) -> dict[str, Tensor]:
        sums = self.sums if self.memory is None else self.sums + self.memory.sums
        if self.monotone is not None:
            sums = self.monotone.pooled(self.model.leaf, sums)
        return self.model.leaf.estimate(sums)

    def fit(self, batch: Data, steepness: float) -> tuple[Tensor, Tensor, Tensor]:
        experts = self.experts()
        log_weight, coefficient, _ = experts
        leaf, leaves = self.model.leaf, self._leaves()
        if self.sparse:
            value, sums = self.sparse_fit(batch, steepness, experts)
        else:
            n_nodes, n_experts, width = coefficient.shape
            activation = coefficient.view(-1, width) @ batch.X.T
            score = routing.vote(activation.view(n_nodes, n_experts, len(batch.X)), log_weight)
            log_prob = routing.tree_log_probs(score, steepness, self.model.topology)
            likelihood = self.model.likelihood
            joint = likelihood.joint(leaf, leaves, log_prob, batch.y)
            value = likelihood.value(joint, leaf, batch.y, batch.weights)
            member = likelihood.memberships(joint.detach())
            sums = member.T @ leaf.statistics(batch.y, batch.weights)
        splits = self._splits(coefficient)
        penalty = -self.model.log_prior(splits | leaves)
        if self.memory is not None:
            penalty = penalty + self.memory.penalty(coefficient, splits.get("log_weight"))
        return value, penalty, sums

    def experts(self) -> Experts:
        coefficient = self.coefficient
        return Experts(splits.log_weight(self.model.split, self._splits(coefficient)), coefficient)

    def log_density(self, y: Tensor) -> Tensor:
        return self.model.leaf.log_density(self._leaves(), y)

    def stated(self, steepness: float) -> Callable[..., Any]:
        return poutine.condition(self.model.with_(steepness=steepness), data=self._leaves())

    def __call__(self, X: Tensor, *_: Any) -> None:
        """Sample point masses on the splits, as a Pyro guide."""
        plates = Plates.of(self.model.size(X.shape[-1]))
        with plates.node, plates.expert:
            for name, value in self._splits(self.coefficient).items():
                pyro.sample(name, dist.Delta(value, event_dim=value.ndim - 2))

    def _splits(self, coefficient: Tensor) -> dict[str, Tensor]:
        sites = {"hyperplane": coefficient[..., :-1], "intercept": coefficient[..., -1]}
        if self.model.split.weighted:
            sites["log_weight"] = self.log_weight
        return sites | training.at_prior_mean(self.model.priors.hyperplane, sites)


class _Best:
    """The state with the highest likelihood of the validation rows."""

    def __init__(self, point: Point, validation: Data | None, patience: int) -> None:
        self.point, self.validation, self.patience = point, validation, patience
        self.best: Point | None = None
        self.score, self.age = -np.inf, 0

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
        """Score the state after an epoch if ``ready``; whether to stop."""
        if self.validation is None or not ready:
            return False
        with torch.no_grad():
            whole = not self.point.model.likelihood.additive
            parts = self.validation.parts(ones=True, whole=whole)
            score = sum(float(self.point.fit(part, steepness)[0]) for part in parts)
        self.age += 1
        if score > self.score:
            self.best, self.score, self.age = copy.deepcopy(self.point), score, 0
        return self.age >= self.patience


Epoch = Callable[[int], tuple[float, float]]  # of a number: log joint, and steepness at its end


def _climb(
    settings: Map, epochs: int, point: Point, data: Data, keep: _Best, *, progress: bool
) -> list[float]:
    """Take epochs until there is no reason to go on; return the log joint by epoch."""
    start = _adam if settings.optimiser == "adam" else _lbfgs
    take, more = start(settings, epochs, point, data)
    trace: list[float] = []
    parts = {"point": point, "keep": keep, "trace": trace} | more
    track = Track(range(epochs), "map", show=progress, parts=parts)
    for epoch in track:
        value, gamma = take(epoch)
        trace.append(value)
        track.note(f"log joint {value:,.0f}")
        if keep.stop(gamma, ready=epoch >= training.Schedule.annealed * epochs):
            track.finish()
            break
    return trace


def _adam(settings: Map, epochs: int, point: Point, data: Data) -> tuple[Epoch, dict[str, Any]]:
    chosen = settings.chosen("batch_size", "learning_rate", "steepness")
    warm_up = point.memory is None  # which would be forgotten at first
    ascent = settings.ascent(point, point.sums, data, epochs=epochs, warm_up=warm_up, **chosen)

    def take(epoch: int) -> tuple[float, float]:
        value, _ = ascent.epoch(epoch)
        return value, ascent.schedule.gamma((epoch + 1) * ascent.per_epoch)

    return take, {"optimiser": ascent.optimiser}


def _lbfgs(settings: Map, epochs: int, point: Point, data: Data) -> tuple[Epoch, dict[str, Any]]:
    """Run rounds of L-BFGS on the splits, each followed by an update of the leaves."""
    data = data.with_ones()
    schedule = training.Schedule(epochs, **settings.chosen("steepness"))
    running = training.RunningSums(point.sums, batches=1)
    total = float(data.weights.sum())

    def take(epoch: int) -> tuple[float, float]:
        gamma = schedule.gamma(epoch)
        optimiser = torch.optim.LBFGS(point.parameters(), line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimiser.zero_grad()
            likelihood, penalty, _ = point.fit(data, gamma)
            loss = (penalty - likelihood) / total
            loss.backward()
            return loss

        loss = optimiser.step(closure)
        with torch.no_grad():
            running.update(point.fit(data, gamma)[2], 1.0)
        return -float(loss.detach()) * total, gamma

    return take, {}
