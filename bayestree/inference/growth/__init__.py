"""Trees from nothing: greedy growth, the hardening of soft trees, and single leaves."""
