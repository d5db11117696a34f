"""
A tree
======

``plots.tree(clf)`` draws the deterministic tree, with what each node asks.
"""

import numpy as np
from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=1, random_state=0).fit(X, y)

bt.plots.tree(clf).figure

# %%
# **How to read it.** Rows for which all conditions in a box hold go left. The line *posterior*
# shows the median number of facets with its 90 % interval, and the bar of a leaf its class
# probabilities. A tree that would be too wide is drawn from left to right.
