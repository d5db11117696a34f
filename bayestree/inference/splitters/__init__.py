"""Splitters, which fit the splits of a growing tree: one module per method."""
