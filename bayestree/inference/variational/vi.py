"""Natural-gradient variational inference.

A step draws all experts once. With the paths of the rows integrated out (``core.slopes``),
the log-likelihood of a row has, in the score s of a node, the slope

    g  =  w P(passed | y) (P(right | passed, y) - q) c,      c = gamma / (1 - exp(-s)),

with q = P(right | x), the steepness gamma and the weight w of the row, and the curvature

    g ((1 - 2 q) c - exp(-s) / (1 - exp(-s)))  -  g^2 / w.

s = sum_k r_k softplus(psi_k) with psi_k = beta_k . x turns these into slope and curvature in each
psi_k and each log r_k, by row. The precision of a normal factor is the expectation of minus the
curvature at the optimum (Opper and Archambeau, "The variational Gaussian approximation revisited",
2009), so that

    precision  <-  (1 - rho) precision + rho (E[1 / sigma^2] + sum_n h_n x_n x_n'),
    mean       <-  mean + rho precision^-1 (slope of the bound)

is a natural-gradient step (Khan and Lin, "Conjugate-computation variational inference", 2017). For
h, the first half of a fit takes g^2 / w (Gauss-Newton), which is never negative. The second half
takes minus the curvature itself; a term of second order keeps the precision positive definite (Lin,
Schmidt and Khan, "Handling the positive-definite constraint in the Bayesian learning rule", 2020).

For a weight, the log-likelihood is replaced by alpha x - beta e^x in x = log r, which has the same
slope f' and curvature -J at the draw if alpha = f' + J and beta = J / r. It adds alpha to the shape
of the prior and beta to its rate. J is at least -f', so that a vote that only harms adds to the
rate alone.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import Count, Inference, Positive, Probability, Size, declare
from bayestree._utils.progress import Track
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.inference.convergence import averaged, mean_gain
from bayestree.inference.data import Data
from bayestree.inference.pointwise import leaf_sums, log_joint
from bayestree.inference.posterior import Arrays, Posterior
from bayestree.inference.samplers.mcmc.method import Mcmc, swept
from bayestree.inference.stage import Stage, as_function
from bayestree.inference.training import HARD, check_linear, check_soft, check_split, check_topology
from bayestree.inference.variational.factors import (
    ExpertDraw,
    Factors,
    Rows,
    StepRule,
    StepSchedule,
)
from bayestree.inference.variational.low_rank import LowRankFactors
from bayestree.inference.variational.svi import variational_posterior
from bayestree.models.priors import InverseGammaScale
from bayestree.models.soft_tree import SoftTree

ELBO_DRAWS = 16
FURTHER_SHARE, FURTHER_RATE = 0.2, 0.1  # steps after a fit, as a share of its steps, and their rate
MAX_ROUNDS = 5  # of such steps, until no tree gains; the last round is only measured
MIN_NATS, N_ERRORS = 2.0, 2.0  # a gain counts above these nats and Monte Carlo errors
STEEPNESS_OF_NUMBERS = 6.0
MOST_FULL = 100  # columns of rows for which covariances are full within experts


class Slopes(NamedTuple):
    """Log-likelihood of rows, its slopes, minus its curvatures, and the leaves' statistics."""

    likelihood: Tensor  # (T,)
    coefficient: Tensor  # slope in the coefficients, (V, K, d + 1)
    information: Tensor  # minus the curvature in each psi of each row, (V, K, n)
    weight: Tensor  # slope in log r, (V, K)
    weight_information: Tensor  # minus the curvature in log r, (V, K)
    sums: Tensor  # (L, c)


@torch.no_grad()
def step(factors: Factors, rows: Rows, rule: StepRule, power: float = 1.0) -> Tensor:
    """Take a step, and return the bound of each tree before it, (T,).

    ``power`` is that of the likelihood of the splits: above 1 for a tempered posterior.
    """
    draw, rate = factors.draw(), rule.rate
    slopes = _slopes(factors, draw, rows, rule, power)
    moments = factors.moments
    prior = rule.prior * factors.scales.expected_precision(moments)
    log_prior = factors.scales.expected_log_prior(moments)
    bound = slopes.likelihood - factors.split_divergence(log_prior) - factors.leaf_divergence()
    factors.sums.lerp_(slopes.sums, rate)
    if factors.model.split.weighted:
        _move_weights(factors, slopes, draw, rule)
    slope = slopes.coefficient - prior * moments.mean
    factors.move(rows, slope, slopes.information, prior, rule)
    return bound


def _slopes(factors: Factors, draw: ExpertDraw, rows: Rows, rule: StepRule, power: float) -> Slopes:
    """Compute slopes and curvatures at a draw, summed over the rows."""
    from bayestree.inference.core.slopes import slopes  # noqa: PLC0415 - see _evidence

    density = factors.leaf_law.expected_log_density(rows.y)
    votes, weight, nodes, value = _evidence(factors, draw, density, rows.X, rule.steepness)
    trees = factors.topology
    likelihood = torch.from_numpy(value[trees.roots]) @ rows.weights
    found = np.empty_like(votes), np.empty_like(weight), np.empty_like(weight)
    given = trees.children, trees.roots, rule.steepness, power, rule.exact
    slopes(votes, weight, rows.weights.numpy(), *given, nodes, value, found)
    of_coefficient = torch.from_numpy(votes) @ rows.X
    information, of_weight, bent = map(torch.from_numpy, found)
    sums = torch.from_numpy(value[trees.n_nodes :]) @ rows.statistics
    return Slopes(likelihood, of_coefficient, information, of_weight, bent, sums)


def _evidence(
    factors: Factors, draw: ExpertDraw, density: Tensor, X: Tensor, steepness: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return votes (V, K, n), weights, and what ``core.slopes.evidence`` finds for densities."""
    # numba takes half a second to import
    from bayestree.inference.core.slopes import evidence  # noqa: PLC0415

    votes, weight = (draw.coefficient @ X.T).numpy(), draw.log_weight.exp().numpy()
    n_nodes, _, n = votes.shape
    nodes, value = np.empty((3, n_nodes, n)), np.empty((n_nodes + density.shape[1], n))
    value[n_nodes:] = density.T.numpy()
    evidence(votes, weight, factors.topology.children, float(steepness), nodes, value)
    return votes, weight, nodes, value


def _move_weights(factors: Factors, slopes: Slopes, draw: ExpertDraw, rule: StepRule) -> None:
    """Move the gamma factors of the weights."""
    prior = factors.model.priors.weight.law(factors.model.split.n_experts, factors.rate)
    slope = slopes.weight
    information = torch.maximum(slopes.weight_information, -slope).clamp_min(0.0)
    # Without any prior, r has the flat density, of shape 1 and rate 0.
    shape = 1 + rule.prior * (prior.concentration - 1) + slope + information
    at = draw.log_weight.clamp_min(-600.0).exp()  # of weights that would underflow
    factors.shape.lerp_(shape, rule.rate)
    factors.rate.lerp_(rule.prior * prior.rate + information / at, rule.rate)


@torch.no_grad()
def bounds(factors: Factors, data: Data, weight: float, n_draws: int) -> Tensor:
    """Estimate the bound of each tree from single draws, shape (n_draws, T).

    Leaves are drawn, too, so that this bound is at least that of :func:`step`, which averages their
    log-densities. ``weight`` is the factor of the divergence of the splits.
    """
    model, trees = factors.model, factors.topology
    divergence = weight * factors.split_divergence() + factors.leaf_divergence()
    found = []
    for _ in range(n_draws):
        draw, leaves, total = factors.draw(), factors.leaf_law.sample(), -divergence
        for part in data.parts(ones=True):
            density = model.leaf.log_density(leaves, part.y)
            *_, value = _evidence(factors, draw, density, part.X, model.steepness)
            total = total + torch.from_numpy(value[trees.roots]) @ part.weights
        found.append(total)
    return torch.stack(found)


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
    n_sweeps: Annotated[
        Size,
        Inference(
            "Sweeps of Metropolis-within-Gibbs sampling from some of the draws, whose states "
            "replace all draws: see ``Mcmc``. 0 keeps the draws of the factors. The default of "
            "estimators, where it does not take longer than the fit itself."
        ),
    ] = 0

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
        if self.n_sweeps:
            Mcmc().check(model.with_(priors=model.priors.fixed()))
            if self.kl_weight != 1:
                raise ValueError(
                    f"n_sweeps={self.n_sweeps} would sample the posterior itself, but kl_weight="
                    f"{self.kl_weight} asks for a tempered one: use n_sweeps=0 or kl_weight=1."
                )
        model.likelihood.check_mixture("inference='vi'")
        weight, prior = model.priors.weight, model.priors.hyperplane
        if model.split.weighted and not weight.implements("law"):
            raise ValueError(
                f"inference='vi' needs a GammaProcess as the prior on weights, got {weight}: use "
                "inference='map' or, if it is proper, 'svi' with guide='AutoNormal'."
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
            density of the factors at each draw; with ``n_sweeps``, instead, ``lp`` and
            ``log_likelihood`` of the draws.

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
        validation: Data | None = None,
        **common: Any,
    ) -> list[Posterior]:
        """Continue from several trees at once, with one prior of leaves for all of them."""
        data = data.for_leaf(found[0].model.leaf)
        sums = [
            leaf_sums(one.model.with_(steepness=HARD), one.point_sites(data.X), data)
            for one in found
        ]
        leaf = found[0].model.leaf.calibrate(torch.cat(sums)).reduced()
        model = found[0].model.with_(leaf=leaf)
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
            kind = Factors if full else LowRankFactors
            factors = kind.around(model, inits, data)
            rows = Rows.of(data, model.leaf, full=full)
            trace = self._climb(factors, rows, progress)
            stats = self._settle(factors, rows, data, progress)
            found = [
                self._posterior(
                    factors.tree(tree),
                    init.model.topology,
                    data,
                    trace[:, tree],
                    {name: values[tree] for name, values in stats.items()},
                )
                for tree, init in enumerate(inits)
            ]
            return [
                swept(one, data, self.n_sweeps, progress) if self.n_sweeps else one for one in found
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
        for _ in averaged(moving, n_steps):
            self._step(moved, rows, rule)
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
        stats["n_rows"] = float(data.weights.sum())
        stats = {name: np.array(value) for name, value in stats.items()}
        if not self.n_sweeps:  # which replace the draws
            stats["log_p"] = log_joint(found.model_of_draws, [*found.each()], data)[None]
        return replace(
            found,
            inference="vi",
            stats={**found.stats, **stats},
            settings=self.chosen(
                "steepness", "n_steps", "step_size", "batch_size", "kl_weight", "n_sweeps"
            ),
        )


vi = as_function(Vi, "vi")
