"""Small linear algebra, compiled: weighted moments of rows, Cholesky factors and solves."""

import math

import numpy as np
from numba import njit

from bayestree.inference.core.elementary import PART


@njit(**PART)
def moments(X, g, out):
    """Compute the lower triangle (p, p) of sum_i g_i^2 x_i x_i'; four products share a load."""
    p, n = X.shape
    own = np.empty(n)
    for j in range(p):
        xj = X[j]
        for i in range(n):
            own[i] = g[i] * g[i] * xj[i]
        k = 0
        while k + 4 <= j + 1:
            x0, x1, x2, x3 = X[k], X[k + 1], X[k + 2], X[k + 3]
            s0 = s1 = s2 = s3 = 0.0
            for i in range(n):
                s0 += own[i] * x0[i]
                s1 += own[i] * x1[i]
                s2 += own[i] * x2[i]
                s3 += own[i] * x3[i]
            out[j, k], out[j, k + 1], out[j, k + 2], out[j, k + 3] = s0, s1, s2, s3
            k += 4
        while k <= j:
            s0, xk = 0.0, X[k]
            for i in range(n):
                s0 += own[i] * xk[i]
            out[j, k] = s0
            k += 1


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
