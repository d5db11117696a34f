"""Checks of priors before gradient-based fits, and of posteriors under improper priors."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayestree._utils.wording import warn
from bayestree.inference.data import Data
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.posterior import Posterior
from bayestree.models.soft_tree import SoftTree

ROWS = 20_000  # maximum number of rows on which a balance is measured
#: Number of draws from a guide, independent for every row; maximum number from a posterior.
GUIDE_DRAWS, DRAWS = 32, 200
MAX_BALANCE = -0.75  # balance above which coefficients are not determined; it is -1 at a mode
ERRORS = 2.0  # number of standard errors by which a balance must exceed it


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


def guide_balance(
    guide: PolytopeGuide, data: Data, kl_weight: float = 1.0
) -> dict[str, NDArray[np.float64]]:
    """The :func:`coefficient_balance` of the polytope guide, computed from its bound."""
    prior = guide.model.priors.hyperplane
    if prior.proper or guide.model.topology.n_nodes == 0:
        return {}
    rows = _some(data).with_ones()
    slopes = [_size_slope(guide, rows, kl_weight) for _ in range(GUIDE_DRAWS)]
    return _recorded(torch.stack(slopes).numpy(force=True))


def _size_slope(guide: PolytopeGuide, batch: Data, kl_weight: float) -> Tensor:
    """Slope of the expected log-density along the log size of each node, shape (V,).

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
    """Mean slope of the log-density along the size of each node's coefficients, shape (V,).

    The slope along log c, where c multiplies all K (d + 1) coefficients of a node, divided by
    their number, with its standard error for independent draws; none under proper priors. The mean
    is -1 over a proper posterior (by integration by parts), and over a normal guide whose bound is
    stationary; it is 0 where coefficients can grow without loss. ``power`` is that of the
    likelihood, 1 / ``kl_weight`` in a tempered posterior.
    """
    model = posterior.model_of_draws
    if model.priors.hyperplane.proper or model.topology.n_nodes == 0:
        return {}
    rows = _some(data)
    rows = rows._replace(weights=power * rows.weights)
    every = list(posterior.each())
    return _recorded(np.stack([_slope(model, s, rows) for s in every[:: -(-len(every) // DRAWS)]]))


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
    """Evenly spaced rows, weighted to represent all."""
    step = -(-len(data.X) // ROWS)
    return Data(data.X[::step], data.y[::step], step * data.weights[::step])


def _slope(model: SoftTree, sites: dict[str, Tensor], data: Data) -> NDArray[np.float64]:
    """Slope of the log-joint of one draw along the log size of each node, per coefficient."""
    names = ("hyperplane", "intercept")
    values = [sites[name].detach().to(data.X).requires_grad_() for name in names]
    free = {name: value.to(data.X) for name, value in sites.items()} | dict(
        zip(names, values, strict=True)
    )
    gradients = torch.autograd.grad(model.log_joint(free, *data), values)
    slopes = [(v * g).flatten(1).sum(1) for v, g in zip(values, gradients, strict=True)]
    count = sum(value[0].numel() for value in values)
    return (sum(slopes[1:], start=slopes[0]) / count).numpy(force=True)
