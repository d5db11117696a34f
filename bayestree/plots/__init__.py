"""Plots of fitted trees, in Matplotlib.

Every function draws on the given Axes, or on a new Figure that is not registered with pyplot, and
returns the Axes; use ``ax.figure.savefig`` to save it.
"""

from bayestree.plots._boundary import boundary
from bayestree.plots._inference import elbo, ranks, split_uncertainty
from bayestree.plots._node_panels import facet_image, node_images, node_scatter
from bayestree.plots._polytopes import polytope_size, shrinkage, shrinkage_factors
from bayestree.plots._predictions import calibration, regularization_path, sparsity_path
from bayestree.plots._tree import tree

__all__ = [
    "boundary",
    "calibration",
    "elbo",
    "facet_image",
    "node_images",
    "node_scatter",
    "polytope_size",
    "ranks",
    "regularization_path",
    "shrinkage",
    "shrinkage_factors",
    "sparsity_path",
    "split_uncertainty",
    "tree",
]
