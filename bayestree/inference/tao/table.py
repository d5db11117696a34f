"""The solver of a model's reduced problems, determined by split and prior."""

from collections.abc import Callable
from typing import Any

from bayestree.inference.tao.axis import AxisSolver
from bayestree.inference.tao.bivariate import BivariateSolver
from bayestree.inference.tao.logistic import LogisticSolver
from bayestree.inference.tao.polytope import PolytopeSolver
from bayestree.inference.tao.solvers import ReducedSolver
from bayestree.models import FeatureCount, Flat, FlatWeights, Laplace, Oblique, Polytope, SoftTree

#: (class of split, its max_features, class of prior) -> ``(prior, ridge) -> solver``.
SOLVERS: dict[tuple[type, int | None, type], Callable[[Any, float], ReducedSolver]] = {
    (Oblique, None, Flat): lambda _, ridge: LogisticSolver(ridge=ridge),
    (Oblique, None, Laplace): lambda prior, _: LogisticSolver(l1=prior.rate),
    (Oblique, 1, Flat): lambda *_: AxisSolver(),
    (Oblique, 1, FeatureCount): lambda prior, _: AxisSolver(rate=prior.rate),
    (Oblique, 2, Flat): lambda *_: BivariateSolver(),
    (Oblique, 2, FeatureCount): lambda prior, _: BivariateSolver(prior.rate, prior.pair),
    (Polytope, None, Flat): lambda _, ridge: PolytopeSolver(ridge=ridge),
}


def solver_for(model: SoftTree, ridge: float) -> ReducedSolver:
    """The solver of a model's reduced problems; ``ridge`` keeps surrogate losses finite."""
    split, prior = model.split, model.priors.hyperplane
    key = (type(split), getattr(split, "max_features", None), type(prior))
    if split.weighted and model.priors.weight != FlatWeights():
        raise ValueError(
            f"tao supports no penalty on the weights of experts; use FlatWeights() instead of "
            f"{model.priors.weight!r}."
        )
    if key not in SOLVERS:
        known = ", ".join(
            f"{kind.__name__}" + (f"(max_features={k})" if k else "") + f" x {law.__name__}"
            for kind, k, law in SOLVERS
        )
        raise ValueError(
            f"no solver for split {split!r} with prior {prior!r}; supported are {known}. Choose "
            "one of these or pass a solver to tao."
        )
    return SOLVERS[key](prior, ridge)
