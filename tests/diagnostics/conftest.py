"""The diagnostics need no torch, and nor do their tests, but for one that compares with it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_routing.py"]
