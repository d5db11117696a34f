"""
A tree of full facets
=====================

With ``sparsity=None`` the facets are those of the posterior mean, which use every column.
"""

import numpy as np
from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
clf = bt.ConvexPolytopeTreeClassifier(n_modes=1, max_depth=2, sparsity=None, random_state=0)
clf.fit(X, y)

bt.plots.tree(clf).figure

# %%
# **How to read it.** Each box shows the facet nearest to the mean of the data, by its five largest
# terms, and the number of other facets that bound the polytope. A bar is what a term contributes
# per standard deviation of its column, relative to the largest one, and points to the side to
# which larger values lead. A row must satisfy each facet to go left, but may still go right,
# because the votes of the facets add up.
