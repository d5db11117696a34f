"""Means and covariances of normal factors, under which priors say their expected log-density."""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor


class Moments(NamedTuple):
    """Of normal coefficients, the intercept of each expert last.

    Attributes
    ----------
    mean, variance : Tensor, shape (V, K, d + 1)
    root : Tensor, shape (V, K, d + 1, r), optional
        The covariance of an expert's coefficients is root @ root.T; None where they are
        independent.
    """

    mean: Tensor
    variance: Tensor
    root: Tensor | None = None


@runtime_checkable
class ExpectedPrior(Protocol):
    """A prior that knows its mean under normal coefficients, and has no sites beside them."""

    def expected_log_prob(self, moments: Moments) -> Tensor:
        """Mean of the log-density, a scalar."""
