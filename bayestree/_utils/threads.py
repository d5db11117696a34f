"""Number of threads appropriate for the size of the work."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 500_000


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Run the block on one thread if steps of ``work`` numbers are too small to share.

    For small tensors, synchronisation costs more than it gains, and ten times as much on a
    machine under load.
    """
    before = torch.get_num_threads()
    if work < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
