"""Posterior diagnostics: polytope sizes, uncertainty and convergence, from arrays of draws."""

from bayestree.diagnostics.convergence import check_convergence, convergence_of, mixed_convergence
from bayestree.diagnostics.evidence import Evidence, compare_evidence, evidence
from bayestree.diagnostics.facets import Facets, node_facets
from bayestree.diagnostics.inclusion import ColumnInclusion, inclusion_probability
from bayestree.diagnostics.label_free import label_free, label_free_of
from bayestree.diagnostics.loo import (
    Loo,
    LooDifference,
    elbo_weights,
    loo,
    loo_of,
    mixed_loo,
    stacking_weights,
)
from bayestree.diagnostics.printed import TreeIntervals
from bayestree.diagnostics.scores import (
    Calibration,
    Score,
    brier_scores,
    calibration,
    concordance,
    integrated_brier_score,
    kaplan_meier,
    ranked_probability,
)
from bayestree.diagnostics.shrinkage import Shrinkage, node_shrinkage
from bayestree.diagnostics.size import PolytopeSize, TreeSize, polytope_size
from bayestree.diagnostics.uncertainty import RuleProbability, SplitUncertainty, split_uncertainty
from bayestree.diagnostics.verdict import (
    Check,
    Convergence,
    HeldOut,
    held_out_classes,
    held_out_intervals,
    held_out_values,
)

__all__ = [
    "Calibration",
    "Check",
    "ColumnInclusion",
    "Convergence",
    "Evidence",
    "Facets",
    "HeldOut",
    "Loo",
    "LooDifference",
    "PolytopeSize",
    "RuleProbability",
    "Score",
    "Shrinkage",
    "SplitUncertainty",
    "TreeIntervals",
    "TreeSize",
    "brier_scores",
    "calibration",
    "check_convergence",
    "compare_evidence",
    "concordance",
    "convergence_of",
    "elbo_weights",
    "evidence",
    "held_out_classes",
    "held_out_intervals",
    "held_out_values",
    "inclusion_probability",
    "integrated_brier_score",
    "kaplan_meier",
    "label_free",
    "label_free_of",
    "loo",
    "loo_of",
    "mixed_convergence",
    "mixed_loo",
    "node_facets",
    "node_shrinkage",
    "polytope_size",
    "ranked_probability",
    "split_uncertainty",
    "stacking_weights",
]
