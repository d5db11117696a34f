"""What was learnt: sizes of polytopes, uncertainty and convergence, from arrays of draws."""

from bayestree.diagnostics.calibration import Calibration, Score, calibration
from bayestree.diagnostics.facets import Facets
from bayestree.diagnostics.shrinkage import Shrinkage
from bayestree.diagnostics.size import PolytopeSize, polytope_size
from bayestree.diagnostics.uncertainty import SplitUncertainty

__all__ = [
    "Calibration",
    "Facets",
    "PolytopeSize",
    "Score",
    "Shrinkage",
    "SplitUncertainty",
    "calibration",
    "polytope_size",
]
