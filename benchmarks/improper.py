"""SVI and NUTS of one split under the flat prior: when do the rows determine its coefficients?

Run: python benchmarks/improper.py
"""

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bayestree.inference import Data, GrowthLimits, grow, nuts, svi
from bayestree.models import Categorical, Flat, Oblique, Priors, SoftTree
from bayestree.topology import Topology

STEPS = (300, 1000, 4000)


def half_plane(d, slope, n=300):
    """Classes on the sides of a hyperplane, separated if the slope is infinite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    score = 1.5 * X[:, 0] - 0.5 * X[:, 1] + 0.3
    y = score > 0 if np.isinf(slope) else rng.random(n) < 1 / (1 + np.exp(-slope * score))
    return Data.of(X, y.astype(int))


def start(data):
    model = SoftTree(Topology.leaf(), split=Oblique(), leaf=Categorical(2))
    init = grow(model, data, limits=GrowthLimits(1), random_state=0)
    return init.model.with_(priors=Priors(hyperplane=Flat())), init


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def said(found):
    size = np.linalg.norm(found.draws["hyperplane"], axis=-1)
    low, middle, high = np.quantile(size, [0.05, 0.5, 0.95])
    balance = found.stats["coefficient_balance"][0]
    return f"{middle:.4g} ({low:.4g} to {high:.4g})", f"{balance:.2f}"


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    row("slope of the classes", "d", "method", "steps", "size of beta", "balance", "ELBO", "s")
    row(*["---"] * 8)
    for slope in (1.5, 3.0, np.inf):
        for d in (2, 10):
            data = half_plane(d, slope)
            model, init = start(data)
            for covariance in ("diagonal", "expert"):
                for steps in STEPS:
                    began = time.perf_counter()
                    found = svi(
                        model,
                        data,
                        init=init,
                        covariance=covariance,
                        epochs=steps,
                        batch_size=len(data.X),
                        random_state=0,
                    )
                    elbo = f"{found.stats['final_elbo']:.1f}"
                    seconds = f"{time.perf_counter() - began:.0f}"
                    row(slope, d, f"SVI, {covariance}", steps, *said(found), elbo, seconds)
            began = time.perf_counter()
            settings = {"n_chains": 2, "n_warmup": 300, "n_draws": 300, "random_state": 0}
            found = nuts(model, data, init=found, **settings)
            row(slope, d, "NUTS", 600, *said(found), "", f"{time.perf_counter() - began:.0f}")
