"""
What brevity costs
==================

``plots.sparsity_path(clf)`` compares shorter and longer trees.
"""

import numpy as np
from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=1, random_state=0).fit(X, y)

bt.plots.sparsity_path(clf).figure

# %%
# **How to read it.** Each point is a tree with so many coefficients; its height is what its
# predictions lose against the best of the trees, in nats a row, in cross-validation of the
# projection. The marked tree is the one in print.
