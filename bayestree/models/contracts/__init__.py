"""Contracts of priors and leaves: tests, of which estimators run the quick ones before a fit."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from unittest import SkipTest

from bayestree.models.contracts.base import Contract
from bayestree.models.contracts.leaves import LeafContract
from bayestree.models.contracts.priors import HyperplanePriorContract, WeightPriorContract
from bayestree.models.leaves import Leaf
from bayestree.models.priors import Prior, WeightPrior

OF_PRIORS = (
    "a_copy_is_equal",
    "a_density_is_one_number",
    "draws_in_pyro_have_the_density_log_prob",
    "log_density_is_log_prob_up_to_a_constant",
    "the_gradient_is_the_slope_of_log_density",
)
#: The tests of a contract that take milliseconds, and find the usual mistakes; without "test_".
QUICK: Mapping[type[Contract], tuple[str, ...]] = {
    HyperplanePriorContract: (
        *OF_PRIORS,
        "prior_means_are_means_of_draws",
        "the_expectation_is_the_mean_over_independent_coefficients",
    ),
    WeightPriorContract: OF_PRIORS,
    LeafContract: (
        "a_copy_is_equal",
        "a_density_has_a_number_for_each_row_and_leaf",
        "the_model_has_the_density_of_its_pyro_trace",
        "the_posterior_is_proportional_to_prior_and_likelihood",
        "draws_have_the_density",
        "intervals_follow_the_draws",
    ),
}


def broken_contract(part: Prior | Leaf, n_features: int) -> str:
    """Return how a prior or a family fails a quick test of its contract; empty if it passes."""
    try:
        return _broken(part, n_features)
    except TypeError:  # the tests catch theirs
        return (
            f"it has no hash; decorate {type(part).__name__} with @dataclass(frozen=True), and let "
            "its fields be numbers, text or tuples"
        )


@cache
def _broken(part: Prior | Leaf, n_features: int) -> str:
    weighs = isinstance(part, WeightPrior)
    kind: type[Contract] = WeightPriorContract if weighs else HyperplanePriorContract
    own: dict[str, Any] = {"prior": part, "n_features": n_features}
    if isinstance(part, Leaf):
        kind, extra = LeafContract, (1.0,) if part.extra else None
        own |= {"leaf": part, "conjugate": part.exact, "extra": extra}
    contract = type("Contract", (kind,), own)
    for name in QUICK[kind]:
        try:
            getattr(contract(), f"test_{name}")()
        except SkipTest:
            continue
        except AssertionError as error:
            return str(error)
        except Exception as error:
            words = name.replace("_", " ")
            first = str(error).partition("\n")[0]
            return f"{type(error).__name__} in the test that {words}: {first}"
    return ""
