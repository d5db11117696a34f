"""Fits that replace the fitted state at once, at their end."""

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any, TypeVar, cast

Fit = TypeVar("Fit", bound=Callable[..., Any])


def at_once(fit: Fit) -> Fit:
    """Let a method that fits its estimator change it at its end, or not at all.

    The method works on a copy, whose attributes the estimator takes over. After an exception or an
    interruption the estimator is as it was before.
    """

    @wraps(fit)
    def whole(self: Any, *args: Any, **given: Any) -> Any:
        fitted = copy(self)
        fit(fitted, *args, **given)
        self.__dict__ = fitted.__dict__
        return self

    return cast(Fit, whole)
