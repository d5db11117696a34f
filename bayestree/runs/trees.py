"""The trees that can be named: which estimator each is, and with which parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CPT = ("ConvexPolytopeTreeClassifier", "ConvexPolytopeTreeRegressor")
TAO = ("AlternatingTreeClassifier", "AlternatingTreeRegressor")


@dataclass(frozen=True)
class Named:
    """An estimator by the names of its classes, so that naming a tree imports nothing.

    Parameters
    ----------
    classifier, regressor : str
        Names in ``bayestree``; no regressor for trees of classes only.
    fixed : mapping
        Parameters that make the tree what it is, and cannot be set.
    start : mapping
        Parameters where it begins, in place of the estimator's own defaults.
    """

    classifier: str
    regressor: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)

    def of(self, task: str) -> str | None:
        """Name of the estimator of a task, if there is one."""
        return self.classifier if task == "classification" else self.regressor


TASKS = ("classification", "regression")

#: Trees of the papers, as ``--tree`` and the key ``tree`` of a card or run file name them.
TREES: dict[str, Named] = {
    "cpt": Named(*CPT, start={"n_experts": 20}),
    "cpt-k1": Named(*CPT, fixed={"n_experts": 1}),
    "e2edt": Named("EndToEndTreeClassifier"),
    "e2edf": Named("EndToEndForestClassifier"),
    "wodt": Named("WeightedObliqueTreeClassifier"),
    "tao": Named(*TAO, fixed={"split": "oblique"}),
    "tao-sparse": Named(*TAO, fixed={"split": "oblique"}, start={"l1": 1.0}),
    "tao-axis": Named(*TAO, fixed={"split": "axis"}),
    "tao-bivariate": Named(*TAO, fixed={"split": "bivariate"}, start={"l1": 3.0}),
    "bivariate": Named("BivariateTreeClassifier"),
}


def tasks_of(tree: str) -> list[str]:
    """What a tree can predict: classes, numbers, or both."""
    return [task for task in TASKS if TREES[tree].of(task) is not None]
