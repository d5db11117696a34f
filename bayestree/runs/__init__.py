"""Scripted runs: cards, run files, run folders, sweeps. Heavy packages are imported when needed."""
