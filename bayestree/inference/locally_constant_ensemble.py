"""Ensembles of locally constant networks by stages (ELCN; Lee and Jaakkola, 2020, section 3.7).

F(x) = sum_e f_e(x), of networks that are trained one after the other. Each adds its outputs, class
scores or numbers, to those of the networks before it, which are fixed, and minimises the loss of
the sum; then they are multiplied by the shrinkage. A network is constant in the leaves of its
tree, so that F is a sum of trees.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bayestree._utils.progress import Track
from bayestree._utils.seed import RandomState, draw_seed, seeded
from bayestree.inference.data import Data
from bayestree.inference.growing import GrowingTree
from bayestree.inference.locally_constant import LocallyConstant, read_off, train
from bayestree.inference.posterior import Posterior
from bayestree.models.soft_tree import SoftTree


class Stages:
    """The networks so far; ``make`` creates one with random parameters."""

    def __init__(self, make: Callable[[], LocallyConstant], shrinkage: float) -> None:
        self.make, self.shrinkage = make, shrinkage
        self.networks: list[LocallyConstant] = []

    def state_dict(self) -> dict[str, Any]:
        return {"networks": [network.state_dict() for network in self.networks]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.networks = [self.make() for _ in state["networks"]]
        for network, values in zip(self.networks, state["networks"], strict=True):
            network.load_state_dict(values)

    @torch.no_grad()
    def contributions(self, X: Tensor, *, real: bool) -> list[Tensor]:
        """f_e of rows (n, d), of shape (n, outputs), for each network.

        As in the authors' program, the first one of a regression is not shrunk: it has the mean.
        """
        whole = [e == 0 and real for e in range(len(self.networks))]
        return [
            network(X) * (1.0 if first else self.shrinkage)
            for network, first in zip(self.networks, whole, strict=True)
        ]


def locally_constant_ensemble(
    model: SoftTree,
    data: Data,
    *,
    n_networks: int,
    max_depth: int,
    shrinkage: float,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    width: int,
    random_state: RandomState = None,
    progress: bool = False,
) -> list[Posterior]:
    """Train the networks of an ensemble and read off their trees, each as one draw.

    The leaves of a tree have the probabilities softmax(f_e), whose normalised product over the
    trees are those of the ensemble; for numbers the means E f_e, whose mean over the E trees is F.
    """
    data = data.for_leaf(model.leaf)
    model.leaf.check(data.y)
    real = data.y.is_floating_point()
    if real and bool((data.y == data.y[0]).all()):  # which a network would only come near to
        return [GrowingTree(model, data).assemble(set(), "elcn")] * n_networks
    n_features, n_outputs = data.X.shape[1], model.leaf.n_classes or 1

    def make() -> LocallyConstant:
        return LocallyConstant(max_depth, n_features, n_outputs, width).to(data.X)

    stages = Stages(make, shrinkage)
    with seeded(draw_seed(random_state)):
        track = Track(range(n_networks), "elcn", show=progress, parts={"stages": stages})
        for _ in track:
            before = sum(stages.contributions(data.X, real=real), start=data.X.new_zeros(()))
            network = make()
            train(
                network,
                data,
                before.expand(len(data.X), n_outputs),
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                progress=progress,
            )
            stages.networks.append(network)
    found = stages.contributions(data.X, real=real)
    trees = (read_off(network, model, data, pure=True) for network in stages.networks)
    return [
        tree.assemble(
            tree.split_nodes(),
            "elcn",
            {"leaf_mean": n_networks * f[:, 0]} if real else {"leaf_probs": f.softmax(1)},
        )
        for tree, f in zip(trees, found, strict=True)
    ]
