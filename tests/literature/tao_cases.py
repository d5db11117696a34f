"""Small trees in the middle of their optimisation."""

import numpy as np

from bayestree.baselines import random_oblique
from bayestree.inference.data import Data
from bayestree.literature.tao import Alternation
from bayestree.literature.tao_solvers import NodeSplit, splits_of
from bayestree.models import Categorical, Gaussian, Oblique, named
from bayestree.models.likelihoods import MajorityRule, MeanRule
from bayestree.topology import Topology


def classes(n=200, d=4, n_classes=3, seed=0):
    """Rows, classes that are noisy functions of two features, and uneven weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X[:, 0] + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n)
    y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
    return X, y, rng.uniform(0.5, 2, n)


def alternation(X, y, weights, depth=3, seed=0):
    """A random tree on these rows, its leaves fitted."""
    real = np.issubdtype(y.dtype, np.floating)
    rule = MeanRule(y, weights) if real else MajorityRule(y, weights, int(y.max()) + 1)
    leaf = Gaussian() if real else Categorical(int(y.max()) + 1)
    start = random_oblique(X, depth, random_state=seed)
    topology, splits = splits_of(start, named.alternating(leaf, split=Oblique()))
    tree = Alternation(X, weights, topology, splits, rule, rule.start(topology.n_leaves))
    tree.values = rule.fit(tree.values, tree.reach().leaf)
    return tree


def total_loss(tree):
    """The weighted loss of all rows, routed from the root."""
    return float(tree.weights @ tree.losses(tree.reach().leaf, np.arange(len(tree.X))))


def random_split(d, seed):
    rng = np.random.default_rng(seed)
    return NodeSplit(rng.normal(size=d), rng.normal() / 2)


def model_of(y, **parts):
    real = np.issubdtype(y.dtype, np.floating)
    return named.alternating(Gaussian() if real else Categorical(int(y.max()) + 1), **parts)


def data_of(X, y, weights=None):
    return Data.of(X, y, weights)


def axis_tree(cuts, children):
    """Splits x_0 > cut on rows of one feature."""
    splits = [NodeSplit(np.ones(1), -cut) for cut in cuts]
    return Topology(np.array(children)), splits
