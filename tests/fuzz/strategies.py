"""Untrusted input: bytes of a valid file with changes, and values of every kind."""

import os
import tracemalloc
from contextlib import contextmanager

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: How often each test tries; BAYESTREE_FUZZ=5000 goes on for longer.
TRIES = int(os.environ.get("BAYESTREE_FUZZ", "40"))
fuzzed = settings(
    max_examples=TRIES,
    deadline=None,
    derandomize="BAYESTREE_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
#: Where a try takes a command or two.
fuzzed_less = settings(fuzzed, max_examples=max(1, TRIES // 8))

MEMORY = 50_000_000  # bytes, next to three times those of a file


@contextmanager
def little_memory(path):
    """Run a block that reads a file, whose memory traced by Python has a limit."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 * path.stat().st_size + MEMORY


odd_numbers = st.sampled_from(
    [0, -1, 1, 2, 2**31, 2**63, -(2**63), 10**30, 0.5, 1.0, -0.0, 1e-320, 1e308,
     float("inf"), float("-inf"), float("nan")]
)  # fmt: skip
scalars = st.one_of(
    st.booleans(),
    odd_numbers,
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["none", "auto", "cpt", "../../x", "/", "a\0b", "svi.toml", "nan"]),
    st.dates(),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def changed(draw, whole: bytes):
    """The bytes of a file with a few changes: some cut out, put in, turned, or copied within."""
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        how_many = draw(st.integers(0, 40))
        kind = draw(st.sampled_from(["cut", "put", "turn", "copy", "end"]))
        if kind == "cut":
            del found[at : at + how_many]
        elif kind == "put":
            found[at:at] = draw(st.binary(max_size=8))
        elif kind == "turn" and at < len(found):
            found[at] = draw(st.integers(0, 255))
        elif kind == "copy":
            there = draw(st.integers(0, len(found)))
            found[at:at] = found[there : there + how_many]
        elif kind == "end":
            del found[at:]
    return bytes(found)


@st.composite
def turned(draw, whole: bytes):
    """The bytes of a file of which one bit is turned, or whose end is missing."""
    at = draw(st.integers(0, len(whole) - 1))
    bit = draw(st.none() | st.integers(0, 7))
    return (
        whole[:at] if bit is None else whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
    )
