"""Time of MAP and SVI steps, dense and sparse, against their bare arithmetic.

The dense arithmetic is one matrix product, softplus, weighted sum and route product in plain
tensors, forward and backward; the sparse one the same, without routes, for the pairs of nodes and
rows that matter, sorted by node in blocks of 32 rows. Run: python benchmarks/steps.py
"""

import time

import numpy as np
import torch
from torch.nn.functional import softplus

from bayestree import routing
from bayestree.inference.data import Data
from bayestree.inference.map import Point
from bayestree.inference.posterior import Posterior
from bayestree.inference.sparse_routing import Evaluation
from bayestree.inference.training import Adam
from bayestree.inference.variational.guides import PolytopeGuide
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.topology import Topology

SHAPES = {  # nodes, experts, features, classes, rows per step
    "Letter": (299, 20, 16, 26, 500),
    "Letter, 2,000 rows": (299, 20, 16, 26, 2000),
    "MNIST": (97, 16, 784, 10, 1000),
}
STEEPNESS = 20.0
TOLERANCE = 1e-3  # the default of routing_tolerance
SHARP = 8.0  # factor of the random coefficients, for trees as sharp as fitted ones


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
        "hyperplane": SHARP * torch.randn(n_nodes, n_experts, width) / width**0.5,
        "intercept": SHARP * (torch.randn(n_nodes, n_experts) - 1.2),
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


def sparse_arithmetic(model: SoftTree, start: Posterior, data: Data):
    point = Point(model, start, data, TOLERANCE)
    rows = data.with_ones()
    with torch.no_grad():
        evaluation = Evaluation(point.experts(), rows.X, STEEPNESS, keep=False)
        paths, _ = point.explore(rows, evaluation, point.log_density, TOLERANCE)
    node, order = paths.node.sort(stable=True)
    row = paths.row[order]
    last = torch.cat([torch.bincount(node, minlength=model.topology.n_nodes)]).tolist()
    blocks, start_of = [], 0
    for v, count in enumerate(last):
        for k in range(0, count, 32):
            some = row[start_of + k : start_of + min(k + 32, count)]
            blocks.append((v, torch.nn.functional.pad(some, (0, 32 - len(some)))))
        start_of += count
    block, rows_of = torch.tensor([v for v, _ in blocks]), torch.stack([r for _, r in blocks])
    plane, weight = (part.detach().requires_grad_() for part in reversed(point.experts()[:2]))

    def step() -> None:
        votes = softplus(torch.bmm(plane[block], rows.X[rows_of].mT))
        score = (votes * weight.exp()[block].unsqueeze(-1)).sum(1)
        plane.grad = weight.grad = None
        score.sum().backward()

    print(f"{len(node) / len(data.X):.1f} of {model.topology.n_nodes} nodes a row")
    return step


def fit_step(module: Point | PolytopeGuide, data: Data, *, sparse: bool):
    module.sparse = sparse
    optimiser, rows = Adam(module.parameters()), data.with_ones()

    def step() -> None:
        optimiser.zero_grad()
        value, penalty, _ = module.fit(rows, STEEPNESS)
        (penalty - value).backward()
        optimiser.rate = 0.0  # the tree must not change while it is timed
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
    lines = ["| shapes | step | dense ms | / arithmetic | sparse ms | / arithmetic |"]
    lines.append("|---" * 6 + "|")
    for name, shape in SHAPES.items():
        model, start, data = problem(name)
        bare, few = (
            milliseconds(make(model, start, data), 15) for make in (arithmetic, sparse_arithmetic)
        )
        sums = torch.ones(model.topology.n_leaves, model.leaf.n_classes)
        modules = {
            "MAP": Point(model, start, data, TOLERANCE),
            "SVI": PolytopeGuide(model, start.point_sites(), sums, tolerance=TOLERANCE),
        }
        for kind, module in modules.items():
            dense, sparse = (
                milliseconds(fit_step(module, data, sparse=sparse), 15) for sparse in (False, True)
            )
            lines.append(
                f"| {name} {shape} | {kind} | {dense:.1f} | {dense / bare:.2f} | {sparse:.1f} | "
                f"{sparse / few:.2f} |"
            )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
