"""What the priors shrank: weights of the experts, and coefficients of their hyperplanes."""

from dataclasses import dataclass

from bayestree.topology import BoolArray
from bayestree.tree import FloatArray


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """Posterior of the weights beside their prior, and how far each coefficient is shrunk.

    Attributes
    ----------
    weight : array, shape (chain, draw, V, K)
        Weights of the experts of each node, sorted in falling order: the k-th largest of each
        draw, whichever expert has it.
    prior_weight : array, shape (prior draw, K)
        The same from the prior, which is the same at every node; no rows where the prior is
        improper.
    effective : array, shape (chain, draw, V)
        Effective number of experts by weight, (sum of r)^2 / sum of r^2.
    prior_effective : array, shape (prior draw,)
    largest_share : array, shape (chain, draw, V)
        Share of the summed weight that the largest has.
    prior_largest_share : array, shape (prior draw,)
    kappa : array, shape (V, K, d)
        Shrinkage factor of each coefficient of the experts of the point estimate: the share of
        its posterior precision that comes from the prior. 1 is shrunk to zero, 0 not at all; nan
        where a single draw cannot tell.
    sparsity : array, shape (V, K)
        Share of an expert's coefficients whose ``kappa`` is above 1/2.
    coefficient : array, shape (V, K, d)
        The coefficients of the point estimate, on standardised features.
    counts : array of bool, shape (V, K)
        Experts of the point estimate that matter: their largest vote over the node's rows is 1 %
        of log 2 or more in half of the draws. Frames show these alone.
    labels : tuple of str
        Path of each node from the root.
    feature_names : tuple of str
    """

    weight: FloatArray
    prior_weight: FloatArray
    effective: FloatArray
    prior_effective: FloatArray
    largest_share: FloatArray
    prior_largest_share: FloatArray
    kappa: FloatArray
    sparsity: FloatArray
    coefficient: FloatArray
    counts: BoolArray
    labels: tuple[str, ...]
    feature_names: tuple[str, ...]
