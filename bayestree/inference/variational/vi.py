"""Natural-gradient variational inference as a method."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.parameters import Count, Inference, Positive, Probability, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.inference.convergence import averaged, mean_gain
from bayestree.inference.data import Data
from bayestree.inference.draws import Arrays
from bayestree.inference.pointwise import log_joint
from bayestree.inference.posterior import Posterior
from bayestree.inference.stage import Stage, as_function
from bayestree.inference.training import (
    HARD,
    check_linear,
    check_soft,
    check_split,
    check_topology,
    leaf_sums,
)
from bayestree.inference.variational.factors import (
    DiagonalFactors,
    Factors,
    Rows,
    StepRule,
    StepSchedule,
)
from bayestree.inference.variational.polytope_fit import variational_posterior
from bayestree.inference.variational.steps import bounds, step
from bayestree.models.priors import InverseGammaScale
from bayestree.models.soft_tree import SoftTree

ELBO_DRAWS = 16
FURTHER_SHARE, FURTHER_RATE = 0.2, 0.1  # steps after a fit, as a share of its steps, and their rate
MAX_ROUNDS = 5  # of such steps, until no tree gains; the last round is only measured
MIN_NATS, N_ERRORS = 2.0, 2.0  # a gain counts above these nats and Monte Carlo errors
STEEPNESS_OF_NUMBERS = 6.0
MOST_FULL = 100  # columns of rows for which covariances are full within experts


@declare
class Vi(Stage):
    """Settings of natural-gradient variational inference.

    {parameters}
    """

    steepness: Annotated[
        Positive | None,
        Inference("Final steepness of the splits, annealed from 1; None: the model's."),
    ] = None
    n_steps: Annotated[
        Count,
        Inference(
            "Steps of the fit; up to four times, a fifth as many follow while a tree still gains."
        ),
    ] = 100
    step_size: Annotated[
        Probability, Inference("Length of a step, as a share of the way to what its draw suggests.")
    ] = 0.3
    batch_size: Annotated[
        Count, Inference("Maximum number of rows in a step; all rows if there are fewer.")
    ] = 2000
    kl_weight: Annotated[
        Positive,
        Inference(
            "Factor of the divergence of the splits from the prior. 1 gives the posterior, a "
            "smaller value a tempered one."
        ),
    ] = 1.0
    n_draws: Annotated[Count, Inference("Draws from the fitted factors.")] = 50

    default_modes = 4
    several = True
    needs_double = True
    keeps_groups = True

    @property
    def default_steepness(self) -> float:
        return 1.0

    def steepness_for(self, n_classes: int) -> float:
        # Numbers that jump by more than their noise have far more evidence under steep splits.
        return self.default_steepness if n_classes else STEEPNESS_OF_NUMBERS

    @property
    def draws(self) -> tuple[int, int]:
        return 1, self.n_draws

    def check(self, model: SoftTree) -> None:
        if any(model.monotone):
            raise ValueError(
                "inference='vi' cannot keep predictions monotone (monotonic_cst): use "
                "inference='svi', 'map' or 'grow'."
            )
        super().check(model)
        model.likelihood.check_mixture("inference='vi'")
        weight, prior = model.priors.weight, model.priors.hyperplane
        if model.split.weighted and not weight.implements("law"):
            raise ValueError(
                f"inference='vi' needs a GammaProcess as the prior on weights, got {weight}: use "
                "inference='svi' with a Pyro autoguide, such as guide='AutoNormal'."
            )
        if not isinstance(prior, InverseGammaScale):
            raise ValueError(  # noqa: TRY004 - a combination of settings
                f"inference='vi' needs InverseGammaScale as the prior on hyperplanes, got {prior}: "
                "use prior='inverse-gamma', or inference='svi'."
            )

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        init: Posterior,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> Posterior:
        """Fit a variational posterior by natural gradients, started from a tree.

        The factors are normal, with a covariance that is full within each expert, and gamma for
        the weights; leaves, scales and shrinkages are conjugate. A step computes what one draw
        says about all of them in closed form, and moves a share of the way (Khan and Lin,
        "Conjugate-computation variational inference", 2017): some hundred steps suffice.

        Parameters
        ----------
        {parameters}

        Returns
        -------
        Posterior
            One chain of ``n_draws`` draws. ``stats`` holds the ``elbo`` by step, from one draw, at
            the annealed steepness and with averaged log-densities of the leaves, which is lower
            than the ``final_elbo``, with leaves that are drawn; ``elbo_gain`` by a few more steps,
            with its Monte Carlo error ``elbo_gain_error``; ``n_rows`` (weighted), and ``n_steps``
            with those that followed while a tree still gained;
            and ``log_p`` and ``log_q``, shape (1, n_draws), the log joint density and the log
            density of the factors at each draw.

        Raises
        ------
        ValueError
            For invalid settings, an ``init`` of another topology or without a split, a prior on
            hyperplanes other than ``InverseGammaScale`` or on weights other than ``GammaProcess``,
            plug-in leaves, or infinite steepness.
        TypeError
            For splits without hyperplanes.
        """
        check_topology(model, init)
        common: dict[str, Any] = {"random_state": random_state, "progress": progress}
        return self.fit_several(model, data, [init], **common)[0]

    def run_several(
        self,
        found: Sequence[Posterior],
        data: Data,
        *,
        last: bool = True,
        validation: Data | None = None,
        **common: Any,
    ) -> list[Posterior]:
        """Continue from several trees at once, with one prior of leaves for all of them."""
        data = data.for_leaf(found[0].model.leaf)
        sums = [
            leaf_sums(one.model.with_(steepness=HARD), one.point_sites(data.X), data)
            for one in found
        ]
        model = found[0].model.with_(leaf=found[0].model.leaf.calibrate(torch.cat(sums)))
        return self.fit_several(model, data, found, **common)

    def fit_several(
        self,
        model: SoftTree,
        data: Data,
        inits: Sequence[Posterior],
        *,
        random_state: RandomState = None,
        progress: bool = False,
    ) -> list[Posterior]:
        """Fit several trees at once; see :meth:`fit`. ``model`` may have any topology."""
        self.check(model)
        check_soft(model)
        check_linear(model, data, "vi")
        for init in inits:
            check_split(init.model)
        model = model.with_(
            priors=model.priors.fixed(), steepness=self.steepness or model.steepness
        )
        data = data.to(torch.empty(0, dtype=torch.float64)).for_leaf(model.leaf)
        with seeded(draw_seed(random_state)), torch.no_grad():
            full = data.X.shape[1] <= MOST_FULL
            kind = Factors if full else DiagonalFactors
            factors = kind.around(model, inits, data)
            rows = Rows.of(data, model.leaf, full=full)
            trace = self._climb(factors, rows, progress)
            stats = self._settle(factors, rows, data, progress)
            return [
                self._posterior(
                    factors.tree(tree),
                    init.model.topology,
                    data,
                    trace[:, tree],
                    {name: values[tree] for name, values in stats.items()},
                )
                for tree, init in enumerate(inits)
            ]

    def _climb(self, factors: Factors, rows: Rows, progress: bool) -> Tensor:
        """Take the steps of the fit; return the bound of each tree by step, (n_steps, T)."""
        schedule = StepSchedule(self.n_steps, self.step_size, factors.model.steepness)
        trace: list[Tensor] = []
        state = {"factors": factors, "trace": trace}
        track = Track(range(self.n_steps), "vi", show=progress, parts=state)
        for number in track:
            trace.append(self._step(factors, rows, schedule.rule(number)))
            track.note(f"ELBO {float(trace[-1].max()):,.0f}")
        return torch.stack(trace)

    def _step(self, factors: Factors, rows: Rows, rule: StepRule) -> Tensor:
        n_rows = len(rows.X)
        if n_rows > self.batch_size:
            rows = rows.take(torch.randperm(n_rows)[: self.batch_size])
        return step(factors, rows, rule, 1 / self.kl_weight)

    def _settle(self, factors: Factors, rows: Rows, data: Data, progress: bool) -> Arrays:
        """Go on until further steps gain nothing; return the bound, and what the last ones gain."""
        seed = int(torch.randint(2**31 - 1, ()))

        def evaluated(found: Factors) -> Tensor:
            found.eval()
            found.factorise()
            found.refresh(steps=20)
            with seeded(seed):
                return bounds(found, data, self.kl_weight, ELBO_DRAWS)

        levels, gains = [evaluated(factors)], list[Arrays]()
        state = {"factors": factors, "levels": levels, "gains": gains}
        track = Track(range(MAX_ROUNDS), "vi, further steps", show=progress, parts=state)
        for number in track:
            moved = self._further(factors, rows)
            after = evaluated(moved)
            gains.append(mean_gain(levels[-1], after))
            gain, error = gains[-1]["elbo_gain"], gains[-1]["elbo_gain_error"]
            track.note(f"ELBO {gain.max():+,.1f}")
            if (gain <= np.maximum(MIN_NATS, N_ERRORS * error)).all() or number == MAX_ROUNDS - 1:
                track.finish()
                break
            factors.load_state_dict(moved.state_dict())
            levels.append(after)
        final = levels[-1].mean(0) + (self.kl_weight - 1) * factors.split_divergence()
        n_steps = self.n_steps + (len(levels) - 1) * self._n_further
        return {"final_elbo": final.numpy(), "n_steps": np.full(len(final), n_steps), **gains[-1]}

    @property
    def _n_further(self) -> int:
        return max(10, round(FURTHER_SHARE * self.n_steps))

    def _further(self, factors: Factors, rows: Rows) -> Factors:
        """Return the factors after more steps, averaged over the later half of them."""
        moved, n_steps = copy.deepcopy(factors).train(), self._n_further
        rule = StepRule(FURTHER_RATE, 1.0, moved.model.steepness, exact=True)
        moving = [moved.mean, moved.precision, moved.shape, moved.rate, moved.sums]
        averaged(moving, (self._step(moved, rows, rule) for _ in range(n_steps)), n_steps)
        return moved

    def _posterior(
        self, factors: Factors, topology: Any, data: Data, trace: Tensor, stats: dict[str, Any]
    ) -> Posterior:
        """Draw from the factors of one tree."""
        factors.eval().refresh(steps=20)
        drawn = [factors.sample() for _ in range(self.n_draws)]
        draws, log_q = [sites for sites, _ in drawn], [density for _, density in drawn]
        model = factors.model.with_(topology=topology)
        found = variational_posterior(
            model, draws, log_q, factors.point(), trace.tolist(), float(stats["final_elbo"])
        )
        log_p = log_joint(found.model_of_draws, [*found.each()], data)
        stats["n_rows"] = float(data.weights.sum())
        stats = {name: np.array(value) for name, value in stats.items()}
        return replace(
            found,
            inference="vi",
            stats={**found.stats, **stats, "log_p": np.array([log_p])},
            settings=self.chosen("steepness", "n_steps", "step_size", "batch_size", "kl_weight"),
        )


vi = as_function(Vi, "vi")
