"""Stochastic variational inference."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from bayestree._utils.parameters import Count, Inference, Positive, declare
from bayestree._utils.progress import Track
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree._utils.wording import counted
from bayestree.inference.autoguides import (
    OWN_GUIDES,
    check_guide,
    fit_autoguide,
    on_device,
    variational_posterior,
)
from bayestree.inference.data import Data
from bayestree.inference.elbo import evaluate_elbo, polytope_gain
from bayestree.inference.facets import improve_facets, polytope_guide, without_unneeded
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.identifiability import (
    check_soft,
    guide_balance,
    warn_of_undetermined,
)
from bayestree.inference.idle_experts import Rival
from bayestree.inference.pointwise import log_joint
from bayestree.inference.posterior import Posterior
from bayestree.inference.stage import Minibatches, Stage, as_function
from bayestree.inference.training import (
    RAMPS,
    Ascent,
    Ramps,
    check_linear,
    check_topology,
    default_epochs,
    leaf_sums,
)
from bayestree.inference.warm_start import Memory
from bayestree.models.priors import HyperPriors, InverseGammaScale
from bayestree.models.soft_tree import SoftTree

# Rows up to which the log joint density of each draw is recorded. With more rows, the importance
# ratios vary by so many nats that they judge nothing, and the densities take a quarter of the time.
DENSITY_ROWS = 10_000
POLISH_DRAWS = 64  # draws used to compare the fits before and after polishing
LEARN_STEPS = 10  # minimum number of steps between updates of hyperparameters
POLISH_RATE, POLISH_SHARE = 0.1, 0.2  # learning rate and epochs of polishing, relative to a fit

Settings = dict[str, Any]


@declare
class Variational(Minibatches):
    """Settings of the variational fit that estimators pass on."""

    guide: Annotated[
        str,
        Inference(
            "Variational family: 'polytope', the package's own guide; 'partially-centred', the "
            "same with factors of the scales, which the coefficients follow; or the name of a "
            "class of pyro.infer.autoguide."
        ),
    ] = "polytope"
    covariance: Annotated[
        Literal["diagonal", "expert"],
        Inference(
            "Covariance of the package's own guide; 'expert' is full within each expert, weight "
            "included, and stores (d + 1)^2 numbers for each."
        ),
    ] = "diagonal"
    search_facets: Annotated[
        bool,
        Inference(
            "Search for the number of facets of each node: add, drop and exchange facets if that "
            "raises the ELBO, with full covariance within each expert, and remove unnecessary "
            "nodes; then a joint fit, a fifth as long at a tenth of the learning rate, kept if it "
            "raises the ELBO. Needs steepness 1. For up to about ten features: the cost grows with "
            "the square of their number."
        ),
    ] = False
    kl_weight: Annotated[
        Positive,
        Inference(
            "Factor of the divergence from the prior (for the package's own guide, that of the "
            "splits; leaves stay conjugate). 1 gives the posterior, a smaller value a tempered one."
        ),
    ] = 1.0
    learn_prior: Annotated[
        bool,
        Inference(
            "Learn the hyperparameters of the priors in the variational fit (empirical Bayes): "
            "concentration, rate, scale_shape, shrinkage_shape and shrinkage_rate, with weak "
            "hyper-priors around the given values. The result's model has the learned values, and "
            "its draws are conditional on them. Needs one of the package's own guides, without "
            "search_facets."
        ),
    ] = False
    kl_schedule: Annotated[
        Literal["linear", "cold"],
        Inference(
            "How the factor of the divergence rises to kl_weight in a fit by the package's own "
            "guides: 'linear' within the first 30 % of the steps; 'cold' to a tenth of it within "
            "10 %, where it stays up to 50 %, and to all of it at 75 %."
        ),
    ] = "linear"
    reset_idle: Annotated[
        bool,
        Inference(
            "Reset idle experts to the prior, once the divergence has its full weight: those that "
            "cost more divergence than they add likelihood, if the ELBO is higher after further "
            "steps with the resets than without. The fit takes two to three times as long. Needs "
            "one of the package's own guides, InverseGammaScale, and no search_facets."
        ),
    ] = False
    n_restarts: Annotated[
        Count,
        Inference("Variational fits with different noise, of which the best ELBO is kept."),
    ] = 1


@declare
class Svi(Variational, Stage):
    """Settings of stochastic variational inference.

    {parameters}
    """

    steepness: Annotated[
        Positive | None,
        Inference(
            "Initial steepness of the splits, annealed to that of the model (the default). For "
            "the package's own guide only."
        ),
    ] = None
    n_draws: Annotated[Count, Inference("Draws from the fitted guide.")] = 50

    why_single_leaf = "the search for facets removed every split; fit without search_facets"

    @property
    def default_steepness(self) -> float:
        return 1.0 if self.search_facets else 6.0

    @property
    def default_modes(self) -> int:
        return 1 if self.search_facets else 3

    @property
    def own_guide(self) -> bool:
        """Whether the guide is one of the package."""
        return self.guide in OWN_GUIDES

    @property
    def in_chunks(self) -> bool:
        return self.own_guide and not self.search_facets

    @property
    def keeps_signs(self) -> bool:  # type: ignore[override]
        return self.own_guide and self.covariance == "diagonal"

    @property
    def needs_double(self) -> bool:
        return not self.own_guide or self.search_facets

    @property
    def draws(self) -> tuple[int, int]:
        return 1, self.n_draws

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        full = {"covariance": "expert"} if keywords.get("search_facets") else {}
        return super().from_keywords({**keywords, **full})

    def check(self, model: SoftTree) -> None:
        super().check(model)
        check_guide(self.guide)
        prior = model.priors.hyperplane
        if self.guide == "partially-centred" and not isinstance(prior, InverseGammaScale):
            raise ValueError(
                "guide='partially-centred' needs InverseGammaScale as the prior on hyperplanes, "
                f"got {prior}: use guide='polytope'."
            )
        if self.reset_idle and not (model.split.weighted and isinstance(prior, InverseGammaScale)):
            raise ValueError(
                "reset_idle=True needs a Polytope split and InverseGammaScale as the prior on "
                f"hyperplanes, got {model.split} and {prior}: omit it."
            )
        if not self.own_guide and self.steepness is not None:
            raise ValueError(
                "steepness is annealed by the package's own guides only, got "
                f"{self.steepness} with {self.guide!r}: omit it, and set the "
                "steepness of the model instead."
            )
        plain = {"learn_prior": False, "kl_schedule": "linear", "reset_idle": False}
        for name, default in plain.items():
            value = getattr(self, name)
            if value != default and (self.search_facets or not self.own_guide):
                raise ValueError(
                    f"{name}={value!r} needs one of the package's own guides without "
                    f"search_facets, got guide={self.guide!r}: omit it."
                )
        search = (self.guide, self.covariance, self.kl_weight) == ("polytope", "expert", 1.0)
        if self.search_facets and not search:
            raise ValueError(
                "search_facets needs guide='polytope', covariance='expert' and kl_weight=1, got "
                f"{self.guide!r}, {self.covariance!r} and {self.kl_weight}."
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
            What earlier rows say, to be combined with ``data``; for the package's own guides,
            without a search for facets.
        {parameters}

        Returns
        -------
        Posterior
            One chain of ``n_draws`` draws; after a search for facets, its topology may be
            smaller. ``stats`` holds ``elbo`` by epoch (with Pyro's guides the objective, tempered
            or not), the untempered ``final_elbo``, ``elbo_gain`` and its Monte Carlo error
            ``elbo_gain_error`` (the gain of the objective by brief further steps of a copy),
            ``n_rows`` (weighted), ``epochs``, and ``more_epochs``, the number to try where they
            were too few; and ``log_p`` and ``log_q``, shape (1, n_draws): the untempered log joint
            density and the guide's log density of the sites that were drawn (the package's own
            guide integrates the scales out). Guides without a density (``AutoDelta``,
            ``AutoLaplaceApproximation``) have no ``log_q``, fits to mapped rows or to more than
            10,000 no ``log_p``. After a search,
            ``n_facets`` holds the facets of each node, and ``settings["facet_trace"]`` the moves
            that were tried; with ``reset_idle``, ``settings["reset_trace"]`` has the resets. Under
            an improper prior ``coefficient_balance`` and its error show for each node whether the
            rows determine its coefficients (-1) or not (0).

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
        settings = self.chosen("guide", "covariance", "search_facets", "epochs", "batch_size")
        settings |= self.chosen("learning_rate", "routing_tolerance", "steepness", "kl_weight")
        settings |= self.chosen("kl_schedule", "learn_prior", "reset_idle")
        usual = default_epochs(len(data.X), self.batch_size)
        epochs = settings["epochs"] = self.epochs or usual
        run = partial(_fit_polytope, memory=memory) if self.own_guide else fit_autoguide
        fits = []
        generator = check_random_state(draw_seed(random_state))
        for _ in range(self.n_restarts):
            with seeded(draw_seed(generator)):
                fits.append(run(model, data, init, settings, self.n_draws, progress))
        best = max(fits, key=lambda fit: float(fit.stats["final_elbo"]))
        counts = {
            "epochs": np.array(epochs),
            "more_epochs": np.array(max(usual, 2 * epochs)),
            "n_rows": np.array(float(data.weights.sum())),
        }
        best = replace(best, stats={**best.stats, **counts})
        if len(data.X) <= DENSITY_ROWS and not data.mapped:
            densities = [
                log_joint(best.model_of_draws, on_device(data, s), data) for s in best.each()
            ]
            best = replace(best, stats={**best.stats, "log_p": np.array([densities])})
        warn_of_undetermined(best)
        recorded = settings | {"n_restarts": self.n_restarts} | dict(best.settings)
        return replace(best, settings=recorded)


svi = as_function(Svi, "svi")


def _fit_polytope(
    model: SoftTree,
    data: Data,
    init: Posterior,
    settings: Settings,
    n_draws: int,
    progress: bool,
    *,
    memory: Memory | None,
) -> Posterior:
    stats: dict[str, Any] = {}
    recorded: dict[str, Any] = {}
    if settings["search_facets"]:
        start = replace(init, model=model)
        seed = int(torch.randint(2**31 - 1, ()))
        facets = improve_facets(start, data, random_state=seed, progress=progress)
        model, facets = without_unneeded(model, facets, data)
        stats["n_facets"], recorded["facet_trace"] = facets.n_facets, list(facets.trace)
        guide, trace = _polish(polytope_guide(model, facets, data), data, settings, progress)
    else:
        hyper_priors = model.priors.hyper_priors(weak=settings["learn_prior"])
        model = model.with_(priors=model.priors.fixed())
        sites = on_device(data, init.point_sites())
        sums = leaf_sums(init.model, sites, data)
        guide = PolytopeGuide(
            model,
            sites,
            sums,
            covariance=settings["covariance"],
            tolerance=settings["routing_tolerance"],
            partially_centred=settings["guide"] == "partially-centred",
            memory=memory,
        )
        ramps = None if memory is None else ()  # which would forget it at first
        trace, resets = _climb(guide, data, settings, progress, ramps, hyper_priors)
        if settings["reset_idle"]:
            recorded["reset_trace"] = resets
        if hyper_priors:
            recorded["hyperparameters"] = guide.priors.learned_values
    guide.eval().refresh(steps=50)
    bound = float(evaluate_elbo(guide, data))
    stats |= guide_balance(guide, data, settings["kl_weight"])
    draws = [guide.sample() for _ in range(n_draws)]
    log_q = [float(guide.log_prob(draw)) for draw in draws]
    draws, (point,) = map(_without_scales, (draws, [guide.point()]))
    shared = {name: settings[name] for name in ("batch_size", "kl_weight")}
    stats |= polytope_gain(guide, data, epochs=len(trace), **shared)
    found = variational_posterior(guide.model, draws, log_q, point, trace, bound)
    return replace(found, stats={**found.stats, **stats}, settings=recorded)


def _without_scales(draws: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """The draws of the model with its scales integrated out."""
    scales = ("hyperplane_scale", "intercept_scale")
    return [{name: draw[name] for name in draw if name not in scales} for draw in draws]


def _polish(
    guide: PolytopeGuide, data: Data, settings: Settings, progress: bool
) -> tuple[PolytopeGuide, list[float]]:
    """A joint fit with a small learning rate, kept if the ELBO does not decrease; its trace."""
    polished = copy.deepcopy(guide)
    gentle = {
        "learning_rate": POLISH_RATE * settings["learning_rate"],
        "epochs": max(1, round(POLISH_SHARE * settings["epochs"])),
        "steepness": None,
    }
    trace, _ = _climb(polished, data, settings | gentle, progress, ramps=())
    seed = int(torch.randint(2**31 - 1, ()))
    bounds = []
    for candidate in (guide, polished):
        candidate.eval().refresh(steps=50)
        with seeded(seed):
            bounds.append(float(evaluate_elbo(candidate, data, POLISH_DRAWS)))
    return (polished if bounds[1] >= bounds[0] else guide), trace


def _climb(
    guide: PolytopeGuide,
    data: Data,
    settings: Settings,
    progress: bool,
    ramps: Ramps | None = None,
    hyper_priors: HyperPriors | None = None,
) -> tuple[list[float], list[str]]:
    """Fit a guide; the ELBO by epoch, and the resets that were tried."""
    last = guide.model.steepness
    ascent = Ascent(
        guide,
        guide.leaf_sums,
        data,
        steepness=(settings["steepness"] or last, last),
        ramps=RAMPS[settings["kl_schedule"]] if ramps is None else ramps,
        weight=settings["kl_weight"],
        **{name: settings[name] for name in ("epochs", "batch_size", "learning_rate")},
    )
    advance = partial(_advance, hyper_priors=hyper_priors)
    rival = Rival(ascent, advance) if settings["reset_idle"] else None
    trace: list[float] = []
    parts: dict[str, Any] = {"guide": guide, "optimiser": ascent.optimiser, "trace": trace}
    if rival is not None:
        parts["rival"] = rival
    track = Track(range(settings["epochs"]), "svi", show=progress, parts=parts)
    for epoch in track:
        if rival is not None:
            rival.before(epoch)
        elbo, batch = advance(ascent, epoch)
        if rival is not None:
            rival.after(epoch)
        trace.append(elbo)
        track.note(f"ELBO {elbo:,.0f}, {counted(guide.n_facets(batch.X), 'facet')}")
    return trace, [] if rival is None else rival.trace


def _advance(ascent: Ascent, epoch: int, hyper_priors: HyperPriors | None) -> tuple[float, Data]:
    """Take the steps of an epoch; its ELBO, and the last batch."""
    every, guide = -(-LEARN_STEPS // ascent.per_epoch), ascent.module
    warm = ascent.schedule.prior(epoch * ascent.per_epoch) >= 1
    # counted from the last epoch, so that a short fit learns, too
    following = ascent.schedule.n_steps // ascent.per_epoch - epoch - 1
    if hyper_priors and warm and following % every == 0:
        guide.learn(hyper_priors)
    return ascent.epoch(epoch, -float(guide.leaf_law.kl()))
