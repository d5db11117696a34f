"""Small linear algebra, compiled: weighted moments of rows, Cholesky factors and solves."""

import math

import numpy as np
from numba import njit

from bayestree.inference.core.elementary import PART


@njit(**PART)
def moments(X, g, out, one, two):
    """Compute the lower triangle (p, p) of sum_i g_i x_i x_i', eight products at a time.

    Some of the upper triangle are computed as well, and some products twice. ``one`` and ``two``
    are space (n,).
    """
    p, n = X.shape
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
