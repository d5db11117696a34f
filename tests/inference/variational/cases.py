"""Trees of different shapes with factors far from any optimum, and planted starts."""

import math

import numpy as np
import torch

from bayestree import inference
from bayestree.inference import Data, GrowthLimits
from bayestree.inference.variational.factors import Factors
from bayestree.inference.variational.low_rank import LowRankFactors
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.topology import JoinedTopology, Topology
from tests.inference.problems import normal, quadrants, soft_tree

#: A chain, a complete tree and a stump, with leaves that are not numbered from left to right.
TREES = (
    Topology(np.array([[~2, 1], [~0, ~1]])),
    Topology.complete(2),
    Topology(np.array([[~1, ~0]])),
)
PRIORS = Priors(GammaProcess(1.5, 0.7), InverseGammaScale(1.2, 2.0, 0.6, coefficient_scale=0.8))


def rows(n=17, leaf=None):
    """A few rows of different weights."""
    X, weights = normal(n, 2, seed=1), 0.5 + torch.arange(n).remainder(3).double()
    classes = (X[:, 0] + 0.3 * normal(n, seed=2) > 0).long()
    y = X[:, 1] + normal(n, seed=3) if isinstance(leaf, Gaussian) else classes
    return Data.of(X, y, weights)


def model_of(leaf=None, split=None, steepness=1.0):
    return SoftTree(
        Topology.leaf(),
        split or Polytope(3),
        priors=PRIORS,
        leaf=leaf or Categorical(2, 1.3),
        steepness=steepness,
    )


def factors_of(data, trees=TREES, seed=0, *, low_rank=False, **settings):
    """Factors of several trees with arbitrary means, covariances and leaves."""
    model, together = model_of(**settings), JoinedTopology(tuple(trees))
    size = together.n_nodes, model.split.n_experts
    width = data.X.shape[1] + 1
    root = 0.3 * normal(*size, width, width, seed=seed + 1)
    precision = root @ root.mT + torch.eye(width, dtype=torch.float64)
    share = normal(together.n_leaves, len(data.X), seed=seed + 2).softmax(0)
    shape, rate = (1.5 + normal(*size, seed=seed + part).sigmoid() for part in (3, 4))
    if low_rank:
        precision = precision.diagonal(dim1=-2, dim2=-1).clone()
    found = (LowRankFactors if low_rank else Factors)(
        model,
        together,
        mean=0.7 * normal(*size, width, seed=seed),
        precision=precision,
        shape=shape if model.split.weighted else torch.ones_like(shape),
        rate=rate if model.split.weighted else torch.ones_like(rate),
        sums=share @ model.leaf.statistics(data.y, data.weights),
    )
    if low_rank:
        axes = torch.linalg.qr(normal(*size, width, width, seed=seed + 6))[0]
        found.axes.copy_(0.4 * torch.arange(1, 4) * axes)
        found.factorise()
        found.refresh(steps=20)
    return found


def precision_of(factors):
    """The matrices of precision, (V, K, d + 1, d + 1)."""
    if not isinstance(factors, LowRankFactors):
        return factors.precision
    inner = factors.axes @ factors.axes.mT + torch.eye(factors.mean.shape[-1])
    return inner / factors.root.unsqueeze(-1) / factors.root.unsqueeze(-2)


def reaching(topology, right):
    """P(leaf | x) of each leaf (L, n), from P(right) (V, n), branch by branch."""
    found = [torch.zeros(0)] * topology.n_leaves

    def follow(child, share):
        if child < 0:
            found[~child] = share
            return
        left, other = topology.children[child].tolist()
        follow(left, share * (1 - right[child]))
        follow(other, share * right[child])

    follow(0, torch.ones_like(right[0]))
    return torch.stack(found)


def log_likelihoods(trees, psi, log_weight, density, steepness):
    """log p(y_n | x_n) of each tree, (T, n), of psi (V, K, n) and log-densities (n, L).

    In plain torch, so that it has derivatives of any order.
    """
    score = (log_weight.exp().unsqueeze(-1) * torch.nn.functional.softplus(psi)).sum(1)
    right = (steepness * score.expm1().log()).sigmoid()
    return torch.stack(
        [
            (reaching(one, right[nodes]) * density.T[leaves].exp()).sum(0).log()
            for one, nodes, leaves in zip(trees.trees, trees.nodes, trees.leaves, strict=True)
        ]
    )


def grown(data=None, leaf=None, n_trees=1, depth=2, split=None, **others):
    """Trees that are grown for a short time, and their rows."""
    data = quadrants(120) if data is None else data
    model = soft_tree(leaf, n_experts=3, **others)
    if split == "oblique":
        model = model.with_(split=Oblique())
    stage = inference.Growth(steps=20, n_restarts=2)
    limits = GrowthLimits(depth, min_gain=0.5)
    found = stage.fit_several(model, data, n_trees, limits=limits, random_state=0)
    return found, data


def noisy_line(n, seed=0):
    """Classes on the sides of a line with a gradual transition."""
    X = normal(n, 2, seed=seed)
    odds = 3 * (X[:, 0] - X[:, 1]) / math.sqrt(2)
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    return Data.of(X, (uniform < odds.sigmoid()).long())
