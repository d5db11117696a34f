"""The state of torch and NumPy: what the package computes in, and seeds that leave it unchanged."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import lru_cache, wraps
from inspect import isfunction
from typing import Any, TypeVar, cast

import numpy as np
import torch
from sklearn.utils import check_random_state

from bayestree._utils.parallel import threads_for

Function = TypeVar("Function", bound=Callable[..., Any])
TURN = threading.RLock()  # torch's generator is shared by all threads

RandomState = int | np.random.RandomState | np.random.Generator | None


@contextmanager
def usual_state() -> Iterator[None]:
    """Compute as in a new process, within the block; threads that begin meanwhile have one thread.

    Fits need gradients, tensors that are kept must not belong to the inference mode of the caller,
    and tensors are on the CPU unless they are given a device. A probability that underflows is 0,
    as it should be; NumPy treats overflow and invalid values as the caller demands. Torch has one
    thread, but in large steps of a fit: others go through the rows in parts too small to share.
    """
    device = nullcontext() if torch.empty(0).is_cpu else torch.device("cpu")  # a mode delays calls
    with (
        np.errstate(under="ignore"),
        torch.inference_mode(False),
        torch.enable_grad(),
        device,
        threads_for(0),
    ):
        yield


def in_usual_state(function: Function) -> Function:
    """Let a function compute in the usual state."""

    @wraps(function)
    def inside(*args: Any, **given: Any) -> Any:
        with usual_state():
            return function(*args, **given)

    return cast(Function, inside)


def at_once(fit: Function) -> Function:
    """Let a method that fits its estimator change it at its end, or not at all.

    The method works on a copy, whose attributes the estimator takes over. After an exception or an
    interruption the estimator is as it was before.
    """

    @wraps(fit)
    @in_usual_state
    def whole(self: Any, *args: Any, **given: Any) -> Any:
        fitted = copy(self)
        fit(fitted, *args, **given)
        self.__dict__ = fitted.__dict__
        return self

    return cast(Function, whole)


def cached(function: Function) -> Function:
    """Keep the results of a function, such as tensors, for calls in any state."""
    return cast(Function, lru_cache(maxsize=32)(in_usual_state(function)))


class InUsualState:
    """Base of classes whose public methods compute in the usual state."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name, method in [*vars(cls).items()]:
            if isfunction(method) and not name.startswith("_"):
                setattr(cls, name, in_usual_state(method))


def draw_seed(random_state: RandomState) -> int:
    """Return a seed drawn from a ``random_state`` as in scikit-learn, or a NumPy Generator."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def generator_state(device: torch.device) -> torch.Tensor:
    """Return the state of torch's default generator of a device."""
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the block with seeded torch and Pyro generators; one thread at a time."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with TURN, torch.random.fork_rng(devices=devices):
        if torch.cuda.is_available():
            torch.manual_seed(seed)
        else:  # torch.manual_seed formats the stack for each kind of accelerator that may come
            torch.default_generator.manual_seed(seed)
        yield
