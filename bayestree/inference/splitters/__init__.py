"""What fits the splits of a growing tree: one module for each way to do it."""
