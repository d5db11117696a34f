"""Shared parts of the minibatch fits: Adam, schedules, relative steps and running leaves."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import pyro
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from torch import Tensor, nn
from torch.optim.adam import adam as fused_adam

from bayestree._utils.parameters import Inference, declare
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_probs, leaf_sums, log_likelihood_rows, pays
from bayestree.inference.posterior import Posterior
from bayestree.inference.sparse_routing import (
    DensityTable,
    Evaluation,
    Experts,
    Paths,
    path_log_likelihood,
    route,
)
from bayestree.models.priors import HyperplanePrior
from bayestree.models.priors.base import Sites
from bayestree.models.soft_tree import SoftTree

HARD = 1e3  # a steepness at which routing is practically deterministic
JUDGED = 4_000  # rows on which predictions are compared
CHOICE_STEPS = 50  # minimum number of steps between choices of the routing, which cost a step
START_RATE, FINAL_RATE = 0.02, 0.02  # share of the steps that warm up, and final relative rate
WARM_UP = 0.3  # share of the steps in which the weight of the prior rises to 1


class Adam:
    """Minimise a function of tensors by their gradients ``grad``; set ``rate`` before any step.

    A short memory of squared gradients, ``betas[1]``, suits objectives that change during a fit.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        self.parameters = list(parameters)
        self.rate, self.betas = rate, betas
        # of the memory layout of the parameters, as the fused kernel requires
        self.means = [torch.zeros_like(value) for value in self.parameters]
        self.squares = [torch.zeros_like(value) for value in self.parameters]
        self.counts = [
            torch.zeros((), dtype=torch.float32, device=value.device) for value in self.parameters
        ]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for value in self.parameters:
            value.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        found = [
            (value, value.grad, *state)
            for value, *state in zip(
                self.parameters, self.means, self.squares, self.counts, strict=True
            )
            if value.grad is not None
        ]
        if not found:
            return
        values, slopes, means, squares, counts = (
            list(column) for column in zip(*found, strict=True)
        )
        fused_adam(
            values,
            slopes,
            means,
            squares,
            [],
            counts,
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"means": self.means, "squares": self.squares, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore in place, which preserves the memory layouts."""
        for name, values in state.items():
            for own, value in zip(getattr(self, name), values, strict=True):
                own.copy_(value)


def check_linear(model: SoftTree, data: Data, method: str) -> None:
    """Raise TypeError unless the splits have the hyperplanes that a method fits."""
    if "hyperplane" not in model.split.shapes(model.size(data.X.shape[1])):
        raise TypeError(
            f"{method} fits hyperplanes, but the model's split is {model.split!r}; em fits any "
            "split that has gradients, and Pyro's inference accepts the model itself."
        )


def check_topology(model: SoftTree, init: Posterior) -> None:
    """Raise ValueError unless the start has the topology of the model."""
    if init.model.topology != model.topology:
        raise ValueError(
            "init has another topology than model; use model.with_(topology=init.model.topology)."
        )


def check_split(model: SoftTree) -> None:
    """Raise ValueError for a tree that is a single leaf."""
    if model.topology.n_nodes == 0:
        raise ValueError(
            "The tree has no split: draw the posterior of its leaf by inference.single_leaf."
        )


def check_differentiable(model: SoftTree) -> None:
    """Raise ValueError if the prior on hyperplanes has no gradient."""
    prior = model.priors.hyperplane
    if not prior.differentiable:
        raise ValueError(
            f"{prior} has no gradient to follow: fit the tree by inference.tao, or use a prior "
            "that has one, such as Laplace, InverseGammaScale or Flat."
        )


def check_soft(model: SoftTree) -> None:
    """Raise ValueError for priors without a gradient, and for deterministic routing."""
    check_differentiable(model)
    if not math.isfinite(model.steepness):
        raise ValueError(
            "A posterior needs a finite steepness, but the model is a deterministic tree (inf): "
            "use model.with_(steepness=...), such as 6."
        )


def check_counts(**counts: int | None) -> None:
    """Raise ValueError if a count is below 1; None is a default chosen by the fit."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")


@dataclass(frozen=True)
class Schedule:
    """Learning rate, steepness and weight of the prior over ``n_steps`` steps."""

    n_steps: int
    steepness: tuple[float, float] = (1.0, 1.0)  # first and last, with geometric annealing
    warm_up: bool = True  # whether the weight of the prior rises to 1 at first
    annealed: float = 0.7  # share of the steps after which the last steepness is reached

    def rate(self, step: int) -> float:
        """Return the factor of the learning rate: a short linear warm-up, then cosine decay."""
        share = step / self.n_steps
        if share < START_RATE:
            return (share + 1 / self.n_steps) / (START_RATE + 1 / self.n_steps)
        return FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * share)) / 2

    def gamma(self, step: int) -> float:
        """Return the steepness of the splits."""
        first, last = self.steepness
        share = min(1.0, (step + 1) / (self.annealed * self.n_steps))
        return float(first * (last / first) ** share)

    def prior(self, step: int) -> float:
        """Return the weight of the log prior, or of the divergence from it."""
        return min(1.0, (step + 1) / (WARM_UP * self.n_steps)) if self.warm_up else 1.0


class RunningSums:
    """Sums of the leaves' statistics over all rows, kept up to date from minibatches.

    A single minibatch estimates leaves poorly: with 254 leaves and 256 rows the plug-in entropy is
    a quarter of the true one. The sums (L, c) are therefore averaged over about half an epoch.
    """

    def __init__(self, sums: Tensor, batches: int) -> None:
        self.sums = sums
        self.rate = min(1.0, 1 / (batches / 2 + 1)) if batches > 1 else 1.0

    @torch.no_grad()
    def update(self, sums: Tensor, share: float) -> None:
        """Add the sums (L, c) of a batch that contains a ``share`` of all rows.

        The share counts rows, not weights, which would downweight a batch with a heavy row.
        """
        self.sums.lerp_(sums / share, self.rate)


class RoutedModule(nn.Module, ABC):
    """Splits and leaves during a fit, evaluated at all nodes or only where they matter."""

    model: SoftTree
    tolerance: float
    sparse = False  # whether steps evaluate only the pairs that matter

    def get_extra_state(self) -> dict[str, Any]:
        """Return the choice of the routing, which is part of the state of a fit."""
        return {"sparse": self.sparse}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.sparse = state["sparse"]

    @abstractmethod
    def fit(self, batch: Data, steepness: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-likelihood and penalty of rows with ones, and the statistics' sums (L, c)."""

    @abstractmethod
    def experts(self) -> Experts:
        """Return the experts with gradients, drawn where they are uncertain."""

    @abstractmethod
    def log_density(self, y: Tensor) -> Tensor:
        """Compute log p(y_n | leaf), or its expectation, shape (n, L)."""

    @abstractmethod
    def stated(self, steepness: float) -> Callable[..., Any]:
        """Return the Pyro model of which the module, called with rows, is the guide."""

    def noise(self, like: Tensor) -> Tensor:
        """Draw standard normals of the shape of a tensor, for experts that have variances."""
        return torch.randn_like(like)

    def choose_routing(self, batch: Data, steepness: float) -> None:
        """Use sparse routing from now on if it is expected to save time on such batches.

        Never on a GPU, where a dense step takes less time than to launch the many small products.
        """
        n_rows, width = batch.X.shape
        possible = self.tolerance > 0 and self.model.likelihood.additive
        possible = possible and math.isfinite(steepness) and batch.X.device.type == "cpu"
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
    ) -> tuple[Paths, DensityTable]:
        """Find the pairs that matter, given the log-densities (n, L) of values of y."""
        table = DensityTable.of(log_density, batch.y, self.model, batch.X)
        return route(evaluation, table, self.model.topology, tolerance), table

    def sparse_fit(self, batch: Data, steepness: float, experts: Experts) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood of a batch, with gradients, and sums (L, c)."""
        evaluation = Evaluation(experts, batch.X, steepness, self.noise)
        paths, table = self.explore(batch, evaluation, self.log_density, self.tolerance)
        scores = evaluation.scores(paths.slot)
        value, member = path_log_likelihood(scores, paths, table, batch.weights, steepness)
        statistics = self.model.leaf.statistics(batch.y, batch.weights)
        sums = statistics.new_zeros(self.model.topology.n_leaves, statistics.shape[1])
        share = member.unsqueeze(1) * statistics[paths.leaf_row]
        return value, sums.index_add_(0, paths.leaf - self.model.topology.n_nodes, share)


class Ascent:
    """Epochs of Adam that raise the log-likelihood of a module less its penalty.

    ``module`` is a :class:`RoutedModule`. The penalty, minus the log prior or a divergence from it,
    has the factor ``weight``.
    """

    def __init__(
        self,
        module: Any,
        sums: Tensor,
        data: Data,
        *,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        steepness: tuple[float, float],
        warm_up: bool = True,
        weight: float = 1.0,
    ) -> None:
        self.module, self.data, self.weight = module, data, weight
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.per_epoch = -(-len(data.X) // batch_size)
        self.choices = -(-CHOICE_STEPS // self.per_epoch)  # epochs between choices of the routing
        self.schedule = Schedule(epochs * self.per_epoch, steepness, warm_up)
        self.optimiser = Adam(module.parameters())
        self.running = RunningSums(sums, self.per_epoch)
        self.total = float(data.weights.sum())

    def epoch(self, number: int, value: float = 0.0) -> tuple[float, Data]:
        """Take the steps of an epoch; return ``value`` plus its objective, and the last batch."""
        schedule, first = self.schedule, number * self.per_epoch
        each = self.running.sums.new_empty(self.per_epoch)
        batches = self.data.batches(self.batch_size, ones=True)
        for step, batch in enumerate(batches, first):
            gamma = schedule.gamma(step)
            if step == first and number % self.choices == 0:
                self.module.choose_routing(batch, gamma)
            found = self.step(batch, schedule.rate(step), gamma, schedule.prior(step))
            each[step - first] = found  # a list of small tensors would fragment the memory
        # read once, since every number that is read lets a GPU wait
        return sum(each[: step - first + 1].tolist(), value), batch

    def step(self, batch: Data, rate: float, gamma: float, prior: float) -> Tensor:
        """Take a step at relative ``rate``, steepness ``gamma`` and relative weight ``prior``.

        Returns the share of the objective that belongs to the rows of the batch.
        """
        share = len(batch.X) / len(self.data.X)
        self.optimiser.rate = self.learning_rate * rate
        self.optimiser.zero_grad()
        likelihood, penalty, sums = self.module.fit(batch, gamma)
        ((self.weight * prior * penalty - likelihood / share) / self.total).backward()
        self.optimiser.step()
        self.running.update(sums, share)
        return likelihood.detach() - share * penalty.detach()


def at_prior_mean(prior: HyperplanePrior, sites: Sites) -> dict[str, Tensor]:
    """Return prior means of the additional sites of the prior on hyperplanes, if it has any."""
    return prior.prior_means(sites["intercept"]) if "intercept" in sites else {}


def _hard_sums(model: SoftTree, sites: Sites, data: Data) -> Tensor:
    """Sum the leaves' statistics under practically deterministic splits."""
    return leaf_sums(model.with_(steepness=max(HARD, model.steepness)), sites, data)


def calibrated(posterior: Posterior, data: Data) -> SoftTree:
    """Centre the prior of the leaves of a posterior's model on the current leaves.

    These are estimated under very steep, practically deterministic splits.
    """
    sites = posterior.point_sites(data.X)
    model = posterior.model
    sums = _hard_sums(model, sites, data)
    return model.with_(leaf=model.leaf.calibrate(sums))


def recalibrated(posterior: Posterior, data: Data) -> Posterior:
    """Estimate the leaves of a posterior anew under its :func:`calibrated` model: one draw."""
    model = calibrated(posterior, data)
    if model.leaf == posterior.model.leaf:
        return posterior
    sites = posterior.point_sites(data.X)
    sums = _hard_sums(model, sites, data)
    found = Posterior.from_point(model, sites | model.leaf.estimate(sums), posterior.inference)
    return replace(found, stats=posterior.stats, settings=posterior.settings)


@torch.no_grad()
def fits_worse_than_tree(posterior: Posterior, data: Data) -> bool:
    """Return whether the mean of the draws fits y worse than the point estimate with hard splits.

    Judged by the ``misfit`` of the leaves at at most ``JUDGED`` of the rows.
    """
    step = -(-len(data.X) // JUDGED)
    rows = data.take(torch.arange(0, len(data.X), step, device=data.X.device))
    hard, sites = _with_hard_splits(posterior, rows)
    probs = torch.cat(list(leaf_probs(hard, sites, [rows.X])))
    X, y = rows.X.numpy(force=True), rows.for_leaf(hard.leaf).y.numpy(force=True)
    (of_tree,) = hard.leaf.expectation(sites, probs.unsqueeze(1).numpy(force=True), X)
    mean, _ = posterior.predictive(X)
    weights = rows.weights.numpy(force=True)
    misfit = hard.leaf.misfit
    return bool(weights @ misfit(y, mean) > weights @ misfit(y, of_tree))


@torch.no_grad()
def log_likelihood_of_tree(posterior: Posterior, data: Data, new: Data) -> float:
    """Sum log p(y | x) of new rows by the point estimate with hard splits, its leaves from data."""
    hard, sites = _with_hard_splits(posterior, data)
    return float(new.weights @ log_likelihood_rows(hard, sites, new))


def _with_hard_splits(posterior: Posterior, data: Data) -> tuple[SoftTree, Sites]:
    """Make the splits of the point estimate hard, and estimate the leaves from the rows."""
    hard = posterior.model.with_(steepness=HARD, likelihood="mixture")
    sites = posterior.point_sites(data.X)
    return hard, sites | hard.leaf.estimate(leaf_sums(hard, sites, data))


def expert_size(hyperplane: Tensor, intercept: Tensor, support: Tensor | None = None) -> Tensor:
    """Compute the rms coefficient of each node, the unit of its steps, shape (V, 1, 1).

    ``support`` marks the coefficients (V, K, d + 1) that experts have, by default all.
    """
    square = hyperplane.square().sum((1, 2)) + intercept.square().sum(1)
    count: int | Tensor = hyperplane[0].numel() + intercept[0].numel() if len(hyperplane) else 1
    if support is not None:
        count = support.sum((1, 2))
    return (square / count).sqrt().clamp_min(1e-6).view(-1, 1, 1)


@declare
class Engine:
    """What computes the steps of a method."""

    engine: Annotated[
        Literal["direct", "pyro"],
        Inference(
            "What computes the steps of MAP and of the package's own guide: the density of the "
            "model, or pyro.infer.SVI on traces of the Pyro model, which states the same density "
            "and takes several times as long. Pyro's autoguides always take the latter."
        ),
    ] = "direct"

    @property
    def direct(self) -> bool:
        """Whether steps use the density, which knows constraints and earlier rows, too."""
        return self.engine == "direct"

    @property
    def adds_rows(self) -> bool:
        """Whether a fit can go on with further rows."""
        return self.direct

    @property
    def ascent(self) -> type[Ascent]:
        """The epochs of the engine."""
        return Ascent if self.direct else PyroAscent


class PyroAscent(Ascent):
    """Epochs of steps by ``pyro.infer.SVI``, with the module as a guide of the model it states.

    Pyro scales whole traces, by the ``scale`` of the prior; the weights of the rows are divided by
    it, so that their log-likelihood keeps its own. Leaves are updated as by :class:`Ascent`.
    """

    def step(self, batch: Data, rate: float, gamma: float, prior: float) -> Tensor:
        share, scale = len(batch.X) / len(self.data.X), self.weight * prior
        self.optimiser.rate = self.learning_rate * rate
        with torch.no_grad():
            likelihood, penalty, sums = self.module.fit(batch, gamma)
        model, guide = (
            poutine.scale(one, scale=scale / self.total)
            for one in (self.module.stated(gamma), self._guide)
        )
        fit = SVI(model, guide, _ByAdam(self.optimiser), Trace_ELBO())
        with pyro.get_param_store().scope():
            fit.step(batch.X[:, :-1], batch.y, batch.weights / (share * scale))
        self.running.update(sums, share)
        return likelihood - share * penalty

    def _guide(self, *rows: Tensor) -> None:
        pyro.module("guide", self.module)
        self.module(*rows)


class _ByAdam(pyro.optim.PyroOptim):
    """An optimiser of this package for Pyro, which asks for one of its own."""

    def __init__(self, adam: Adam) -> None:
        super().__init__(torch.optim.Adam, {})
        self.adam = adam

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.adam.step()
