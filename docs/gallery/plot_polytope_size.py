"""
The number of facets
====================

``plots.polytope_size(clf)`` shows posterior and prior.
"""

import numpy as np

import bayestree as bt

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 2))
radius = np.hypot(*X.T)
y = np.where((radius > 0.4) & (radius < 0.8), "between", "elsewhere")
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_experts=8, n_modes=1, random_state=0)
clf.fit(X, y)

bt.plots.polytope_size(clf)[0].figure

# %%
# **How to read it.** The numbers count the facets that alone cut off at least 1 % of the node's
# rows. Where the bars (posterior) differ from the dashed outline (prior), the data are
# informative; where they follow it, the number of facets reflects the prior. The last panel shows
# the number of leaves that training rows reach in a draw.
