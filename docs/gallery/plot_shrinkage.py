"""
The weights of the experts
==========================

``plots.shrinkage(clf, "root")`` shows the sorted weights of a node, posterior and prior.
"""

import numpy as np

import bayestree as bt

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 2))
radius = np.hypot(*X.T)
y = np.where((radius > 0.4) & (radius < 0.8), "between", "elsewhere")
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_experts=8, n_modes=1, random_state=0)
clf.fit(X, y)

bt.plots.shrinkage(clf, "root").figure

# %%
# **How to read it.** The k-th point is the k-th largest weight of a draw. Points above the grey
# band of the prior are experts that the data support; a sharp drop shows how many are enough.
