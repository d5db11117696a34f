"""
The calibration of probabilities
================================

``plots.calibration`` takes results of ``bayestree.diagnostics.calibration``.
"""

from sklearn.datasets import make_moons

import bayestree as bt
from bayestree.diagnostics import calibration

X, y = make_moons(1500, noise=0.4, random_state=0)
clf = bt.ConvexPolytopeTreeClassifier(max_depth=3, n_modes=1, random_state=0).fit(X[:300], y[:300])
found = {}
for prediction in ("posterior", "tree"):
    clf.set_params(prediction=prediction)
    found[prediction] = calibration(y[300:], clf.predict_proba(X[300:]), n_bins=8)

bt.plots.calibration(found).figure

# %%
# **How to read it.** Bars entirely below the diagonal are overconfident. An expected calibration
# error is large if it is far above the number in parentheses, the average for perfectly calibrated
# probabilities.
