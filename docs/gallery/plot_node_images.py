"""
Images in each node
===================

``plots.node_images(clf, (8, 8))``, for oblique trees of images.
"""

import numpy as np
from sklearn.datasets import load_digits

import bayestree as bt

X, y = load_digits(return_X_y=True)
clf = bt.AlternatingTreeClassifier(l1=1.0, max_depth=4, scaling="common", random_state=0).fit(X, y)

np.ravel(bt.plots.node_images(clf, (8, 8)))[0].figure

# %%
# **How to read it.** Ink on red pixels sends a digit right, ink on blue pixels left; the node does
# not use the others.
