"""Bayesian decision trees: convex polytope trees as Pyro models, and their deterministic form."""

import importlib
from typing import TYPE_CHECKING, Any

from bayestree._version import __version__ as __version__
from bayestree.estimators.registry import ESTIMATORS

if TYPE_CHECKING:
    from bayestree import plots as plots
    from bayestree.diagnostics.sample import SmallSampleWarning as SmallSampleWarning
    from bayestree.estimators.cpt import (
        ConvexPolytopeTreeClassifier as ConvexPolytopeTreeClassifier,
    )
    from bayestree.estimators.cpt import ConvexPolytopeTreeRegressor as ConvexPolytopeTreeRegressor
    from bayestree.estimators.files import load as load
    from bayestree.estimators.survival import (
        ConvexPolytopeTreeSurvival as ConvexPolytopeTreeSurvival,
    )
    from bayestree.export.graphs import export_dot as export_dot
    from bayestree.export.graphs import export_json as export_json
    from bayestree.export.onnx import export_onnx as export_onnx
    from bayestree.export.words import export_rules as export_rules
    from bayestree.export.words import export_text as export_text
    from bayestree.fitted.assessment import UnconvergedWarning as UnconvergedWarning
    from bayestree.inference.growth.single_leaf import SingleLeafWarning as SingleLeafWarning
    from bayestree.literature.bivariate import BivariateTreeClassifier as BivariateTreeClassifier
    from bayestree.literature.bivariate import BivariateTreeRegressor as BivariateTreeRegressor
    from bayestree.literature.end_to_end import EndToEndForestClassifier as EndToEndForestClassifier
    from bayestree.literature.end_to_end import EndToEndForestRegressor as EndToEndForestRegressor
    from bayestree.literature.end_to_end import EndToEndTreeClassifier as EndToEndTreeClassifier
    from bayestree.literature.end_to_end import EndToEndTreeRegressor as EndToEndTreeRegressor
    from bayestree.literature.forests import (
        AlternatingDecisionForestClassifier as AlternatingDecisionForestClassifier,
    )
    from bayestree.literature.forests import (
        NeuralDecisionForestClassifier as NeuralDecisionForestClassifier,
    )
    from bayestree.literature.forests import (
        NeuralDecisionForestRegressor as NeuralDecisionForestRegressor,
    )
    from bayestree.literature.locally_constant import (
        LocallyConstantTreeClassifier as LocallyConstantTreeClassifier,
    )
    from bayestree.literature.locally_constant import (
        LocallyConstantTreeRegressor as LocallyConstantTreeRegressor,
    )
    from bayestree.literature.oblique import ObliqueTreeClassifier as ObliqueTreeClassifier
    from bayestree.literature.oblique import ObliqueTreeRegressor as ObliqueTreeRegressor
    from bayestree.literature.tao_estimators import (
        AlternatingTreeClassifier as AlternatingTreeClassifier,
    )
    from bayestree.literature.tao_estimators import (
        AlternatingTreeRegressor as AlternatingTreeRegressor,
    )
    from bayestree.literature.tao_estimators import regularization_path as regularization_path
    from bayestree.literature.weighted_oblique import (
        WeightedObliqueTreeClassifier as WeightedObliqueTreeClassifier,
    )
    from bayestree.literature.weighted_oblique import (
        WeightedObliqueTreeRegressor as WeightedObliqueTreeRegressor,
    )
    from bayestree.literature.whole_trees import NonGreedyTreeClassifier as NonGreedyTreeClassifier
    from bayestree.literature.whole_trees import NonGreedyTreeRegressor as NonGreedyTreeRegressor
    from bayestree.report.comparison import html_comparison as html_comparison
    from bayestree.report.page import html_report as html_report
    from bayestree.tables.encoding import UnknownCategoryWarning as UnknownCategoryWarning
    from bayestree.tables.profiling import DoubtfulColumnsWarning as DoubtfulColumnsWarning
    from bayestree.tables.profiling import UnusedColumnsWarning as UnusedColumnsWarning

#: Public name to the module that defines it.
_MODULES = {
    **dict.fromkeys(ESTIMATORS, "bayestree.estimators"),
    "DoubtfulColumnsWarning": "bayestree.tables.profiling",
    "SingleLeafWarning": "bayestree.inference.growth.single_leaf",
    "SmallSampleWarning": "bayestree.diagnostics.sample",
    "UnconvergedWarning": "bayestree.fitted.assessment",
    "UnknownCategoryWarning": "bayestree.tables.encoding",
    "UnusedColumnsWarning": "bayestree.tables.profiling",
    "export_dot": "bayestree.export.graphs",
    "export_json": "bayestree.export.graphs",
    "export_onnx": "bayestree.export.onnx",
    "export_rules": "bayestree.export.words",
    "export_text": "bayestree.export.words",
    "html_comparison": "bayestree.report.comparison",
    "html_report": "bayestree.report.page",
    "load": "bayestree.estimators.files",
    "regularization_path": "bayestree.literature.tao_estimators",
}
#: Documented packages, imported when they are first named.
_PACKAGES = ("diagnostics", "inference", "models", "plots", "tables", "testing")
__all__ = sorted([*_MODULES, "plots"])  # noqa: PLE0605 - a list of names


def __getattr__(name: str) -> Any:
    # Importing torch takes seconds; `bayestree --help` should not.
    if name in _PACKAGES:
        return importlib.import_module(f"bayestree.{name}")
    if name in _MODULES:
        globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
        return globals()[name]
    raise AttributeError(f"module 'bayestree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
