"""Parameters and settings of version 0.2.0 that were removed, which files may still have."""

from typing import Any

#: Parameters of polytope trees in version 0.2.0 that were removed: former default, and remedy.
#: Predictions of a fitted tree do not depend on them.
REMOVED: dict[str, tuple[Any, str]] = {
    "extend": (False, "remove it"),
    "kl_schedule": ("linear", "remove it"),
    "learn_prior": (False, "remove it, and choose kl_weight or the prior by a validation score"),
    "mode_tree": ("medoid", "remove it; sparsity fits the tree to the predictions of all modes"),
    "n_restarts": (1, "remove it; n_modes fits and keeps several trees"),
    "refine": ("none", "remove it; sparsity fits the tree to the predictions of the posterior"),
    "reset_idle": (False, "remove it; polytope_size() counts the facets of a node"),
    "search_facets": (
        False,
        "remove it; the default and 'mcmc' sample the number of facets, up to n_experts, and "
        "polytope_size() shows it",
    ),
}

OLD_GUIDE = "partially-centred"  # of SVI in version 0.2.0, likewise
