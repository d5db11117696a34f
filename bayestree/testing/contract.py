"""The contracts of inference methods and of splitters, and fits that are stopped and resumed."""

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pyro
import torch
from torch import Tensor

from bayestree import ConvexPolytopeTreeClassifier, inference, load
from bayestree._utils.parameters import parameters_of
from bayestree._utils.progress import Watch, watching
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.inference.splitters import FittedSplit
from bayestree.models import Categorical, Oblique, Polytope, SoftTree
from bayestree.models.contracts.base import (
    Contract,
    assert_close,
    assert_copied,
    seeded,
    skip_unless,
)
from bayestree.models.priors.base import Lengths
from bayestree.runs.checkpoints import capture, from_bytes, restore, to_bytes
from bayestree.topology import Topology

GROUPS = ("draws", "point", "stats", "warmup_draws", "warmup_stats")


def global_state() -> tuple[Any, ...]:
    """Return the state that calls share: of random generators, of torch and of Pyro."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 - the global state is what is watched
    return (
        torch.get_rng_state().tolist(),
        numpy_state[1].tolist(),
        numpy_state[2:],
        random.getstate(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        sorted(pyro.get_param_store().keys()),
        pyro.settings.get(),
    )


class Stopped(Exception):  # noqa: N818 - what it says, like StopIteration
    """A fit was stopped on purpose."""


class Watcher:
    """A monitor that keeps the outermost loops of a fit, and may stop after one of their steps.

    Parameters
    ----------
    at : int, optional
        Stop after this total number of steps of all outermost loops.
    kept : dict
        States of the loops of an earlier fit, in the order of the loops.
    """

    def __init__(self, at: int | None = None, kept: Mapping[int, bytes] | None = None) -> None:
        self.at, self.kept = at, dict(kept or {})
        self.depth = self.loops = self.steps = 0
        self.labels: list[str] = []

    def begin(self, label: str, total: int, parts: Any, *, show: bool) -> "_WatchedLoop":
        if self.depth:
            return _WatchedLoop(self, None, total, None)
        self.loops += 1
        self.labels.append(label)
        assert parts is not None, f"the loop {label!r} cannot be resumed: state the parts of Track"
        return _WatchedLoop(self, self.loops, total, parts)


class _WatchedLoop(Watch):
    def __init__(self, watcher: Watcher, number: int | None, total: int, parts: Any) -> None:
        self.watcher, self.number, self.total, self.parts = watcher, number, total, parts

    def start(self) -> int:
        self.watcher.depth += 1
        raw = None if self.number is None else self.watcher.kept.get(self.number)
        if raw is None:
            return 0
        state = from_bytes(raw)
        restore(self.parts, state["parts"])
        torch.set_rng_state(state["generator"])
        return int(state["done"])

    def step(self, done: int) -> None:
        if self.number is None:
            return
        self.watcher.steps += 1
        if self.watcher.steps == self.watcher.at:
            self._keep(done)
            raise Stopped

    def finish(self) -> None:
        if self.number is not None:
            self._keep(self.total)

    def stop(self) -> None:
        self.watcher.depth -= 1

    def _keep(self, done: int) -> None:
        assert self.number is not None
        state = {"done": done, "parts": capture(self.parts), "generator": torch.get_rng_state()}
        self.watcher.kept[self.number] = to_bytes(state)


def check_every_stop(
    fit: Callable[[], Any], same: Callable[[Any, Any], bool], *, most: int = 2
) -> list[str]:
    """Stop a fit after a step, resume it, and compare the results; at several of its steps.

    Parameters
    ----------
    fit : callable
        Without arguments.
    same : callable
        Whether two results of ``fit`` are equal, bit for bit.
    most : int
        Number of steps at which the fit is stopped: the first, then the last, then others.

    Returns
    -------
    list of str
        The labels of the outermost loops.

    Raises
    ------
    AssertionError
        If a resumed fit repeats steps, or its result differs.
    """
    expected, whole = _watched(fit)
    gaps = max(1, min(most, whole.steps) - 1)
    for at in sorted({1 + i * (whole.steps - 1) // gaps for i in range(min(most, whole.steps))}):
        stopped = Watcher(at)
        try:
            with watching(stopped):
                fit()
        except Stopped:
            pass
        else:
            raise AssertionError(f"the fit has fewer than {at} steps the second time")
        found, again = _watched(fit, stopped.kept)
        where = f"stopped after {at} of {whole.steps} steps"
        assert again.labels == whole.labels, f"{where}: loops {again.labels}, not {whole.labels}"
        assert again.steps == whole.steps - at, f"{where}: {again.steps} steps were done again"
        assert same(found, expected), f"{where}: the resumed fit has another result"
    return whole.labels


def _watched(fit: Callable[[], Any], kept: Mapping[int, bytes] | None = None) -> tuple[Any, Any]:
    with watching(watcher := Watcher(kept=kept)):
        return fit(), watcher


def same_posterior(a: Posterior, b: Posterior) -> bool:
    """Return whether two posteriors are equal, bit for bit, apart from the sign of NaN."""
    return a.model == b.model and all(_bits(a, group) == _bits(b, group) for group in GROUPS)


def _bits(posterior: Posterior, group: str) -> dict[str, tuple[str, bytes]]:
    found = {}
    for name, value in getattr(posterior, group).items():
        missing = np.isnan(value) if value.dtype.kind == "f" else False
        found[name] = (str(value.dtype), np.where(missing, np.nan, value).tobytes())
    return found


N_ROWS = 60
_FOUND: dict[type, Posterior] = {}


class StageContract(Contract):
    """Tests of an inference method, ``stage``, on a grown tree and the rows of a small problem.

    Choose settings of a short fit, and override ``model`` or ``start`` for a method that needs
    other splits or leaves, or another start.

    Attributes
    ----------
    stage : Stage
    split : Split
    leaf : Leaf
        Of two classes.
    parameters : dict, optional
        Other parameters of a ``ConvexPolytopeTreeClassifier(inference=stage)``; None if this
        estimator does not accept the method.

    Examples
    --------
    >>> from typing import Annotated
    >>> from bayestree._utils.parameters import Count, Inference, declare
    >>> from bayestree.inference import Map, Stage
    >>> @declare
    ... class Twice(Stage):
    ...     epochs: Annotated[Count, Inference("Epochs of each fit.")] = 2
    ...     def run(self, found, data, **common):
    ...         for _ in range(2):
    ...             found = Map(epochs=self.epochs).run(found, data, **common)
    ...         return found
    >>> class TestTwice(StageContract):
    ...     stage = Twice(epochs=3)
    >>> TestTwice.check()
    {}
    """

    stage: ClassVar[Any]
    split: ClassVar[Any] = Polytope(2)
    leaf: ClassVar[Any] = Categorical(2)
    parameters: ClassVar[Mapping[str, Any] | None] = {"max_depth": 1, "n_experts": 2}

    @cached_property
    def data(self) -> Data:
        """Rows in which the class depends on the signs of two features."""
        X = seeded(0, lambda: torch.randn(N_ROWS, 2, dtype=torch.float64))
        return Data.of(X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).long())

    @property
    def model(self) -> SoftTree:
        """The model before its topology is known."""
        return SoftTree(Topology.leaf(), self.split, leaf=self.leaf)

    @cached_property
    def start(self) -> Posterior:
        """What the method continues from: here, a grown tree."""
        limits = GrowthLimits(2, min_leaf=5, min_gain=0.5)
        return inference.grow(self.model, self.data, limits=limits, steps=10, random_state=0)

    def fit(self, seed: int = 0) -> Posterior:
        """Run the method."""
        found: Posterior = self.stage.run(self.start, self.data, random_state=seed)
        return found

    @property
    def _found(self) -> Posterior:
        """The result of the first seed, which several tests share and none changes."""
        kind = type(self)
        if kind not in _FOUND:
            _FOUND[kind] = self.fit()
        return _FOUND[kind]

    def test_a_copy_is_equal(self) -> None:
        assert_copied(self.stage)
        same = replace(self.stage) == self.stage
        assert same, f"{self.stage!r} with no change is not equal to it"

    def test_settings_do_not_change(self) -> None:
        for name in (*parameters_of(type(self.stage)), "no_such_setting"):
            try:
                setattr(self.stage, name, 1)
            except FrozenInstanceError:
                continue
            raise AssertionError(f"{name} of {self.stage!r} was changed: use declare")

    def test_the_result_has_the_sites_of_its_model(self) -> None:
        found = self._found
        shapes = found.model.shapes(self.data.X.shape[1])
        for kind, values, first in (("draws", found.draws, 2), ("point", found.point, 0)):
            missing = {*self.split.parameters(shapes), *self.leaf.sites} - values.keys()
            assert not missing, f"{kind} has no {sorted(missing)}"
            for name, value in values.items():
                shape = value.shape[first:]
                assert shape == shapes[name], f"{name} of {kind} has shape {shape}"
                assert np.isfinite(value).all(), f"{name} of {kind} is not finite"

    def test_the_number_of_draws_is_as_stated(self) -> None:
        stated = self.stage.draws or (1, 1)
        for name, value in self._found.draws.items():
            assert value.shape[:2] == stated, f"{name} has {value.shape[:2]} draws, not {stated}"

    def test_predictions_are_probabilities(self) -> None:
        share, _ = self._found.predictive(self.data.X.numpy())
        assert share.min() >= 0, "a probability is negative"
        np.testing.assert_allclose(share.sum(-1), 1.0, err_msg="sums of probabilities")

    def test_the_seed_decides(self) -> None:
        one = self._found
        torch.rand(7)
        assert same_posterior(one, self.fit()), "one seed, two results"

    def test_nothing_else_changes(self) -> None:
        start = copy.deepcopy(self.start)
        rows, before = [part.clone() for part in self.data], global_state()
        self.fit()
        assert global_state() == before, "the method changes a global state: use seeded"
        same = all(torch.equal(a, b) for a, b in zip(rows, self.data, strict=True))
        assert same, "the method changes the rows"
        assert self.unchanged(start), "the method changes its start"

    def unchanged(self, start: Any) -> bool:
        """Return whether the start of the method equals an earlier copy."""
        return same_posterior(start, self.start)

    def test_an_interrupted_fit_goes_on(self) -> None:
        _ = self.start  # which is not part of the fit
        assert check_every_stop(self.fit, same_posterior), "no loop is a Track: use one"

    def test_estimators_take_the_method_and_files_keep_it(self) -> None:
        skip_unless(self.parameters is not None, "not a method for polytopes")
        parameters = {"inference": self.stage, "random_state": 0, **(self.parameters or {})}
        estimator = ConvexPolytopeTreeClassifier(**parameters)
        X, y = self.data.X.numpy(), self.data.y.numpy()
        estimator.fit(X, y)
        with TemporaryDirectory() as folder:
            estimator.save(Path(folder, "tree.safetensors"))
            loaded = load(Path(folder, "tree.safetensors"))
        assert loaded.inference == self.stage, f"the file has {loaded.inference!r}"
        same = np.array_equal(loaded.predict_proba(X), estimator.predict_proba(X))
        assert same, "predictions differ after loading"


SPLIT_ROWS = 120


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
        X = seeded(0, lambda: torch.randn(SPLIT_ROWS, 2, dtype=torch.float64))
        right = X[:, 0] > 0
        X[:, 0] += torch.where(right, 0.5, -0.5)
        y = self.response(right, seeded(1, lambda: torch.rand(SPLIT_ROWS, dtype=torch.float64)))
        weights = 0.5 + seeded(2, lambda: torch.rand(SPLIT_ROWS, dtype=torch.float64))
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
        return [torch.arange(SPLIT_ROWS), torch.arange(40), torch.arange(30, 110)]

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
