"""What was learnt: sizes of polytopes, uncertainty and convergence, from arrays of draws."""

from bayestree.diagnostics.size import PolytopeSize, polytope_size

__all__ = ["PolytopeSize", "polytope_size"]
