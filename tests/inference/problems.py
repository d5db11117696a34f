"""Small planted problems."""

import math

import torch

from bayestree.inference import Data
from bayestree.models import Categorical, Gaussian, Polytope, SoftTree
from bayestree.topology import Topology


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def ring(n=300, seed=0, noise=0.0):
    """A disc inside a ring: class 0 within radius 1."""
    X = normal(n, 2, seed=seed)
    y = (X.norm(dim=1) > 1.1).long()
    flipped = torch.rand(n, generator=torch.Generator().manual_seed(seed + 1)) < noise
    return Data.of(X, torch.where(flipped, 1 - y, y))


def quadrants(n=400, seed=0):
    """Class by the signs of two features: needs two levels of half-spaces."""
    X = normal(n, 2, seed=seed)
    return Data.of(X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).long())


def triangle(n, seed):
    """Class 0 inside a triangle that holds about half of the rows."""
    X = normal(n, 2, seed=seed)
    angle = torch.tensor([0.0, 2 * math.pi / 3, 4 * math.pi / 3], dtype=torch.float64)
    facets = torch.stack((angle.cos(), angle.sin()), 1)
    return Data.of(X, (X @ facets.T > 0.9).any(1).long())


def step(n=300, seed=0, noise=0.3):
    """Real y with a jump along the first feature."""
    X = normal(n, 2, seed=seed)
    return Data.of(X, torch.sign(X[:, 0]) + noise * normal(n, seed=seed + 1))


def soft_tree(leaf=None, n_experts=4, **others):
    """A model before its topology is known."""
    return SoftTree(
        Topology.leaf(), split=Polytope(n_experts), leaf=leaf or Categorical(2, 2.0), **others
    )


def gaussian_tree(**others):
    return soft_tree(Gaussian(), **others)
