"""Time of a MAP and an SVI step against the bare arithmetic of the same shapes.

The arithmetic is one matrix product, softplus, weighted sum and route product in plain tensors,
forward and backward. Run: python benchmarks/steps.py
"""

import time

import numpy as np
import torch
from torch.nn.functional import softplus

from bayestree import routing
from bayestree.inference.adam import Adam
from bayestree.inference.data import Data
from bayestree.inference.guides import PolytopeGuide
from bayestree.inference.map import Point
from bayestree.inference.posterior import Posterior
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology

SHAPES = {  # nodes, experts, features, classes, rows per step
    "Letter": (299, 20, 16, 26, 500),
    "MNIST": (97, 16, 784, 10, 1000),
}
STEEPNESS = 3.0


def random_tree(n_nodes: int, rng: np.random.Generator) -> Topology:
    """A tree grown by splitting leaves at random, numbered breadth first."""
    children: dict[int, tuple[int, int]] = {}
    leaves, count = [0], 1
    for _ in range(n_nodes):
        node = leaves.pop(int(rng.integers(min(len(leaves), 64))))
        children[node] = (count, count + 1)
        leaves += children[node]
        count += 2
    order, ends = [0], []
    table = np.empty((n_nodes, 2), dtype=np.int64)
    for v, node in enumerate(order):
        for side, child in enumerate(children[node]):
            target = order if child in children else ends
            table[v, side] = len(target) if child in children else ~len(target)
            target.append(child)
    return Topology(table)


def problem(name: str) -> tuple[SoftTree, Posterior, Data]:
    n_nodes, n_experts, width, n_classes, rows = SHAPES[name]
    topology = random_tree(n_nodes, np.random.default_rng(0))
    model = SoftTree(
        topology, Polytope(n_experts), leaf=Categorical(n_classes), steepness=STEEPNESS
    )
    torch.manual_seed(0)
    sites = {
        "hyperplane": torch.randn(n_nodes, n_experts, width) / width**0.5,
        "intercept": torch.randn(n_nodes, n_experts),
        "log_weight": torch.randn(n_nodes, n_experts) - 3,
        "leaf_probs": torch.full((n_nodes + 1, n_classes), 1 / n_classes),
    }
    data = Data.of(torch.randn(rows, width), torch.randint(n_classes, (rows,)), dtype=torch.float32)
    return model, Posterior.from_point(model, sites, "random"), data


def arithmetic(model: SoftTree, start: Posterior, data: Data):
    plane = torch.tensor(start.point["hyperplane"]).flatten(0, 1).requires_grad_()
    weight = torch.tensor(np.exp(start.point["log_weight"])).requires_grad_()
    paths = routing.path_matrix(model.topology, dtype=torch.float32, device="cpu")
    n_nodes, n_experts = weight.shape

    def step() -> None:
        votes = softplus(data.X @ plane.T).view(len(data.X), n_nodes, n_experts)
        score = (votes * weight).sum(-1)
        value = torch.cat((-score, score), 1) @ paths
        plane.grad = weight.grad = None
        value.sum().backward()

    return step


def map_step(model: SoftTree, start: Posterior, data: Data):
    point = Point(model, start, data)
    optimiser, rows = Adam(point.parameters()), data.with_ones()

    def step() -> None:
        optimiser.zero_grad()
        value, prior, _ = point.fit(rows, STEEPNESS)
        (-value - prior).backward()
        optimiser.step()

    return step


def svi_step(model: SoftTree, start: Posterior, data: Data):
    sums = torch.ones(model.topology.n_leaves, model.leaf.n_classes)
    guide = PolytopeGuide(model, start.point_sites(), sums)
    optimiser, rows = Adam(guide.parameters()), data.with_ones()

    def step() -> None:
        optimiser.zero_grad()
        value, divergence, _ = guide.fit(rows, STEEPNESS)
        (divergence - value).backward()
        optimiser.step()

    return step


def milliseconds(step, repeats: int) -> float:
    for _ in range(3):
        step()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def main() -> None:
    print(f"threads {torch.get_num_threads()}, torch {torch.__version__}")
    print("| shapes | arithmetic ms | MAP ms | ratio | SVI ms | ratio |\n|---|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        parts = problem(name)
        bare, point, vi = (
            milliseconds(make(*parts), 15) for make in (arithmetic, map_step, svi_step)
        )
        print(
            f"| {name} {shape} | {bare:.1f} | {point:.1f} | {point / bare:.2f} | "
            f"{vi:.1f} | {vi / bare:.2f} |"
        )


if __name__ == "__main__":
    main()
