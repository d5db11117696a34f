"""Factors with a diagonal covariance, for rows of many columns."""

from collections.abc import Callable

import torch
from torch import Tensor

from bayestree.inference.variational.factors import Factors
from bayestree.inference.variational.natural_rows import Rows
from bayestree.inference.variational.schedule import StepRule

ITERATIONS = 5  # of conjugate gradients in a step


class DiagonalFactors(Factors):
    """Factors whose precision, (V, K, d + 1), is diagonal.

    At the optimum, the precision of a coefficient is the sum of h x^2 over the rows plus the
    expected precision of the prior. Steps of the means by this diagonal alone would diverge where
    columns are correlated; they solve for a step of Newton by the whole curvature instead, by a
    few conjugate gradients, which never form it.
    """

    @staticmethod
    def initial(diagonal: Tensor) -> Tensor:
        return diagonal.clone()

    def factorise(self) -> None:
        self.root.copy_(self._own(self.precision.rsqrt()))

    @property
    def variance(self) -> Tensor:
        return self._own(self.precision.reciprocal())

    @property
    def scale(self) -> Tensor:
        return self.root if self.support is None else torch.where(self.support, self.root, 1.0)

    def spread(self, noise: Tensor) -> Tensor:
        return self.root * noise

    def move(
        self, rows: Rows, slope: Tensor, information: Tensor, prior: Tensor, rule: StepRule
    ) -> None:
        change = self._own(information @ rows.kept + prior - self.precision)
        moved = rule.rate * change
        if rule.exact:
            moved += moved.square() / (2 * self.precision)
        self.precision.add_(moved)
        self.factorise()
        positive = information.clamp_min(0.0)  # conjugate gradients need a positive curvature

        def curvature(direction: Tensor) -> Tensor:
            along = (direction.flatten(0, 1) @ rows.X.T).view_as(positive).mul_(positive)
            return self._own(torch.addcmul(along @ rows.X, prior, direction))

        diagonal = positive @ rows.kept + prior
        step = solved(curvature, self._own(slope), diagonal, ITERATIONS)
        self.mean.add_(step, alpha=rule.rate)


def solved(
    product: Callable[[Tensor], Tensor], right: Tensor, diagonal: Tensor, n_steps: int
) -> Tensor:
    """Solve positive definite systems (..., d) by conjugate gradients, scaled by their diagonal."""
    found, residual = torch.zeros_like(right), right.clone()
    tiny = torch.finfo(right.dtype).tiny  # a system that is solved exactly stays as it is
    scaled = residual / diagonal
    direction, size = scaled, (residual * scaled).sum(-1, keepdim=True)
    for _ in range(n_steps):
        image = product(direction)
        length = size / (direction * image).sum(-1, keepdim=True).clamp_min(tiny)
        found.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1)
        scaled = residual / diagonal
        last, size = size, (residual * scaled).sum(-1, keepdim=True)
        direction = torch.addcmul(scaled, size / last.clamp_min(tiny), direction)
    return found
