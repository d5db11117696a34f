"""Power of the ``elbo`` check: does it tell good variational fits from spoiled ones?

Run: BAYESTREE_DATA=... OMP_NUM_THREADS=1 python benchmarks/diagnostics_power.py

Ten starts (tables and seeds), and from each two sound fits, with the default number of epochs and
with three times as many, and two fits that are spoiled, in ten different ways. The gap of a fit is
the best ELBO (256 draws) of the fits from its start, among them two of six times the epochs, less
its own. A fit is good if its gap is at most FEW nats. The check is right if it is "ok" for a good
fit, and not for another. Gaps of up to three times FEW are counted separately: whether they can be
seen in a few steps is doubtful.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from data import load_all, rings
from sklearn import datasets
from sklearn.preprocessing import scale

from bayestree._utils.state import seeded
from bayestree.diagnostics import check_convergence
from bayestree.inference import Data, GrowthLimits, Posterior, Svi, grow, svi, training
from bayestree.inference import map as fit_map
from bayestree.inference.convergence import evaluate_elbo
from bayestree.inference.variational import svi as fits
from bayestree.models import Categorical, Gaussian, named

FEW = 5.0
N_DRAWS = 256
SEED = 100  # of the first start
CLIMB, GAIN, STEP = fits._climb, fits.polytope_gain, training.Adam.step

#: Ways to spoil a fit: by settings (epochs as a share of the default), ...
SETTINGS: dict[str, dict[str, Any]] = {
    "few epochs": {"epochs": 0.05},
    "learning rate 1e-4": {"learning_rate": 1e-4},
    "learning rate 3": {"learning_rate": 3.0},
    "batches of 10 at rate 0.5": {"epochs": 0.1, "batch_size": 10, "learning_rate": 0.5},
    "short, without warm-up of the prior": {"epochs": 0.15},
    "started far away": {"epochs": 0.2},
    "experts collapsed": {"epochs": 0.2},
    "spreads diverged": {"epochs": 0.2},
    "steps stop early": {},
    "leaves are not updated": {},
}
SOUND: dict[str, dict[str, Any]] = {"default": {}, "three times the epochs": {"epochs": 3.0}}
LONG: tuple[dict[str, Any], ...] = ({"epochs": 6.0}, {"epochs": 6.0, "learning_rate": 0.1})


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y; the thresholds of the check were chosen on other tables."""
    if name == "square":
        X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
        return X, (np.abs(X) < 0.6).all(1).astype(int)
    if name == "rings":
        return rings(300, 0)
    if name == "wine":
        X, y = datasets.load_wine(return_X_y=True)
        return X[:, [6, 12]], y
    X, y = load_all(name)
    return (X[::4], y[::4]) if name == "airfoil" else (X, y)


#: Depth and number of experts of the tree of each table.
TABLES = {
    "iris": (2, 3),
    "wine": (2, 4),
    "heart": (1, 3),
    "square": (1, 6),
    "rings": (2, 4),
    "breast683": (1, 4),
    "airfoil": (2, 2),
}


def start(name: str, seed: int) -> tuple[Posterior, Data]:
    """A grown tree after MAP, and its rows."""
    X, y = rows(name)
    depth, n_experts = TABLES[name]
    real = np.issubdtype(y.dtype, np.floating)
    leaf = Gaussian() if real else Categorical(len(np.unique(y)))
    data = Data.of(scale(X), scale(y) if real else np.unique(y, return_inverse=True)[1])
    model = named.convex_polytope(leaf, n_experts=n_experts).with_(steepness=6.0)
    grown = grow(model, data, limits=GrowthLimits(depth), random_state=seed)
    model = training.calibrated(grown, data)
    return fit_map(model, data, init=grown, epochs=300, random_state=seed), data


@contextmanager
def spoiled(way: str) -> Iterator[None]:
    """Spoil the steps of a fit, but not those of its check."""

    def climb(guide: Any, *args: Any, **others: Any) -> list[float]:
        with torch.no_grad():
            if way == "experts collapsed":
                guide.loc.fill_(-12.0)
            elif way == "started far away":
                guide.unit_mean.mul_(30.0)
            elif way == "spreads diverged":
                guide.log_scale.add_(5.0)
        if way == "short, without warm-up of the prior":
            others["warm_up"] = False
        if way == "leaves are not updated":
            with patch.object(training.RunningSums, "update"):
                return CLIMB(guide, *args, **others)
        n_steps = 0

        def step(optimiser: training.Adam) -> None:
            nonlocal n_steps
            n_steps += 1
            if n_steps <= 30 or way != "steps stop early":
                STEP(optimiser)

        with patch.object(training.Adam, "step", step):
            return CLIMB(guide, *args, **others)

    with patch.object(fits, "_climb", climb):
        yield


def fit(
    init: Posterior, data: Data, seed: int, way: str, settings: dict[str, Any]
) -> tuple[float, Any]:
    """ELBO of a fit on all rows, and its check."""
    guides = []

    def keep(guide: Any, *args: Any, **others: Any) -> Any:
        guides.append(guide)
        return GAIN(guide, *args, **others)

    batch = settings.get("batch_size", 500)
    epochs = Svi().default_epochs(len(data.X)) * settings.get("epochs", 1.0)
    chosen = {**settings, "epochs": max(2, round(epochs)), "batch_size": batch}
    with spoiled(way), patch.object(fits, "polytope_gain", keep):
        found = svi(init.model, data, init=init, n_draws=2, random_state=seed, **chosen)
    with seeded(0):
        bound = float(evaluate_elbo(guides[0], data, N_DRAWS))
    return bound, check_convergence(None, found.stats)["elbo"]


def main() -> None:
    print("| start | fit | gap | gain | accepted | verdict | right |\n" + "|---" * 7 + "|")
    rights: list[tuple[float, bool]] = []
    for number in range(10):
        name = [*TABLES][number % len(TABLES)]
        init, data = start(name, SEED + number)
        ways = [*SETTINGS][number], [*SETTINGS][(number + 5) % 10]
        plan = {**SOUND, **{way: SETTINGS[way] for way in ways}}
        fits = {way: fit(init, data, SEED + i, way, plan[way]) for i, way in enumerate(plan)}
        long = [fit(init, data, SEED + 10 + i, "", settings)[0] for i, settings in enumerate(LONG)]
        best = max(*long, *(bound for bound, _ in fits.values()))
        for way, (bound, check) in fits.items():
            gap = best - bound
            right = (check.verdict == "ok") == (gap <= FEW)
            rights.append((gap, right))
            figures = f"{gap:.1f} | {check.value:.1f} | {check.threshold:.1f}"
            mark = "yes" if right else "NO"
            print(f"| {name} {number} | {way} | {figures} | {check.verdict} | {mark} |", flush=True)
    for low, high in ((-np.inf, FEW), (FEW, 3 * FEW), (3 * FEW, np.inf), (-np.inf, np.inf)):
        here = [right for gap, right in rights if low < gap <= high]
        print(f"Gap in ({low:g}, {high:g}]: {sum(here)} of {len(here)} right")


if __name__ == "__main__":
    main()
