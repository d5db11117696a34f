"""Trees and forests of other authors: each module is an algorithm with its estimators.

Only ``bayestree.estimators.registry`` knows these modules; everything else asks it.
"""
