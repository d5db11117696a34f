"""
Trees of growing penalties
==========================

``plots.regularization_path`` compares sparse oblique trees by error and number of parameters.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import bayestree as bt

X, y = load_breast_cancer(return_X_y=True)
X, X_val, y, y_val = train_test_split(X, y, random_state=0)
clf = bt.AlternatingTreeClassifier(max_depth=2, random_state=0)
path = bt.regularization_path(clf, X, y, [0.1, 1.0, 10.0, 100.0], X_val, y_val)

bt.plots.regularization_path(path).figure

# %%
# **How to read it.** Each point is a tree, and the number beside it its penalty; towards the left,
# trees have fewer coefficients. Open markers are the training error, filled ones the validation
# error, and the tree with the lowest one is circled.
