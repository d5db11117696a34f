"""Seeding of blocks of code that leaves the global generators unchanged."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils import check_random_state

TURN = threading.RLock()  # torch's generator is shared by all threads

RandomState = int | np.random.RandomState | np.random.Generator | None


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
