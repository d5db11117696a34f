"""A complete analysis: what distinguishes Grignolino from Barolo and Barbera?

178 wines with two measurements, flavanoids and proline. Is one score of the two sufficient, or are
there several limits? The analysis covers uncertainty, convergence, sensitivity to the prior and
calibration; docs/learn/bayesian-analyst.md explains the steps. Results go to results/analysis.
Run: python examples/analysis.py [--quick] [--out FOLDER]
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import bayestree as bt
from bayestree import plots
from bayestree.diagnostics import calibration
from bayestree.inference import Mcmc
from bayestree.models import GammaProcess, InverseGammaScale

GRAPES = np.array(["Barolo", "Grignolino", "Barbera"])
PAIR, OTHER_PAIR = ["flavanoids", "proline"], ["color_intensity", "proline"]
CONCENTRATIONS = [0.3, 1.0, 3.0, 10.0]  # gamma_0, which determines the prior number of facets
LEVEL = 0.9

# Given its shrinkage, a coefficient is Student-t with 4 degrees of freedom. The default is Cauchy,
# meant for many features of which few matter; its tails are slow to sample.
# With two features, the paper's single scale of all coefficients is narrow enough.
PRIOR: dict[str, Any] = {
    "n_experts": 4,
    "prior": InverseGammaScale(2.0, 0.5, 0.5),
}
MODEL = PRIOR | {"max_depth": 1, "sparsity": None, "random_state": 0}
CHAINS = Mcmc(n_warmup=1000, n_draws=250, thinning=20, drop_idle=True)
QUICK = replace(CHAINS, n_warmup=3, n_draws=4, n_chains=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short, unreliable fits")
    parser.add_argument("--out", type=Path, default=Path("results/analysis"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    def log(what):
        print(f"{time.perf_counter() - started:4.0f} s  {what}", flush=True)

    wines, grape = load_wine(return_X_y=True, as_frame=True)
    if options.quick:
        wines, grape = wines[::2], grape[::2]
    grape = GRAPES[grape]
    X, y = wines[PAIR], sides(grape)

    def fit(name, inference="auto", columns=PAIR, **settings):
        log(name)
        clf = bt.ConvexPolytopeTreeClassifier(**MODEL | settings, inference=inference)
        return clf.fit(wines[columns], y)

    chains = QUICK if options.quick else CHAINS
    usual = fit("default")
    sampled = {
        gamma: fit(f"mcmc, gamma_0 = {gamma:g}", chains, weight_prior=GammaProcess(gamma))
        for gamma in ([1.0] if options.quick else CONCENTRATIONS)
    }
    mcmc = sampled[1.0]
    one = fit("mcmc, 1 facet", chains, n_experts=1)
    other = fit(f"mcmc, {' and '.join(OTHER_PAIR)}", chains, OTHER_PAIR)
    folds = StratifiedKFold(2 if options.quick else 10, shuffle=True, random_state=0)
    log(f"default, {folds.n_splits}-fold cross-validation")
    unseen = cross_val_predict(usual, X, y, cv=folds, method="predict_proba")
    scores = calibration(y, unseen, classes=usual.classes_, n_bins=5)

    # a few draws are not enough to leave rows out by importance sampling
    how = {"method": "kfold", "n_folds": 2} if options.quick else {}
    by_gamma = {gamma: clf.loo(X, y, **how) for gamma, clf in sampled.items()}
    loos = {
        "up to 4 facets": by_gamma[1.0],
        "1 facet": one.loo(X, y, **how),
        "up to 4, by color_intensity and proline": other.loo(wines[OTHER_PAIR], y, **how),
    }
    report = "\n\n\n".join([
        number_of_facets(usual, mcmc, X, grape),
        uncertainty(usual, mcmc, X, grape),
        convergence(usual, mcmc, X),
        prior_sensitivity(sampled, by_gamma, X),
        model_comparison(loos, other),
        held_out_calibration(scores, y, loos["up to 4 facets"]),
    ])  # fmt: skip
    print(f"\n{report}\n")
    (options.out / "report.txt").write_text(report + "\n")
    for name, clf in {"default": usual, "mcmc": mcmc}.items():
        clf.to_arviz(X, y).to_netcdf(options.out / f"posterior-{name}.nc")
    for name, figure in plot_all(usual, mcmc, sampled, scores, X, grape).items():
        figure.savefig(options.out / f"{name}.png", dpi=150)
    log(f"done. Results are in {options.out.resolve()}:")
    for path in sorted(options.out.iterdir()):
        print(f"  {path.name}")


def sides(grape):
    """The two classes: one grape and the rest."""
    return np.where(grape == "Grignolino", grape, "other")


def number_of_facets(usual, mcmc, X, grape) -> str:
    """Number of facets, the wines that each excludes, and the location of the border."""
    sizes = {"default": usual.polytope_size(400), "mcmc": mcmc.polytope_size(400)}
    lines = ["1. HOW MANY LIMITS?", "", bt.export_text(usual), "", f"P(facets){HEADS}"]
    lines += [f"{name:<9}{shares(size.probabilities()[0])}" for name, size in sizes.items()]
    lines += [f"{'prior':<9}{shares(sizes['default'].prior_probabilities()[0])}"]
    facets = usual.facets("root", max_draws=400)
    outside = X.to_numpy() @ facets.normal.T > facets.offset
    table = pd.DataFrame(outside, columns=[f"facet {f}" for f in facets.to_frame().index])
    table = table.groupby(grape).sum().assign(wines=pd.Series(grape).value_counts())
    lines += ["", "Wines excluded by each facet (default)", table.loc[GRAPES].to_string()]
    lines += ["", f"Border, starting from the median Grignolino: median and {LEVEL:.0%} interval"]
    start = X[grape == "Grignolino"].median()
    for feature, end in (("flavanoids", 0.0), ("proline", 1700.0)):
        for name, clf in (("default", usual), ("mcmc", mcmc)):
            low, middle, high = border(clf, start, feature, end)
            lines += [f"{feature:<12}{name:<9}{middle:8.4g}  ({low:.4g} to {high:.4g})"]
    return "\n".join(lines)


HEADS = "".join(f"{number:>8}" for number in ("none", "1", "2", "3 +"))


def shares(probability) -> str:
    """Probabilities of no facet, one, two, and more."""
    padded = np.pad(probability, (0, 3))
    return "".join(f"{p:8.2f}" for p in (*padded[:3], padded[3:].sum()))


def border(clf, start, feature, end):
    """Three quantiles of the value of a feature at which the draws reach the border."""
    path = pd.DataFrame([start] * 1000)
    path[feature] = np.linspace(start[feature], end, len(path))
    outside = clf.split_uncertainty(path).outside[:, 0]
    gone = outside if outside[0] < 0.5 else 1 - outside
    tails = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)
    return sorted(path[feature].iloc[(gone >= tail).argmax()] for tail in tails)


def uncertainty(usual, mcmc, X, grape) -> str:
    """Wines whose side is uncertain, and how much of the uncertainty more wines would reduce."""
    lines = ["2. HOW CERTAIN IS THE SPLIT?", ""]
    for name, clf in (("default", usual), ("mcmc", mcmc)):
        found = clf.split_uncertainty(X, level=LEVEL)
        low, high = found.interval[:, 0].T
        uncertain = ((low < 0.5) & (high > 0.5)).sum()
        share = found.mutual_information.sum() / found.total_entropy.sum()
        lines += [
            f"{name + ':':<9}{uncertain} of {len(X)} wines may be on either side",
            f"         {share:.1%} of the entropy of the predictions is parameter uncertainty",
        ]
    frame = found.to_frame("row").set_index(X.index).assign(grape=grape, **X)
    worst = frame.nlargest(5, "mutual_information")
    columns = [*PAIR, "grape", "total_entropy", "mutual_information"]
    table = worst[columns].to_string(float_format="{:.2f}".format)
    return "\n".join([*lines, "", "Largest parameter uncertainty (mcmc)", table])


def convergence(usual, mcmc, X) -> str:
    """Verdicts on both inference methods, and their agreement."""
    (mean, sd), (sampled, spread) = (clf.predict_proba(X, return_std=True) for clf in (usual, mcmc))
    gap = np.abs(mean - sampled)
    return "\n".join([
        "3. CAN THE INFERENCE BE TRUSTED?", "",
        "default", str(usual.check_convergence(X)), "",
        "mcmc", str(mcmc.check_convergence(X)), "",
        f"P(Grignolino) differs by {gap.mean():.3f} on average and by at most {gap.max():.3f};",
        f"its mean posterior sd is {sd.mean():.3f} by the default and {spread.mean():.3f} by mcmc.",
    ])  # fmt: skip


def prior_sensitivity(sampled, loos, X) -> str:
    """Results under other priors of the number of facets, compared with gamma_0 = 1."""
    usual = sampled[1.0].predict_proba(X)
    lines = [
        "4. SENSITIVITY TO THE PRIOR", "",
        "mcmc; difference in leave-one-out score and largest change of P(Grignolino)", "",
        f"{'gamma_0':<9}P(facets){HEADS}{'elpd':>16}{'change':>8}  failed checks",
    ]  # fmt: skip
    for gamma, clf in sampled.items():
        size = clf.polytope_size(400)
        change = np.abs(clf.predict_proba(X) - usual).max()
        checks = clf.check_convergence(X).checks
        failed = [check.name for check in checks if check.verdict == "failed"]
        gain = difference(loos[gamma], loos[1.0])
        lines += [
            f"{gamma:<9g}prior    {shares(size.prior_probabilities()[0])}",
            f"{'':9}posterior{shares(size.probabilities()[0])}{gain:>16}{change:8.3f}"
            f"  {', '.join(failed) or 'none'}",
        ]
    return "\n".join(lines)


def difference(loo, reference) -> str:
    """Difference of two leave-one-out scores of the same rows, with its standard error."""
    gain = loo.compare(reference)
    return f"{gain.elpd:.1f} +/- {gain.se:.1f}"


def model_comparison(loos, other) -> str:
    """Leave-one-out scores of other models of the same wines."""
    heads = f"{'elpd (nats)':>16}{'difference':>16}{'bad rows':>10}"
    lines = ["5. DOES THE SECOND LIMIT PAY?", "", f"{'mcmc':<40}{heads}"]
    reference = loos["up to 4 facets"]
    for name, loo in loos.items():
        gap = "" if loo is reference else difference(loo, reference)
        score = f"{loo.elpd:.1f} +/- {loo.se:.1f}"
        lines += [f"{name:<40}{score:>16}{gap:>16}{len(loo.bad_rows):>10}"]
    size = shares(other.polytope_size(400).probabilities()[0])
    by = f"By {' and '.join(OTHER_PAIR)}"
    return "\n".join([*lines, "", f"{by}\nP(facets){HEADS}\nmcmc     {size}"])


def held_out_calibration(scores, y, loo) -> str:
    """Calibration on held-out wines, compared with the class frequencies."""
    share = np.mean(y == "Grignolino")
    entropy = share * np.log(share) + (1 - share) * np.log(1 - share)
    return "\n".join([
        "6. ARE THE PROBABILITIES CALIBRATED?", "", str(scores), "",
        f"Class frequencies only: brier {2 * share * (1 - share):.3f}, "
        f"log_score {entropy:.3f}",
        f"mcmc, by leave-one-out: log_score {loo.elpd / len(y):.3f}",
    ])  # fmt: skip


def plot_all(usual, mcmc, sampled, scores, X, grape) -> dict[str, Figure]:
    """Figures by name."""
    y, size = sides(grape), usual.polytope_size(400)
    # These names sort after Grignolino, which thus keeps the colour of its class.
    grapes = np.where(grape == y, grape, np.char.add("other: ", grape))
    drawn: dict[str, Any] = {
        "tree": plots.tree(usual, sizes=size),
        "boundary-default": plots.boundary(usual, X, y),
        "boundary-mcmc": plots.boundary(mcmc, X, y),
        "polytope-size": plots.polytope_size(size),
        "shrinkage": plots.shrinkage(usual),
        "split-uncertainty": plots.split_uncertainty(usual, X, grapes),
        "elbo": plots.elbo(usual),
        "calibration": plots.calibration(scores),
    }
    figures = {name: np.ravel(axes)[0].figure for name, axes in drawn.items()}
    return figures | {"priors": plot_priors(sampled)}


def plot_priors(sampled) -> Figure:
    """Posterior and prior of the number of facets, one panel per concentration."""
    figure = Figure(figsize=(2.2 * len(sampled), 2.6), layout="constrained")
    axes = figure.subplots(1, len(sampled), sharey=True, squeeze=False)[0]
    for ax, (gamma, clf) in zip(axes, sampled.items(), strict=True):
        plots.polytope_size(replace(clf.polytope_size(400), n_leaves=None), ax=[ax])
        ax.set_title(f"$\\gamma_0$ = {gamma:g}", fontsize=9)
        ax.set_ylim(0, 1.05)
        if gamma != max(sampled):
            ax.get_legend().remove()
    return figure


if __name__ == "__main__":
    main()
