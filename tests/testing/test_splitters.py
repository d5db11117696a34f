"""The splitters of the package keep their contract."""

import pytest

from bayestree.inference.splitters.planes import PlaneSplitter
from bayestree.inference.splitters.stumps import StumpFitter
from bayestree.literature._em_stumps import EndToEndSplitter
from bayestree.literature.bivariate import BivariateSplitter
from bayestree.literature.oblique import SEARCHES
from bayestree.literature.weighted_oblique import WeightedSplitter
from bayestree.models import (
    Categorical,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    Oblique,
    Polytope,
    Priors,
)
from bayestree.testing import SplitterContract

CLASSES, REALS = Categorical(2), Gaussian()
PRIOR = InverseGammaScale(2.0)
EM = {"epochs": 30, "learning_rate": 0.1}
FIT = {"steps": 30, "n_restarts": 2, "rows_per_node": 100, "learning_rate": 0.1, "min_leaf": 5}


class TestStumps(SplitterContract):
    splitter = StumpFitter(Polytope(3), CLASSES, PRIOR, **FIT)
    split = Polytope(3)
    min_leaf = 5


class TestObliqueStumps(SplitterContract):
    splitter = StumpFitter(Oblique(), REALS, PRIOR, **FIT)
    leaf = REALS
    min_leaf = 5


class TestEndToEnd(SplitterContract):
    splitter = EndToEndSplitter(Oblique(), CLASSES, Priors(GammaProcess(), PRIOR), **EM)


class TestEndToEndOfReals(SplitterContract):
    splitter = EndToEndSplitter(Oblique(), REALS, Priors(GammaProcess(), PRIOR), **EM)
    leaf = REALS


class TestBivariate(SplitterContract):
    splitter = BivariateSplitter(CLASSES)


class TestBivariateOfReals(SplitterContract):
    splitter = BivariateSplitter(REALS)
    leaf = REALS


class TestWeighted(SplitterContract):
    splitter = WeightedSplitter(CLASSES)


class TestWeightedOfReals(SplitterContract):
    splitter = WeightedSplitter(REALS)
    leaf = REALS


class Searched(SplitterContract):
    """A search for a hyperplane, by its name."""

    search = ""

    @property
    def splitter(self):
        return PlaneSplitter(SEARCHES[self.search](), self.leaf, min_leaf=4)

    min_leaf = 4


class TestHHCart(Searched):
    search = "hhcart"


class TestOC1(Searched):
    search = "oc1"


class TestCartLC(Searched):
    search = "cart-lc"
    leaf = REALS


class TestCO2(Searched):
    search = "co2"


class TestGuide(Searched):
    search = "guide"


def test_no_search_is_left_out():
    assert {kind.search for kind in Searched.__subclasses__()} == SEARCHES.keys()


class TestBroken:
    """The contract notices gains and sides that are not those of the split."""

    @pytest.mark.parametrize(
        ("broken", "test", "message"),
        [
            (lambda s: s._replace(gain=s.gain + 1), "gain_is_that_of_the_leaves", "gain in nats"),
            (
                lambda s: s._replace(right=~s.right),
                "sides_are_parted_at_probability_one_half",
                "rows are not where their log-odds say",
            ),
            (
                lambda s: s._replace(sites={n: v[None] for n, v in s.sites.items()}),
                "sites_are_those_of_one_node",
                "sites have shapes",
            ),
            (lambda s: None, "planted_split_is_found", "no split of 120 rows that differ"),
        ],
    )
    def test_a_split_that_is_not_as_it_says(self, broken, test, message):
        class Broken(BivariateSplitter):
            def split(self, data):
                return broken(super().split(data))

        class Contract(SplitterContract):
            splitter = Broken(CLASSES)

        (name,) = [name for name in dir(Contract) if name.endswith(test)]
        with pytest.raises(AssertionError, match=message):
            getattr(Contract(), name)()
