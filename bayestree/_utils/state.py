"""The state of a loop: capture, restore, and serialisation without pickle."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bayestree._utils.arrays import AnyArray
from bayestree._utils.progress import Parts

HEADER = 8  # bytes of the header length
KEY = "state"


def capture(parts: Parts) -> dict[str, Any]:
    """Return the current state of each part; TypeError for a part without a state.

    Tensors may be shared with the parts: write the state before the loop continues.
    """
    return {name: _capture(name, part) for name, part in parts.items()}


def restore(parts: Parts, state: Mapping[str, Any]) -> None:
    """Restore parts in place, which preserves memory layouts and so the rounding of sums."""
    if parts.keys() != state.keys():
        raise ValueError(f"the state has parts {sorted(state)}, but the loop has {sorted(parts)}.")
    for name, part in parts.items():
        _restore(part, state[name])


def _capture(name: str, part: Any) -> Any:
    if isinstance(part, torch.Tensor | np.ndarray):
        return part
    if isinstance(part, list):
        return list(part)
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    if isinstance(part, np.random.RandomState):
        return part.get_state(legacy=False)
    if isinstance(part, torch.Generator):
        return part.get_state()
    if not hasattr(part, "state_dict"):
        raise TypeError(f"part {name!r} of type {type(part).__name__} has no state_dict().")
    return part.state_dict()


def _restore(part: Any, state: Any) -> None:
    if isinstance(part, torch.Tensor):
        with torch.no_grad():
            part.copy_(state)
    elif isinstance(part, np.ndarray):
        part[...] = state
    elif isinstance(part, list):
        part[:] = state
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    elif isinstance(part, np.random.RandomState | torch.Generator):
        part.set_state(state)
    else:
        part.load_state_dict(state)


def to_bytes(state: Any) -> bytes:
    """Return a state as a safetensors file: arrays, and everything else as JSON in the header.

    The state is a nested dict, list or tuple of tensors, arrays, numbers, strings, bool and None;
    TypeError for anything else.
    """
    arrays: dict[str, AnyArray] = {}
    text = json.dumps(_plain(state, arrays))
    return save(arrays, {KEY: text})


def from_bytes(raw: bytes) -> Any:
    """Return the inverse of :func:`to_bytes`; ValueError for invalid files. Nothing is executed."""
    try:
        arrays = load(raw)
        length = int.from_bytes(raw[:HEADER], "little")
        header = json.loads(raw[HEADER : HEADER + length])
        return _decode(json.loads(header["__metadata__"][KEY]), arrays)
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"not a valid loop state: {error}") from error


def _plain(value: Any, arrays: dict[str, AnyArray]) -> Any:
    """Return a value as JSON, with tags for other types; arrays are moved to ``arrays``."""
    if value is None or isinstance(value, bool | int | float | str):
        return value if not isinstance(value, np.generic) else _stored("scalar", value, arrays)
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, Mapping):
        return {"mapping": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, torch.Tensor):
        return _stored("tensor", value.numpy(force=True), arrays)
    if isinstance(value, np.ndarray | np.generic):
        return _stored("array" if isinstance(value, np.ndarray) else "scalar", value, arrays)
    raise TypeError(f"{type(value).__name__} cannot be part of a state.")


def _stored(tag: str, value: Any, arrays: dict[str, AnyArray]) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an array of type {array.dtype} cannot be part of a state.")
    name, axes = str(len(arrays)), _axes(array)
    arrays[name] = np.array(array.transpose(axes), order="C")
    return {tag: [name, axes]}


def _axes(array: AnyArray) -> list[int]:
    """Return the axes in memory order, which determines the order of summation."""
    axes = list(range(array.ndim))
    if 0 in array.strides:  # broadcast
        return axes
    return sorted(axes, key=lambda axis: -abs(array.strides[axis]))


def _decode(value: Any, arrays: Mapping[str, AnyArray]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()
    if tag == "tuple":
        return tuple(_decode(item, arrays) for item in inner)
    if tag == "mapping":
        return {_decode(k, arrays): _decode(v, arrays) for k, v in inner}
    name, axes = inner
    # A copy is aligned and writable, unlike arrays in the file.
    array = np.array(arrays[name]).transpose(np.argsort(axes))
    if tag == "tensor":
        return torch.from_numpy(array).clone()  # with torch's alignment
    return {"array": array, "scalar": array[()]}[tag]
