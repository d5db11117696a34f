"""Rows in partitions, which several processes hold: who takes the steps of a fit, and how.

The process that runs a fit then has a sample of the rows, weighted to represent all of them. From
it come the units, the grown tree, and what is measured after the fit. The epochs of the
fit go through all rows: each process adds up the gradients of its partitions, and the sums over
all processes (``reduce``) lead to the same step in each of them. A minibatch has rows of every
partition in proportion to its size. What is random in the rows of a partition comes from a
generator of its own, so that the numbers of a fit depend on the partitions, and not on how many
processes hold them; only the order of the sums differs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor

from bayestree.inference.data import Data

#: Add a tensor to those of the other processes, in place.
Reduce = Callable[[Tensor], Any]


class PartitionedRows(Protocol):
    """The rows of a fit, as the process that runs it sees them."""

    n_rows: int  # of positive weight
    weight: float  # of all of them

    def prepare(self, load: Callable[..., Data], low: Any, high: Any) -> None:
        """Let the processes derive the rows of the fit from those of their tables by ``load``.

        Features are moved into the range from ``low`` to ``high``, (d,).
        """

    def epoch(self, fit: Any, what: Any) -> tuple[Any, float]:
        """Return ``fit`` after its ``shared_epoch`` of all rows, given ``what``, and the value."""


GOLDEN = 0.6180339887498949
_elsewhere: ContextVar[PartitionedRows | None] = ContextVar("elsewhere", default=None)


def elsewhere() -> PartitionedRows | None:
    """Return the partitioned rows of the present fit; None if its rows are in this process."""
    return _elsewhere.get()


@contextmanager
def partitioned(rows: PartitionedRows | None) -> Iterator[None]:
    """Let the fit of the block, which has a sample, take its steps on partitioned rows, if any."""
    token = _elsewhere.set(rows)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def n_rows(data: Data) -> int:
    """Return the number of rows of a fit that is given these."""
    rows = elsewhere()
    return len(data.X) if rows is None else rows.n_rows


class Share:
    """The minibatches of a partition in an epoch, and its random numbers."""

    def __init__(self, number: int, batches: Iterator[Data], seed: int) -> None:
        self.number, self._batches = number, batches
        # consecutive seeds give unrelated streams of the Mersenne twister
        self._state = torch.Generator().manual_seed(seed + number).get_state()

    @contextmanager
    def random(self) -> Iterator[None]:
        """Draw the random numbers of the block from the partition's generator."""
        torch.set_rng_state(self._state)
        yield
        self._state = torch.get_rng_state()

    def next(self) -> Data:
        """Return the rows of the next step."""
        with self.random():
            return next(self._batches)


class Shares:
    """The steps of an epoch, with the partitions that this process holds.

    ``sizes`` are the numbers of rows of all partitions, and ``held`` the rows of those of this
    process by number; ``ones``: see ``Data.batches``.
    """

    def __init__(
        self,
        held: Mapping[int, Data],
        sizes: Sequence[int],
        n_steps: int,
        seed: int,
        *,
        ones: bool = True,
    ) -> None:
        self.n_steps, self._sizes = n_steps, sizes
        self._shares = [
            Share(number, self._batches(number, data, ones=ones), seed)
            for number, data in sorted(held.items())
            if sizes[number]
        ]

    def _batches(self, number: int, data: Data, *, ones: bool) -> Iterator[Data]:
        counts = (self._count(number, step) for step in range(self.n_steps))
        return (
            data.dealt(counts, ones=ones)
            if self.n_steps > 1
            else data.batches(len(data.X), ones=ones)
        )

    def _count(self, number: int, step: int) -> int:
        """Return how many rows a partition has in a step: in all of them, it has all of its rows.

        The numbers are as even as whole numbers can be. Where partitions have few rows, those of
        different partitions come in different steps, by multiples of the golden ratio.
        """
        size, n = self._sizes[number], self.n_steps
        first = int(number * GOLDEN % 1 * n)
        return ((step + 1) * size + first) // n - (step * size + first) // n

    def __iter__(self) -> Iterator[tuple[int, list[tuple[Share, Data]]]]:
        """Yield for each step the number of its rows in all processes, and those of this one."""
        for step in range(self.n_steps):
            count = sum(self._count(number, step) for number in range(len(self._sizes)))
            here = [(share, share.next()) for share in self._shares]
            if count:
                yield count, [(share, batch) for share, batch in here if len(batch.X)]


def add_up(parameters: Iterable[Tensor], tensors: Sequence[Tensor], reduce: Reduce) -> None:
    """Add gradients and other tensors to those of the other processes, in place, in one message."""
    values = [*tensors]
    for parameter in parameters:
        if parameter.grad is None:  # of a process without rows in this step
            parameter.grad = torch.zeros_like(parameter)
        values.append(parameter.grad)
    message = torch.cat([value.reshape(-1) for value in values])
    reduce(message)
    parts = message.split([value.numel() for value in values])
    for value, part in zip(values, parts, strict=True):
        value.copy_(part.view(value.shape))
