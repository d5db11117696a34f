"""Untrusted model files: read or refused; nothing in them is ever executed.

A stranger can sign a file as well as we can, so that most of these are signed.
"""

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import numpy as safetensors

import bayestree
from bayestree.estimators import files
from bayestree.estimators.files import ModelFileError
from tests.fuzz.strategies import changed, fuzzed, little_memory, odd_numbers, values

DATA = Path(__file__).parents[1] / "data"
NAMES = ["iris-v3-nuts", "iris-v3-forest", "iris-v3-linear"]
WHOLE = {name: (DATA / f"{name}.safetensors").read_bytes() for name in NAMES}


def taken_apart(content):
    return files._from_bytes(content)


def signed(described, arrays):
    """A file with these parts whose checksum is right."""
    text = json.dumps(described | {"checksum": files.BLANK})
    blank = safetensors.save(arrays, {files.FORMAT: text})
    return blank.replace(files.BLANK.encode(), files._digest(blank), 1)


def opened(content, folder):
    """The estimator in a file, if it is valid; it must then predict."""
    path = folder / "model.safetensors"
    path.write_bytes(content)
    try:
        with little_memory(path):
            return predicting(path)
    except (ModelFileError, ValueError) as error:
        said = str(error)
        assert "model.safetensors" in said
        return None


def predicting(path):
    """The estimator in a file, after predictions, which are finite, for rows of the fits."""
    found = bayestree.load(path)
    size = (4, found.n_features_in_)
    rows = np.random.default_rng(0).uniform(0.1, 7.9, size)  # like the flowers of the fits
    rows[0] = 0
    rows = pd.DataFrame(rows, columns=getattr(found, "feature_names_in_", None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers that no fit would give
        predicted = found.predict(rows)
        if hasattr(found, "classes_"):
            predicted = found.predict_proba(rows)
    assert np.isfinite(predicted).all()
    assert found.get_n_leaves() >= 1
    return found


@pytest.mark.parametrize("name", NAMES)
def test_signed_as_it_was(name, tmp_path):
    assert opened(signed(*taken_apart(WHOLE[name])), tmp_path) is not None


@fuzzed
@given(st.sampled_from(NAMES), st.data())
def test_files_with_changes(tmp_path, name, data):
    content = data.draw(changed(WHOLE[name]))
    if content != WHOLE[name]:
        assert opened(content, tmp_path) is None


@fuzzed
@given(st.binary(max_size=100))
def test_bytes_that_are_no_model(tmp_path, content):
    assert opened(content, tmp_path) is None


def places(value, path=()):
    """Every place in a description: those of its keys and items, at any depth."""
    yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def values_of(described):
    """Every place in a description, with its value."""
    for path in places(described):
        value = described
        for key in path:
            value = value[key]
        yield path, value


def without(value, path):
    """The description without a place."""
    found = dict(value) if isinstance(value, dict) else list(value)
    if path[1:]:
        found[path[0]] = without(value[path[0]], path[1:])
    else:
        del found[path[0]]
    return found


def put(value, path, new):
    """The description with another value in a place."""
    if not path:
        return new
    found = dict(value) if isinstance(value, dict) else list(value)
    found[path[0]] = put(value[path[0]], path[1:], new)
    return found


@fuzzed
@given(st.sampled_from(NAMES), st.data())
def test_signed_with_another_description(tmp_path, name, data):
    described, arrays = taken_apart(WHOLE[name])
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from([p for p in places(described) if p]))
        json_values = values.map(lambda value: json.loads(json.dumps(value, default=str)))
        described = put(described, place, data.draw(json_values))
    opened(signed(described, arrays), tmp_path)


sizes = st.sampled_from([0, -1, 10**5, 10**9, 1e10, 10**18, 10**30, float("nan"), float("inf")])
dtypes = st.sampled_from(
    ["S2000000000", "U2000000000", "<U500000000", "(100000000,)f8", "V2000000000", "f8,f8", "f2",
     "M8[s]", "O", "c16", "int64", "bool", "no", ""]
)  # fmt: skip
parts = st.sampled_from(
    [
        {"part": ["Ordinal", {"mapping": [["n_classes", 10**10]]}]},
        {"part": ["Ordinal", {"mapping": [["n_classes", {"array": [1e10, "float64"]}]]}]},
        {"part": ["Polytope", {"mapping": [["n_experts", 10**10]]}]},
        {"array": [["a", "b"], "S2000000000"]},
        {"array": [["a" * 10_000, *"b" * 10_000], "<U9"]},
    ]
)


@fuzzed
@given(st.sampled_from(NAMES), st.data())
def test_signed_with_sizes_and_types_that_take_memory(tmp_path, name, data):
    described, arrays = taken_apart(WHOLE[name])
    for _ in range(data.draw(st.integers(1, 3))):
        found = {p: v for p, v in values_of(described) if p}
        numbers = [p for p, v in found.items() if isinstance(v, int | float)]
        types = [p for p, v in found.items() if p[-2:] == ("array", 1)]
        of, new = data.draw(
            st.sampled_from([(numbers, sizes), (types or numbers, dtypes), ([*found], parts)])
        )
        described = put(described, data.draw(st.sampled_from(of)), data.draw(new))
    if data.draw(st.booleans()):
        which = data.draw(st.sampled_from(sorted(arrays)))
        shape = data.draw(st.permutations([0, 10**9, *arrays[which].shape[1:]]))
        arrays[which] = np.empty(shape, arrays[which].dtype)
    opened(signed(described, arrays), tmp_path)


@fuzzed
@given(st.sampled_from(NAMES), st.data())
def test_signed_without_an_entry(tmp_path, name, data):
    described, arrays = taken_apart(WHOLE[name])
    place = data.draw(st.sampled_from([p for p in places(described) if p]))
    opened(signed(without(described, place), arrays), tmp_path)


@fuzzed
@given(st.sampled_from(NAMES), st.data())
def test_signed_with_other_arrays(tmp_path, name, data):
    described, arrays = taken_apart(WHOLE[name])
    which = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[which]
    kind = data.draw(st.sampled_from(["gone", "shape", "value", "all", "dtype", "cut", "empty"]))
    if kind == "gone":
        del arrays[which]
    elif kind == "shape":
        arrays[which] = array.reshape(-1)
    elif kind in ("value", "all") and array.size:
        changed_to = array.copy()
        at = slice(None) if kind == "all" else data.draw(st.integers(0, array.size - 1))
        with np.errstate(all="ignore"):
            changed_to.flat[at] = np.asarray(data.draw(odd_numbers), dtype=float).astype(
                array.dtype
            )
        arrays[which] = changed_to
    elif kind == "dtype":
        with np.errstate(all="ignore"):
            arrays[which] = array.astype(data.draw(st.sampled_from([np.int8, np.float16, bool])))
    elif kind == "cut":
        arrays[which] = np.ascontiguousarray(array[: len(array) // 2]) if array.ndim else array
    elif kind == "empty":
        arrays[which] = np.empty((0,), dtype=array.dtype)
    opened(signed(described, arrays), tmp_path)


class Boom:
    def __reduce__(self):
        return (Path("/").joinpath, ("boom",))


def test_a_pickle_is_no_model(tmp_path):
    assert opened(pickle.dumps(Boom()), tmp_path) is None


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_descriptions(depth, tmp_path):
    _, arrays = taken_apart(WHOLE["iris-v3-nuts"])
    text = (
        '{"version": 3, "checksum": "'
        + files.BLANK
        + '", "params": '
        + "[" * depth
        + "]" * depth
        + "}"
    )
    blank = safetensors.save(arrays, {files.FORMAT: text})
    content = blank.replace(files.BLANK.encode(), files._digest(blank), 1)
    assert opened(content, tmp_path) is None
