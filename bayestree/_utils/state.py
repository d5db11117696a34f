"""The state of a loop: taken from its parts, put back into them, and written without pickle."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bayestree._utils.progress import Parts

HEADER = 8  # bytes that hold the length of a file's header
KEY = "state"


def capture(parts: Parts) -> dict[str, Any]:
    """The state of each part, as it is now.

    Tensors in it may be the parts' own: write it before the loop goes on.

    Raises
    ------
    TypeError
        For a part that has no state.
    """
    return {name: _captured(name, part) for name, part in parts.items()}


def restore(parts: Parts, state: Mapping[str, Any]) -> None:
    """Bring parts to a state, in place: what lies where in memory decides the last digits of sums.

    Raises
    ------
    ValueError
        If the state is of other parts.
    """
    if parts.keys() != state.keys():
        raise ValueError(f"the state is of {sorted(state)}, and the loop has {sorted(parts)}.")
    for name, part in parts.items():
        _put_back(part, state[name])


def _captured(name: str, part: Any) -> Any:
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


def _put_back(part: Any, state: Any) -> None:
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
        if isinstance(part, torch.optim.Optimizer):
            _lay_out(part)


def _lay_out(optimiser: torch.optim.Optimizer) -> None:
    """Give what is kept of a parameter the parameter's own layout, as the fused steps need it."""
    for parameter, kept in optimiser.state.items():
        for name, value in kept.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                kept[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def to_bytes(state: Any) -> bytes:
    """A state as a safetensors file: its arrays, and all else as JSON in the header.

    Parameters
    ----------
    state : nested dict, list or tuple
        Of tensors, arrays, numbers, text, bool and None.

    Raises
    ------
    TypeError
        For anything else in it.
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_plain(state, arrays))
    raw: bytes = save(arrays, {KEY: text})
    return raw


def from_bytes(raw: bytes) -> Any:
    """The inverse of :func:`to_bytes`; nothing in the file is executed.

    Raises
    ------
    ValueError
        For anything that :func:`to_bytes` has not written.
    """
    try:
        arrays = load(raw)
        length = int.from_bytes(raw[:HEADER], "little")
        header = json.loads(raw[HEADER : HEADER + length])
        return _unplain(json.loads(header["__metadata__"][KEY]), arrays)
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"this is no state of a loop: {error}") from error


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON; arrays go to ``arrays``, and what JSON has no word for gets a tag."""
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


def _stored(tag: str, value: Any, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"an array of type {array.dtype} cannot be part of a state.")
    name, axes = str(len(arrays)), _axes(array)
    arrays[name] = np.array(array.transpose(axes), order="C")
    return {tag: [name, axes]}


def _axes(array: NDArray[Any]) -> list[int]:
    """The axes in the order in which they lie in memory, which decides how sums are taken."""
    axes = list(range(array.ndim))
    if 0 in array.strides:  # repeated, not stored
        return axes
    return sorted(axes, key=lambda axis: -abs(array.strides[axis]))


def _unplain(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_unplain(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, inner),) = value.items()
    if tag == "tuple":
        return tuple(_unplain(item, arrays) for item in inner)
    if tag == "mapping":
        return {_unplain(k, arrays): _unplain(v, arrays) for k, v in inner}
    name, axes = inner
    # aligned and writable, as those of the file are not
    array = np.array(arrays[name]).transpose(np.argsort(axes))
    made: dict[str, Callable[[NDArray[Any]], Any]]
    made = {"tensor": _tensor, "array": np.asarray, "scalar": lambda a: a[()]}
    return made[tag](array)


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array).clone()  # aligned as torch does it
