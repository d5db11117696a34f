"""The JSON schemas accept and refuse the same files as the reader."""

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from bayestree.runs.json_schema import card_schema, run_schema, sweep_schema
from bayestree.runs.schema import RunFile
from bayestree.tables import InputError
from tests.runs.test_schema import BASE, REFUSED, RUNS

ROOT = Path(__file__).parents[2]
SWEEPS = [path for path in (ROOT / "examples").glob("*.toml") if path not in RUNS]


@pytest.fixture(scope="module")
def of_run():
    Draft202012Validator.check_schema(run_schema())
    return Draft202012Validator(run_schema())


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_examples(of_run, path):
    of_run.validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_sweeps(path):
    Draft202012Validator(sweep_schema()).validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"model": {"card": "cpt", "max_depth": 2}, "inference": {"card": "svi"}},
        {"model": {"tree": "wodt"}, "inference": {"max_iter": 3}},
        {"model": {"tree": "oc1", "splitter": {"name": "oc1", "n_restarts": 3}}},
        {"model": {"max_leaves": "none", "class_weight": {"a": 2}}},
        {"model": {"tree": "e2edf", "max_features": 0.5, "image_shape": [2, 3]}},
        {"data": BASE["data"] | {"test": "t.csv", "drop": ["a"], "weights": "w"}},
    ],
)
def test_what_a_run_can_be(of_run, parts):
    of_run.validate(BASE | parts)
    RunFile.from_parts(BASE | parts, "run.toml")


# What only the reader can check: files, combinations of keys, fixed values, TOML's nan.
READER = (
    "no.toml", "conflicting trees", "not both", "must be 1, got 3", "must be \"oc1\"", "nan",
    "cards of 'wodt'",
)  # fmt: skip


@pytest.mark.parametrize("parts", [p for p, said in REFUSED if not any(w in said for w in READER)])
def test_what_it_cannot_be(of_run, parts):
    with pytest.raises(InputError):
        RunFile.from_parts(BASE | parts, "run.toml")
    assert not of_run.is_valid(BASE | parts)


@pytest.mark.parametrize("folder", ["models", "inference"])
def test_cards(folder):
    validator = Draft202012Validator(card_schema(folder.removesuffix("s")))
    validator.check_schema(validator.schema)
    for path in (ROOT / folder).glob("*.toml"):
        validator.validate(tomllib.loads(path.read_text()))
    assert not validator.is_valid({"max_dept": 3})
    assert not validator.is_valid({"regression": {"max_dept": 3}})


@pytest.mark.parametrize(
    ("vary", "good"),
    [
        ({"max_depth": [1, 2], "model.n_experts": {"low": 1, "high": 3}}, True),
        ({"model": {"min_leaf": [1]}, "inference.card": ["svi", "map"]}, True),
        ({"max_dept": [1]}, False),
        ({"model": {"epochs": [1]}}, False),
        ({"max_depth": 3}, False),
        ({"max_depth": {"low": 1}}, False),
        ({"card": ["svi"]}, False),
    ],
)
def test_what_a_sweep_varies(vary, good):
    assert Draft202012Validator(sweep_schema()).is_valid({"run": "a.toml", "vary": vary}) == good


@pytest.mark.parametrize("schema", [run_schema, sweep_schema], ids=["run", "sweep"])
def test_there_is_no_null_in_toml(schema):
    assert '"null"' not in json.dumps(schema())


def test_every_key_is_described(of_run):
    tables = of_run.schema["properties"]
    for table in ("data", "model", "inference", "output"):
        for name, key in tables[table]["properties"].items():
            assert key.get("description"), name
