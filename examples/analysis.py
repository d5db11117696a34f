"""One analysis from question to answer: what sets Grignolino apart from Barolo and Barbera?

178 wines, two measurements, flavanoids and proline. Is one score of the two enough, or are there
several limits to meet? How sure is that, is the inference to be trusted, would another prior say
otherwise, do the probabilities come true? docs/analysis.md tells it with the pictures; results go
to results/analysis. Run: python examples/analysis.py [--quick] [--out FOLDER]
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

GRAPES = np.array(["Barolo", "Grignolino", "Barbera"])
PAIR, OTHER_PAIR = ["flavanoids", "proline"], ["color_intensity", "proline"]
CONCENTRATIONS = [0.3, 1.0, 3.0, 10.0]  # gamma_0: the prior of the number of facets
LEVEL = 0.9

# Given its shrinkage a coefficient is Student-t, of 4 degrees of freedom. The default is Cauchy,
# made for many features of which few matter; its tails are slow to sample.
PRIOR = {"n_experts": 4, "scale_shape": 2.0, "shrinkage_shape": 0.5, "shrinkage_rate": 0.5}
MODEL = PRIOR | {"max_depth": 1, "steepness": 1.0, "random_state": 0}
SVI = {"search_facets": True, "n_draws": 400, "epochs": 200}
NUTS = {"inference": "nuts", "n_warmup": 300, "n_draws": 300, "target_acceptance": 0.98}
QUICK = {"epochs": 5, "n_warmup": 10, "n_draws": 20, "n_chains": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fits too short to be believed")
    parser.add_argument("--out", type=Path, default=Path("results/analysis"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    def say(what):
        print(f"{time.perf_counter() - started:4.0f} s  {what}", flush=True)

    wines, grape = load_wine(return_X_y=True, as_frame=True)
    if options.quick:
        wines, grape = wines[::2], grape[::2]
    grape = GRAPES[grape]
    X, y = wines[PAIR], sides(grape)

    def fit(name, columns=PAIR, **settings):
        say(name)
        quick = QUICK if options.quick else {}
        clf = bt.ConvexPolytopeTreeClassifier(**MODEL | settings | quick)
        return clf.fit(wines[columns], y)

    svi = fit("svi", **SVI)
    sampled = {
        gamma: fit(f"nuts, gamma_0 = {gamma:g}", **SVI | NUTS, concentration=gamma)
        for gamma in ([1.0] if options.quick else CONCENTRATIONS)
    }
    nuts = sampled[1.0]
    one = fit("nuts, 1 facet", **NUTS, n_experts=1)
    other = fit(f"nuts, {' and '.join(OTHER_PAIR)}", OTHER_PAIR, **SVI | NUTS)
    folds = StratifiedKFold(2 if options.quick else 10, shuffle=True, random_state=0)
    say(f"svi, {folds.n_splits} times, without some of the wines")
    unseen = cross_val_predict(svi, X, y, cv=folds, method="predict_proba")
    scores = calibration(y, unseen, classes=svi.classes_, n_bins=5)

    loos = {
        "up to 4 facets": nuts.loo(X, y),
        "1 facet": one.loo(X, y),
        "up to 4, by color_intensity and proline": other.loo(wines[OTHER_PAIR], y),
    }
    report = "\n\n\n".join([
        how_many(svi, nuts, X, grape),
        how_sure(svi, nuts, X, grape),
        whether_it_converged(svi, nuts, X),
        other_priors(sampled, X, y),
        other_models(loos, other),
        on_unseen_wines(scores, y, loos["up to 4 facets"]),
    ])  # fmt: skip
    print(f"\n{report}\n")
    (options.out / "report.txt").write_text(report + "\n")
    for name, clf in {"svi": svi, "nuts": nuts}.items():
        clf.to_arviz(X, y).to_netcdf(options.out / f"posterior-{name}.nc")
    for name, figure in pictures(svi, nuts, sampled, scores, X, grape).items():
        figure.savefig(options.out / f"{name}.png", dpi=150)
    say(f"done. Results are in {options.out.resolve()}:")
    for path in sorted(options.out.iterdir()):
        print(f"  {path.name}")


def sides(grape):
    """The classes to tell apart: one grape and the rest."""
    return np.where(grape == "Grignolino", grape, "other")


# The sections of the report.


def how_many(svi, nuts, X, grape) -> str:
    """Number of facets, what each of them is for, and where the border lies."""
    sizes = {"svi": svi.polytope_size(400), "nuts": nuts.polytope_size(100)}
    lines = ["1. HOW MANY LIMITS?", "", bt.export_text(svi), "", f"P(facets){HEADS}"]
    lines += [f"{name:<9}{shares(size.probabilities()[0])}" for name, size in sizes.items()]
    lines += [f"{'prior':<9}{shares(sizes['svi'].prior_probabilities()[0])}"]
    facets = svi.facets("root", max_draws=400)
    outside = X.to_numpy() @ facets.normal.T > facets.offset
    table = pd.DataFrame(outside, columns=[f"facet {f}" for f in facets.to_frame().index])
    table = table.groupby(grape).sum().assign(wines=pd.Series(grape).value_counts())
    lines += ["", "Wines that a facet keeps out (svi)", table.loc[GRAPES].to_string()]
    lines += ["", f"Border on the way from the median Grignolino: middle and {LEVEL:.0%} interval"]
    start = X[grape == "Grignolino"].median()
    for feature, end in (("flavanoids", 0.0), ("proline", 1700.0)):
        for name, clf in (("svi", svi), ("nuts", nuts)):
            low, middle, high = border(clf, start, feature, end)
            lines += [f"{feature:<12}{name:<6}{middle:8.4g}  ({low:.4g} to {high:.4g})"]
    return "\n".join(lines)


HEADS = "".join(f"{number:>8}" for number in ("none", "1", "2", "3 +"))


def shares(probability) -> str:
    """Probabilities of no facet, one, two, and more."""
    padded = np.pad(probability, (0, 3))
    return "".join(f"{p:8.2f}" for p in (*padded[:3], padded[3:].sum()))


def border(clf, start, feature, end):
    """Where the draws go over to the other side, along one feature: three quantiles."""
    path = pd.DataFrame([start] * 1000)
    path[feature] = np.linspace(start[feature], end, len(path))
    outside = clf.split_uncertainty(path).outside[:, 0]
    gone = outside if outside[0] < 0.5 else 1 - outside
    tails = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)
    return sorted(path[feature].iloc[(gone >= tail).argmax()] for tail in tails)


def how_sure(svi, nuts, X, grape) -> str:
    """Wines whose side is in doubt, and how much of the doubt more wines would settle."""
    lines = ["2. HOW SURE IS THE SPLIT?", ""]
    for name, clf in (("svi", svi), ("nuts", nuts)):
        unsure = clf.split_uncertainty(X, level=LEVEL)
        low, high = unsure.interval[:, 0].T
        doubtful = ((low < 0.5) & (high > 0.5)).sum()
        share = unsure.mutual_information.sum() / unsure.total_entropy.sum()
        lines += [
            f"{name + ':':<6}{doubtful} of {len(X)} wines may lie on either side",
            f"      {share:.1%} of the entropy of the predictions is doubt about the parameters",
        ]
    frame = unsure.to_frame("row").set_index(X.index).assign(grape=grape, **X)
    worst = frame.nlargest(5, "mutual_information")
    columns = [*PAIR, "grape", "total_entropy", "mutual_information"]
    table = worst[columns].to_string(float_format="{:.2f}".format)
    return "\n".join([*lines, "", "Most doubt about the parameters (nuts)", table])


def whether_it_converged(svi, nuts, X) -> str:
    """Verdicts on both inferences, and how far they agree."""
    (mean, sd), (sampled, spread) = (clf.predict_proba(X, return_std=True) for clf in (svi, nuts))
    gap = np.abs(mean - sampled)
    return "\n".join([
        "3. IS THE INFERENCE TO BE TRUSTED?", "",
        "svi", str(svi.check_convergence(X)), "",
        "nuts", str(nuts.check_convergence(X)), "",
        f"P(Grignolino) differs by {gap.mean():.3f} on average and {gap.max():.3f} at most;",
        f"its posterior sd is {sd.mean():.3f} by svi and {spread.mean():.3f} by nuts, on average.",
    ])  # fmt: skip


def other_priors(sampled, X, y) -> str:
    """The answer under other priors of the number of facets, each against gamma_0 = 1."""
    usual, reference = sampled[1.0].predict_proba(X), sampled[1.0].loo(X, y)
    lines = [
        "4. WOULD ANOTHER PRIOR CHANGE IT?", "",
        "nuts; difference of the leave-one-out score and largest change of P(Grignolino)", "",
        f"{'gamma_0':<9}P(facets){HEADS}{'elpd':>16}{'change':>8}  failed checks",
    ]  # fmt: skip
    for gamma, clf in sampled.items():
        size = clf.polytope_size(100)
        change = np.abs(clf.predict_proba(X) - usual).max()
        checks = clf.check_convergence(X).checks
        failed = [check.name for check in checks if check.verdict == "failed"]
        gain = difference(clf.loo(X, y), reference)
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


def other_models(loos, other) -> str:
    """Leave-one-out scores of other models of the same wines."""
    heads = f"{'elpd (nats)':>16}{'difference':>16}{'bad rows':>10}"
    lines = ["5. IS IT WORTH IT?", "", f"{'nuts':<40}{heads}"]
    reference = loos["up to 4 facets"]
    for name, loo in loos.items():
        gap = "" if loo is reference else difference(loo, reference)
        score = f"{loo.elpd:.1f} +/- {loo.se:.1f}"
        lines += [f"{name:<40}{score:>16}{gap:>16}{len(loo.bad_rows):>10}"]
    size = shares(other.polytope_size(100).probabilities()[0])
    by = f"By {' and '.join(OTHER_PAIR)}"
    return "\n".join([*lines, "", f"{by}\nP(facets){HEADS}\nnuts     {size}"])


def on_unseen_wines(scores, y, loo) -> str:
    """Calibration, and what knowing nothing of a wine would score."""
    share = np.mean(y == "Grignolino")
    entropy = share * np.log(share) + (1 - share) * np.log(1 - share)
    return "\n".join([
        "6. DO THE PROBABILITIES COME TRUE?", "", str(scores), "",
        f"The shares of the classes alone: brier {2 * share * (1 - share):.3f}, "
        f"log_score {entropy:.3f}",
        f"nuts, by leave-one-out: log_score {loo.elpd / len(y):.3f}",
    ])  # fmt: skip


# The pictures.


def pictures(svi, nuts, sampled, scores, X, grape) -> dict[str, Figure]:
    """Figures by name."""
    y, size = sides(grape), svi.polytope_size(400)
    # Named so, the others come after Grignolino, which keeps the colour of its class.
    grapes = np.where(grape == y, grape, np.char.add("other: ", grape))
    drawn: dict[str, Any] = {
        "tree": plots.tree(svi, sizes=size),
        "boundary-svi": plots.boundary(svi, X, y),
        "boundary-nuts": plots.boundary(nuts, X, y),
        "polytope-size": plots.polytope_size(size),
        "shrinkage": plots.shrinkage(svi),
        "split-uncertainty": plots.split_uncertainty(svi, X, grapes),
        "elbo": plots.elbo(svi),
        "calibration": plots.calibration(scores),
    }
    figures = {name: np.ravel(axes)[0].figure for name, axes in drawn.items()}
    return figures | {"priors": priors_picture(sampled)}


def priors_picture(sampled) -> Figure:
    """Number of facets beside its prior, one panel for each concentration."""
    figure = Figure(figsize=(2.2 * len(sampled), 2.6), layout="constrained")
    axes = figure.subplots(1, len(sampled), sharey=True, squeeze=False)[0]
    for ax, (gamma, clf) in zip(axes, sampled.items(), strict=True):
        plots.polytope_size(replace(clf.polytope_size(100), n_leaves=None), ax=[ax])
        ax.set_title(f"$\\gamma_0$ = {gamma:g}", fontsize=9)
        ax.set_ylim(0, 1.05)
        if gamma != max(sampled):
            ax.get_legend().remove()
    return figure


if __name__ == "__main__":
    main()
