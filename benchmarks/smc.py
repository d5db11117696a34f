"""Do independent runs of sequential Monte Carlo agree, and what do they cost?

Run: BAYESTREE_DATA=... python benchmarks/smc.py [SET...] [--jobs 2] [--set NAME=VALUE...] [--nuts]
    [--particles N]
Evidence and number of leaves by run; the shares of particles that each kind of move changes at the
temperatures of the first run (of births, deaths and other splits: of the nodes that can split and
do not, or do); worst R-hat, fewest effective draws, and the largest
difference between the means of a run and of all, of P(y | x) (of the mean, for numbers) at up to
100 rows. --particles draws 1,000 from more particles. With --nuts, the same of NUTS, given the
topology that it starts from.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch
from data import REGRESSION
from mixing import agreement, rows_of

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Smc
from bayestree.inference.smc.moves import MOVES

SETS = ("iris", "breast3", "pima", "heart", "glass")


def report(name: str, jobs: int, changes: dict[str, float], inference: str | Smc) -> None:
    X, y = rows_of(name)
    kind = ConvexPolytopeTreeRegressor if name in REGRESSION else ConvexPolytopeTreeClassifier
    settings = {"random_state": 0} | changes
    if isinstance(inference, str):
        settings |= {"max_depth": 2, "n_jobs": jobs}
    began = time.perf_counter(), time.process_time()
    est = kind(inference=inference, **settings).fit(X, y)
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    prediction = est.label_free(X, n_rows=100)["prediction"].to_numpy()
    means = prediction.mean(axis=1)
    gap = float(np.abs(means - means.mean(axis=0)).max())
    print(
        f"{name}, {est.posterior_.inference}: {wall:.0f} s ({cpu:.0f} CPU in this process); R-hat "
        f"and effective draws of predictions {agreement(prediction)}, largest difference of "
        f"means {gap:.3f}; score {est.score(X, y):.3f}",
        flush=True,
    )
    if est.posterior_.inference == "smc":
        found = est.evidence()
        shares = [np.bincount(run, minlength=9)[1:] / run.size for run in found.n_leaves]
        print(f"log evidence {found.runs.round(2)}; 1, 2, ... leaves\n{np.round(shares, 2)}")
        print(found)
        table = pd.DataFrame(est.posterior_.stats["changes"][0], columns=["temperature", *MOVES])
        print(table.dropna(how="all").round(3).to_string(index=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--particles", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    changes = {
        name: float(v) if "." in v else int(v)
        for name, _, v in (pair.partition("=") for pair in options.set)
    }
    smc: str | Smc = "smc"
    if options.particles:
        smc = Smc(n_particles=options.particles, max_experts=4, n_jobs=options.jobs)
    for name in options.sets:
        for inference in (smc, "nuts") if options.nuts else (smc,):
            report(name, options.jobs, changes, inference)


if __name__ == "__main__":
    main()
