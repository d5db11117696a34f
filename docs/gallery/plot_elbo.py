"""
The convergence of a fit
========================

``plots.elbo(clf)`` shows the trace of the evidence lower bound.
"""

import numpy as np
from sklearn.datasets import load_wine

import bayestree as bt

data = load_wine(as_frame=True)
X = data.data.rename(columns={"od280/od315_of_diluted_wines": "od280_od315"})
y = np.array(["Barolo", "Grignolino", "Barbera"])[data.target]
clf = bt.ConvexPolytopeTreeClassifier(max_depth=2, n_modes=1, random_state=0).fit(X, y)

bt.plots.elbo(clf).figure

# %%
# **How to read it.** Where the thick line still rises, the fit has not converged; single estimates
# far below it are draws from a tail of the guide and harmless. The bound of VI is by step, that of
# SVI by epoch. A level line proves little, since steps become smaller: ``check_convergence()``
# states what more steps would gain.
