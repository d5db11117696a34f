"""
A tree with its rows
====================

``plots.tree(clf, X=X, y=y)`` shows the rows that reach a node of one or two features.
"""

from sklearn.datasets import load_breast_cancer

import bayestree as bt

data = load_breast_cancer(as_frame=True)
X, y = data.data, data.target_names[data.target]
clf = bt.AlternatingTreeClassifier(split="bivariate", l1=3.0, random_state=0).fit(X, y)

bt.plots.tree(clf, X=X, y=y).figure

# %%
# **How to read it.** Rows in the grey part go left, and for them the condition below holds.
