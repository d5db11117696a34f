"""Estimators with the interface of scikit-learn, imported when they are first used."""

from typing import Any

from bayestree.estimators.registry import ESTIMATORS, estimator_class


def __getattr__(name: str) -> Any:
    if name in ESTIMATORS:
        return estimator_class(name)
    if name == "UnusedColumnsWarning":
        from bayestree.tables import UnusedColumnsWarning  # noqa: PLC0415 - lazy

        return UnusedColumnsWarning
    raise AttributeError(f"module 'bayestree.estimators' has no attribute {name!r}")
