"""Trees with a single leaf: why a fit has no split, and the posterior of the leaf."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree._utils.wording import warn
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_sums
from bayestree.inference.posterior import Posterior
from bayestree.inference.stage import GrowthLimits
from bayestree.inference.training import check_counts
from bayestree.models.leaves import Leaf

ONE_WAY = (
    "after the refinement no split leaves min_leaf rows on both sides (nor in most draws, if there "
    "are some); try another random_state, or a lower min_leaf"
)


class SingleLeafWarning(UserWarning):
    """The fitted tree has a single leaf, although y varies and splits were allowed."""


def warn_single_leaf(y: Tensor, leaf: Leaf, limits: GrowthLimits, reason: str) -> None:
    """Warn of a tree without splits, with the reason, if y varies and splits were allowed.

    A leaf that regresses on the features predicts well without splits.
    """
    may_split = limits.max_depth > 0 and limits.max_leaves != 1 and not leaf.regresses
    if may_split and bool((y != y[0]).any()):
        warn(f"the tree has a single leaf: {reason}.", SingleLeafWarning)


def too_small(gain: float, limits: GrowthLimits) -> str:
    """Say that the best split has too small a gain."""
    return (
        f"no split gains enough to rule out noise (the best gains {gain:.3g} nats of "
        f"log-likelihood, less than min_gain={limits.min_gain:g}); lower min_gain to accept it"
    )


def why_not_grown(data: Data, limits: GrowthLimits, best: float = math.nan) -> str:
    """Say why growth did not split the root, and the remedy; ``best`` is the largest gain found."""
    n_rows, weight = len(data.X), float(data.weights.sum())
    needs, times = {}, n_rows / weight
    # gains are proportional to the weights
    too_light = weight < limits.min_rows <= n_rows or best < limits.min_gain <= best * times
    otherwise = f", or multiply the weights by {times:.3g} if only their proportions are meant"
    otherwise *= too_light and n_rows >= 2 * limits.min_leaf
    if n_rows < 2 * limits.min_leaf:
        needs["min_leaf"] = (
            f"a split needs at least min_leaf={limits.min_leaf} rows on each side, but there are "
            f"{n_rows} rows"
        )
    if weight < limits.min_rows:
        needs["min_rows"] = (
            f"a split needs a total weight of at least min_rows={limits.min_rows:g}, but the "
            f"{n_rows} rows weigh {weight:g}"
        )
    if needs:
        return f"{', and '.join(needs.values())}; lower {' and '.join(needs)}{otherwise}"
    reason = "no split was found that separates the rows"
    if best < limits.min_gain:
        reason = too_small(best, limits) + otherwise
    elif limits.min_leaf > 1:
        reason = (
            f"no split was found with min_leaf={limits.min_leaf} of the {n_rows} rows on each "
            "side; lower min_leaf"
        )
    return why_not_parted(data, reason)


def why_not_parted(data: Data, reason: str) -> str:
    """Return the reason, unless no split of any kind can part the rows."""
    same = bool((data.X[0] == data.X).all())
    return "all rows have the same features" if same else reason


def single_leaf(
    init: Posterior,
    data: Data,
    *,
    n_chains: int = 1,
    n_draws: int = 50,
    random_state: RandomState = None,
) -> Posterior:
    """Draw from the posterior of a single leaf, independently; it is exact for conjugate families.

    Parameters
    ----------
    init : Posterior
        A tree without a split.
    data : Data
        n rows.
    n_chains, n_draws : int
    random_state : int, RandomState or Generator, optional

    Returns
    -------
    Posterior
        ``stats`` holds ``log_p`` and ``log_q``; their difference is the log-evidence.

    Raises
    ------
    ValueError
        If the tree has splits, or a count is below 1.
    """
    model = init.model
    if model.topology.n_nodes:
        raise ValueError(f"init must be a tree without a split, got {model.topology}.")
    check_counts(n_chains=n_chains, n_draws=n_draws)
    sites = init.point_sites(data.X)
    own = data.for_leaf(model.leaf)
    exact = model.leaf.posterior(leaf_sums(model, sites, data))
    exact = model.leaf.refined(exact, own.y, own.weights.unsqueeze(0))
    shape = (n_chains, n_draws)
    with seeded(draw_seed(random_state)), torch.no_grad():
        drawn = [sites | exact.sample() for _ in range(n_chains * n_draws)]
        log_q = np.array([float(exact.log_prob(draw)) for draw in drawn])
        # without splits, only the leaf has a prior
        log_p = np.array(
            [float(model.leaf.log_prob(d) + model.log_likelihood(d, *data)) for d in drawn]
        )
    stacked = {name: torch.stack([draw[name] for draw in drawn]).cpu().numpy() for name in sites}
    point = {name: value.cpu().numpy() for name, value in (sites | exact.mean()).items()}
    return replace(
        init,
        draws={name: value.reshape(shape + value.shape[1:]) for name, value in stacked.items()},
        point=point,
        inference="conjugate",
        stats={"log_p": log_p.reshape(shape), "log_q": log_q.reshape(shape)},
    )
