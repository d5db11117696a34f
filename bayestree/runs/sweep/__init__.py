"""Sweeps: one run with varied parameters, seeds and folds, in processes or on a cluster."""

from bayestree.runs.sweep.driver import Sweep, sweep
from bayestree.runs.sweep.file import SweepFile, read_sweep

__all__ = ["Sweep", "SweepFile", "read_sweep", "sweep"]
