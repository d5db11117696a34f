"""
Facets of images
================

``plots.facet_image(clf, "root", (8, 8))`` draws coefficients as images.
"""

import numpy as np
from sklearn.datasets import load_digits

import bayestree as bt

X, y = load_digits(return_X_y=True)
clf = bt.ConvexPolytopeTreeClassifier(max_depth=4, n_modes=1, scaling="common", random_state=0)
clf.set_params(sparsity=None).fit(X[:600], y[:600])

np.ravel(bt.plots.facet_image(clf, "root", (8, 8)))[0].figure

# %%
# **How to read it.** Ink on red pixels pushes a digit out of the polytope, ink on blue pixels
# keeps it inside; all facets share one colour scale; the facet with the largest weight comes
# first.
