"""Makes the pictures of docs/show/pictures.md and others, the same on every run, in some minutes.

Run: python docs/images/make.py [NAME ...]
"""

import io
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_moons

import bayestree as bt
from bayestree import plots
from bayestree.diagnostics import calibration

HERE = Path(__file__).resolve().parent
DPI = 100


@cache
def rings():
    """Two rings (as in examples/rings.py, with fewer points), and the tree fitted to them."""
    X = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    radius = np.hypot(*X.T)
    y = np.where((radius > 0.4) & (radius < 0.8), "between", "elsewhere")
    clf = bt.ConvexPolytopeTreeClassifier(
        inference="svi", n_modes=1, max_depth=2, n_experts=12, random_state=0
    )
    return clf.fit(X, y), X, y


@cache
def wine():
    """178 wines of three growers, 13 measurements."""
    data = load_wine(as_frame=True)
    X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
    y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
    return bt.ConvexPolytopeTreeClassifier(n_modes=1, max_depth=2, random_state=0).fit(X, y), X, y


def readable_wine():
    """The first tree of docs/show/readable.md."""
    data = load_wine(as_frame=True)
    clf = bt.ConvexPolytopeTreeClassifier(max_columns=2, random_state=0).fit(data.data, data.target)
    return plots.tree(clf, X=data.data, y=data.target)


def full_facets():
    """The same tree of wines with the facets of the posterior mean."""
    tree, X, y = wine()
    return bt.ConvexPolytopeTreeClassifier(**tree.get_params() | {"sparsity": None}).fit(X, y)


@cache
def digits():
    """1,797 handwritten digits of 8 x 8 pixels."""
    X, y = load_digits(return_X_y=True)
    clf = bt.ConvexPolytopeTreeClassifier(
        inference="svi", n_modes=1, max_depth=4, scaling="common", random_state=0
    )
    return clf.set_params(kl_weight=0.1).fit(X, y)


@cache
def tumours():
    """569 tumours, 30 measurements; two of them in each node."""
    data = load_breast_cancer(as_frame=True)
    y = data.target_names[data.target]
    clf = bt.AlternatingTreeClassifier(split="bivariate", l1=3.0, random_state=0)
    return clf.fit(data.data, y), data.data, y


def two_columns():
    """The wines by two of their columns."""
    data = load_wine(as_frame=True)
    X, y = data.data[["flavanoids", "proline"]], data.target_names[data.target]
    clf = bt.ConvexPolytopeTreeClassifier(n_modes=1, max_depth=2, n_experts=5, random_state=0)
    return clf.fit(X, y), X, y


@cache
def few_pixels():
    """The digits by an oblique tree that looks at few pixels."""
    X, y = load_digits(return_X_y=True)
    clf = bt.AlternatingTreeClassifier(l1=1.0, max_depth=4, scaling="common", random_state=0)
    return clf.fit(X, y)


def reliability():
    """The posterior and the deterministic tree on points that neither has seen."""
    X, y = make_moons(1500, noise=0.4, random_state=0)
    clf = bt.ConvexPolytopeTreeClassifier(n_modes=1, max_depth=3, random_state=0).fit(
        X[:300], y[:300]
    )
    found = {}
    for prediction in ("posterior", "tree"):
        clf.set_params(prediction=prediction)
        found[prediction] = calibration(y[300:], clf.predict_proba(X[300:]), n_bins=8)
    return plots.calibration(found)


def rank_histograms():
    """A normal mean with its posterior, and with one that is too narrow."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=500)
    mean = (truth + rng.normal(size=500)) / 2
    axes = Figure(figsize=(7.2, 2.6), layout="constrained").subplots(1, 2)
    for ax, narrow in zip(axes, (1.0, 0.7), strict=True):
        share = norm.cdf(truth, mean, narrow * np.sqrt(0.5))
        plots.ranks(rng.binomial(99, share), 99, ax=ax)
    return axes


PICTURES = {
    "tree": lambda: plots.tree(full_facets()),
    "bivariate-tree": lambda: plots.tree(tumours()[0], X=tumours()[1], y=tumours()[2]),
    "readable-wine": readable_wine,
    "node-scatter": lambda: plots.node_scatter(*tumours()),
    "node-images": lambda: plots.node_images(few_pixels(), (8, 8)),
    "boundary": lambda: plots.boundary(*rings()),
    "region": lambda: plots.boundary(*two_columns(), region="RL"),
    "polytope-size": lambda: plots.polytope_size(rings()[0]),
    "shrinkage": lambda: plots.shrinkage(rings()[0]),
    "shrinkage-factors": lambda: plots.shrinkage_factors(wine()[0]),
    "split-uncertainty": lambda: plots.split_uncertainty(*wine()),
    "elbo": lambda: plots.elbo(wine()[0]),
    "facet-image": lambda: plots.facet_image(digits(), "root", (8, 8)),
    "calibration": reliability,
    "ranks": rank_histograms,
}


#: Pictures that an example makes: its name, and theirs.
EXAMPLES = {
    "rings": ("rings", "rings.png"),
    "bayesian-oblique": ("bayesian_oblique", "bayesian-oblique.png"),
    "segmentation-epochs": ("segmentation", "epochs.png"),
    "segmentation-kernels": ("segmentation", "kernels.png"),
}


@cache
def example(name: str) -> Path:
    """The folder in which an example has left its pictures."""
    script = HERE.parents[1] / "examples" / f"{name}.py"
    folder = Path(tempfile.mkdtemp())
    subprocess.run([sys.executable, script, "--out", folder], check=True)
    return folder


def write(name: str) -> None:
    """Draw a picture and write it with few colours, which makes it small."""
    buffer = io.BytesIO()
    if name in EXAMPLES:
        script, file = EXAMPLES[name]
        buffer.write((example(script) / file).read_bytes())
    else:
        np.ravel(PICTURES[name]())[0].figure.savefig(buffer, dpi=DPI)
    flat = Image.open(buffer).convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    flat.save(HERE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or [*PICTURES, *EXAMPLES]:
        write(name)
