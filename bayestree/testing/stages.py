"""The contract of inference methods, the stages of a fit."""

import copy
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch

from bayestree import ConvexPolytopeTreeClassifier, inference, load
from bayestree._utils.parameters import parameters_of
from bayestree.inference import Data, GrowthLimits, Posterior
from bayestree.models import Categorical, Polytope, SoftTree
from bayestree.models.contracts.base import Contract, assert_copied, seeded, skip_unless
from bayestree.testing.contract import check_every_stop, global_state, same_posterior
from bayestree.topology import Topology

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
