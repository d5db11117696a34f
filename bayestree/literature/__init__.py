"""Trees and forests of other authors: their methods, with their estimators.

Only ``bayestree.estimators.registry`` knows these modules; everything else asks it.
"""
