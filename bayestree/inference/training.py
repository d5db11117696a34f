"""What the minibatch fits share: schedules, relative steps, running leaves."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bayestree.inference import scratch
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior
from bayestree.models.sites import Sites
from bayestree.models.soft_tree import SoftTree

HARD = 1e3  # a steepness at which routing is as good as deterministic
START_RATE, FINAL_RATE = 0.02, 0.02  # shares of a run spent warming up, of the rate at its end


def default_epochs(n_rows: int, batch_size: int) -> int:
    """Sixty passes, but no fewer than 1,000 steps and no more than 10,000."""
    per_epoch = max(1, -(-n_rows // batch_size))
    steps = min(max(60 * per_epoch, 1_000), 10_000)
    return max(1, round(steps / per_epoch))


def check_linear(model: SoftTree, data: Data, method: str) -> None:
    """Refuse splits without hyperplanes, for a method that moves these.

    Raises
    ------
    TypeError
        For such splits.
    """
    if "hyperplane" not in model.split.shapes(model.size(data.X.shape[1])):
        raise TypeError(
            f"{method} fits hyperplanes, and the model's split is {model.split!r}; "
            "grow(splitter=EndToEndSplitter(...)) and em fit any split that has gradients, and the "
            "model itself is one for Pyro's own inference."
        )


def check_counts(**counts: int | None) -> None:
    """Refuse counts below 1; None leaves the choice to the fit.

    Raises
    ------
    ValueError
        With the name of the first such count.
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}.")


@dataclass(frozen=True)
class Schedule:
    """How learning rate, steepness and divergence change over a run of ``n_steps`` steps.

    Parameters
    ----------
    n_steps : int
    steepness : (float, float)
        First and last; geometric in between, the last reached at ``annealed`` of the run.
    warm_up : float
        Share of the run over which the prior comes in.
    annealed : float
    """

    n_steps: int
    steepness: tuple[float, float] = (1.0, 1.0)
    warm_up: float = 0.3
    annealed: float = 0.7

    def rate(self, step: int) -> float:
        """Factor of the learning rate: a short warm-up, then a cosine."""
        share = step / self.n_steps
        if share < START_RATE:
            return (share + 1 / self.n_steps) / (START_RATE + 1 / self.n_steps)
        return FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * share)) / 2

    def gamma(self, step: int) -> float:
        """Steepness of the splits."""
        first, last = self.steepness
        share = min(1.0, (step + 1) / (self.annealed * self.n_steps))
        return float(first * (last / first) ** share)

    def prior(self, step: int) -> float:
        """Weight of the divergence from the prior."""
        if self.warm_up <= 0:
            return 1.0
        return min(1.0, (step + 1) / (self.warm_up * self.n_steps))


class RunningSums:
    """Sums of the leaves' statistics over all rows, kept up to date from minibatches.

    A minibatch alone estimates leaves badly (with 254 leaves and 256 rows the plug-in entropy
    is a quarter of the true one), so what a batch adds is averaged over about half an epoch.

    Parameters
    ----------
    leaf : Categorical or Gaussian
    sums : Tensor, shape (L, c)
    batches : int
        Minibatches in an epoch.
    """

    def __init__(self, leaf: Leaf, sums: Tensor, batches: int) -> None:
        self.leaf = leaf
        self.sums = sums
        self.rate = min(1.0, 1 / (batches / 2 + 1)) if batches > 1 else 1.0

    @torch.no_grad()
    def update(self, member: Tensor, batch: Data, share: float) -> None:
        """Take in a batch of ``share`` of all rows with memberships (n, L).

        The share is that of their number: by weight, a batch with a heavy row would count for
        less than its part in an epoch, and the heavy row with it.
        """
        fresh = member.T @ self.leaf.statistics(batch.y, batch.weights) / share
        self.sums.lerp_(fresh, self.rate)


def adam(module: nn.Module) -> torch.optim.Adam:
    """Adam with a short memory of squares, because the steepness moves the optimum."""
    return torch.optim.Adam(module.parameters(), betas=(0.9, 0.99), fused=True)


def joined(sites: Sites) -> Tensor:
    """Hyperplanes with their intercepts as last coefficients, shape (V, K, d + 1)."""
    return torch.cat((sites["hyperplane"], sites["intercept"].unsqueeze(-1)), dim=-1)


def at_prior_mean(prior: HyperplanePrior, sites: Sites) -> dict[str, Tensor]:
    """Additional sites of the prior on hyperplanes, if there are hyperplanes, at their means."""
    return prior.prior_means(sites["intercept"]) if "intercept" in sites else {}


@torch.no_grad()
def leaf_sums(model: SoftTree, sites: Sites, data: Data) -> Tensor:
    """Sums (L, c) of the leaves' statistics over soft memberships, in parts of the rows."""
    return summed(
        model.leaf_log_probs(sites, part.X).exp().T @ model.leaf.statistics(part.y, part.weights)
        for part in data.parts()
    )


def summed(terms: Iterable[Tensor]) -> Tensor:
    """The sum of one term or more of one shape, of which few are held at a time if large."""
    waiting: list[Tensor] = []
    for term in terms:
        waiting.append(term)
        if len(waiting) * term.numel() >= scratch.HELD:
            waiting = [torch.stack(waiting).sum(0)]
    return torch.stack(waiting).sum(0)


def additive_parts(model: SoftTree, rows: Data, *, ones: bool = False) -> Iterator[Data]:
    """Parts of the rows whose log-likelihoods add up; plug-in leaves need all rows at once.

    With ``ones`` they have the column of :meth:`Data.with_ones`.
    """
    if model.likelihood == "mixture":
        return rows.parts(ones=ones)
    return iter([rows.with_ones() if ones else rows])


def calibrated(posterior: Posterior, data: Data) -> SoftTree:
    """The posterior's model with the prior of its leaves centred on the leaves as they are.

    They are those of the deterministic routing (nearly: of very steep splits).
    """
    sites = {name: value.to(data.X) for name, value in posterior.point_sites().items()}
    model = posterior.model
    sums = leaf_sums(model.with_(steepness=HARD), sites, data)
    return model.with_(leaf=model.leaf.calibrate(sums))


def recalibrated(posterior: Posterior, data: Data) -> Posterior:
    """A posterior of one draw with the leaves of its :func:`calibrated` model."""
    model = calibrated(posterior, data)
    if model.leaf == posterior.model.leaf:
        return posterior
    sites = {name: value.to(data.X) for name, value in posterior.point_sites().items()}
    sums = leaf_sums(model.with_(steepness=HARD), sites, data)
    found = Posterior.from_point(model, sites | model.leaf.estimate(sums), posterior.inference)
    return replace(found, stats=posterior.stats, settings=posterior.settings)


def expert_size(hyperplane: Tensor, intercept: Tensor) -> Tensor:
    """Root mean square coefficient of each node, shape (V, 1, 1): the unit of its steps."""
    square = hyperplane.square().sum((1, 2)) + intercept.square().sum(1)
    count = hyperplane[0].numel() + intercept[0].numel() if len(hyperplane) else 1
    return (square / count).sqrt().clamp_min(1e-6).view(-1, 1, 1)
