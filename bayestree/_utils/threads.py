"""Threads for the size of the work."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 500_000


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Run the block on one thread where ``work`` numbers a step are too few to share.

    Threads that wait for each other cost more than they bring on small tensors, and ten times as
    much on a machine that has other work.
    """
    before = torch.get_num_threads()
    if work < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
