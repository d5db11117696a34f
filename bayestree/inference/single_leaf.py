"""The posterior of a tree without a split: the conjugate posterior of its leaf."""

from dataclasses import replace

import numpy as np
import torch

from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.training import check_counts, leaf_sums


def single_leaf(
    init: Posterior,
    data: Data,
    *,
    n_chains: int = 1,
    n_draws: int = 50,
    random_state: RandomState = None,
) -> Posterior:
    """Independent draws of the conjugate posterior of a single leaf.

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
    exact = model.leaf.posterior(leaf_sums(model, sites, data))
    shape = (n_chains, n_draws)
    with seeded(draw_seed(random_state)), torch.no_grad():
        drawn = [sites | exact.sample() for _ in range(n_chains * n_draws)]
        log_q = np.array([float(exact.log_prob(draw)) for draw in drawn])
        # without splits, the only prior is that of the leaf
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
