"""The contract of splitters, which fit the splits of a growing tree."""

from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayestree import inference
from bayestree.inference import Data, GrowthLimits
from bayestree.inference.splitters import FittedSplit
from bayestree.models import Categorical, Oblique, SoftTree
from bayestree.models.contracts.base import Contract, assert_close, seeded
from bayestree.models.priors.base import Lengths
from bayestree.runs.checkpoints import from_bytes, to_bytes
from bayestree.testing.contract import check_every_stop, global_state, same_posterior
from bayestree.topology import Topology

N_ROWS = 120


class SplitterContract(Contract):
    """Tests of a splitter on rows whose classes, or means, depend on the first feature.

    Attributes
    ----------
    splitter : Splitter
        For the ``leaf`` and the ``split``.
    leaf : Leaf
    split : Split
    min_leaf : int
        Least number of rows on each side of a split.
    share : float
        Share of the largest gain by one feature that a split must have.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import torch
    >>> from bayestree.inference.splitters import FittedSplit, NodeByNode
    >>> from bayestree.models import Categorical
    >>> @dataclass(frozen=True)
    ... class AtZero(NodeByNode):
    ...     leaf: Categorical
    ...     def split(self, data):
    ...         right = data.X[:, 0] > 0
    ...         if right.all() or not right.any():
    ...             return None
    ...         statistics = self.leaf.statistics(data.y, data.weights)
    ...         plane = torch.eye(1, data.X.shape[1]).to(data.X)
    ...         sites = {"hyperplane": plane, "intercept": plane.new_zeros(1)}
    ...         return FittedSplit(sites, right, self.leaf.criterion.hard_gain(statistics, right))
    >>> class TestAtZero(SplitterContract):
    ...     splitter = AtZero(Categorical(2))
    >>> TestAtZero.check()
    {}
    """

    splitter: ClassVar[Any]
    leaf: ClassVar[Any] = Categorical(2)
    split: ClassVar[Any] = Oblique()
    min_leaf: ClassVar[int] = 1
    share: ClassVar[float] = 0.9

    @cached_property
    def data(self) -> Data:
        """Rows with a gap between two groups, which differ in y, and uneven weights."""
        X = seeded(0, lambda: torch.randn(N_ROWS, 2, dtype=torch.float64))
        right = X[:, 0] > 0
        X[:, 0] += torch.where(right, 0.5, -0.5)
        y = self.response(right, seeded(1, lambda: torch.rand(N_ROWS, dtype=torch.float64)))
        weights = 0.5 + seeded(2, lambda: torch.rand(N_ROWS, dtype=torch.float64))
        return Data.of(X, y, weights).for_leaf(self.leaf)

    def response(self, right: Tensor, noise: Tensor) -> Tensor:
        """Return y given the sides of the rows and uniform noise, one row of ten on the wrong side.

        Classes or, for numeric leaves, real values.
        """
        group = right ^ (noise < 0.1)
        return group.long() if self.leaf.n_classes else 3 * group.double() + noise

    @property
    def nodes(self) -> list[Tensor]:
        """Rows of three nodes of different size, which overlap."""
        return [torch.arange(N_ROWS), torch.arange(40), torch.arange(30, 110)]

    def _found(self, data: Data | None = None, seed: int = 0) -> list[FittedSplit | None]:
        """Split the nodes."""
        return seeded(seed, lambda: self.splitter(data or self.data, self.nodes))

    def _splits(self) -> list[tuple[Data, FittedSplit]]:
        """Return each node's rows and its split, which it must have."""
        found = self._found()
        assert len(found) == len(self.nodes), f"{len(found)} splits of {len(self.nodes)} nodes"
        pairs = []
        for rows, split in zip(self.nodes, found, strict=True):
            assert split is not None, f"no split of {len(rows)} rows that differ"
            pairs.append((self.data.take(rows), split))
        return pairs

    def test_sites_are_those_of_one_node(self) -> None:
        shapes = self.split.shapes(Lengths(1, self.split.n_experts, 2, 2))
        expected = {name: tuple(shape[1:]) for name, shape in shapes.items()}
        for _, split in self._splits():
            found = {name: tuple(site.shape) for name, site in split.sites.items()}
            assert found == expected, f"sites have shapes {found}, not {expected}"

    def test_sides_are_parted_at_probability_one_half(self) -> None:
        for data, split in self._splits():
            sites = {name: site.unsqueeze(0) for name, site in split.sites.items()}
            odds = self.split.log_odds(sites, data.X)[:, 0]
            wrong = ((odds > 0) != split.right) & (odds.abs() > 1e-9)
            assert not wrong.any(), f"{int(wrong.sum())} rows are not where their log-odds say"

    def test_each_side_has_enough_rows(self) -> None:
        for _, split in self._splits():
            sides = int((~split.right).sum()), int(split.right.sum())
            assert min(sides) >= self.min_leaf, f"sides of {sides} rows, below {self.min_leaf}"

    def test_the_gain_is_that_of_the_leaves(self) -> None:
        for data, split in self._splits():
            statistics = self.leaf.statistics(data.y, data.weights)
            gain = self.leaf.criterion.hard_gain(statistics, split.right)
            assert_close(split.gain, gain, "gain in nats", atol=1e-9)

    def test_the_planted_split_is_found(self) -> None:
        for data, split in self._splits():
            statistics = self.leaf.statistics(data.y, data.weights)
            gain = self.leaf.criterion.hard_gain(statistics, data.X[:, 0] > 0)
            least = self.share * gain
            assert split.gain >= least, f"a gain of {split.gain:.3g}, where x > 0 has {gain:.3g}"

    def test_equal_rows_are_not_split(self) -> None:
        found = self._found(self.data._replace(X=torch.ones_like(self.data.X)))
        assert found == [None] * 3, "rows with the same features cannot be told apart"

    def test_the_seed_of_torch_decides(self) -> None:
        before, copy = global_state(), [part.clone() for part in self.data]
        one, again = self._found(seed=3), self._found(seed=3)
        assert to_bytes(plain(one)) == to_bytes(plain(again)), "one seed, two results"
        assert global_state() == before, "a global state has changed"
        same = all(torch.equal(a, b) for a, b in zip(copy, self.data, strict=True))
        assert same, "the rows have changed"

    def test_splits_survive_in_a_file(self) -> None:
        found = plain(self._found())
        assert to_bytes(from_bytes(to_bytes(found))) == to_bytes(found), "not the same from a file"

    def test_growth_goes_on_after_an_interruption(self) -> None:
        model = SoftTree(Topology.leaf(), self.split, leaf=self.leaf)
        limits = GrowthLimits(2, min_leaf=max(self.min_leaf, 5), min_gain=0.5)

        def fit() -> Any:
            return inference.grow(
                model, self.data, limits=limits, splitter=self.splitter, random_state=0
            )

        assert fit().model.topology.n_nodes > 0, "growth finds no split"
        check_every_stop(fit, same_posterior)


def plain(found: list[FittedSplit | None]) -> dict[str, Any]:
    """Return splits as types that a file can hold."""
    return {"splits": [None if split is None else tuple(split) for split in found]}
