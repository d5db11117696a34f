"""Sweeps: one run with other values, seeds and folds, in processes or on a cluster."""
