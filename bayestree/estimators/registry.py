"""The registry of estimators and of the trees from the literature.

It does not import the estimators, because torch takes seconds to import.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The module that defines each estimator, or the class if it was registered.
ESTIMATORS: dict[str, str | type] = {
    "AlternatingDecisionForestClassifier": "bayestree.literature.alternating_forest",
    "AlternatingTreeClassifier": "bayestree.estimators.alternating",
    "AlternatingTreeRegressor": "bayestree.estimators.alternating",
    "BivariateTreeClassifier": "bayestree.estimators.bivariate",
    "BivariateTreeRegressor": "bayestree.estimators.bivariate",
    "ConvexPolytopeTreeClassifier": "bayestree.estimators.cpt",
    "ConvexPolytopeTreeRegressor": "bayestree.estimators.cpt",
    "ConvexPolytopeTreeSurvival": "bayestree.estimators.survival",
    "EndToEndForestClassifier": "bayestree.literature.end_to_end_forest",
    "EndToEndForestRegressor": "bayestree.literature.end_to_end_forest",
    "EndToEndTreeClassifier": "bayestree.literature.end_to_end",
    "EndToEndTreeRegressor": "bayestree.literature.end_to_end",
    "LocallyConstantEnsembleClassifier": "bayestree.literature.locally_constant_ensemble",
    "LocallyConstantEnsembleRegressor": "bayestree.literature.locally_constant_ensemble",
    "LocallyConstantTreeClassifier": "bayestree.literature.locally_constant",
    "LocallyConstantTreeRegressor": "bayestree.literature.locally_constant",
    "NeuralDecisionForestClassifier": "bayestree.literature.neural_forest",
    "NeuralDecisionForestRegressor": "bayestree.literature.neural_forest",
    "NonGreedyTreeClassifier": "bayestree.estimators.non_greedy",
    "NonGreedyTreeRegressor": "bayestree.estimators.non_greedy",
    "ObliqueTreeClassifier": "bayestree.estimators.oblique",
    "ObliqueTreeRegressor": "bayestree.estimators.oblique",
    "WeightedObliqueTreeClassifier": "bayestree.literature.weighted_oblique",
    "WeightedObliqueTreeRegressor": "bayestree.literature.weighted_oblique",
}

CPT = (
    "ConvexPolytopeTreeClassifier",
    "ConvexPolytopeTreeRegressor",
    "ConvexPolytopeTreeSurvival",
)
OBLIQUE = ("ObliqueTreeClassifier", "ObliqueTreeRegressor")
TAO = ("AlternatingTreeClassifier", "AlternatingTreeRegressor")


def estimator_class(name: str) -> Any:
    """The class of an estimator by its name."""
    known = ESTIMATORS[name]
    return getattr(importlib.import_module(known), name) if isinstance(known, str) else known


def register(kind: type) -> None:
    """Add an estimator that is defined outside the package, so that model files can hold it.

    ValueError if an estimator of the package has its name.
    """
    name = kind.__name__
    if not isinstance(ESTIMATORS.get(name), str):
        ESTIMATORS[name] = kind
    elif estimator_class(name) is not kind:
        raise ValueError(f"{name} is an estimator of the package; choose another name.")


@dataclass(frozen=True)
class Named:
    """A tree by the names of its estimators, and the parameters that define it."""

    classifier: str
    regressor: str | None = None
    survival: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)  # cannot be changed
    start: Mapping[str, Any] = field(default_factory=dict)  # defaults that differ

    def of(self, task: str) -> str | None:
        """Name of the estimator for a task, if there is one."""
        return dict(zip(TASKS, (self.classifier, self.regressor, self.survival), strict=True))[task]


TASKS = ("classification", "regression", "survival")
GUESSED = TASKS[:2]  # the tasks between which a target can decide

#: Trees from the literature, by their names for ``--tree`` and the key ``tree`` of cards.
TREES: dict[str, Named] = {
    "cpt": Named(*CPT, start={"n_experts": 20}),
    "cpt-k1": Named(*CPT, fixed={"n_experts": 1}),
    "e2edt": Named("EndToEndTreeClassifier", "EndToEndTreeRegressor"),
    "e2edf": Named("EndToEndForestClassifier", "EndToEndForestRegressor"),
    "wodt": Named("WeightedObliqueTreeClassifier", "WeightedObliqueTreeRegressor"),
    "tao": Named(*TAO, fixed={"split": "oblique"}),
    "tao-sparse": Named(*TAO, fixed={"split": "oblique"}, start={"l1": 1.0}),
    "tao-axis": Named(*TAO, fixed={"split": "axis"}),
    "tao-bivariate": Named(*TAO, fixed={"split": "bivariate"}, start={"l1": 3.0}),
    "bivariate": Named("BivariateTreeClassifier", "BivariateTreeRegressor"),
    "lcn": Named("LocallyConstantTreeClassifier", "LocallyConstantTreeRegressor"),
    "elcn": Named("LocallyConstantEnsembleClassifier", "LocallyConstantEnsembleRegressor"),
    "ndf": Named("NeuralDecisionForestClassifier", "NeuralDecisionForestRegressor"),
    "adf": Named("AlternatingDecisionForestClassifier"),
    "hhcart": Named(*OBLIQUE, fixed={"splitter": "hhcart"}),
    "oc1": Named(*OBLIQUE, fixed={"splitter": "oc1"}),
    "cart-lc": Named(*OBLIQUE, fixed={"splitter": "cart-lc"}),
    "co2": Named(*OBLIQUE, fixed={"splitter": "co2"}),
    "non-greedy": Named("NonGreedyTreeClassifier", "NonGreedyTreeRegressor"),
    "guide": Named(*OBLIQUE, fixed={"splitter": "guide"}),
}


def tasks_of(tree: str) -> list[str]:
    """The tasks that a tree supports."""
    return [task for task in TASKS if TREES[tree].of(task) is not None]
