"""The state of torch and NumPy in which the package computes, whatever the caller has chosen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache, wraps
from inspect import isfunction
from typing import Any, TypeVar, cast

import numpy as np
import torch

Function = TypeVar("Function", bound=Callable[..., Any])


@contextmanager
def usual_state() -> Iterator[None]:
    """Compute as in a new process, in a block or a function; only this thread is affected.

    Fits need gradients, tensors that are kept must not belong to the inference mode of the caller,
    and tensors are on the CPU unless they are given a device. A probability that underflows is 0,
    as it should be; NumPy treats overflow and invalid values as the caller demands.
    """
    elsewhere = torch.get_default_device().type != "cpu"
    device = torch.device("cpu") if elsewhere else nullcontext()  # a mode delays every call
    with np.errstate(under="ignore"), torch.inference_mode(False), torch.enable_grad(), device:
        yield


def cached(function: Function) -> Function:
    """Keep the results of a function, such as tensors, for calls in any state."""
    return cast(Function, lru_cache(maxsize=32)(usual_state()(function)))


class InUsualState:
    """Base of classes whose public methods compute in the usual state."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name, method in [*vars(cls).items()]:
            if isfunction(method) and not name.startswith("_"):
                setattr(cls, name, usual_state()(method))
