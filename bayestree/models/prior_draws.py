"""Draws of the parameters of a soft tree from its priors, by running the Pyro model."""

from typing import Any

import pyro
import torch
from pyro import poutine
from torch import Tensor

from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.models.soft_tree import SoftTree
from bayestree.topology import Topology


def sample_prior(
    model: SoftTree,
    n_features: int,
    n_draws: int,
    *,
    random_state: RandomState = None,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Independent draws (n_draws, ...) of every site from the prior, except ``weight``.

    Float32 underflows where the shapes of the priors are small.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws must be 1 or more, got {n_draws}.")
    improper = improper_priors(model)
    if improper:
        raise ValueError(
            f"there are no draws from improper priors: {', '.join(improper)}; give the model "
            "GammaProcess weights and InverseGammaScale hyperplanes, or Laplace ones with an "
            "intercept_scale."
        )
    with seeded(draw_seed(random_state)), torch.no_grad():
        return _drawn_sites(model, n_features, n_draws, dtype)


def improper_priors(model: SoftTree) -> list[str]:
    """Names of the model's improper priors."""
    return [type(prior).__name__ for prior in model.split_priors if not prior.proper]


def site_names(model: SoftTree, n_features: int) -> set[str]:
    """Names of the sites that the log-density of the parameters reads."""
    with seeded(0):
        return set(_drawn_sites(model, n_features, 1, torch.float64))


def _drawn_sites(
    model: SoftTree, n_features: int, n_draws: int, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Values of all sites, with a plate of draws to the left of the model's plates."""
    # Pyro has no plates of size 0: the sites of a tree without a split are cut from a stump's.
    drawn = model if model.topology.n_nodes else model.with_(topology=Topology.stump())

    def draw() -> None:
        with pyro.plate("draw", n_draws, dim=-3):
            drawn.state_parameters(n_features, torch.empty(0, n_features, dtype=dtype))

    nodes: dict[str, Any] = poutine.trace(draw).get_trace().nodes
    lengths = {"node": model.topology.n_nodes, "leaf": model.topology.n_leaves}
    found, shapes = {}, drawn.shapes(n_features)
    for name, dims in drawn.dimensions.items():
        if name in nodes and not nodes[name]["infer"].get("_deterministic"):
            # plates that a site does not belong to are dimensions of length 1
            value = nodes[name]["value"].reshape(n_draws, *shapes[name])
            found[name] = value[:, : lengths[dims[0]]] if dims else value
    return found
