"""Bounds, scores and CPU seconds of VI beside SVI from the same grown trees.

    BAYESTREE_DATA=FOLDER OMP_NUM_THREADS=1 python benchmarks/natural.py iris wine heart pima

Two trees of each set, grown on the training rows (at most 1,000), with 4 experts and a steepness of
1 for classes and 6 for numbers. SVI follows MAP, and its seconds include it; those of VI are of
both trees together, halved. Log scores are those of the test rows (at most 1,000), numbers in
standard deviations of y.
"""

import argparse
import time
import warnings
from dataclasses import replace

import numpy as np
import torch
from data import REGRESSION, load, load_all
from sklearn.model_selection import train_test_split

from bayestree.fitting.defaults import MAP_SHARE
from bayestree.inference import Data, Growth, GrowthLimits, Map, Posterior, Svi, Vi, pointwise
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import Topology

ROWS, N_EXPERTS = 1000, 4
OWN = ("iris", "wine", "breast_cancer", "diabetes")


def rows_of(name: str) -> tuple[Data, Data, bool]:
    """Return training and test rows in the units of a fit, and whether y are numbers."""
    numbers = name in (*REGRESSION, "diabetes")
    if name in OWN:
        X, y = load_all(name)
        X, X_new, y, y_new = train_test_split(X, y, test_size=0.2, random_state=0)
    else:
        X, y, X_new, y_new = load(name)
    X, y, X_new, y_new = (part[:ROWS] for part in (X, y, X_new, y_new))
    if numbers:
        y, y_new = ((part - y.mean()) / y.std() for part in (y, y_new))
    else:
        classes = np.unique(y)
        y, y_new = (np.searchsorted(classes, part) for part in (y, y_new))
    scale = np.maximum(X.std(axis=0), np.ptp(X, axis=0) / 6)
    scale[scale == 0] = 1
    X, X_new = ((part - X.mean(axis=0)) / scale for part in (X, X_new))
    return Data.of(X, y), Data.of(X_new, y_new), numbers


def line(found: list[Posterior], test: Data, seconds: float) -> str:
    bound = np.mean([float(one.stats["final_elbo"]) for one in found])
    score = np.mean([pointwise.log_density(one.model, [*one.each()], test).mean() for one in found])
    return f"{bound:.0f}; {score:.3f}; {seconds / len(found):.2f}"


def compare(name: str) -> str:
    train, test, numbers = rows_of(name)
    law = (1.0, 1.0, 1.0) if numbers else (0.5, 0.1, 0.1)
    leaf = Gaussian() if numbers else Categorical(int(max(train.y.max(), test.y.max())) + 1)
    priors = Priors(GammaProcess(), InverseGammaScale(*law))
    model = SoftTree(Topology.stump(), Polytope(N_EXPERTS), priors, leaf)
    steepness = 6.0 if numbers else 1.0
    grown = Growth().fit_several(model, train, 2, limits=GrowthLimits(4), random_state=0)
    cells = []
    started = time.process_time()
    found = Vi(steepness=steepness).run_several(grown, train, random_state=0)
    cells.append(line(found, test, time.process_time() - started))
    started = time.process_time()
    before = Map(steepness=(1.0, steepness))
    before = replace(before, epochs=round(MAP_SHARE * before.default_epochs(len(train.X))))
    refined = [before.run(one, train, random_state=0) for one in grown]
    of_map = time.process_time() - started
    for covariance in ("diagonal", "expert"):
        started = time.process_time()
        fits = [Svi(covariance=covariance).run(one, train, random_state=0) for one in refined]
        cells.append(line(fits, test, of_map + time.process_time() - started))
    return f"| {name} ({len(train.X)} x {train.X.shape[1]}) | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| ELBO; log score; CPU s a tree | VI | SVI | SVI, full covariance |\n|---|---|---|---|")
    for name in parser.parse_args().names:
        print(compare(name), flush=True)


if __name__ == "__main__":
    main()
