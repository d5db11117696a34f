"""Randomness that leaves no trace: a seed for a block of code, and the state put back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils import check_random_state

#: torch's generator is one for the whole process: threads take turns.
TURN = threading.RLock()

RandomState = int | np.random.RandomState | np.random.Generator | None


def draw_seed(random_state: RandomState) -> int:
    """A seed drawn from anything that scikit-learn takes as ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def generator_state(device: torch.device) -> torch.Tensor:
    """State of torch's own generator of a device."""
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the block with torch's and Pyro's generators seeded; restore them afterwards.

    One thread of a process at a time: another one waits.
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with TURN, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
