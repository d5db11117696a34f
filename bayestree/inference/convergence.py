"""What a fit records for the checks of its convergence: gains of the ELBO, balance of coefficients.

A decaying learning rate flattens the trace of the ELBO wherever a fit has arrived. Whether it has
arrived is therefore judged by steps at an undecayed rate. The later iterates are averaged: at this
rate single iterates are so noisy that their ELBO is lower (Polyak and Juditsky 1992). The bounds
before and after are compared on common random numbers.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayestree._utils.state import seeded
from bayestree._utils.wording import warn
from bayestree.inference.data import Data
from bayestree.inference.posterior import Arrays, Posterior
from bayestree.inference.training import Ascent
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models.soft_tree import SoftTree

ELBO_ROWS = 100_000  # draws x rows of an ELBO
LEAST_DRAWS = 4  # of an ELBO
ELBO_DRAWS = (16, 64)  # minimum and maximum number of draws of a gain
FURTHER_SHARE, MIN_FURTHER = 0.07, 50  # steps after a fit: as a share of its steps, and at least
FURTHER_RATE = 0.05  # their learning rate, whatever the fit's
MIN_BATCH = 500  # in smaller batches, steps at this rate are too noisy even for averages
WARM_UP = 5  # steps until this rate is reached
BALANCE_ROWS = 20_000  # maximum number of rows on which a balance is measured
#: Draws of a balance: from a guide, independent for every row; from a posterior, at most.
GUIDE_DRAWS, MOST_DRAWS = 32, 200
MAX_BALANCE = -0.75  # balance above which coefficients are not determined; it is -1 at a mode
ERRORS = 2.0  # number of standard errors by which a balance must exceed it


@torch.no_grad()
def evaluate_elbo(guide: PolytopeGuide, data: Data, n_draws: int | None = None) -> Tensor:
    """Estimate the untempered ELBO on all rows from ``n_draws`` draws.

    By default each of four draws has a quarter of 100,000 rows or more, which takes one pass over
    them and, since the noise of the draws is common to all rows, hardly adds to the error.
    """
    kl = guide.kl()
    if n_draws is None and len(data.X) >= ELBO_ROWS:
        parts = data.parts(-(-len(data.X) // LEAST_DRAWS))
        each = [guide.expected_log_likelihood(part) for part in parts]
        return torch.stack(each).sum() - torch.stack([kl] * len(each)).mean()
    if n_draws is None:
        n_draws = min(max(ELBO_ROWS // len(data.X), LEAST_DRAWS), 64)
    draws = [guide.expected_log_likelihood(data) - kl for _ in range(n_draws)]
    return torch.stack(draws).mean()


def objective_estimates(
    guide: PolytopeGuide, data: Data, steepness: float, kl_weight: float
) -> Iterator[Tensor]:
    """Yield 16 to 64 one-draw estimates of the objective of a fit."""
    rows = len(data.X)
    n_draws = min(max(ELBO_ROWS // rows, ELBO_DRAWS[0]), ELBO_DRAWS[1])
    kl = guide.kl(kl_weight)
    for _ in range(n_draws):
        # of large data, other rows in every draw, whose variation adds to the error
        part = sample(data, ELBO_ROWS // n_draws)
        terms = [guide.expected_fit(few, steepness)[0] for few in part.parts(ones=True)]
        yield torch.stack(terms).sum() * (rows / len(part.X)) - kl


def sample(data: Data, size: int) -> Data:
    """Return all rows or, if there are more than ``size``, as many drawn with replacement."""
    rows = len(data.X)
    return data if rows <= size else data.take(torch.randint(rows, (size,)))


def polytope_gain(
    guide: PolytopeGuide, data: Data, *, epochs: int, batch_size: int, kl_weight: float
) -> Arrays:
    """Compute the gain of a copy of the package's own guide in the objective of its fit."""
    guide, steepness = copy.deepcopy(guide), guide.model.steepness
    ascent = Ascent(
        guide,
        guide.leaf_sums,
        data,
        epochs=epochs,
        batch_size=max(batch_size, MIN_BATCH),
        learning_rate=FURTHER_RATE,
        steepness=(steepness, steepness),
        weight=kl_weight,
    )
    n_steps = further_steps(ascent.schedule.n_steps)

    def estimates() -> Iterator[Tensor]:
        guide.eval().refresh(steps=50)
        return objective_estimates(guide, data, steepness, kl_weight)

    def steps() -> Iterator[Tensor]:
        guide.train()
        epochs = (data.batches(ascent.batch_size, ones=True) for _ in repeat(None))
        for number, batch in enumerate(islice(chain.from_iterable(epochs), n_steps), 1):
            yield ascent.step(batch, min(1.0, number / WARM_UP), steepness, 1.0)

    return elbo_gain([*guide.parameters(), guide.leaf_sums], steps(), n_steps, estimates)


def further_steps(n_steps: int) -> int:
    """Return the number of steps that follow a fit of ``n_steps``."""
    return max(MIN_FURTHER, round(FURTHER_SHARE * n_steps))


def elbo_gain(
    parameters: Iterable[Tensor],
    steps: Iterator[Any],
    n_steps: int,
    estimates: Callable[[], Iterable[Tensor]],
) -> Arrays:
    """Compute the gain of the ELBO by more steps, and its Monte Carlo error.

    ``steps`` changes the ``parameters``, which become the :func:`averaged` ones; ``estimates`` are
    one-draw estimates of the ELBO.
    """
    seed = int(torch.randint(2**31 - 1, ()))

    @torch.no_grad()
    def bounds() -> Tensor:
        with seeded(seed):
            return torch.stack(list(estimates()))

    before = bounds()
    for _ in averaged(parameters, n_steps):
        next(steps)
    return mean_gain(before, bounds())


def averaged(parameters: Iterable[Tensor], n_steps: int) -> Iterator[int]:
    """Yield the numbers of steps that change the parameters; then average their later half."""
    parameters = list(parameters)
    means = [value.detach().clone() for value in parameters]
    for number in range(n_steps):
        yield number
        later = number + 1 - n_steps // 2
        if later > 0:
            torch._foreach_lerp_(means, [value.detach() for value in parameters], 1 / later)
    with torch.no_grad():
        for value, mean in zip(parameters, means, strict=True):
            value.copy_(mean)


def mean_gain(before: Tensor, after: Tensor) -> Arrays:
    """Compute the mean gain of ELBOs (draws,) or (draws, T) on common random numbers."""
    gains = (after - before).cpu().numpy().astype(np.float64)
    error = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    return {"elbo_gain": gains.mean(axis=0), "elbo_gain_error": error}


def guide_balance(
    guide: PolytopeGuide, data: Data, kl_weight: float = 1.0
) -> dict[str, NDArray[np.float64]]:
    """Compute the :func:`coefficient_balance` of the polytope guide from its bound."""
    prior = guide.model.priors.hyperplane
    if prior.proper or guide.model.topology.n_nodes == 0:
        return {}
    rows = _some(data).with_ones()
    slopes = [_size_slope(guide, rows, kl_weight) for _ in range(GUIDE_DRAWS)]
    return _recorded(torch.stack(slopes).numpy(force=True))


def _size_slope(guide: PolytopeGuide, batch: Data, kl_weight: float) -> Tensor:
    """Compute the slope of the expected log-density along the log size of each node, (V,).

    Per coefficient, it is -1 where the bound of the guide's ``fit`` is stationary, since the
    entropy of each normal factor has slope 1. ``batch`` has a column of ones.
    """
    value, _, _ = guide.fit(batch, guide.model.steepness)
    value = value / kl_weight + guide.scales.expected_log_prior(guide.moments).sum()
    of_mean, of_scale = torch.autograd.grad(value, [guide.unit_mean, guide.log_scale])
    slope = guide.unit_mean.detach() * of_mean + of_scale
    return slope.flatten(1).mean(1)


def coefficient_balance(
    posterior: Posterior, data: Data, power: float = 1.0
) -> dict[str, NDArray[np.float64]]:
    """Compute the mean slope of the log-density along the size of each node's coefficients, (V,).

    The slope along log c, where c multiplies all K (d + 1) coefficients of a node, divided by
    their number, with its standard error for independent draws; none under proper priors. The mean
    is -1 over a proper posterior (by integration by parts), and over a normal guide whose bound is
    stationary; it is 0 where coefficients can grow without loss. ``power`` is the
    likelihood's, 1 / ``kl_weight`` in a tempered posterior.
    """
    model = posterior.model_of_draws
    if model.priors.hyperplane.proper or model.topology.n_nodes == 0:
        return {}
    rows = _some(data)
    rows = rows._replace(weights=power * rows.weights)
    every = list(posterior.each())
    return _recorded(
        np.stack([_slope(model, s, rows) for s in every[:: -(-len(every) // MOST_DRAWS)]])
    )


def warn_of_undetermined(posterior: Posterior) -> None:
    """Warn of nodes whose coefficients the rows do not determine."""
    if "coefficient_balance" not in posterior.stats:
        return
    balance, error = (posterior.stats[f"coefficient_balance{of}"] for of in ("", "_error"))
    loose = np.flatnonzero(balance - ERRORS * error > MAX_BALANCE)
    if len(loose) == 0:
        return
    named = ", ".join(map(str, loose[:10])) + (", ..." if len(loose) > 10 else "")
    warn(
        f"The posterior under {posterior.model.priors.hyperplane} is improper, and the rows do not "
        f"determine the coefficients of {len(loose)} of {len(balance)} nodes ({named}): their rows "
        "are (nearly) separated, or too few for the number of coefficients. Estimates of these "
        "coefficients depend on where the fit stopped; predictions less so. Use an "
        "InverseGammaScale or Laplace prior on hyperplanes.",
        ConvergenceWarning,
    )


def _recorded(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    error = values.std(axis=0) / math.sqrt(len(values))
    return {"coefficient_balance": values.mean(axis=0), "coefficient_balance_error": error}


def _some(data: Data) -> Data:
    """Select evenly spaced rows, weighted to represent all."""
    step = -(-len(data.X) // BALANCE_ROWS)
    return Data(data.X[::step], data.y[::step], step * data.weights[::step])


def _slope(model: SoftTree, sites: dict[str, Tensor], data: Data) -> NDArray[np.float64]:
    """Differentiate the log-joint of a draw along the log size of each node, per coefficient."""
    names = ("hyperplane", "intercept")
    values = [sites[name].detach().to(data.X).requires_grad_() for name in names]
    free = {name: value.to(data.X) for name, value in sites.items()} | dict(
        zip(names, values, strict=True)
    )
    gradients = torch.autograd.grad(model.log_joint(free, *data), values)
    slopes = [(v * g).flatten(1).sum(1) for v, g in zip(values, gradients, strict=True)]
    count = sum(value[0].numel() for value in values)
    return (sum(slopes[1:], start=slopes[0]) / count).numpy(force=True)
