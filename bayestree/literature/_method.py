"""Methods that fit a whole tree or forest from random numbers, and their use by estimators."""

from typing import Any, Generic, TypeVar

from bayestree._utils.parameters import parameters_of
from bayestree._utils.state import RandomState, draw_seed, seeded
from bayestree.inference import Data, Posterior
from bayestree.inference.stage import Settings
from bayestree.models import SoftTree

Method = TypeVar("Method", bound=Settings)
Result = TypeVar("Result", Posterior, list[Posterior])


class WholeFit(Settings, Generic[Result]):
    """A method that fits a whole tree or forest; a subclass states its settings, and ``_fit``."""

    def fit(
        self,
        model: SoftTree,
        data: Data,
        *,
        random_state: RandomState = None,
        progress: bool = False,
        **given: Any,
    ) -> Result:
        """Check the settings and the rows, and fit; for ``given`` see ``_fit``."""
        self.check(model)
        data = data.for_leaf(model.leaf)
        model.leaf.check(data.y)
        with seeded(draw_seed(random_state)):
            return self._fit(model, data, progress=progress, **given)

    def _fit(self, *args: Any, **given: Any) -> Result:
        """Fit the model to responses of its leaves, with torch's random numbers."""
        raise NotImplementedError


def method_of(kind: type[Method], estimator: Any, **others: Any) -> Method:
    """Return a method with the parameters of an estimator as settings, and ``others``."""
    names = parameters_of(kind).keys() - others.keys()
    return kind(**{name: getattr(estimator, name) for name in names}, **others)


def fitted_by(
    kind: type[WholeFit[Result]], estimator: Any, model: SoftTree, data: Data, **given: Any
) -> Result:
    """Return the result of a method with the parameters and the seed of an estimator."""
    return method_of(kind, estimator).fit(
        model,
        data,
        random_state=estimator.random_state,
        progress=bool(estimator.verbose),
        **given,
    )
