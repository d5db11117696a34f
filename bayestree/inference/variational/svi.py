"""Stochastic variational inference, by the package's own guide or one of Pyro's."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.infer import SVI as PyroSVI  # noqa: N811 - a class, whose name is an acronym
from pyro.infer import Trace_ELBO, autoguide
from sklearn.utils import check_random_state
from torch import Tensor

from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree._utils.wording import counted
from bayestree.inference import convergence
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_sums, log_joint
from bayestree.inference.posterior import Posterior
from bayestree.inference.stage import Minibatches, Stage, as_function
from bayestree.inference.streaming import Memory
from bayestree.inference.training import Ascent, Engine, check_linear, check_soft, check_topology
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models.priors import GroupedScale
from bayestree.models.soft_tree import SoftTree

# Rows up to which the log joint density of each draw is recorded. With more rows, the importance
# ratios vary by so many nats that they judge nothing, and the densities take a quarter of the time.
DENSITY_ROWS = 10_000
FINAL_RATE = 0.01
OWN_GUIDE = "polytope"  # the package's
POINT_GUIDES = ("AutoDelta", "AutoLaplaceApproximation")  # point masses while they are fitted
ELBO_DRAWS = 16


@declare
class Variational(Minibatches, Engine):
    """Settings of the variational fit that estimators pass on."""

    guide: Annotated[
        str,
        Inference(
            "Variational family: 'polytope', the package's own guide, or the name of a class of "
            "pyro.infer.autoguide."
        ),
    ] = "polytope"
    covariance: Annotated[
        Literal["diagonal", "expert"],
        Inference(
            "Covariance of the package's own guide; 'expert' is full within each expert, weight "
            "included, and stores (d + 1)^2 numbers for each."
        ),
    ] = "diagonal"
    kl_weight: Annotated[
        Positive,
        Inference(
            "Factor of the divergence from the prior (for the package's own guide, in the splits "
            "alone; leaves stay conjugate). 1 gives the posterior, a smaller value a tempered one."
        ),
    ] = 1.0


@declare
class Svi(Variational, Stage):
    """Settings of stochastic variational inference.

    {parameters}
    """

    steepness: Annotated[
        Positive | None,
        Inference(
            "Initial steepness of the splits, annealed to the model's (the default), by the "
            "package's own guide only; of a convex polytope tree, that of the whole fit: 6, and "
            "for numbers 20 if the mean else fits worse than the tree."
        ),
    ] = None
    n_draws: Annotated[Count, Inference("Draws from the fitted guide.")] = 50

    default_steepness = 6.0
    default_modes = 3

    @property
    def own_guide(self) -> bool:
        """Whether the guide is the package's."""
        return self.guide == OWN_GUIDE

    @property
    def in_chunks(self) -> bool:
        return self.own_guide

    @property
    def keeps_signs(self) -> bool:  # type: ignore[override]
        return self.own_guide and self.direct and self.covariance == "diagonal"

    @property
    def keeps_groups(self) -> bool:  # type: ignore[override]
        return self.keeps_signs

    @property
    def needs_double(self) -> bool:
        return not self.own_guide

    @property
    def draws(self) -> tuple[int, int]:
        return 1, self.n_draws

    def check(self, model: SoftTree) -> None:
        super().check(model)
        check_guide(self.guide)
        weight, prior = model.priors.weight, model.priors.hyperplane
        if model.split.weighted and not weight.proper:
            raise ValueError(
                f"A posterior needs a proper prior on weights, got {weight}: use GammaProcess, or "
                "inference='map'."
            )
        if self.own_guide and not prior.expects:
            raise ValueError(
                f"guide={self.guide!r} needs a prior with expected_log_prob, got {prior}: set "
                "guide='AutoNormal' or another Pyro autoguide, or inference='map' or 'grow'."
            )
        if self.own_guide and not self.direct and isinstance(prior, GroupedScale):
            raise ValueError(
                f"engine='pyro' states a scale of each coefficient, got {prior}: use "
                "engine='direct', or scales that no features share."
            )
        if not self.own_guide and self.steepness is not None:
            raise ValueError(
                "steepness is annealed by the package's own guide only, got "
                f"{self.steepness} with {self.guide!r}: omit it, and set the "
                "steepness of the model instead."
            )

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Posterior,
        memory: Memory | None = None,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Fit a variational posterior, started from a point estimate.

        Parameters
        ----------
        memory : Memory, optional
            What earlier rows say, to be combined with ``data``; for the package's own guide.
        {parameters}

        Returns
        -------
        Posterior
            One chain of ``n_draws`` draws. ``stats`` holds ``elbo`` by epoch (with Pyro's guides
            the objective, tempered or not), the untempered ``final_elbo``, ``elbo_gain`` and its
            Monte Carlo error ``elbo_gain_error`` (the gain of the objective by a few more steps of
            a copy), ``n_rows`` (weighted), ``epochs``, and ``more_epochs``, the number to try where
            they were too few; and ``log_p`` and ``log_q``, shape (1, n_draws): the untempered log
            joint density and the guide's log density of the sites that were drawn (the package's
            own guide integrates the scales out). Guides without a density (``AutoDelta``,
            ``AutoLaplaceApproximation``) have no ``log_q``, fits to mapped rows or to more than
            10,000 no ``log_p``. Under an improper prior ``coefficient_balance`` and its error show
            for each node whether the rows determine its coefficients (-1) or not (0).

        Raises
        ------
        ValueError
            For invalid settings or combinations of them, an ``init`` of another topology, a prior
            without a gradient, or infinite steepness.
        TypeError
            For splits without hyperplanes.

        Warns
        -----
        ConvergenceWarning
            Under an improper prior on hyperplanes (``Flat``, ``Spatial``, ``Laplace`` without
            ``intercept_scale``), for nodes whose coefficients the rows do not determine. Since
            the likelihood of a soft tree does not vanish as coefficients go to infinity, these
            posteriors are improper: the guide finds the mode near the start, if there is one.
        """
        check_topology(model, init)
        check_soft(model)
        self.check(model)
        check_linear(model, data, "svi")
        data = data.for_leaf(model.leaf)
        settings = self.chosen("guide", "covariance", "epochs", "batch_size")
        settings |= self.chosen("learning_rate", "routing_tolerance", "steepness", "kl_weight")
        usual = self.default_epochs(len(data.X))
        epochs = settings["epochs"] = self.epochs or usual
        own = partial(fit_polytope, memory=memory, ascends=self.ascent)
        run = own if self.own_guide else fit_autoguide
        with seeded(draw_seed(check_random_state(draw_seed(random_state)))):
            found = run(model, data, init, settings, self.n_draws, progress)
        counts = {
            "epochs": np.array(epochs),
            "more_epochs": np.array(max(usual, 2 * epochs)),
            "n_rows": np.array(float(data.weights.sum())),
        }
        found = replace(found, stats={**found.stats, **counts})
        if len(data.X) <= DENSITY_ROWS and not data.mapped:
            model, each = found.model_of_draws, found.each()
            like_rows = [{name: value.to(data.X) for name, value in s.items()} for s in each]
            log_p = log_joint(model, like_rows, data)
            found = replace(found, stats={**found.stats, "log_p": log_p[None]})
        convergence.warn_of_undetermined(found)
        return replace(found, settings=settings)


svi = as_function(Svi, "svi")


def check_guide(name: str) -> None:
    """Raise ValueError unless ``name`` is the own guide or an autoguide with ``init_loc_fn``."""
    kind: Any = getattr(autoguide, name, None)
    known = isinstance(kind, type) and issubclass(kind, autoguide.AutoGuide)
    abstract = kind in (autoguide.AutoGuide, autoguide.AutoContinuous)
    started = known and "init_loc_fn" in inspect.signature(kind).parameters
    if name != OWN_GUIDE and (abstract or not started):
        raise ValueError(
            "guide must be 'polytope' or a class of pyro.infer.autoguide that takes init_loc_fn, "
            f"such as 'AutoNormal', got {name!r}."
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
    start = {name: value.clone() for name, value in init.point_sites(data.X).items()}
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
    # Weights divided by kl_weight give the tempered posterior.
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
        more = PyroSVI(model, guide, pyro.optim.ClippedAdam({"lr": convergence.FURTHER_RATE}), loss)
        number, tensor = convergence.further_steps(n_steps), data.X.new_tensor
        tempered = (data.X, data.y, arguments[2])
        gain = convergence.elbo_gain(
            guide.parameters(),
            (more.step(*arguments) for _ in range(number)),
            number,
            lambda: (tensor(-loss.loss(model, guide, *tempered)) for _ in range(ELBO_DRAWS)),
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
    balance = convergence.coefficient_balance(found, data, 1 / settings["kl_weight"])
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
    """Draw the model's sites from the guide; return them and their log-density."""
    drawn = poutine.trace(guide).get_trace(*arguments)
    nodes: dict[str, Any] = poutine.trace(poutine.replay(model, drawn)).get_trace(*arguments).nodes
    sites = {name: nodes[name]["value"].clone() for name in model.dimensions if name in nodes}
    return sites, float(drawn.log_prob_sum())


def fit_polytope(
    model: SoftTree,
    data: Data,
    init: Posterior,
    settings: dict[str, Any],
    n_draws: int,
    progress: bool,
    *,
    memory: Memory | None,
    ascends: type[Ascent],
) -> Posterior:
    """Fit the package's own guide."""
    sites = init.point_sites(data.X)
    guide = PolytopeGuide(
        model.with_(priors=model.priors.fixed()),
        sites,
        leaf_sums(init.model, sites, data),
        covariance=settings["covariance"],
        tolerance=settings["routing_tolerance"],
        memory=memory,
    )
    # a memory would be forgotten at first
    trace = _climb(guide, data, settings, progress, warm_up=memory is None, ascends=ascends)
    if not all(one.isfinite().all() for one in guide.parameters()):
        raise ValueError(f"the fit diverged: reduce learning_rate={settings['learning_rate']:g}.")
    guide.eval().refresh(steps=50)
    bound = float(convergence.evaluate_elbo(guide, data))
    stats = convergence.guide_balance(guide, data, settings["kl_weight"])
    draws = [guide.sample() for _ in range(n_draws)]
    log_q = [float(guide.log_prob(draw)) for draw in draws]
    shared = {name: settings[name] for name in ("batch_size", "kl_weight")}
    stats |= convergence.polytope_gain(guide, data, epochs=len(trace), **shared)
    found = variational_posterior(guide.model, draws, log_q, guide.point(), trace, bound)
    return replace(found, stats={**found.stats, **stats})


def _climb(
    guide: PolytopeGuide,
    data: Data,
    settings: dict[str, Any],
    progress: bool,
    *,
    warm_up: bool,
    ascends: type[Ascent],
) -> list[float]:
    """Fit a guide; return the ELBO by epoch."""
    last = guide.model.steepness
    ascent = ascends(
        guide,
        guide.leaf_sums,
        data,
        steepness=(settings["steepness"] or last, last),
        warm_up=warm_up,
        weight=settings["kl_weight"],
        **{name: settings[name] for name in ("epochs", "batch_size", "learning_rate")},
    )
    trace: list[float] = []
    parts: dict[str, Any] = {"guide": guide, "optimiser": ascent.optimiser, "trace": trace}
    track = Track(range(settings["epochs"]), "svi", show=progress, parts=parts)
    for epoch in track:
        elbo, batch = ascent.epoch(epoch, -float(guide.leaf_law.kl()))
        trace.append(elbo)
        track.note(f"ELBO {elbo:,.0f}, {counted(guide.n_facets(batch.X), 'facet')}")
    return trace


def variational_posterior(
    model: SoftTree,
    draws: list[dict[str, Tensor]],
    log_q: list[float],
    point: dict[str, Tensor],
    trace: list[float],
    final_elbo: float,
) -> Posterior:
    """Stack draws from a fitted guide to a chain, with the trace and final value of its bound."""
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
