"""The methods: trees of this package by card, and those of other packages.

A method has a default, and at most 25 settings from which validation rows choose. They are in
order of worth, so that a short run may choose among the first. The very first are those that
validation rows of the same set have chosen before.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.model_selection import ParameterGrid

from bayestree.inference.splitters.searches import SEARCHES
from bayestree.runs.cards import cards, find_card
from bayestree.runs.settings import card_settings, check_parameters, estimator_of, tree_parameters
from benchmarks.data import AbsentError, made

Settings = dict[str, Any]
MOST_SETTINGS = 25


@dataclass(frozen=True)
class Method:
    """How to make an estimator for a task from settings, and which settings to choose from.

    ``earlier`` are those that validation rows of a set have chosen before: the first of this set.
    ``single`` is whether the method predicts by a single tree, rather than by several.
    """

    make: Callable[[str, Settings], Any]
    further: tuple[Settings, ...] = ({},)
    earlier: Mapping[str, Settings] = field(default_factory=dict)
    single: bool = True

    def settings(self, data: str) -> list[Settings]:
        first = sorted(self.earlier, key=lambda name: name != data)
        # those of images fit no other columns
        fitting = [n for n in first if n == data or "image_shape" not in self.earlier[n]]
        found = [*(self.earlier[name] for name in fitting), *self.further]
        assert len(found) <= MOST_SETTINGS
        return found


def _from_card(name: str, **changes: Any) -> Callable[[str, Settings], Any]:
    card = find_card(name, "model")
    # a single tree, for whose modes the tables have no column, with all columns in its facets
    changes = {"n_modes": 1, "sparsity": None, **changes}

    def make(task: str, settings: Settings) -> Any:
        values = check_parameters(card_settings(card), card.tree, task)
        kind = estimator_of(card.tree, task)
        known, types = made(kind, values).get_params(), tree_parameters(card.tree, task)
        given = {k: types[k].from_file(v) if k in types else v for k, v in settings.items()}
        return made(kind, values | {k: v for k, v in changes.items() if k in known} | given)

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


def _grid(**values: list[Any]) -> list[Settings]:
    return list(ParameterGrid(values))


def _depths(**depths: int) -> dict[str, Settings]:
    return {name: {"max_depth": depth} for name, depth in depths.items()}


#: What validation rows of a set had chosen in ``classification.py`` and the like. On another set,
#: these settings are among those that its own validation rows choose from.
CPT: dict[str, Settings] = {
    "mnist": {"max_depth": 8, "n_experts": 10, "max_leaves": 98, "scaling": "common",
              "kl_weight": 0.1, "epochs": 20, "batch_size": 1000, "learning_rate": 0.1,
              "min_gain": 10.0},
    "letter": {"max_depth": 11, "n_experts": 20, "max_leaves": 300, "scaling": "common",
               "kl_weight": 0.1, "steepness": 3.0, "min_rows": 10, "min_leaf": 3, "min_gain": 2.0,
               "epochs": 60, "batch_size": 2000, "learning_rate": 0.06},
    "connect4": {"max_depth": 4, "n_experts": 30, "max_leaves": 16, "scaling": "common",
                 "min_gain": 10.0},
    "bace": {"max_depth": 5, "n_experts": 10, "max_leaves": 21, "scaling": "common",
             "min_gain": 10.0},
}  # fmt: skip
CPT_K1: dict[str, Settings] = {
    "mnist": {"max_depth": 11, "max_leaves": 501, "scaling": "common", "kl_weight": 0.1,
              "epochs": 40, "min_gain": 10.0},
    "letter": {"max_depth": 14, "max_leaves": 705, "scaling": "common", "kl_weight": 0.1,
               "steepness": 3.0, "min_rows": 10, "min_leaf": 3, "min_gain": 2.0},
    "connect4": {"max_depth": 10, "max_leaves": 342, "scaling": "common", "kl_weight": 0.3,
                 "min_gain": 5.0},
    "bace": {"max_depth": 6, "max_leaves": 19, "scaling": "common", "kl_weight": 0.3,
             "min_gain": 10.0},
    "hiv": {"max_depth": 6, "max_leaves": 25, "scaling": "common", "kl_weight": 0.3,
            "min_gain": 10.0},
}  # fmt: skip
TAO: dict[str, Settings] = {
    "letter": {"max_depth": 10, "init": "random"},
    "connect4": {"max_depth": 10, "init": "random", "l1": 4.0, "scaling": "common"},
    "bace": {"max_depth": 3, "l1": 1.0, "scaling": "common"},
    "satimage": {"max_depth": 7, "l1": 0.3},
}
TRAINING: Settings = {"epochs": 20, "steepness_step": 0.1, "min_gain": 0.0, "smoothing": 0.0}
E2EDT: dict[str, Settings] = {
    "mnist": {"max_depth": 11, "max_leaves": 357, "refine_epochs": 35, "scaling": "common",
              "spatial": 100.0, "image_shape": (28, 28), "learning_rate": 0.001,
              **TRAINING, "epochs": 5},
    "letter": {"max_depth": 11, "learning_rate": 0.03, **TRAINING},
    "connect4": {"max_depth": 6, "learning_rate": 0.003, "refine_epochs": 100, "l1": 50.0,
                 "scaling": "common", **TRAINING},
}  # fmt: skip
EARLIER: dict[str, dict[str, Settings]] = {
    "cpt": CPT,
    "cpt-k1": CPT_K1,
    "tao": TAO,
    "tao-sparse": {"mnist": {"max_depth": 12, "l1": 4.0, "scaling": "common"}},
    "e2edt": E2EDT,
    # The depths of the paper's table 3.
    "cpt-paper": _depths(mnist=8, connect4=2, letter=11, bace=7, hiv=5),
    "e2edt-paper": _depths(mnist=12, connect4=10, letter=16, bace=8, hiv=7),
}
CPT_GRID = _grid(max_depth=[4, 8, 11], kl_weight=[1.0, 0.1], min_gain=[10.0, 2.0])
OBLIQUE: list[Settings] = [
    {"max_depth": 30, "min_gain": 0.0, "ccp_alpha": alpha} for alpha in (0.0, 3e-3, 1e-3, 1e-2)
]
#: Searches that may start from random hyperplanes instead of the best split by one feature.
RANDOM = ("cart-lc", "co2", "oc1")
#: Further settings from which validation rows choose; the methods that are not named have none.
CHOICES: dict[str, list[Settings]] = {
    "cpt": CPT_GRID,
    "cpt-k1": CPT_GRID,
    "tao": [{"max_depth": 8}],
    "tao-sparse": _grid(l1=[0.3, 1.0, 3.0], max_depth=[6, 8, 10]),
    "wodt": _grid(min_gain=[0.0, 1.0, 10.0], min_leaf=[1, 5]),
    "e2edt": _grid(max_depth=[6, 8, 11], learning_rate=[0.001, 0.01, 0.03]),
    "cart": [
        {"criterion": criterion, **one}
        for criterion in ("entropy", "gini")
        for one in _grid(ccp_alpha=[0.0, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2], min_samples_leaf=[1, 5])
    ],
    "random-forest": _grid(max_features=["sqrt", 0.3, 1.0], min_samples_leaf=[1, 3, 10]),
    "boosting": _grid(learning_rate=[0.03, 0.1, 0.3], max_leaf_nodes=[15, 31, 63]),
    "lcn": _grid(max_depth=[8, 12, 20], dropconnect=[0.0, 0.25]),
    "non-greedy": _grid(max_depth=[4, 8, 12], nu=[4.0, 16.0, 64.0]),
    "ndf": _grid(max_depth=[5, 8, 10], learning_rate=[0.01, 0.05]),
    "adf": _grid(max_features=["sqrt", 0.3], min_leaf=[1, 5]),
    "tao-axis": _grid(max_depth=[4, 6, 8, 10]),
    "tao-bivariate": _grid(l1=[1.0, 3.0, 10.0], max_depth=[6, 8]),
    **dict.fromkeys((*SEARCHES, *(f"{name}-random" for name in RANDOM), "bivariate"), OBLIQUE),
}  # fmt: skip
#: Methods that predict by several trees, or by none.
ENSEMBLES = {
    "adf",
    "e2edf",
    "e2edf-flat",
    "ndf",
    "random-forest",
    "boosting",
    "ebm",
    "bart",
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
        "interpret.glassbox",
        "ExplainableBoostingClassifier",
        "ExplainableBoostingRegressor",
        n_jobs=1,
    ),
    "bart": _package("stochtree", "StochTreeBARTBinaryClassifier", "StochTreeBARTRegressor"),
}
#: Ours first; cards named PAPER state the settings of a paper, and its method.
CARDS = sorted((c.name for c in cards("model")), key=lambda name: not name.startswith("cpt"))
METHODS: dict[str, Method] = {
    name: Method(make, (*CHOICES.get(name, []), {}), EARLIER.get(name, {}), name not in ENSEMBLES)
    for name, make in {
        **{name: _from_card(name) for name in CARDS},
        **{
            f"{name}-random": _from_card(name, splitter=SEARCHES[name](start="random"))
            for name in RANDOM
        },
        "e2edf-flat": _from_card("e2edf", steepness_step=0.0),
        **PACKAGES,
    }.items()
}
