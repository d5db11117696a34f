"""What the draws of a posterior (or of a prior) say of rows: densities, and draws of y."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Categorical

from bayestree._utils.arrays import FloatArray
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.inference.data import PART, Data
from bayestree.models.sites import Sites
from bayestree.models.soft_tree import SoftTree


@torch.no_grad()
def log_likelihood(model: SoftTree, draws: Iterable[Sites], data: Data) -> FloatArray:
    """Term of each row in the log-likelihood, its weight included, shape (draws, n).

    The sum over the rows is ``SoftTree.log_likelihood``. Some rows are scored at a time, so that
    no more than the result is held in memory.

    Raises
    ------
    ValueError
        For plug-in leaves, whose objective is none of single rows.
    """
    found = []
    for sites in draws:
        like = _like(sites)
        parts = [
            part.weights.to(like)
            * model.log_likelihood_rows(sites, part.X.to(like), _y(part, like))
            for part in data.parts()
        ]
        found.append(torch.cat(parts).numpy(force=True).astype(np.float64))
    return np.stack(found)


@torch.no_grad()
def log_joint(model: SoftTree, sites: Sites, data: Data) -> float:
    """Log-density of the parameters and all rows, summed in double precision."""
    like = _like(sites)
    # Plug-in leaves need all rows at once.
    parts = data.parts() if model.likelihood == "mixture" else iter([data])
    terms = [
        float(model.log_likelihood(sites, part.X.to(like), _y(part, like), part.weights.to(like)))
        for part in parts
    ]
    return float(model.log_prior(sites)) + sum(terms)


@torch.no_grad()
def sample_y(
    model: SoftTree, draws: Iterable[Sites], X: NDArray[np.float64], random_state: RandomState
) -> NDArray[np.int64] | FloatArray:
    """One draw of y for each row and each draw of the parameters, shape (draws, n).

    Class numbers or real values, on the scale of the model. Some rows are drawn at a time, so
    that no more than the result is held in memory.

    Raises
    ------
    ValueError
        For plug-in leaves, which say nothing of y.
    """
    if model.likelihood != "mixture":
        raise ValueError(
            f"likelihood {model.likelihood!r} has no law of y to draw from; 'mixture' has one."
        )
    found = []
    with seeded(draw_seed(random_state)):
        for sites in draws:
            rows = torch.as_tensor(X, dtype=_like(sites).dtype).split(PART)
            leaf = [Categorical(logits=model.leaf_log_probs(sites, part)).sample() for part in rows]
            found.append(model.leaf.draw(sites, torch.cat(leaf)).numpy())
    return np.stack(found)


def _like(sites: Sites) -> Tensor:
    """Any of the real sites: they are of one dtype and device."""
    return next(value for value in sites.values() if value.is_floating_point())


def _y(data: Data, like: Tensor) -> Tensor:
    """Class numbers as they are, real values on the dtype and device of ``like``."""
    return data.y.to(like if data.y.is_floating_point() else like.device)
