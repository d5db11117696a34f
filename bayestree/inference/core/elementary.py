"""Elementary functions that compile to vector instructions, and small linear algebra.

Those of the C library are calls, which keep a loop from being vectorised. Each function here is a
short polynomial without a branch, with a relative error of a few units in the last place. They are
compiled without reassociation, which would remove the rounding to whole numbers; the loops that
call them allow it.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOG2 = math.log(2.0)


def _keeps_code() -> bool:
    """Tell whether numba finds a folder for compiled code: it refuses to compile without one."""
    try:
        njit(cache=True)(_keeps_code)
    except RuntimeError:
        return False
    return True


#: Options of a loop over rows. Sums may be reordered; NaN and infinity keep their meaning.
LOOP: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "cache": _keeps_code(),
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
}
#: The same of a function that compiled functions alone call: without an interface to Python, which
#: takes longer to compile than the loop.
PART = {**LOOP, "cache": False, "no_cpython_wrapper": True}
#: The same of a function that is called in one place: as a part of the caller, it is compiled once.
ONCE = {**PART, "inline": "always"}
STRICT: dict[str, Any] = {
    "fastmath": {"contract"},
    "error_model": "numpy",
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

_LOG2E = 1.4426950408889634
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # of log(2)
_ROUND = 6755399441055744.0  # 1.5 * 2^52: a number added to it is rounded to a whole number
_WHOLE = 4503599627370496.0  # 2^52: the lowest bits of a number above it are a whole number
_BITS_OF_WHOLE, _BITS_OF_ONE = 0x4330000000000000, 0x3FF0000000000000
_BITS_OF_ROOT, _MANTISSA = 0x3FE6A09E00000000, 0x000FFFFFFFFFFFFF  # of sqrt(1/2), rounded down


@intrinsic
def _bits(_typing: Any, _x: Any) -> Any:
    """Return the bits of a float64 as an int64."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), code


@intrinsic
def _number(_typing: Any, _i: Any) -> Any:
    """Return the float64 of an int64's bits."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), code


@njit(**STRICT)
def exp_and_rest(x):
    """Return e^x and 1 - e^x, for x <= 0; e^-708 below -708.

    With x = k log(2) + r, e^x = 2^k e^r, and 1 - e^x = (1 - 2^k) - 2^k (e^r - 1) has no
    cancellation: its second term is the smaller one, or the first is 0.
    """
    x = max(x, -708.0)
    t = x * _LOG2E + _ROUND
    k = t - _ROUND
    r = x - k * _LOG2_HIGH
    r = r - k * _LOG2_LOW
    p = 1 / 6227020800.0
    p = p * r + 1 / 479001600.0
    p = p * r + 1 / 39916800.0
    p = p * r + 1 / 3628800.0
    p = p * r + 1 / 362880.0
    p = p * r + 1 / 40320.0
    p = p * r + 1 / 5040.0
    p = p * r + 1 / 720.0
    p = p * r + 1 / 120.0
    p = p * r + 1 / 24.0
    p = p * r + 1 / 6.0
    p = p * r + 0.5
    p = p * r * r + r  # e^r - 1
    power = _number((_bits(t) << 52) + _BITS_OF_ONE)  # 2^k
    scaled = power * p
    return power + scaled, (1.0 - power) - scaled


@njit(**STRICT)
def exp(x):
    """Return e^x, for x <= 0; e^-708 below -708."""
    return exp_and_rest(x)[0]


@njit(**STRICT)
def log(x):
    """Return the logarithm of a normal positive number."""
    bits = _bits(x) - _BITS_OF_ROOT
    # the exponent of x / sqrt(1/2), from -1022 to 1023, as a float64 by way of its bits
    k = _number(((bits >> 52) + 2048) | _BITS_OF_WHOLE) - (_WHOLE + 2048.0)
    f = _number((bits & _MANTISSA) + _BITS_OF_ROOT) - 1.0  # from -0.293 to 0.414
    s = f / (2.0 + f)
    z = s * s
    # 2 atanh(s) = log(1 + f), by the coefficients of Sun's fdlibm
    p = 1.479819860511658591e-01
    p = p * z + 1.531383769920937332e-01
    p = p * z + 1.818357216161805012e-01
    p = p * z + 2.222219843214978396e-01
    p = p * z + 2.857142874366239149e-01
    p = p * z + 3.999999999940941908e-01
    p = p * z + 6.666666666666735130e-01
    half = 0.5 * f * f
    return k * _LOG2_HIGH + (f - (half - (s * (half + z * p) + k * _LOG2_LOW)))


@njit(**STRICT)
def softplus(x):
    """Return log(1 + e^x), to relative accuracy at both ends."""
    e = exp(-abs(x))
    s = e / (2.0 + e)  # log(1 + e) = 2 atanh(s), 0 <= s <= 1/3
    z = s * s
    p = 0.088903819130566514469
    p = p * z + 0.049403945243823931204
    p = p * z + 0.067956527427899469179
    p = p * z + 0.076818381244458171292
    p = p * z + 0.090914299002369554786
    p = p * z + 0.11111095430673142019
    p = p * z + 0.14285714555828580111
    p = p * z + 0.19999999997643800004
    p = p * z + 0.33333333333341287164
    p = p * z + 0.99999999999999995579
    return max(x, 0.0) + 2.0 * s * p


@njit(**PART)
def moments(X, g, n, out, one, two):
    """Compute the lower triangle (p, p) of sum_i g_i x_i x_i' of n rows, eight products at a time.

    Some of the upper triangle are computed as well, and some products twice. ``one`` and ``two``
    are space (n,).
    """
    p = X.shape[0]
    for j in range(0, p, 2):
        h = min(j + 1, p - 1)
        xj, xh = X[j], X[h]
        for i in range(n):
            one[i], two[i] = g[i] * xj[i], g[i] * xh[i]
        for k in range(0, h + 1, 4):
            k1, k2, k3 = min(k + 1, p - 1), min(k + 2, p - 1), min(k + 3, p - 1)
            x0, x1, x2, x3 = X[k], X[k1], X[k2], X[k3]
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = 0.0
            for i in range(n):
                s0 += one[i] * x0[i]
                s1 += one[i] * x1[i]
                s2 += one[i] * x2[i]
                s3 += one[i] * x3[i]
                t0 += two[i] * x0[i]
                t1 += two[i] * x1[i]
                t2 += two[i] * x2[i]
                t3 += two[i] * x3[i]
            out[j, k], out[j, k1], out[j, k2], out[j, k3] = s0, s1, s2, s3
            out[h, k], out[h, k1], out[h, k2], out[h, k3] = t0, t1, t2, t3


@njit(**PART)
def factorise(H):
    """Replace the lower triangle of H by its Cholesky factor; False if there is none."""
    for j in range(H.shape[0]):
        row = H[j]
        for k in range(j):
            s, other = row[k], H[k]
            for m in range(k):
                s -= row[m] * other[m]
            row[k] = s / other[k]
        s = row[j]
        for m in range(j):
            s -= row[m] * row[m]
        if not 0.0 < s < np.inf:
            return False
        row[j] = math.sqrt(s)
    return True


@njit(**PART)
def solve_lower(L, b):
    """Solve L x = b in place."""
    for j in range(b.shape[0]):
        s = b[j]
        for k in range(j):
            s -= L[j, k] * b[k]
        b[j] = s / L[j, j]


@njit(**PART)
def solve_upper(L, b):
    """Solve L' x = b in place."""
    for j in range(b.shape[0] - 1, -1, -1):
        b[j] /= L[j, j]
        for k in range(j):
            b[k] -= L[j, k] * b[j]
