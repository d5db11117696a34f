"""What fits by gradients refuse, and how they tell where an improper prior holds nothing."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bayestree._utils.warn import warn
from bayestree.inference.data import Data
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.posterior import Posterior
from bayestree.models.soft_tree import SoftTree

ROWS = 20_000  # on which a balance is measured, at most
GUIDE_DRAWS, DRAWS = 32, 200  # of a guide, whose draws are fresh for every row; of a posterior
HELD = -0.75  # balance above which coefficients are not held; -1 is that of a mode
ERRORS = 2.0  # standard errors by which it must be above


def check_differentiable(model: SoftTree) -> None:
    """Refuse priors without a gradient.

    Raises
    ------
    ValueError
        If the prior on hyperplanes has none.
    """
    prior = model.priors.hyperplane
    if not prior.differentiable:
        raise ValueError(
            f"{prior} has no gradient to follow: fit the tree by inference.tao, or take a prior "
            "that has one, such as Laplace, InverseGammaScale or Flat."
        )


def check_soft(model: SoftTree) -> None:
    """Refuse deterministic routing too, under which draws have no gradient.

    Raises
    ------
    ValueError
        If the prior on hyperplanes has no gradient, or the steepness is infinite.
    """
    check_differentiable(model)
    if not math.isfinite(model.steepness):
        raise ValueError(
            "A posterior needs a finite steepness, got that of a deterministic tree (inf): "
            "take model.with_(steepness=...), such as 6."
        )


def guide_balance(
    guide: PolytopeGuide, data: Data, kl_weight: float = 1.0
) -> dict[str, NDArray[np.float64]]:
    """What :func:`coefficient_balance` says of the package's own guide, from its own bound."""
    prior = guide.model.priors.hyperplane
    if prior.proper or guide.model.topology.n_nodes == 0:
        return {}
    rows = _some(data).with_ones()
    slopes = [guide.size_slope(rows, kl_weight) for _ in range(GUIDE_DRAWS)]
    return _recorded(torch.stack(slopes).numpy(force=True))


def coefficient_balance(
    posterior: Posterior, data: Data, power: float = 1.0
) -> dict[str, NDArray[np.float64]]:
    """How strongly the log-density pulls on the size of each node's coefficients.

    The slope of the log-density along log c, where c multiplies all K (d + 1) coefficients of a
    node, in units of that number. Over a proper posterior its mean is -1 (by partial
    integration), and over a normal guide whose bound is stationary. It is 0 where coefficients
    may grow for ever at no loss.

    Parameters
    ----------
    posterior : Posterior
    data : Data
    power : float
        Of the likelihood: 1 / ``kl_weight`` in a tempered posterior.

    Returns
    -------
    dict of arrays, each of shape (V,)
        ``coefficient_balance``, and ``coefficient_balance_error``, its standard error were the
        draws independent. Empty under proper priors, where it is not needed.
    """
    model = posterior.model_of_draws
    if model.priors.hyperplane.proper or model.topology.n_nodes == 0:
        return {}
    rows = _some(data)
    rows = rows._replace(weights=power * rows.weights)
    every = list(posterior.each())
    return _recorded(np.stack([_slope(model, s, rows) for s in every[:: -(-len(every) // DRAWS)]]))


def warn_of_loose(posterior: Posterior) -> None:
    """Name the nodes whose coefficients nothing holds in place, if there are any."""
    if "coefficient_balance" not in posterior.stats:
        return
    balance, error = (posterior.stats[f"coefficient_balance{of}"] for of in ("", "_error"))
    loose = np.flatnonzero(balance - ERRORS * error > HELD)
    if len(loose) == 0:
        return
    named = ", ".join(map(str, loose[:10])) + (", ..." if len(loose) > 10 else "")
    warn(
        f"The posterior under {posterior.model.priors.hyperplane} is improper, and the rows do not "
        f"hold the coefficients of {len(loose)} of {len(balance)} nodes in place ({named}): their "
        "rows are (nearly) separated, or too few for so many coefficients. What is said of these "
        "coefficients depends on where the fit stopped; predictions do so less. Give the model "
        "InverseGammaScale or Laplace hyperplanes.",
        ConvergenceWarning,
    )


def _recorded(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    error = values.std(axis=0) / math.sqrt(len(values))
    return {"coefficient_balance": values.mean(axis=0), "coefficient_balance_error": error}


def _some(data: Data) -> Data:
    """Rows evenly spread, that count for all."""
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
