"""The state of torch and NumPy: what the package computes in, and seeds that leave it unchanged."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from functools import lru_cache
from inspect import isfunction
from typing import Any, TypeVar, cast

import numpy as np
import torch
from sklearn.utils import check_random_state

Function = TypeVar("Function", bound=Callable[..., Any])
ENTERED = threading.local()  # the states that each thread has yet to leave
TURN = threading.RLock()  # torch's generator is shared by all threads

RandomState = int | np.random.RandomState | np.random.Generator | None


class usual_state(ContextDecorator):  # noqa: N801 - as the managers of contextlib
    """Compute as in a new process, in a block or a function; only this thread is affected.

    Fits need gradients, tensors that are kept must not belong to the inference mode of the caller,
    and tensors are on the CPU unless they are given a device. A probability that underflows is 0,
    as it should be; NumPy treats overflow and invalid values as the caller demands.
    """

    # without a state of its own, so that classes with such methods can be sent to other processes
    def __enter__(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(np.errstate(under="ignore"))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            if torch.get_default_device().type != "cpu":  # a mode delays every call
                stack.enter_context(torch.device("cpu"))
            ENTERED.stacks = [*getattr(ENTERED, "stacks", ()), stack.pop_all()]

    def __exit__(self, *_: object) -> None:
        ENTERED.stacks.pop().close()


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
