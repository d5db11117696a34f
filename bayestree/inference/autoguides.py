"""Variational inference by Pyro's own guides."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.infer import SVI as PyroSVI  # noqa: N811 - a class, whose name is an acronym
from pyro.infer import Trace_ELBO, autoguide
from torch import Tensor

from bayestree._utils.progress import Track
from bayestree.inference.data import Data
from bayestree.inference.elbo import FURTHER_RATE, elbo_gain, further_steps
from bayestree.inference.identifiability import coefficient_balance
from bayestree.inference.posterior import Posterior
from bayestree.models.soft_tree import SoftTree

FINAL_RATE = 0.01
OWN_GUIDES = ("polytope", "partially-centred")  # the package's own
POINT_GUIDES = ("AutoDelta", "AutoLaplaceApproximation")  # point masses while they are fitted
ELBO_DRAWS = 16


def check_guide(name: str) -> None:
    """Raise ValueError unless ``name`` is an own guide or an autoguide with ``init_loc_fn``."""
    kind: Any = getattr(autoguide, name, None)
    known = isinstance(kind, type) and issubclass(kind, autoguide.AutoGuide)
    abstract = kind in (autoguide.AutoGuide, autoguide.AutoContinuous)
    started = known and "init_loc_fn" in inspect.signature(kind).parameters
    if name not in OWN_GUIDES and (abstract or not started):
        raise ValueError(
            "guide must be 'polytope', 'partially-centred' or a class of pyro.infer.autoguide that "
            f"takes init_loc_fn, such as 'AutoNormal', got {name!r}."
        )


def fit_autoguide(
    model: SoftTree,
    data: Data,
    init: Posterior,
    settings: dict[str, Any],
    n_draws: int,
    progress: bool,
) -> Posterior:
    """Fit one of Pyro's guides to the Pyro model, in a separate parameter store."""
    # The guide modifies these tensors in place.
    start = {name: value.clone() for name, value in on_device(data, init.point_sites()).items()}
    kind: Any = getattr(autoguide, settings["guide"])
    values = autoguide.initialization.init_to_value(
        values=start, fallback=autoguide.initialization.init_to_median
    )
    size = min(settings["batch_size"], len(data.X))
    per_epoch = -(-len(data.X) // size)
    n_steps = settings["epochs"] * per_epoch
    optimiser = pyro.optim.ClippedAdam(
        {"lr": settings["learning_rate"], "lrd": FINAL_RATE ** (1 / n_steps)}
    )
    # A tempered posterior is that of rows with weights divided by kl_weight.
    arguments = (data.X, data.y, data.weights / settings["kl_weight"], size)
    loss = Trace_ELBO()
    with pyro.get_param_store().scope():
        guide: Any = kind(poutine.block(model, hide=["obs"]), init_loc_fn=values)
        fit = PyroSVI(model, guide, optimiser, loss)
        trace: list[float] = []
        parts = {"fit": _PyroState(guide, optimiser, arguments), "trace": trace}
        track = Track(range(settings["epochs"]), settings["guide"], show=progress, parts=parts)
        for _ in track:
            trace.append(-sum(fit.step(*arguments) for _ in range(per_epoch)) / per_epoch)
            track.note(f"ELBO {trace[-1]:,.0f}")
        with torch.no_grad():
            bounds = [-loss.loss(model, guide, *data) for _ in range(ELBO_DRAWS)]
            drawn = [_one_draw(model, guide, arguments) for _ in range(n_draws)]
        # The guide has been used, and is continued in place.
        further = PyroSVI(model, guide, pyro.optim.ClippedAdam({"lr": FURTHER_RATE}), loss)
        number = further_steps(n_steps)
        tempered = (data.X, data.y, arguments[2])
        gain = elbo_gain(
            guide.parameters(),
            (further.step(*arguments) for _ in range(number)),
            number,
            lambda: (torch.tensor(-loss.loss(model, guide, *tempered)) for _ in range(ELBO_DRAWS)),
        )
    draws = [sites for sites, _ in drawn]
    log_q = [] if settings["guide"] in POINT_GUIDES else [density for _, density in drawn]
    point = {name: torch.stack([draw[name] for draw in draws]).mean(0) for name in draws[0]}
    if "weight" in point:
        point["log_weight"] = point["weight"].log()  # as in the package's own guide
    found = variational_posterior(model, draws, log_q, point, trace, float(np.mean(bounds)))
    found = replace(found, stats={**found.stats, **gain})
    if settings["guide"] in POINT_GUIDES:  # a mode, not a mean
        return found
    balance = coefficient_balance(found, data, 1 / settings["kl_weight"])
    return replace(found, stats={**found.stats, **balance})


@dataclass
class _PyroState:
    """The state of a Pyro guide and its optimiser, for checkpoints."""

    guide: Any
    optimiser: pyro.optim.PyroOptim
    arguments: tuple[Any, ...]

    def state_dict(self) -> dict[str, Any]:
        return {"guide": self.guide.state_dict(), "optimiser": self.optimiser.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.guide(*self.arguments)  # creates its parameters
        self.guide.load_state_dict(state["guide"])
        self.optimiser.set_state(state["optimiser"])


def _one_draw(
    model: SoftTree, guide: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[dict[str, Tensor], float]:
    """Values of the model's sites in one draw of the guide, and their log-density."""
    drawn = poutine.trace(guide).get_trace(*arguments)
    nodes: dict[str, Any] = poutine.trace(poutine.replay(model, drawn)).get_trace(*arguments).nodes
    sites = {name: nodes[name]["value"].detach() for name in model.dimensions if name in nodes}
    return sites, float(drawn.log_prob_sum())


def variational_posterior(
    model: SoftTree,
    draws: list[dict[str, Tensor]],
    log_q: list[float],
    point: dict[str, Tensor],
    trace: list[float],
    final_elbo: float,
) -> Posterior:
    """One chain of draws from a fitted guide, with the trace and final value of its bound."""
    stacked = {
        name: torch.stack([draw[name] for draw in draws])[None].cpu().numpy() for name in draws[0]
    }
    stats = {"elbo": np.array(trace), "final_elbo": np.array(final_elbo)}
    if log_q:
        stats["log_q"] = np.array([log_q])
    return Posterior(
        model=model,
        draws=stacked,
        point={name: value.cpu().numpy() for name, value in point.items()},
        inference="svi",
        stats=stats,
    )


def on_device(data: Data, sites: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sites on the dtype and device of the rows."""
    return {name: value.to(data.X) for name, value in sites.items()}
