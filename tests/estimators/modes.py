"""Settings of short fits with several modes, and other weights of these."""

import copy
from dataclasses import replace

import numpy as np

from bayestree.inference import Svi

QUICK = {
    "sparsity": None,
    "max_depth": 2,
    "n_experts": 3,
    "inference": Svi(epochs=4, n_draws=40),
    "random_state": 0,
}


def weighted(estimator, weights):
    """The estimator with other weights of its modes."""
    found = copy.copy(estimator)
    found.fitted_ = replace(estimator.fitted_, weights=np.array(weights))
    return found
