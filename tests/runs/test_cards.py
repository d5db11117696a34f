"""The cards of models and inference: every value is a parameter, every pair fits."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from bayestree.runs.cards import read_card
from bayestree.runs.options import from_options
from bayestree.runs.trees import TREES
from bayestree.tables import InputError

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "models").glob("*.toml"))
INFERENCES = sorted((ROOT / "inference").glob("*.toml"))
# Any parameter of a tree that makes it quick.
QUICK = {"epochs": 20, "refine_epochs": 5, "learning_rate": 0.05, "n_draws": 2, "n_warmup": 20,
         "max_depth": 1, "n_estimators": 4}  # fmt: skip


def made(*cards, task="classification", tree=None):
    sections = {"data": {"path": "x.csv", "target": "y"}, "output": {"folder": "out"}}
    return from_options(sections, cards=cards, tree=tree).estimator(task)


def suits(pair):
    """Whether all that the inference says are parameters of the tree, and none that it fixes."""
    try:
        made(*pair)
    except InputError:
        return False
    return (pair[0].stem, pair[1].stem) != ("cpt-k1", "svi-facets")  # one expert has no facets


PAIRS = [pair for pair in itertools.product(MODELS, INFERENCES) if suits(pair)]


def test_every_tree_has_a_card_and_every_card_its_tree():
    assert {path.stem for path in MODELS} == TREES.keys()
    assert all(read_card(path, "model").tree == path.stem for path in MODELS)


def test_every_inference_suits_some_tree():
    assert {inference for _, inference in PAIRS} == set(INFERENCES)
    of_cpt = {inference.stem for model, inference in PAIRS if model.stem == "cpt"}
    assert {"grow", "map", "svi", "svi-facets", "nuts"} <= of_cpt


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_card_says_what_the_name_alone_does(path):
    assert made(path).get_params() == made(tree=path.stem).get_params()


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_value_is_a_parameter_of_the_regressor_too(path):
    kind = TREES[path.stem].regressor
    if kind is not None:
        card = read_card(path, "model")
        values = {**card.values, **card.by_task.get("regression", {})}
        found = made(path, task="regression").get_params()
        assert {name: found[name] for name in values} == values


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(path.stem for path in pair))
def test_every_pair_fits(pair):
    fits(made(*pair))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_model_fits(path):
    fits(made(path))


def fits(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=80) > 0).astype(int)  # nothing separates the classes
    parameters = estimator.get_params()
    estimator.set_params(**{name: v for name, v in QUICK.items() if name in parameters})
    if parameters.get("init") == "random":
        # a random stump whose sides have one label is a fixed point of TAO
        estimator.set_params(max_depth=2)
    if parameters.get("n_experts", 1) > 4:
        estimator.set_params(n_experts=4)
    estimator.set_params(**({"verbose": False} if "verbose" in parameters else {}))
    assert estimator.fit(X, y).score(X, y) > 0.6
