"""Steps of a fit on rows in partitions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayestree.inference import Data
from bayestree.inference.partitions import Shares, add_up


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 12), st.integers(0, 9))
def test_an_epoch_has_every_row_once(sizes, n_steps, seed):
    first = np.cumsum([0, *sizes])
    held = {
        number: Data.of(np.arange(first[number], first[number + 1])[:, None], np.zeros(size))
        for number, size in enumerate(sizes)
    }
    before = torch.get_rng_state()
    seen = []
    for count, batches in Shares(held, sizes, n_steps, seed):
        rows = [row for _, batch in batches for row in batch.X[:, 0].tolist()]
        assert len(rows) == count
        seen += rows
    torch.set_rng_state(before)
    assert sorted(seen) == list(range(sum(sizes)))


@pytest.mark.parametrize("numbers", [[0], [1, 2], [0, 1, 2]])
def test_the_rows_of_a_partition_do_not_depend_on_who_holds_it(numbers):
    sizes = [30, 20, 7]
    every = {
        n: Data.of(np.arange(size)[:, None] + 100 * n, np.zeros(size))
        for n, size in enumerate(sizes)
    }

    def batches(held):
        state = torch.get_rng_state()
        try:
            return [
                {share.number: batch.X[:, 0].tolist() for share, batch in batches}
                for _, batches in Shares(held, sizes, 4, seed=3)
            ]
        finally:
            torch.set_rng_state(state)

    whole, part = batches(every), batches({n: every[n] for n in numbers})
    assert part == [{n: step[n] for n in numbers if n in step} for step in whole]


def test_sums_of_one_message():
    other = torch.arange(9.0)
    first, second = torch.ones(2, 2), torch.full((3,), 2.0)
    moved, idle = (torch.zeros(1, requires_grad=True) for _ in range(2))
    moved.grad = torch.ones(1)

    add_up([moved, idle], [first, second], lambda message: message.add_(other))
    assert first.tolist() == [[1, 2], [3, 4]]
    assert second.tolist() == [6, 7, 8]
    assert (moved.grad.tolist(), idle.grad.tolist()) == ([8], [8])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=70), st.integers(1, 40))
def test_minibatches_are_even(sizes, n_steps):
    counts = [count for count, _ in Shares({}, sizes, n_steps, seed=0)]
    assert sum(counts) == sum(sizes)
    # each partition has the integer below or above its share, and not all of them the one above
    assert all(abs(count - sum(sizes) / n_steps) < len(sizes) for count in counts)


def test_small_partitions_take_turns():
    counts = [count for count, _ in Shares({}, [10] * 64, 64, seed=0)]
    assert len(counts) == 64
    assert min(counts) >= 7
    assert max(counts) <= 13
