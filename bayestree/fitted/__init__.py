"""What a fit has found, and everything that is asked of it.

:class:`~bayestree.fitted.tree.FittedTree` holds one tree with its posterior, and
:class:`~bayestree.fitted.tree.Mixture` the trees of a fit with their weights. The other modules
read them; functions that take an estimator are its methods.
"""
