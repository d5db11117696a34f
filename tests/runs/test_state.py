"""States of loops: round trips bit for bit, and invalid files."""

import math

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayestree.inference.training import Adam
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes

DTYPES = st.sampled_from([np.bool_, np.int8, np.int64, np.uint32, np.float32, np.float64])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats()
    | st.text()
    | arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0))
)
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=8,
)


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray | np.generic):
        raw = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        return raw and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (
            math.isnan(b)
            if math.isnan(a)
            else (a, math.copysign(1, a))
            == (
                b,
                math.copysign(1, b),
            )
        )
    return type(a) is type(b) and a == b


@given(STATES)
def test_a_state_comes_back_as_it_was(state):
    assert same(from_bytes(to_bytes(state)), state)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_arrays_lie_in_memory_as_they_did(axes):
    array = np.arange(24.0).reshape(2, 3, 4).transpose(axes)
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(axes)
    found, there = from_bytes(to_bytes([array, tensor]))
    assert same(found, array)
    assert found.strides == array.strides
    assert torch.equal(there, tensor)
    assert there.stride() == tensor.stride()


def test_repeated_numbers_are_stored_once_each():
    assert torch.equal(from_bytes(to_bytes([torch.ones(1).expand(3)]))[0], torch.ones(3))
    wide = np.broadcast_to(np.arange(3), (2, 3))
    assert from_bytes(to_bytes([wide]))[0].flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("value", [{1, 2}, object(), np.array(["a"]), np.array([None]), 1j])
def test_what_is_no_state_is_refused(value):
    with pytest.raises(TypeError, match="cannot be part of a state"):
        to_bytes({"part": value})


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(raw):
    with pytest.raises(ValueError, match="not a valid loop state"):
        from_bytes(raw)


@given(st.data())
def test_a_file_cut_short_is_refused(data):
    raw = to_bytes({"a": np.arange(20.0), "b": [1, "two"]})
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ValueError, match="not a valid loop state"):
        from_bytes(raw[:cut])


def parts():
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 2)
    optimiser = Adam(module.parameters(), 0.1)
    return {
        "module": module,
        "optimiser": optimiser,
        "sums": torch.zeros(4),
        "count": np.zeros(2),
        "trace": [],
        "generator": np.random.default_rng(3),
        "old": np.random.RandomState(4),
        "noise": torch.Generator().manual_seed(5),
    }


def advance(parts):
    module, optimiser = parts["module"], parts["optimiser"]
    optimiser.zero_grad()
    rows = torch.randn(5, 3, generator=parts["noise"])
    module(rows).square().sum().backward()
    optimiser.step()
    parts["sums"] += parts["generator"].random()
    parts["count"] += parts["old"].rand()
    parts["trace"].append(float(parts["sums"].sum()))


def test_parts_go_on_from_where_they_were():
    with torch.random.fork_rng():
        first, second = parts(), parts()
    for _ in range(3):
        advance(first)
    raw = to_bytes(capture(first))
    place = second["sums"].data_ptr()
    restore(second, from_bytes(raw))
    assert second["sums"].data_ptr() == place, "restored elsewhere in memory"
    for _ in range(2):
        advance(first)
        advance(second)
    assert to_bytes(capture(first)) == to_bytes(capture(second))
    assert len(second["trace"]) == 5


def test_parts_of_another_loop_are_refused():
    with pytest.raises(ValueError, match="the loop has"):
        restore({"a": []}, {"b": []})
    with pytest.raises(TypeError, match="'a' of type object has no state_dict"):
        capture({"a": object()})
