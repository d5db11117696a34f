"""Do independent runs of sequential Monte Carlo agree, and what do they cost?

Run: BAYESTREE_DATA=... python benchmarks/smc.py [SET...] [--jobs 2] [--set NAME=VALUE...]
    [--particles N] [--rounds N] [--beside]
Evidence and number of leaves by run; the shares of particles that each kind of move changes at the
temperatures of the first run (of births, deaths and other splits: of the nodes that can split and
do not, or do); worst R-hat, fewest effective draws, and the largest difference between the means of
a run and of all, of P(y | x) (of the mean, for numbers) at up to 100 rows. --particles sets their
number in each run, all of which are kept, and --rounds the rounds of moves. --beside adds NUTS,
given the topology that it starts from, SVI and a mixture of three modes: how far their means and
standard deviations at 100 rows differ from those of SMC.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from data import REGRESSION, made
from mixing import agreement, rows_of

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Smc
from bayestree.inference.samplers.smc.moves import MOVES

SETS = ("iris", "breast3", "pima", "heart", "glass")


def fitted(name: str, **settings: Any) -> Any:
    X, y = rows_of(name)
    kind = ConvexPolytopeTreeRegressor if name in REGRESSION else ConvexPolytopeTreeClassifier
    began = time.perf_counter(), time.process_time()
    est = made(kind, {"random_state": 0} | settings).fit(X, y)
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    print(
        f"{name}, {est.posterior_.inference} ({len(est.modes_)} modes): {wall:.0f} s ({cpu:.0f} CPU"
        f" in this process), score {est.score(X, y):.3f}",
        flush=True,
    )
    return est


def report(est: Any, X: np.ndarray) -> None:
    prediction = est.label_free(X, n_rows=100)["prediction"].to_numpy()
    means = prediction.mean(axis=1)
    gap = float(np.abs(means - means.mean(axis=0)).max())
    print(
        f"R-hat and effective draws of predictions {agreement(prediction)}, largest difference of "
        f"means {gap:.3f}"
    )
    if est.posterior_.inference == "smc":
        found = est.evidence()
        shares = [np.bincount(run, minlength=9)[1:] / run.size for run in found.n_leaves]
        print(f"log evidence {found.runs.round(2)}; 1, 2, ... leaves\n{np.round(shares, 2)}")
        print(found)
        table = pd.DataFrame(est.posterior_.stats["changes"][0], columns=["temperature", *MOVES])
        print(table.dropna(how="all").round(3).to_string(index=False), flush=True)


def predicted(est: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of P(y | x), or of the mean in units of y, at 100 rows."""
    rows = X[np.linspace(0, len(X) - 1, 100).astype(int)]
    predict = est.predict_proba if hasattr(est, "predict_proba") else est.predict
    mean, sd = predict(rows, return_std=True)
    return mean, sd


def beside(name: str, jobs: int, settings: dict[str, Any], exact: Any) -> None:
    X, y = rows_of(name)
    unit = np.std(y) if name in REGRESSION else 1.0
    mean, sd = predicted(exact, X)
    model = exact.posterior_.model
    common = {"max_depth": model.topology.depth, "n_experts": 4, "steepness": model.steepness}
    for method in (
        {"inference": "nuts", "n_jobs": jobs},
        {"inference": "svi", "n_modes": 1},
        {"inference": "svi", "n_modes": 3},
    ):
        est = fitted(name, **common | settings | method)
        if method["inference"] == "nuts":
            report(est, X)
        other, spread = predicted(est, X)
        gap = np.abs(other - mean) / unit
        print(
            f"means from those of SMC: median {np.median(gap):.3f}, worst {gap.max():.3f}; median "
            f"ratio of standard deviations {np.median(spread / sd):.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--particles", type=int)
    parser.add_argument("--rounds", type=int, help="with --particles")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    if options.particles is None:
        settings: dict[str, Any] = {
            "inference": "smc",
            "max_depth": 2,
            "n_jobs": options.jobs,
        }
    else:
        smc = Smc(
            n_draws=options.particles,
            n_rounds=options.rounds,
            max_experts=4,
            steepness=changes.pop("steepness", None),
            n_jobs=options.jobs,
        )
        settings = {"inference": smc}
    for name in options.sets:
        est = fitted(name, **settings | changes)
        report(est, rows_of(name)[0])
        if options.beside:
            beside(name, options.jobs, changes, est)


if __name__ == "__main__":
    main()
