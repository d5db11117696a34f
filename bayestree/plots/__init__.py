"""Pictures of fitted trees, in Matplotlib.

Every function draws on the Axes it is given, or on a new Figure that pyplot does not know of,
and returns the Axes; ``ax.figure.savefig`` writes it.
"""

from bayestree.plots._boundary import boundary
from bayestree.plots._tree import tree

__all__ = ["boundary", "tree"]
