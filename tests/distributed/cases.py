"""Small Parquet data sets, and fits of a second to them."""

import numpy as np
import pandas as pd

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Map, Svi

MAP, SVI = Map(epochs=3, steepness=None), Svi(epochs=3, n_draws=10)
SHORT = {"inference": MAP, "max_depth": 2, "n_experts": 2, "n_modes": 1, "random_state": 0}
SHORT |= {"dtype": "float64", "sparsity": None}


def table(n=600, seed=0):
    """Rows whose classes, numbers and counts follow a planted split."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    frame.loc[::17, "c"] = np.nan
    frame["color"] = rng.choice(["red", "blue", "green"], n)
    side = (frame["a"] + frame["b"] > 0) & (frame["color"] != "red")
    frame["kind"] = np.where(side, "in", "out")
    frame["price"] = 3.0 * side + rng.normal(size=n)
    frame["count"] = rng.poisson(1 + 4 * side)
    frame["exposure"] = rng.uniform(1, 2, n)
    frame["copies"] = rng.integers(0, 3, n)
    return frame


def written(folder, frame, n_files=4):
    """The frame as a data set of files, in the order of its rows."""
    for number, part in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[part].to_parquet(folder / f"part-{number}.parquet", index=False)
    return folder


def classifier(**settings):
    return ConvexPolytopeTreeClassifier(**SHORT | settings)


def regressor(**settings):
    return ConvexPolytopeTreeRegressor(**SHORT | settings)
