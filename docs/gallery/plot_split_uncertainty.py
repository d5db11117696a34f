"""
The uncertainty of the splits
=============================

``plots.split_uncertainty(clf, X, y)`` shows P(right) of the rows at each node.
"""

import numpy as np
from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=1, random_state=0).fit(X, y)

np.ravel(bt.plots.split_uncertainty(clf, X, y))[0].figure

# %%
# **How to read it.** A certain split is a step with a narrow band, a soft one a slope. Dots are
# uncertain rows, for which the posterior probability of the side opposite to that in ``tree_``
# exceeds 10 %; the title has their share, the column *unsure* of ``clf.split_uncertainty(X)``. The
# strip shows the classes of the rows: a good split separates the colours.
