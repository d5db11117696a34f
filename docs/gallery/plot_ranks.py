"""
The correctness of an inference
===============================

``plots.ranks`` shows the ranks of true values among posterior draws (simulation-based calibration).
"""

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

import bayestree as bt

rng = np.random.default_rng(0)
truth = rng.normal(size=500)
mean = (truth + rng.normal(size=500)) / 2
figure = Figure(figsize=(7.2, 2.6), layout="constrained")
for ax, narrow in zip(figure.subplots(1, 2), (1.0, 0.7), strict=True):
    share = norm.cdf(truth, mean, narrow * np.sqrt(0.5))
    bt.plots.ranks(rng.binomial(99, share), 99, ax=ax)
figure

# %%
# **How to read it.** If the posterior is correct, the bars stay in the grey band (left). Peaks at
# both ends show that it is too narrow (right), a peak in the middle that it is too wide, and a
# slope that it is biased. Bars outside the band are hatched.
