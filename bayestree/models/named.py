"""The trees of the papers, each as a combination of the same parts, before it has grown.

What they have in common is :class:`~bayestree.models.SoftTree`; how each is fitted is the business
of ``bayestree.inference``.
"""

import math

from bayestree.models.leaves import Categorical, Leaf
from bayestree.models.likelihoods import Likelihood
from bayestree.models.priors import Flat, FlatWeights, HyperplanePrior, Priors
from bayestree.models.soft_tree import SoftTree
from bayestree.models.splits import Oblique, Polytope, Split
from bayestree.topology import Topology


def convex_polytope(leaf: Leaf, *, n_experts: int = 20, priors: Priors | None = None) -> SoftTree:
    """CPT (Armandpour, Sadeghian and Zhou, 2021): noisy-OR committees, eq. 2 to 6.

    With one expert it has weight 1: the oblique tree CPT (K = 1) of the paper's tables.
    """
    split = Oblique() if n_experts == 1 else Polytope(n_experts)
    return SoftTree(Topology.leaf(), split, priors or Priors(), leaf)


def end_to_end(
    leaf: Leaf, *, prior: HyperplanePrior | None = None, split: Split | None = None
) -> SoftTree:
    """E2EDT (Hehn, Kooij and Hamprecht, 2020): logistic splits, no prior, the mixture likelihood.

    ``prior`` may be ``Spatial``, its eq. 15, and ``split`` a ``Network``, its section 3.4. For EM
    with rising steepness.
    """
    return SoftTree(Topology.leaf(), split or Oblique(), Priors(hyperplane=prior or Flat()), leaf)


def weighted_oblique(leaf: Leaf) -> SoftTree:
    """WODT (Yang, Shen and Gao, 2019): its weighted entropy (eq. 1) is -N H(Y | L) of one stump.

    For growth until the leaves are pure, without refinement.
    """
    return SoftTree(
        Topology.leaf(), Oblique(), Priors(hyperplane=Flat()), leaf, "mutual-information"
    )


def bivariate(leaf: Leaf) -> SoftTree:
    """The fast bivariate tree (Kairgeldin and Carreira-Perpinan, 2024): two features a split.

    For growth in the manner of CART, by search over pairs and orientations.
    """
    return deterministic(
        SoftTree(
            Topology.leaf(),
            Oblique(max_features=2),
            Priors(hyperplane=Flat()),
            leaf,
            "mutual-information",
        )
    )


def alternating(
    leaf: Leaf, *, split: Split | None = None, prior: HyperplanePrior | None = None
) -> SoftTree:
    """TAO's tree (Carreira-Perpinan and Tavallali, 2018): loss of the deterministic tree.

    The 0/1 loss of categorical leaves, the squared loss of Gaussian ones. ``split`` is oblique by
    default; ``Laplace(rate)`` makes it the sparse oblique tree, ``Oblique(max_features=2)`` with
    ``FeatureCount`` the bivariate one. For :func:`bayestree.inference.tao`.
    """
    loss: Likelihood = "misclassification" if isinstance(leaf, Categorical) else "squared-error"
    priors = Priors(FlatWeights(), prior or Flat())
    return SoftTree(Topology.leaf(), split or Oblique(), priors, leaf, loss, math.inf)


def deterministic(model: SoftTree) -> SoftTree:
    """The same model with splits that are sure of every row."""
    return model.with_(steepness=math.inf)
