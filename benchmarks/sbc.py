"""Simulation-based calibration of the samplers (Talts and others, 2018), and coverage of SVI.

Parameters are drawn from the prior, data given the parameters, and the true values are ranked among
the draws of the fit: the ranks are uniform if the posterior is correct.
With smc the topology is drawn and sampled, too: at most a stump, or at most depth 2. With modes
the default estimator is fitted, four trees that are grown anew, and only intervals of P(y) are
judged; with numbers those of E(y | x), of normal leaves and a steepness of 6, the default there.
python benchmarks/sbc.py {stump,tree} METHOD [--sets 200] [--first 0]
    [--rows 300] [--out FILE]
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, inference
from bayestree.diagnostics.polytopes import needed
from bayestree.inference import Data, Posterior, Smc, Vi
from bayestree.inference.samplers.density import Layout
from bayestree.inference.samplers.smc.method import draws_of
from bayestree.inference.samplers.smc.particles import ParticlePrior, TreePrior
from bayestree.models import Categorical, Gaussian, Polytope, SoftTree
from bayestree.models.soft_tree import sample_prior
from bayestree.topology import Topology

N_ROWS, N_FEATURES, N_EXPERTS = 300, 2, 5
PLACES = np.array([[0.0, 0.0], [1.0, -0.5], [-1.0, 1.0]])  # where q and P(y) are compared
N_PARTICLES = 1140  # of SMC
RANKS = 19  # thinned draws: ranks 0 to 19
THIN = 20
TOPOLOGIES = {"stump": Topology.stump(), "tree": Topology.complete(2)}


@dataclass(frozen=True)
class Simulated:
    """A data set and the parameters from which it was simulated, shape (1, 1, ...) each."""

    model: SoftTree
    data: Data
    truth: dict[str, np.ndarray]
    stats: dict[str, np.ndarray] = field(default_factory=dict)  # of a truth of random topology


def simulate(name: str, seed: int, n: int = N_ROWS) -> Simulated:
    """One draw of parameters and data from the prior predictive."""
    model = SoftTree(TOPOLOGIES[name], Polytope(N_EXPERTS), leaf=Categorical(2))
    drawn = sample_prior(model, N_FEATURES, 1, random_state=seed)
    sites = {site: value[0] for site, value in drawn.items()}
    rng = np.random.default_rng([seed, 1])
    X = rng.normal(size=(n, N_FEATURES))
    share = model.leaf_log_probs(sites, torch.from_numpy(X)).exp() @ sites["leaf_probs"]
    y = (rng.random(n) < share[:, 1].numpy()).astype(int)
    truth = {site: value.numpy()[None, None] for site, value in sites.items()}
    return Simulated(model, Data.of(X, y), truth)


def simulate_tree(name: str, seed: int, n: int = N_ROWS) -> Simulated:
    """The same with a random topology; the truth has the form of a draw of SMC."""
    model = SoftTree(TOPOLOGIES[name], Polytope(N_EXPERTS), leaf=Categorical(2))
    prior = ParticlePrior(
        model, Layout(model, N_FEATURES), TreePrior(Smc.split_base, Smc.split_power)
    )
    rng = np.random.default_rng([seed, 1])
    truth = prior.particles(1, rng)
    X = rng.normal(size=(n, N_FEATURES))
    draws = draws_of(prior, truth.vectors[None], truth.splits[None])
    sites = {site: torch.from_numpy(value[0, 0]) for site, value in draws.items()}
    share = model.leaf_log_probs(sites, torch.from_numpy(X)).exp() @ sites["leaf_probs"]
    data = Data.of(X, (rng.random(n) < share[:, 1].numpy()).astype(int))
    likelihood = float(model.log_likelihood(sites, *data))
    stats = {
        "lp": np.array([[likelihood + prior.log_density(sites, truth.splits[0])]]),
        "n_leaves": truth.splits.sum(axis=1)[None] + 1,
    }
    return Simulated(model, data, draws, stats)


def dispersed(model: SoftTree, seed: int) -> Posterior:
    """Draws from the prior, as starts that do not depend on the data."""
    drawn = sample_prior(model, N_FEATURES, 40, random_state=seed)
    draws = {site: value.numpy()[None] for site, value in drawn.items()}
    point = {site: value[0, 0] for site, value in draws.items()}
    return Posterior(model, draws, point, "prior")


def fit(case: Simulated, method: str, seed: int, n_draws: int = RANKS * THIN) -> Posterior:
    """A posterior by one of the methods, started from draws of the prior."""
    if method == "smc":
        return inference.smc(
            case.model,
            case.data,
            n_chains=1,
            n_draws=N_PARTICLES,
            max_depth=case.model.topology.depth,
            random_state=seed,
        )
    start = dispersed(case.model, seed + 10_000)
    if method == "nuts":
        return inference.nuts(
            case.model,
            case.data,
            init=start,
            n_chains=1,
            n_warmup=250,
            n_draws=n_draws,
            max_tree_depth=5,
            n_refreshes=20,
            mirror=True,
            random_state=seed,
        )
    joints = [float(case.model.log_joint(sites, *case.data)) for sites in start.each()]
    best = start.sites(0, int(np.argmax(joints)))
    point = inference.map(
        case.model,
        case.data,
        init=Posterior.from_point(case.model, best, "prior"),
        epochs=500,
        random_state=seed,
    )
    return inference.svi(
        case.model,
        case.data,
        init=point,
        covariance="expert" if method == "svi-expert" else "diagonal",
        epochs=2000,
        n_draws=n_draws,
        random_state=seed,
    )


def quantities(
    case: Simulated, draws: Mapping[str, np.ndarray], stats: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Quantities of each draw (S,) that do not depend on the order of the experts."""
    X = case.data.X.numpy()
    low, high = X.min(axis=0), X.max(axis=0)
    rows = torch.from_numpy(PLACES)
    found: dict[str, list[float]] = {}
    for draw in range(draws["intercept"].shape[1]):
        sites = {site: torch.from_numpy(value[0, draw]) for site, value in draws.items()}
        right = -torch.expm1(-case.model.scores(sites, rows))
        share = case.model.leaf_log_probs(sites, rows).exp() @ sites["leaf_probs"]
        values = {f"q{i}": right[i, 0] for i in range(len(PLACES))}
        values |= {f"p{i}": share[i, 1] for i in range(len(PLACES))}
        if stats:
            values |= {"log joint": stats["lp"][0, draw], "leaves": stats["n_leaves"][0, draw]}
        else:
            values["log joint"] = case.model.log_joint(sites, *case.data)
        weight = np.exp(draws["log_weight"][0, draw][0])
        plane, intercept = (draws[site][0, draw][0] for site in ("hyperplane", "intercept"))
        facets = len(needed(weight, plane, intercept, low, high))
        values["facets"] = torch.tensor(facets)
        for key, value in values.items():
            found.setdefault(key, []).append(float(value))
    return {key: np.array(values) for key, values in found.items()}


def ranks(case: Simulated, posterior: Posterior, seed: int) -> dict[str, float]:
    """Rank of each true value among thinned draws; ties are broken at random."""
    rng = np.random.default_rng([seed, 2])
    step = posterior.n_draws // RANKS
    places = slice(step - 1, step * RANKS, step)
    thin = {site: value[:, places] for site, value in posterior.draws.items()}
    recorded = {key: posterior.stats[key][:, places] for key in case.stats}
    true = quantities(case, case.truth, case.stats)
    drawn = quantities(case, thin, recorded)
    below = {key: (drawn[key] < true[key]).sum() for key in true}
    tied = {key: (drawn[key] == true[key]).sum() for key in true}
    return {key: int(below[key] + rng.integers(tied[key] + 1)) for key in true}


def inside(case: Simulated, posterior: Posterior) -> dict[str, float]:
    """Whether central intervals of 50 and 90 % contain the true values."""
    true = quantities(case, case.truth, case.stats)
    drawn = quantities(case, posterior.draws, {key: posterior.stats[key] for key in case.stats})
    result = {}
    for key, values in drawn.items():
        for level in (0.5, 0.9):
            low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
            result[f"{key} {level:.0%}"] = float(low <= true[key][0] <= high)
    return result


def inside_modes(case: Simulated, seed: int) -> dict[str, float]:
    """The same for P(y) under the default mixture."""
    X, y = case.data.X.numpy(), case.data.y.numpy()
    clf = ConvexPolytopeTreeClassifier(
        max_depth=case.model.topology.depth,
        n_experts=N_EXPERTS,
        steepness=case.model.steepness,
        n_draws=200,
        random_state=seed,
    ).fit(X, y)
    true = quantities(case, case.truth)
    values, weights = [], []
    for mode, weight in zip(clf.modes_, clf.mode_weights_, strict=True):
        posterior = mode.posterior_
        rows = mode.fitted_.scaling.standardise(PLACES)
        for sites in posterior.each():
            values.append(posterior.leaf_probs(rows, sites) @ sites["leaf_probs"].numpy()[:, 1])
            weights.append(weight)
    result = {}
    for i, own in enumerate(np.array(values).T):
        for level in (0.5, 0.9):
            ends = np.array([(1 - level) / 2, (1 + level) / 2])
            low, high = np.quantile(own, ends, weights=weights, method="inverted_cdf")
            result[f"p{i} {level:.0%}"] = float(low <= true[f"p{i}"][0] <= high)
    return result


def simulate_numbers(name: str, seed: int, n: int = N_ROWS) -> Simulated:
    """One draw of parameters and numbers from the prior predictive."""
    model = SoftTree(TOPOLOGIES[name], Polytope(N_EXPERTS), leaf=Gaussian(), steepness=6.0)
    drawn = sample_prior(model, N_FEATURES, 1, random_state=seed)
    sites = {site: value[0] for site, value in drawn.items()}
    rng = np.random.default_rng([seed, 1])
    X = rng.normal(size=(n, N_FEATURES))
    probs = model.leaf_log_probs(sites, torch.from_numpy(X)).exp().numpy()
    leaf = [rng.choice(len(row), p=row / row.sum()) for row in probs]
    mean, scale = (sites[f"leaf_{of}"].numpy()[leaf] for of in ("mean", "scale"))
    truth = {site: value.numpy()[None, None] for site, value in sites.items()}
    return Simulated(model, Data.of(X, rng.normal(mean, scale)), truth)


def inside_numbers(case: Simulated, seed: int) -> dict[str, float]:
    """Whether intervals of E(y | x) under the default mixture hold the truth."""
    X, y = case.data.X.numpy(), case.data.y.numpy()
    depth = case.model.topology.depth
    reg = ConvexPolytopeTreeRegressor(
        inference=Vi(n_draws=200), max_depth=depth, n_experts=N_EXPERTS, random_state=seed
    ).fit(X, y)
    sites = {name: torch.as_tensor(value[0, 0]) for name, value in case.truth.items()}
    share = case.model.leaf_log_probs(sites, torch.from_numpy(PLACES)).exp().numpy()
    true = share @ case.truth["leaf_mean"][0, 0]
    each = []
    for mode in reg.modes_:
        units, posterior = mode.fitted_.scaling.units, mode.posterior_
        found = np.concatenate([*posterior.expectations(mode.fitted_.scaling.standardise(PLACES))])
        each.append(units.y_center + units.y_scale * found)
    weights = np.repeat(reg.mode_weights_, [len(one) for one in each])
    result = {}
    for i, own in enumerate(np.concatenate(each).T):
        for level in (0.5, 0.9):
            ends = np.array([(1 - level) / 2, (1 + level) / 2])
            low, high = np.quantile(own, ends, weights=weights, method="inverted_cdf")
            result[f"mean {i} {level:.0%}"] = float(low <= true[i] <= high)
    return result


def uniformity(table: pd.DataFrame, n_bins: int = RANKS + 1) -> pd.Series:
    """p-value of a chi-square test of each column of ranks 0 to RANKS."""
    width = (RANKS + 1) // n_bins
    counts = {key: np.bincount(table[key] // width, minlength=n_bins) for key in table}
    return pd.Series({key: stats.chisquare(count).pvalue for key, count in counts.items()})


METHODS = ("nuts", "svi", "svi-expert", "smc", "modes", "numbers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TOPOLOGIES)
    parser.add_argument("method", choices=[*METHODS])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    table = []
    for seed in range(options.first, options.first + options.sets):
        draw = {"smc": simulate_tree, "numbers": simulate_numbers}.get(options.method, simulate)
        case = draw(options.name, seed, options.rows)
        if options.method == "numbers":
            table.append(inside_numbers(case, seed))
        elif options.method == "modes":
            if len(case.data.y.unique()) == 1:  # which no classifier takes
                continue
            table.append(inside_modes(case, seed))
        else:
            posterior = fit(case, options.method, seed)
            table.append(ranks(case, posterior, seed) | inside(case, posterior))
        if options.out:
            pd.DataFrame(table).to_csv(options.out, index=False)
    frame = pd.DataFrame(table)
    ranked = [key for key in frame.columns if "%" not in key]
    print(
        f"{options.name} {options.method}, {len(frame)} sets: {time.perf_counter() - started:.0f} s"
    )
    if ranked:
        print(uniformity(frame[ranked]).round(4).to_string())
    print(frame.drop(columns=ranked).mean().round(3).to_string())


if __name__ == "__main__":
    main()
