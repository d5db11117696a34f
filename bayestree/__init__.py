"""Bayesian decision trees: convex polytope trees as Pyro models, and their deterministic form."""

import importlib
from typing import TYPE_CHECKING, Any

from bayestree._version import __version__ as __version__

if TYPE_CHECKING:
    from bayestree import plots
    from bayestree.estimators import (
        AlternatingTreeClassifier,
        AlternatingTreeRegressor,
        BivariateTreeClassifier,
        ConvexPolytopeTreeClassifier,
        ConvexPolytopeTreeRegressor,
        EndToEndForestClassifier,
        EndToEndTreeClassifier,
        UnusedColumnsWarning,
        WeightedObliqueTreeClassifier,
    )
    from bayestree.estimators.files import load
    from bayestree.estimators.regularization import regularization_path
    from bayestree.inference.unsplit import SingleLeafWarning
    from bayestree.report.dot import export_dot
    from bayestree.report.html import html_report
    from bayestree.report.json import export_json
    from bayestree.report.onnx import export_onnx
    from bayestree.report.rules import export_rules
    from bayestree.report.text import export_text

_HOMES = {
    "AlternatingTreeClassifier": "bayestree.estimators",
    "AlternatingTreeRegressor": "bayestree.estimators",
    "BivariateTreeClassifier": "bayestree.estimators",
    "ConvexPolytopeTreeClassifier": "bayestree.estimators",
    "ConvexPolytopeTreeRegressor": "bayestree.estimators",
    "EndToEndForestClassifier": "bayestree.estimators",
    "EndToEndTreeClassifier": "bayestree.estimators",
    "SingleLeafWarning": "bayestree.inference.unsplit",
    "UnusedColumnsWarning": "bayestree.estimators",
    "WeightedObliqueTreeClassifier": "bayestree.estimators",
    "export_dot": "bayestree.report.dot",
    "export_json": "bayestree.report.json",
    "export_onnx": "bayestree.report.onnx",
    "export_rules": "bayestree.report.rules",
    "export_text": "bayestree.report.text",
    "html_report": "bayestree.report.html",
    "load": "bayestree.estimators.files",
    "regularization_path": "bayestree.estimators.regularization",
}
_ROOMS = ("plots",)
__all__ = [
    "AlternatingTreeClassifier",
    "AlternatingTreeRegressor",
    "BivariateTreeClassifier",
    "ConvexPolytopeTreeClassifier",
    "ConvexPolytopeTreeRegressor",
    "EndToEndForestClassifier",
    "EndToEndTreeClassifier",
    "SingleLeafWarning",
    "UnusedColumnsWarning",
    "WeightedObliqueTreeClassifier",
    "export_dot",
    "export_json",
    "export_onnx",
    "export_rules",
    "export_text",
    "html_report",
    "load",
    "plots",
    "regularization_path",
]


def __getattr__(name: str) -> Any:
    # Importing torch takes seconds; `bayestree --help` should not.
    if name in _ROOMS:
        return importlib.import_module(f"bayestree.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bayestree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
