"""Scripted runs: cards, run files, run folders, sweeps. What is heavy is imported when needed."""
