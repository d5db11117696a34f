"""Sparse trees: the projection of a posterior onto deterministic splits of few columns.

The posterior shrinks coefficients, but none of its draws makes one zero. What is selected is
therefore a decision: the tree that is shown has as few columns in each facet as predict nearly as
well as all of them (Hahn and Carvalho, "Decoupling shrinkage and selection in Bayesian linear
models", JASA 110, 2015; Piironen, Paasiniemi and Vehtari, "Projective inference in high-dimensional
problems", Electronic Journal of Statistics 14, 2020).
"""
