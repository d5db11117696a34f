"""The methods: trees of this package by card, and those of other packages.

A method has a default, and at most 25 settings from which validation rows choose.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.model_selection import ParameterGrid

from bayestree.runs.cards import cards, find_card
from bayestree.runs.parameters import estimator_of
from bayestree.runs.settings import card_settings, check_parameters

Settings = dict[str, Any]
MOST_SETTINGS = 25


class AbsentError(Exception):
    """The package of a method is not installed."""


@dataclass(frozen=True)
class Method:
    """How to make an estimator for a task from settings, and which settings to choose from."""

    make: Callable[[str, Settings], Any]
    grid: Mapping[str, list[Any]] = field(default_factory=dict)

    def settings(self) -> list[Settings]:
        found = list(ParameterGrid(self.grid))
        assert len(found) <= MOST_SETTINGS
        return found


def _from_card(name: str) -> Callable[[str, Settings], Any]:
    card = find_card(name, "model")
    # a single tree, for whose modes the tables have no column
    single = {"n_modes": 1}

    def make(task: str, settings: Settings) -> Any:
        values = check_parameters(card_settings(card), card.tree, task)
        estimator = estimator_of(card.tree, task)(**values)
        known = estimator.get_params()
        return estimator.set_params(**{k: v for k, v in single.items() if k in known} | settings)

    return make


def _package(module: str, classifier: str, regressor: str | None = None, **start: Any) -> Any:
    def make(task: str, settings: Settings) -> Any:
        name = classifier if task == "classification" else regressor
        if name is None:
            raise AbsentError(f"{module} has no such regressor")
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise AbsentError(f"{module}: {error}") from error
        return found(**start | settings)

    return make


#: Settings from which validation rows choose; the methods that are not named have none.
GRIDS: dict[str, dict[str, list[Any]]] = {
    "cpt": {"max_depth": [4, 8, 11], "kl_weight": [1.0, 0.1], "min_gain": [10.0, 2.0]},
    "cpt-k1": {"max_depth": [4, 8, 11], "kl_weight": [1.0, 0.1], "min_gain": [10.0, 2.0]},
    "tao": {"max_depth": [6, 8, 10], "init": ["cart", "random"]},
    "tao-sparse": {"l1": [0.3, 1.0, 3.0], "max_depth": [6, 8, 10]},
    "wodt": {"min_gain": [0.0, 1.0, 3.0, 10.0], "min_leaf": [1, 5]},
    "e2edt": {"max_depth": [6, 8, 11], "learning_rate": [0.001, 0.01, 0.03]},
    "cart": {"ccp_alpha": [0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "min_samples_leaf": [1, 5, 20]},
    "random-forest": {"max_features": ["sqrt", 0.3, 1.0], "min_samples_leaf": [1, 3, 10]},
    "boosting": {"learning_rate": [0.03, 0.1, 0.3], "max_leaf_nodes": [15, 31, 63]},
}
PACKAGES: dict[str, Callable[[str, Settings], Any]] = {
    "cart": _package("sklearn.tree", "DecisionTreeClassifier", "DecisionTreeRegressor"),
    "random-forest": _package(
        "sklearn.ensemble", "RandomForestClassifier", "RandomForestRegressor"
    ),
    "boosting": _package(
        "sklearn.ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"
    ),
    "treeple": _package(
        "treeple.tree", "ObliqueDecisionTreeClassifier", "ObliqueDecisionTreeRegressor"
    ),
    "stree": _package("stree", "Stree"),
    "obliquetree": _package("obliquetree", "Classifier", "Regressor", max_depth=10),
    "ebm": _package(
        "interpret.glassbox", "ExplainableBoostingClassifier", "ExplainableBoostingRegressor"
    ),
}
METHODS: dict[str, Method] = {
    name: Method(make, GRIDS.get(name, {}))
    for name, make in {
        **{card.name: _from_card(card.name) for card in cards("model")},
        **PACKAGES,
    }.items()
}
