"""
The rows of each node
=====================

``plots.node_scatter(clf, X, y)`` for all nodes, or ``plots.node_scatter(clf, X, y, "LR")`` for one.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import bayestree as bt

data = load_breast_cancer(as_frame=True)
X, y = data.data, data.target_names[data.target]
clf = bt.AlternatingTreeClassifier(split="bivariate", l1=3.0, random_state=0).fit(X, y)

np.ravel(bt.plots.node_scatter(clf, X, y))[0].figure

# %%
# **How to read it.** Each panel shows the rows that reach a node by its two features; those in the
# grey part go left. The title counts the rows and those that the tree misclassifies. A node that
# uses one feature shows its rows along it, by class, and several facets of two features are drawn
# as their polytope.
