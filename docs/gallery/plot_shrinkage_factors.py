"""
The shrinkage of the features
=============================

``plots.shrinkage_factors(clf, "root")`` shows which coefficients the data determine.
"""

import numpy as np
from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=1, random_state=0).fit(X, y)

bt.plots.shrinkage_factors(clf, "root").figure

# %%
# **How to read it.** Dark coefficients are determined by the data, white ones by the prior. Those
# that are not shrunk to zero show their sign; an expert without any sign hardly affects the
# border. Experts found in fewer than half of the draws are omitted.
