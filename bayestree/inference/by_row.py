"""Log-densities of rows, and draws of y, for draws from a posterior or a prior."""

from collections.abc import Iterable

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor
from torch.distributions import Categorical

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.sparse import ROWS, leaf_probs, log_likelihood_rows
from bayestree.models.sites import Sites
from bayestree.models.soft_tree import SoftTree


@torch.no_grad()
def log_likelihood(model: SoftTree, draws: Iterable[Sites], data: Data) -> FloatArray:
    """Weighted log-likelihood of each row under each draw, shape (draws, n).

    Raises ValueError for plug-in leaves, whose objective is not a sum over rows.
    """
    found = []
    for sites in draws:
        values = log_likelihood_rows(model, sites, data)
        found.append((data.weights.to(values) * values).numpy(force=True).astype(np.float64))
    return np.stack(found)


def log_density(model: SoftTree, draws: Iterable[Sites], data: Data) -> FloatArray:
    """Weighted log predictive density of each row, shape (n,): the logarithm of its mean."""
    terms = log_likelihood(model, draws, data)
    found: FloatArray = logsumexp(terms, axis=0) - np.log(len(terms))
    return found


@torch.no_grad()
def log_joint(model: SoftTree, sites: Sites, data: Data) -> float:
    """Log-density of the parameters and all rows, summed in double precision."""
    prior = float(model.log_prior(sites))
    if not model.likelihood.additive:
        return prior + float(model.log_likelihood(sites, *data.to(_like(sites))))
    values = log_likelihood_rows(model, sites, data)
    return prior + float((data.weights.to(values) * values).double().sum())


@torch.no_grad()
def sample_y(
    model: SoftTree,
    draws: Iterable[Sites],
    X: FloatArray,
    random_state: RandomState,
    known: Tensor | None = None,
) -> IntArray | FloatArray:
    """Draw y for each row and each draw of the parameters, shape (draws, n), in the model's units.

    ``known`` (n,) is what draws of the leaves need beside the features (see ``Leaf.known``).
    Raises ValueError for plug-in leaves, which have no distribution of y.
    """
    model.likelihood.check_mixture("Drawing y")
    found = []
    with seeded(draw_seed(random_state)):
        for sites in draws:
            rows = torch.as_tensor(X, dtype=_like(sites).dtype)
            probs = leaf_probs(model, sites, rows.split(ROWS))
            leaf = torch.cat([Categorical(some).sample() for some in probs])
            found.append(model.leaf.draw(sites, leaf, rows, known).numpy())
    return np.stack(found)


def _like(sites: Sites) -> Tensor:
    """Any floating-point site; all have the same dtype and device."""
    return next(value for value in sites.values() if value.is_floating_point())
