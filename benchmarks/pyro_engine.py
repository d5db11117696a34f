"""What does it cost to fit the Pyro model itself, and where do its fits end?

MAP and SVI by the density (``engine="direct"``) and by ``pyro.infer.SVI``, at the same settings and
seed, and SVI with Pyro's AutoNormal: CPU seconds of a whole fit of one tree, and its log joint
density or ELBO.

Run: OMP_NUM_THREADS=1 python -m benchmarks.pyro_engine
"""

import time
import warnings
from pathlib import Path

import pandas as pd
import torch

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Map, Svi

DATA = Path(__file__).parents[1] / "examples" / "data"
SETS = {"heart": "disease", "wines": "cultivar", "concrete": "strength"}
EPOCHS = 200
METHODS = {
    "map": Map(epochs=EPOCHS, routing_tolerance=0.0),
    "map-pyro": Map(epochs=EPOCHS, engine="pyro", routing_tolerance=0.0),
    "svi": Svi(epochs=EPOCHS, routing_tolerance=0.0),
    "svi-pyro": Svi(epochs=EPOCHS, engine="pyro", routing_tolerance=0.0),
    "AutoNormal": Svi(epochs=EPOCHS, guide="AutoNormal"),
}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, target in SETS.items():
        table = pd.read_csv(DATA / f"{name}.csv")
        X, y = table.drop(columns=target), table[target]
        kind = ConvexPolytopeTreeRegressor if y.dtype.kind == "f" else ConvexPolytopeTreeClassifier
        common = {
            "max_depth": 3,
            "n_experts": 4,
            "n_modes": 1,
            "sparsity": None,
            "leaf": "constant",
        }
        for method, stage in METHODS.items():
            model = kind(inference=stage, random_state=0, dtype="float64", **common)
            began = time.process_time()
            stats = model.fit(X, y).posterior_.stats
            seconds = time.process_time() - began
            reached = stats["final_elbo"] if "final_elbo" in stats else stats["log_joint"][-1]
            print(f"{name:10} {method:12} {seconds:6.1f} CPU s {float(reached):12.3f} nats")


if __name__ == "__main__":
    main()
