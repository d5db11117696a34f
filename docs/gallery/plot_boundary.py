"""
The map of two features
=======================

``plots.boundary(clf, X, y)``, for trees of two features.
"""

import numpy as np

import bayestree as bt

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 2))
radius = np.hypot(*X.T)
y = np.where((radius > 0.4) & (radius < 0.8), "between", "elsewhere")
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_experts=8, n_modes=1, random_state=0)
clf.fit(X, y)

bt.plots.boundary(clf, X, y).figure

# %%
# **How to read it.** Solid lines are the borders of the deterministic tree, here the sparse facets
# of its polytopes; dashed lines are full facets, whose border is rounder. In the grey band, the 90
# % interval of P(right) contains 1/2. The shade is the probability of the class; white means that
# all classes are equally probable.
