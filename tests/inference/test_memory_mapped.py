"""Tensors in files, and the rows of a fit in them."""

import atexit
import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bayestree.inference import Data, GrowthLimits, grow, harden, memory_mapped
from bayestree.inference.memory_mapped import mapped_tensor, scratch_in
from bayestree.inference.pointwise import summed
from bayestree.models import Categorical, Gaussian, named
from bayestree.models.leaves import Leaf

N, WIDTH = 1000, 3


@pytest.fixture
def held(monkeypatch):
    """At most 900 numbers of mapped rows are in memory: 300 rows, and 37 in a shuffle."""
    monkeypatch.setattr(memory_mapped, "HELD", 900)
    monkeypatch.setattr("bayestree.inference.data.BLOCK", 4 * WIDTH * 8)  # four rows


def mapped(X: Tensor) -> Tensor:
    into = mapped_tensor(tuple(X.shape), X.dtype)
    into.copy_(X)
    return into


def rows_of(leaf: Leaf | None = None, *, in_file: bool = True) -> Data:
    """The first feature is the number of the row, and so sorted."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, WIDTH))
    X[:, 0] = np.arange(N) / N
    outside = (X[:, 0] > 0.3) & (X[:, 1] > 0)
    y = outside + 0.1 * rng.standard_normal(N) if isinstance(leaf, Gaussian) else outside + 0
    data = Data.of(X, y, rng.uniform(0.5, 2, N))
    return data._replace(X=mapped(data.X)) if in_file else data


def numbers(data: Data) -> list[int]:
    return (data.X[:, 0] * N).round().int().tolist()


class TestMappedTensor:
    def test_takes_no_name_and_starts_at_zero(self, tmp_path):
        with scratch_in(tmp_path):
            tensor = mapped_tensor((5, 2), torch.float32)
        assert tensor.shape == (5, 2)
        assert not tensor.any()
        assert memory_mapped.is_mapped(tensor[1:])
        assert not memory_mapped.is_mapped(tensor.clone())
        assert list(tmp_path.iterdir()) == []

    def test_where_mapped_files_cannot_be_unlinked(self, monkeypatch, tmp_path):
        """As on Windows: the file is removed when the process ends."""

        def busy(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        left = []
        monkeypatch.setattr(atexit, "register", lambda *call: left.append(call))
        with scratch_in(tmp_path), monkeypatch.context() as windows:
            windows.setattr(Path, "unlink", busy)
            tensor = mapped_tensor((5, 2), torch.float32)
        tensor += 1
        ((action, path),) = left
        assert [*tmp_path.iterdir()] == [path]
        action(path)
        assert [*tmp_path.iterdir()] == []

    def test_full_disk(self, monkeypatch, tmp_path):
        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", full)
        with scratch_in(tmp_path), pytest.raises(OSError, match=r"no room for 2.0 GiB.*TMPDIR"):
            mapped_tensor((2**15, 2**13), torch.float64)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("held")
class TestData:
    @pytest.mark.parametrize("size", [7, 64, 300, 999])
    def test_an_epoch_has_every_row_once(self, size):
        batches = list(rows_of().batches(size))
        assert sorted(i for batch in batches for i in numbers(batch)) == list(range(N))
        assert len(batches) == -(-N // size)
        sizes = {len(batch.X) for batch in batches[:-1]}
        assert sizes == {-(-N // len(batches))}
        assert not any(batch.mapped for batch in batches)

    def test_rows_keep_their_y_and_weights(self):
        data = rows_of()
        for batch in data.batches(50):
            own = numbers(batch)
            assert torch.equal(batch.y, data.y[own])
            assert torch.equal(batch.weights, data.weights[own])

    def test_minibatches_are_of_rows_from_all_over_the_file(self):
        first = numbers(next(iter(rows_of().batches(36))))
        assert min(first) < N / 3
        assert max(first) > 2 * N / 3
        assert first != sorted(first)

    def test_held_rows_are_spread(self):
        held = rows_of().held()
        assert not held.mapped
        own = numbers(held)
        assert len(own) == 300
        assert [number * 300 // N for number in own] == pytest.approx(range(300), abs=1)
        assert rows_of(in_file=False).held().X.shape == (N, WIDTH)

    def test_subset_stays_mapped(self):
        data, own = rows_of(), torch.arange(3, N, 2)
        subset = data.subset(own)
        assert subset.mapped
        assert numbers(subset) == own.tolist()
        assert torch.equal(subset.y, data.y[own])


@pytest.mark.parametrize("size", [100, N])
def test_ones_are_added_to_each_part(size):
    data = rows_of(in_file=False)
    for whole, added in (
        (data.with_ones().parts(size), data.parts(size, ones=True)),
        (data.with_ones().batches(size), data.batches(size, ones=True)),
    ):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            expected = list(whole)
            torch.manual_seed(0)
            for one, other in zip(expected, added, strict=True):
                assert all(map(torch.equal, one, other))
                assert other.X.is_contiguous()


def test_sum_of_many_terms(monkeypatch):
    terms = torch.arange(60.0).view(10, 6)
    assert torch.equal(summed(iter(terms)), terms.sum(0))
    monkeypatch.setattr(memory_mapped, "HELD", 13)
    assert torch.equal(summed(iter(terms)), terms.sum(0))


@pytest.mark.parametrize("leaf", [Categorical(2), Gaussian()])
def test_deterministic_form_is_that_of_rows_in_memory(leaf):
    limits = GrowthLimits(max_depth=3, min_gain=0.0)
    data = rows_of(leaf, in_file=False)
    model = named.convex_polytope(leaf, n_experts=2)
    grown = grow(model, data, limits=limits, steps=20, random_state=0)
    strict = GrowthLimits(max_depth=3, min_gain=10.0)
    expected = harden(grown, data, limits=strict)
    found = harden(grown, data._replace(X=mapped(data.X)), limits=strict)
    assert 0 < expected.posterior.model.topology.n_nodes < grown.model.topology.n_nodes
    assert found.posterior.model.topology == expected.posterior.model.topology
    np.testing.assert_array_equal(found.sources, expected.sources)
    for site, value in expected.posterior.point.items():
        np.testing.assert_allclose(found.posterior.point[site], value, rtol=1e-10)


@pytest.mark.usefixtures("held")
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_growth_on_a_part_of_mapped_rows():
    model, seen = named.convex_polytope(Categorical(2), n_experts=2), []

    class Splitter:
        rows_per_node = 100

        def numbers_per_row(self, n_features: int) -> int:
            return n_features

        def __call__(self, data: Data, rows: list[Tensor]) -> list[None]:
            seen.append(len(data.X))
            assert not data.mapped
            return [None] * len(rows)

    grow(model, rows_of(), splitter=Splitter(), random_state=0)
    assert seen == [300]
