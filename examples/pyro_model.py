"""The soft tree as a Pyro model, which can be fitted by any of Pyro's inference methods.

A stump whose hyperplane has a sparser prior than the default, fitted to two iris species by plain
``pyro.infer.SVI``. Run: python examples/pyro_model.py [--quick]
"""

import argparse

import pyro
import torch
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from bayestree.models import (
    Categorical,
    GammaProcess,
    InverseGammaScale,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import Topology


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    steps = 50 if parser.parse_args().quick else 1000

    pyro.set_rng_seed(0)
    rows, species = load_iris(return_X_y=True)
    rows, species = rows[species > 0], species[species > 0] - 1  # the two overlapping species
    X = torch.as_tensor(StandardScaler().fit_transform(rows))
    y = torch.as_tensor(species)

    model = SoftTree(
        Topology.stump(),
        split=Polytope(n_experts=5),
        priors=Priors(
            weight=GammaProcess(concentration=2.0, rate=1.0),
            hyperplane=InverseGammaScale(shape=0.5, shrinkage_shape=0.5, shrinkage_rate=2.0),
        ),
        leaf=Categorical(n_classes=2),
    )
    guide = AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.ClippedAdam({"lr": 0.02}), Trace_ELBO())
    for step in range(steps):
        loss = svi.step(X, y)
        if step % (steps // 5) == 0:
            print(f"step {step:5d}  ELBO {-loss:8.1f}")

    draws = Predictive(model, guide=guide, num_samples=200)(X)
    agree = (draws["obs"] == y).double().mean()
    print(f"share of posterior predictive draws that equal the species: {agree:.2f}")
    weight = draws["log_weight"].exp().mean(0).squeeze()
    print("mean weight of each expert:", ", ".join(f"{w:.2f}" for w in weight.tolist()))


if __name__ == "__main__":
    main()
