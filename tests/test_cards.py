"""The cards of models and inference: every value is a parameter, every pair fits."""

import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier

ROOT = Path(__file__).parents[1]
MODELS = sorted((ROOT / "models").glob("*.toml"))
INFERENCES = sorted((ROOT / "inference").glob("*.toml"))


def card(path):
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_there_are_cards():
    assert {path.stem for path in MODELS} == {"cpt", "cpt-k1"}
    assert {path.stem for path in INFERENCES} == {"grow", "map", "svi", "svi-facets", "nuts"}


@pytest.mark.parametrize("path", [*MODELS, *INFERENCES], ids=lambda path: path.stem)
def test_every_value_is_a_parameter(path):
    parameters = ConvexPolytopeTreeClassifier().get_params()
    assert card(path).keys() <= parameters.keys()


def test_the_model_card_of_the_tree_is_the_default():
    parameters = ConvexPolytopeTreeClassifier().get_params()
    values = card(ROOT / "models" / "cpt.toml")
    assert values == {name: parameters[name] for name in values}


@pytest.mark.parametrize(
    ("model", "inference"),
    [
        pair
        for pair in itertools.product(MODELS, INFERENCES)
        if (pair[0].stem, pair[1].stem) != ("cpt-k1", "svi-facets")  # one expert has no facets
    ],
    ids=lambda path: path.stem,
)
def test_every_pair_fits(model, inference):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] > 0).astype(int)
    quick = {"epochs": 20, "n_draws": 2, "n_warmup": 20, "max_depth": 1, "random_state": 0}
    values = {**card(model), **card(inference), **quick}
    values["n_experts"] = min(values["n_experts"], 4)
    fitted = ConvexPolytopeTreeClassifier(**values).fit(X, y)
    assert fitted.score(X, y) > 0.8
