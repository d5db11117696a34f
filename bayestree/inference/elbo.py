"""ELBOs of fitted guides, and what brief further steps add to them.

A decaying learning rate flattens the trace of the ELBO wherever a fit has arrived. Whether it has
arrived is therefore judged by steps at an undecayed rate, of which the average of the later
iterates is taken: at this rate single iterates are so noisy that their ELBO is lower (Polyak and
Juditsky 1992). The bounds before and after are compared on common random numbers.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.seed import seeded
from bayestree.inference.data import Data
from bayestree.inference.draws import Arrays
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.training import Ascent

ELBO_ROWS = 100_000  # draws x rows of an ELBO
ELBO_DRAWS = (16, 64)  # minimum and maximum number of draws of a gain
FURTHER_SHARE, MIN_FURTHER = 0.07, 50  # further steps: as a share of the fit's, and at least
FURTHER_RATE = 0.05  # their learning rate, whatever that of the fit
MIN_BATCH = 500  # in smaller batches, steps at this rate are too noisy even for averages
WARM_UP = 5  # steps until this rate is reached


@torch.no_grad()
def evaluate_elbo(guide: PolytopeGuide, data: Data, n_draws: int | None = None) -> Tensor:
    """Untempered ELBO on all rows: the mean of ``n_draws`` one-draw estimates."""
    if n_draws is None:
        n_draws = min(max(ELBO_ROWS // len(data.X), 4), 64)
    kls = guide.kls()
    draws = [guide.expected_log_likelihood(data) - next(kls) for _ in range(n_draws)]
    return torch.stack(draws).mean()


def objective_estimates(
    guide: PolytopeGuide, data: Data, steepness: float, kl_weight: float
) -> Iterator[Tensor]:
    """One-draw estimates of the objective of a fit, 16 to 64 of them."""
    rows = len(data.X)
    n_draws = min(max(ELBO_ROWS // rows, ELBO_DRAWS[0]), ELBO_DRAWS[1])
    kls = guide.kls(kl_weight)
    for _ in range(n_draws):
        # of large data, other rows in every draw, whose variation adds to the error
        part = sample(data, ELBO_ROWS // n_draws)
        terms = [guide.expected_fit(few, steepness)[0] for few in part.parts(ones=True)]
        yield torch.stack(terms).sum() * (rows / len(part.X)) - next(kls)


def sample(data: Data, size: int) -> Data:
    """All rows or, if there are more than ``size``, as many drawn with replacement."""
    rows = len(data.X)
    return data if rows <= size else data.take(torch.randint(rows, (size,)))


def polytope_gain(
    guide: PolytopeGuide, data: Data, *, epochs: int, batch_size: int, kl_weight: float
) -> Arrays:
    """:func:`elbo_gain` of a copy of the package's own guide, fitted in ``epochs``.

    The bound is the objective of the fit, which varies less from draw to draw than the ELBO.
    """
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

    def steps() -> Iterator[float]:
        guide.train()
        epochs = (data.batches(ascent.batch_size, ones=True) for _ in repeat(None))
        for number, batch in enumerate(islice(chain.from_iterable(epochs), n_steps), 1):
            yield ascent.step(batch, min(1.0, number / WARM_UP), steepness, 1.0)

    return elbo_gain([*guide.parameters(), guide.leaf_sums], steps(), n_steps, estimates)


def further_steps(n_steps: int) -> int:
    """Number of further steps after a fit of ``n_steps``."""
    return max(MIN_FURTHER, round(FURTHER_SHARE * n_steps))


def elbo_gain(
    parameters: Iterable[Tensor],
    steps: Iterator[float],
    n_steps: int,
    estimates: Callable[[], Iterable[Tensor]],
) -> Arrays:
    """Gain of the ELBO by further steps, and its Monte Carlo error.

    ``steps`` changes the ``parameters``, which become the average of their later half;
    ``estimates`` are one-draw estimates of the ELBO.
    """
    seed = int(torch.randint(2**31 - 1, ()))

    @torch.no_grad()
    def bounds() -> Tensor:
        with seeded(seed):
            return torch.stack(list(estimates()))

    before = bounds()
    parameters = list(parameters)
    means = [value.detach().clone() for value in parameters]
    for number, _ in enumerate(steps, 1 - n_steps // 2):
        if number > 0:
            torch._foreach_lerp_(means, [value.detach() for value in parameters], 1 / number)
    with torch.no_grad():
        for value, mean in zip(parameters, means, strict=True):
            value.copy_(mean)
    gains = (bounds() - before).cpu().numpy().astype(np.float64)
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return {"elbo_gain": gains.mean(), "elbo_gain_error": error}
