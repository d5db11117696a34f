"""The inference methods of the package keep their contract."""

from functools import cached_property

import numpy as np
import pytest
import torch

from bayestree.baselines import random_oblique
from bayestree.inference import Em, Growth, GrowthLimits, Map, Mcmc, Nuts, Smc, Stage, Svi, Vi
from bayestree.literature.forests import NeuralTree
from bayestree.literature.locally_constant import LocallyConstant
from bayestree.literature.tao import Tao
from bayestree.literature.whole_trees import NonGreedy
from bayestree.models import Oblique, named
from bayestree.runs.checkpoints import to_bytes
from bayestree.testing import StageContract
from tests.testing.covered import covered, subclasses


class TestGrowth(StageContract):
    stage = Growth(steps=5, n_restarts=2)

    def fit(self, seed=0):
        limits = GrowthLimits(2, min_leaf=5, min_gain=0.5)
        return self.stage.fit(self.model, self.data, limits=limits, random_state=seed)


class TestMap(StageContract):
    stage = Map(epochs=3, batch_size=25)


class TestMapWithAChoiceOfTheSteepness(StageContract):
    stage = Map(epochs=2, batch_size=25, steepness=None)


class TestMapByBatches(StageContract):
    stage = Map(optimiser="lbfgs", epochs=3)


class TestSvi(StageContract):
    stage = Svi(epochs=3, batch_size=25, n_draws=4)


class TestSviByAGuideOfPyro(StageContract):
    stage = Svi(guide="AutoNormal", epochs=3, n_draws=4)


class TestVi(StageContract):
    stage = Vi(n_steps=6, n_draws=4)


class TestViInMinibatches(StageContract):
    stage = Vi(n_steps=6, batch_size=25, n_draws=4, steepness=2.0)


class TestEm(StageContract):
    stage = Em(epochs=3, batch_size=25)
    split = Oblique()
    parameters = None


class TestNuts(StageContract):
    stage = Nuts(n_chains=2, n_warmup=10, n_draws=5, max_tree_depth=3)

    @cached_property
    def start(self):
        init = super().start
        return Svi(epochs=2, n_draws=3).fit(init.model, self.data, init=init, random_state=0)


class TestMcmc(TestNuts):
    stage = Mcmc(n_chains=2, n_warmup=10, n_draws=5)


class TestSmc(StageContract):
    stage = Smc(n_chains=2, n_draws=8, n_rounds=1, max_depth=1)
    split = Oblique()
    parameters = {"n_experts": 1}


class Rival(StageContract):
    """A method of the literature, which makes oblique splits from none."""

    split = Oblique()
    parameters = None

    @cached_property
    def start(self):
        return None

    def fit(self, seed=0):
        return self.stage.fit(self.model, self.data, random_state=seed)

    def unchanged(self, start):
        return start == self.start


class TestLocallyConstant(Rival):
    stage = LocallyConstant(epochs=3)


class TestNeuralTree(Rival):
    stage = NeuralTree(epochs=3)


class FromTree(Rival):
    """A method that continues from a tree."""

    @cached_property
    def start(self):
        return random_oblique(self.data.X.numpy(), 2, random_state=0)

    def unchanged(self, start):
        return to_bytes(start.arrays()) == to_bytes(self.start.arrays())


class TestNonGreedy(FromTree):
    stage = NonGreedy(epochs=3)

    def fit(self, seed=0):
        return self.stage.fit(self.model, self.data, init=self.start, random_state=seed)


class TestTao(FromTree):
    stage = Tao(sweeps=4)

    @property
    def model(self):
        return named.alternating(self.leaf, split=Oblique())

    def fit(self, seed=0):  # draws nothing
        return self.stage.fit(self.model, self.data, init=self.start)


def test_no_method_is_left_out():
    ours = {  # without the examples of docstrings, and bases that declare no settings
        kind
        for kind in subclasses(Stage)
        if "__dataclass_fields__" in vars(kind)
        and kind.__module__.startswith("bayestree.")
        and ".testing." not in kind.__module__
    }
    assert covered(globals(), "stage") == ours


class TestBroken:
    """The contract notices a method that does more, or less, than it says."""

    def contract(self, work):
        class Broken(Map):
            def run(self, found, data, **common):
                return work(super().run(found, data, **common), found)

        return type("Contract", (StageContract,), {"stage": Broken(epochs=2)})

    def test_a_generator_without_a_seed(self):
        def shaken(result, start):
            result.point["intercept"][...] += torch.rand(1).numpy()
            return result

        contract = self.contract(shaken)
        with pytest.raises(AssertionError, match="one seed, two results"):
            contract().test_the_seed_decides()
        with pytest.raises(AssertionError, match="changes a global state: use seeded"):
            contract().test_nothing_else_changes()

    def test_a_start_that_is_written_to(self):
        def overwritten(result, start):
            start.point["intercept"][...] = 0
            return result

        with pytest.raises(AssertionError, match="changes its start"):
            self.contract(overwritten)().test_nothing_else_changes()

    def test_numbers_that_are_not_finite(self):
        def missing(result, start):
            result.draws["intercept"][...] = np.nan
            return result

        with pytest.raises(AssertionError, match="intercept of draws is not finite"):
            self.contract(missing)().test_the_result_has_the_sites_of_its_model()
