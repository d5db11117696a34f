"""A model file whose checksum is right and whose parts do not fit together is refused."""

from pathlib import Path

import numpy as np
import pytest

import bayestree
from bayestree.estimators.files import ModelFileError
from tests.fuzz.test_models import signed, taken_apart

CONTENT = (Path(__file__).parents[1] / "data" / "iris-v2.safetensors").read_bytes()


def load(described, arrays, folder):
    path = folder / "model.safetensors"
    path.write_bytes(signed(described, arrays))
    return bayestree.load(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_features": 3}, "feature_names are not one distinct text"),
        ({"n_features": 3, "feature_names": None}, "units are not those of 3 features"),
        ({"n_features": True}, "n_features is True"),
        ({"n_features": -1}, "n_features is -1"),
        ({"feature_names": ["a", "a", "b", "c"]}, "feature_names are not one distinct text"),
        ({"feature_names": ["a", "b", "c", 4]}, "feature_names are not one distinct text"),
        ({"classes": {"array": [["x", "y"], "<U1"]}}, "classes are not those of the leaves"),
        ({"classes": None}, "does not have the contents of a model file"),
    ],
)
def test_descriptions(changes, said, tmp_path):
    described, arrays = taken_apart(CONTENT)
    with pytest.raises(ModelFileError, match=said):
        load(described | changes, arrays, tmp_path)


def changed(arrays, name, change):
    return arrays | {name: np.ascontiguousarray(change(arrays[name]))}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("draws/hyperplane", lambda a: a[:, :-1], "draws/.* has the shape"),
        ("draws/hyperplane", lambda a: a[:, :0], "has the shape|not those"),
        ("draws/hyperplane", lambda a: a[..., :-1], "draws/hyperplane has the shape"),
        ("point/hyperplane", lambda a: a[..., :-1], r"point/hyperplane has .*, not \("),
        ("tree/hyperplane", lambda a: a.ravel(), "tree/hyperplane has the shape"),
        ("tree/expert_start", lambda a: a + 1, "does not ascend from 0"),
        ("tree/expert_start", lambda a: a[::-1], "does not ascend from 0"),
        ("tree/leaf_rows", lambda a: a > 0, "tree/leaf_rows has the type bool, not numbers"),
        ("tree/value", lambda a: a[:, :-1], "tree/value has the shape"),
        ("tree/leaf_rows", lambda a: a[:-1], "tree/leaf_rows has the shape"),
        ("reach/low", lambda a: a[:-1], "reach/low has the shape"),
        ("reach/nodes", lambda a: a + 100, "reach/nodes are not among"),
        ("reach/largest", lambda a: a[:, :-1], "reach/largest has the shape"),
        ("standard/scale", lambda a: a[:-1], "units are not those"),
        ("tree/children", lambda a: a * 0, "does not have the contents of a model file"),
    ],
)
def test_arrays(name, change, said, tmp_path):
    described, arrays = taken_apart(CONTENT)
    with pytest.raises(ModelFileError, match=said):
        load(described, changed(arrays, name, change), tmp_path)


def test_draws_of_another_site(tmp_path):
    described, arrays = taken_apart(CONTENT)
    arrays["draws/other"] = arrays["draws/hyperplane"]
    with pytest.raises(ModelFileError, match="draws are not those of the point estimate"):
        load(described, arrays, tmp_path)


def test_as_it_was(tmp_path):
    described, arrays = taken_apart(CONTENT)
    assert load(described, arrays, tmp_path).n_features_in_ == 4
