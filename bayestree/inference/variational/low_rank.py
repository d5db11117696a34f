"""Factors of coefficients whose precision is diagonal plus a low rank, for many columns."""

import torch
from torch import Tensor

from bayestree.inference.variational.factors import Factors, Rows, StepRule

RANK = 4  # directions in which the coefficients of an expert are correlated
LEAST_DIAGONAL = 0.1  # share of the precision of a coefficient that the directions leave


class LowRankFactors(Factors):
    """Factors whose precision is R^-1 (1 + B B') R^-1, with a diagonal R and B (d + 1, RANK).

    ``precision``, (V, K, d + 1), is its diagonal, at the optimum the sum of h x^2 over the rows
    plus the expected precision of the prior. B follows the leading eigenvectors of the precision,
    in units of this diagonal, by one step of a subspace iteration for each step. ``root`` is R.

    Where more directions than these are correlated, the covariance is too large in the others, and
    a step of the means could diverge: it ends where the bound, to second order, is largest along
    it. The second derivatives of the bound are never formed.
    """

    axes: Tensor  # B (V, K, d + 1, RANK), of orthogonal columns
    directions: Tensor  # from which the next step iterates, orthonormal

    @staticmethod
    def initial(diagonal: Tensor) -> Tensor:
        return diagonal.clone()

    def prepare(self) -> None:
        rank = min(RANK, self.mean.shape[-1])
        start = torch.Generator().manual_seed(0)
        drawn = torch.randn(*self.mean.shape, rank, generator=start, dtype=self.mean.dtype)
        self.register_buffer("directions", self._own(torch.linalg.qr(self._own(drawn))[0]))
        self.register_buffer("axes", torch.zeros_like(drawn))

    def factorise(self) -> None:
        size = 1 + self.axes.square().sum(-1)
        self.root.copy_(self._own((size / self.precision).sqrt()))

    @property
    def length(self) -> Tensor:
        """Squared lengths of the columns of B, (V, K, RANK)."""
        return self.axes.square().sum(-2)

    def _less(self, values: Tensor, share: Tensor) -> Tensor:
        """Return (1 - B diag(share) B') values, for values (V, K, d + 1)."""
        along = share.unsqueeze(-1) * (self.axes.mT @ values.unsqueeze(-1))
        return values - (self.axes @ along).squeeze(-1)

    @property
    def variance(self) -> Tensor:
        # (1 + B B')^-1 = 1 - B diag(1 / (1 + length)) B'
        explained = (self.axes.square() / (1 + self.length).unsqueeze(-2)).sum(-1)
        return self.root.square() * (1 - explained)

    @property
    def scale(self) -> Tensor:
        own = self.root if self.support is None else torch.where(self.support, self.root, 1.0)
        volume = (1 + self.length).prod(-1, keepdim=True).rsqrt()
        return torch.cat([own[..., :-1], own[..., -1:] * volume], -1)

    def spread(self, noise: Tensor) -> Tensor:
        # (1 + B B')^-1/2 = 1 - B diag(share) B', with share = (1 - (1 + length)^-1/2) / length
        size = (1 + self.length).sqrt()
        return self.root * self._less(noise, 1 / (size * (1 + size)))

    def covariance(self, values: Tensor) -> Tensor:
        """Multiply values (V, K, d + 1) by the covariance."""
        return self.root * self._less(self.root * values, 1 / (1 + self.length))

    def move(
        self, rows: Rows, slope: Tensor, information: Tensor, prior: Tensor, rule: StepRule
    ) -> None:
        change = self._own(information @ rows.kept + prior - self.precision)
        moved = rule.rate * change
        if rule.exact:
            moved += moved.square() / (2 * self.precision)
        self.precision.add_(moved)

        def curvature(direction: Tensor, of_rows: Tensor) -> Tensor:
            along = (direction.flatten(0, 1) @ rows.X.T).view_as(of_rows).mul_(of_rows)
            return self._own(torch.addcmul(along @ rows.X, prior, direction))

        unit = self.precision.sqrt().unsqueeze(-1)
        directions = self.directions / unit
        now = torch.stack([curvature(one, information) for one in directions.unbind(-1)], -1)
        self._turn(self._precision_times(directions).lerp(now, rule.rate) / unit)
        self.factorise()
        slope = self._own(slope)
        step = self.covariance(slope)
        bend = (step * curvature(step, information.clamp_min(0.0))).sum(-1, keepdim=True)
        best = (step * slope).sum(-1, keepdim=True) / bend.clamp_min(torch.finfo(bend.dtype).tiny)
        self.mean.add_(step * best.clamp_max(rule.rate))

    def _precision_times(self, values: Tensor) -> Tensor:
        """Multiply values (V, K, d + 1, .) by the precision."""
        root = torch.where(self.root > 0, self.root, 1.0).unsqueeze(-1)
        values = values / root
        return (values + self.axes @ (self.axes.mT @ values)) / root

    def _turn(self, image: Tensor) -> None:
        """Set B, and the next directions, from the image of the directions in scaled precision."""
        inner = self.directions.mT @ image
        value, turn = torch.linalg.eigh((inner + inner.mT) / 2)
        axes, own = self.directions @ turn, torch.ones_like(image[..., 0])
        width = self._own(own).sum(-1, keepdim=True)
        # the scaled precision has a unit diagonal: what its other directions have on average
        rest = (width - value.sum(-1, keepdim=True)) / (width - value.shape[-1]).clamp_min(1.0)
        size = (value - rest).clamp_min(0.0)
        share = (axes.square() * size.unsqueeze(-2)).sum(-1, keepdim=True)
        size = size.unsqueeze(-2) * ((1 - LEAST_DIAGONAL) / share.amax(-2, True)).clamp_max(1.0)
        diagonal = 1 - (axes.square() * size).sum(-1, keepdim=True)
        found = axes * (size / diagonal).sqrt()
        self.axes.copy_(found @ torch.linalg.eigh(found.mT @ found)[1])
        self.directions.copy_(self._own(torch.linalg.qr(image)[0]))
