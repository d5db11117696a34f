"""The registry of estimators and of the trees from the literature.

It does not import the estimators, because torch takes seconds to import.
"""

import gc
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

TaskName = Literal["classification", "regression", "survival"]
TASKS: tuple[str, ...] = get_args(TaskName)
GUESSED = TASKS[:2]  # the tasks between which a target can decide


@dataclass(frozen=True)
class Named:
    """A tree by its module, the names of its estimators, and the parameters that define it."""

    module: str  # within the package
    classifier: str
    regressor: str | None = None
    survival: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)  # cannot be changed
    start: Mapping[str, Any] = field(default_factory=dict)  # defaults that differ

    def of(self, task: str) -> str | None:
        """Name of the estimator for a task, if there is one."""
        return dict(zip(TASKS, (self.classifier, self.regressor, self.survival), strict=True))[task]


CPT = (
    "estimators.cpt",
    "ConvexPolytopeTreeClassifier",
    "ConvexPolytopeTreeRegressor",
    "ConvexPolytopeTreeSurvival",
)
OBLIQUE = ("literature.oblique", "ObliqueTreeClassifier", "ObliqueTreeRegressor")
TAO = ("literature.tao_estimators", "AlternatingTreeClassifier", "AlternatingTreeRegressor")

#: Trees from the literature, by their names for ``--tree`` and the key ``tree`` of cards.
TREES: dict[str, Named] = {
    "cpt": Named(*CPT),
    "cpt-k1": Named(*CPT, fixed={"n_experts": 1}),
    "e2edt": Named("literature.end_to_end", "EndToEndTreeClassifier", "EndToEndTreeRegressor"),
    "e2edf": Named("literature.end_to_end", "EndToEndForestClassifier", "EndToEndForestRegressor"),
    "wodt": Named(
        "literature.weighted_oblique",
        "WeightedObliqueTreeClassifier",
        "WeightedObliqueTreeRegressor",
    ),
    "tao": Named(*TAO, fixed={"split": "oblique"}),
    "tao-sparse": Named(*TAO, fixed={"split": "oblique"}, start={"l1": 1.0}),
    "tao-axis": Named(*TAO, fixed={"split": "axis"}),
    "tao-bivariate": Named(*TAO, fixed={"split": "bivariate"}, start={"l1": 3.0}),
    "bivariate": Named("literature.bivariate", "BivariateTreeClassifier", "BivariateTreeRegressor"),
    "lcn": Named(
        "literature.locally_constant",
        "LocallyConstantTreeClassifier",
        "LocallyConstantTreeRegressor",
    ),
    "ndf": Named(
        "literature.forests", "NeuralDecisionForestClassifier", "NeuralDecisionForestRegressor"
    ),
    "adf": Named("literature.forests", "AlternatingDecisionForestClassifier"),
    "hhcart": Named(*OBLIQUE, fixed={"splitter": "hhcart"}),
    "oc1": Named(*OBLIQUE, fixed={"splitter": "oc1"}),
    "cart-lc": Named(*OBLIQUE, fixed={"splitter": "cart-lc"}),
    "co2": Named(*OBLIQUE, fixed={"splitter": "co2"}),
    "non-greedy": Named(
        "literature.whole_trees", "NonGreedyTreeClassifier", "NonGreedyTreeRegressor"
    ),
    "guide": Named(*OBLIQUE, fixed={"splitter": "guide"}),
}

#: The module that defines each estimator, or the class if it was registered.
ESTIMATORS: dict[str, str | type] = {
    **{
        name: f"bayestree.{tree.module}"
        for tree in TREES.values()
        for name in map(tree.of, TASKS)
        if name
    },
    "ConvexPolytopeTreeSurvival": "bayestree.estimators.survival",
}

#: Inference methods and searches of these trees that are public in ``bayestree.inference``.
METHODS = dict.fromkeys(("Tao", "tao"), "bayestree.literature.tao") | dict.fromkeys(
    ("CO2", "OC1", "SEARCHES", "CartLC", "Guide", "HHCart"), "bayestree.literature.oblique"
)


def estimator_class(name: str) -> Any:
    """Return the class of an estimator by its name."""
    known = ESTIMATORS[name]
    if not isinstance(known, str):
        return known
    usual = gc.get_threshold()
    gc.set_threshold(1_000_000)  # imports make half a million objects, none of them garbage
    try:
        return getattr(importlib.import_module(known), name)
    finally:
        gc.set_threshold(*usual)


def method(name: str) -> Any:
    """Return a public inference method or search of a tree by its name."""
    return getattr(importlib.import_module(METHODS[name]), name)


def register(kind: type) -> None:
    """Add an estimator that is defined outside the package, so that model files can hold it.

    ValueError if an estimator of the package has its name.
    """
    name = kind.__name__
    if not isinstance(ESTIMATORS.get(name), str):
        ESTIMATORS[name] = kind
    elif estimator_class(name) is not kind:
        raise ValueError(f"{name} is an estimator of the package; choose another name.")


def tasks_of(tree: str) -> list[str]:
    """Return the tasks that a tree supports."""
    return [task for task in TASKS if TREES[tree].of(task) is not None]
