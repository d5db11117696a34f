"""Adam in a form whose state can be read and restored."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam as fused_adam


class Adam:
    """Minimise a function of tensors by their gradients ``grad``; set ``rate`` before any step.

    A short memory of squared gradients, ``betas[1]``, suits objectives that change during a fit.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
    ) -> None:
        self.parameters = list(parameters)
        self.rate, self.betas = rate, betas
        # of the memory layout of the parameters, as the fused kernel requires
        self.means = [torch.zeros_like(value) for value in self.parameters]
        self.squares = [torch.zeros_like(value) for value in self.parameters]
        self.counts = [
            torch.zeros((), dtype=torch.float32, device=value.device) for value in self.parameters
        ]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for value in self.parameters:
            value.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        found = [
            (value, value.grad, *state)
            for value, *state in zip(
                self.parameters, self.means, self.squares, self.counts, strict=True
            )
            if value.grad is not None
        ]
        if not found:
            return
        values, slopes, means, squares, counts = (
            list(column) for column in zip(*found, strict=True)
        )
        fused_adam(
            values,
            slopes,
            means,
            squares,
            [],
            counts,
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"means": self.means, "squares": self.squares, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore in place, which preserves the memory layouts."""
        for name, values in state.items():
            for own, value in zip(getattr(self, name), values, strict=True):
                own.copy_(value)
