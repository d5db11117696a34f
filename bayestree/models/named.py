"""The trees of the papers, each a combination of the same parts, before growth.

All are a :class:`~bayestree.models.SoftTree`; ``bayestree.inference`` fits them.
"""

import math

from bayestree.models.leaves import Leaf
from bayestree.models.likelihoods import LIKELIHOODS
from bayestree.models.priors import Flat, FlatWeights, HyperplanePrior, Priors
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import Oblique, Polytope, Split
from bayestree.topology import Topology


def convex_polytope(leaf: Leaf, *, n_experts: int = 20, priors: Priors | None = None) -> SoftTree:
    """Build CPT (Armandpour, Sadeghian and Zhou, 2021): noisy-OR committees, eq. 2 to 6.

    With one expert it has weight 1: the oblique tree CPT (K = 1) of the paper's tables.
    """
    split = Oblique() if n_experts == 1 else Polytope(n_experts)
    return SoftTree(Topology.leaf(), split, priors or Priors(), leaf)


def end_to_end(
    leaf: Leaf, *, prior: HyperplanePrior | None = None, split: Split | None = None
) -> SoftTree:
    """Build E2EDT (Hehn, Kooij and Hamprecht, 2020): logistic splits, no prior, a mixture.

    ``prior`` may be ``Spatial`` (eq. 15) and ``split`` a ``Network`` (section 3.4). Fitted by EM
    with increasing steepness.
    """
    return SoftTree(Topology.leaf(), split or Oblique(), Priors(hyperplane=prior or Flat()), leaf)


def weighted_oblique(leaf: Leaf) -> SoftTree:
    """Build WODT (Yang, Shen and Gao, 2019): its weighted entropy is -N H(Y | L) of one stump.

    For numbers it is the weighted variance. Grown until the leaves are pure, without refinement.
    """
    return _impurity(leaf, Oblique())


def bivariate(leaf: Leaf) -> SoftTree:
    """Build the bivariate tree (Kairgeldin and Carreira-Perpinan, 2024): two features a split.

    Grown like CART, by search over pairs and orientations.
    """
    return deterministic(_impurity(leaf, Oblique(max_features=2)))


def oblique(leaf: Leaf) -> SoftTree:
    """Build a tree with one hyperplane in each node, grown by the impurity of hard splits.

    HHCART, OC1, CART-LC, CO2 and GUIDE differ in the search for the hyperplane only (see
    ``bayestree.inference.splitters``).
    """
    return deterministic(_impurity(leaf, Oblique()))


def alternating(
    leaf: Leaf, *, split: Split | None = None, prior: HyperplanePrior | None = None
) -> SoftTree:
    """Build TAO's tree (Carreira-Perpinan and Tavallali, 2018): a loss of the hard tree.

    The leaves determine it: 0/1 loss for classes, squared loss for numbers. ``split`` is
    oblique by default; ``Laplace(rate)`` makes it the sparse oblique tree,
    ``Oblique(max_features=2)`` with ``FeatureCount`` the bivariate one. Fitted by
    :func:`bayestree.inference.tao`.
    """
    priors, loss = Priors(FlatWeights(), prior or Flat()), LIKELIHOODS[leaf.loss]
    return SoftTree(Topology.leaf(), split or Oblique(), priors, leaf, loss, math.inf)


def deterministic(model: SoftTree) -> SoftTree:
    """Return the same model with hard splits."""
    return model.with_(steepness=math.inf)


def _impurity(leaf: Leaf, split: Split) -> SoftTree:
    objective = LIKELIHOODS[leaf.impurity]
    return SoftTree(Topology.leaf(), split, Priors(hyperplane=Flat()), leaf, objective)
