"""Settings that an inference method shares with its estimator."""

from typing import Any, TypeVar

from bayestree._utils.parameters import parameters_of
from bayestree.inference.stage import Settings

Method = TypeVar("Method", bound=Settings)


def method_of(kind: type[Method], estimator: Any, **others: Any) -> Method:
    """Return the method with the settings that are parameters of the estimator, and ``others``."""
    shared = {name: getattr(estimator, name) for name in parameters_of(kind) if name not in others}
    return kind(**shared, **others)
