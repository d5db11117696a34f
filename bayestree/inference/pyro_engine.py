"""Steps of MAP and SVI by ``pyro.infer.SVI``, on traces of the Pyro model itself."""

from typing import Annotated, Any, Literal

import pyro
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from torch import Tensor

from bayestree._utils.parameters import Inference, declare
from bayestree.inference.data import Data
from bayestree.inference.training import Adam, Ascent


@declare
class Engine:
    """What computes the steps of a method."""

    engine: Annotated[
        Literal["direct", "pyro"],
        Inference(
            "What computes the steps of MAP and of the package's own guide: the density of the "
            "model, or pyro.infer.SVI on traces of the Pyro model, which states the same density "
            "and takes several times as long. Pyro's autoguides always take the latter."
        ),
    ] = "direct"

    @property
    def direct(self) -> bool:
        """Whether steps use the density, which knows constraints and earlier rows, too."""
        return self.engine == "direct"

    @property
    def adds_rows(self) -> bool:
        """Whether a fit can go on with further rows."""
        return self.direct

    @property
    def ascent(self) -> type[Ascent]:
        """The epochs of the engine."""
        return Ascent if self.direct else PyroAscent


class PyroAscent(Ascent):
    """Epochs of steps by ``pyro.infer.SVI``, with the module as a guide of the model it states.

    Pyro scales whole traces, by the ``scale`` of the prior; the weights of the rows are divided by
    it, so that their log-likelihood keeps its own. Leaves are updated as by :class:`Ascent`.
    """

    def step(self, batch: Data, rate: float, gamma: float, prior: float) -> Tensor:
        share, scale = len(batch.X) / len(self.data.X), self.weight * prior
        self.optimiser.rate = self.learning_rate * rate
        with torch.no_grad():
            likelihood, penalty, sums = self.module.fit(batch, gamma)
        model, guide = (
            poutine.scale(one, scale=scale / self.total)
            for one in (self.module.stated(gamma), self._guide)
        )
        fit = SVI(model, guide, _ByAdam(self.optimiser), Trace_ELBO())
        with pyro.get_param_store().scope():
            fit.step(batch.X[:, :-1], batch.y, batch.weights / (share * scale))
        self.running.update(sums, share)
        return likelihood - share * penalty

    def _guide(self, *rows: Tensor) -> None:
        pyro.module("guide", self.module)
        self.module(*rows)


class _ByAdam(pyro.optim.PyroOptim):
    """An optimiser of this package for Pyro, which asks for one of its own."""

    def __init__(self, adam: Adam) -> None:
        super().__init__(torch.optim.Adam, {})
        self.adam = adam

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.adam.step()
