"""The named trees of run files and cards, from the registry of estimators."""

from bayestree.estimators.registry import TASKS, TREES, Named, tasks_of

__all__ = ["TASKS", "TREES", "Named", "tasks_of"]
