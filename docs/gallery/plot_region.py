"""
The region of a leaf
====================

``plots.boundary(clf, X, y, region=...)`` shows how certain the region of a node or leaf is.
"""

from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X, y = data.data[["flavanoids", "proline"]], data.target_names[data.target]
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_experts=5, n_modes=1, random_state=0).fit(X, y)

leaf = clf.tree_.topology.leaf_labels[-1]
bt.plots.boundary(clf, X, y, region=leaf).figure

# %%
# **How to read it.** At least 95 % of the draws send rows within the solid edge to the leaf, and
# at least 5 % those within the dotted edge. The solid black borders are those of the deterministic
# tree.
