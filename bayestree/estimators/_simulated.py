"""Simulated rows of X: points between neighbouring rows."""

import numpy as np

from bayestree._utils.arrays import FloatArray, IntArray

NEIGHBOURS = 5
BLOCK = 5000  # rows among which neighbours are searched, so that time is linear in the rows


def simulated_rows(
    X: FloatArray,
    standardised: FloatArray,
    weights: FloatArray,
    n_rows: int,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Points in the boxes between rows and their neighbours, shape (n_rows, d).

    As in MUNGE (Bucila, Caruana and Niculescu-Mizil 2006), each is made of a row, drawn in
    proportion to its weight, and one of its nearest neighbours: each coordinate is uniform between
    their two values. Columns of whole numbers are rounded. Columns of two values, such as those of
    an encoded category, are taken together from one of the two rows, so that their combination
    occurs in the data.
    """
    first = random_state.choice(len(X), n_rows, p=weights / weights.sum())
    partner = _neighbours(standardised, random_state)[
        first, random_state.randint(NEIGHBOURS, size=n_rows)
    ]
    one, other = X[first], X[partner]
    share = random_state.uniform(size=one.shape)
    low, high = X.min(axis=0), X.max(axis=0)
    binary = ((low == X) | (high == X)).all(axis=0)
    share[:, binary] = random_state.randint(2, size=(n_rows, 1))
    found: FloatArray = one + share * (other - one)
    found[:, binary] = np.where(share[:, binary] > 0, other[:, binary], one[:, binary])
    whole = (np.rint(X) == X).all(axis=0)
    found[:, whole] = np.rint(found[:, whole])
    return found


def _neighbours(rows: FloatArray, random_state: np.random.RandomState) -> IntArray:
    """Numbers of the nearest rows of each one among those of its block, (n, NEIGHBOURS)."""
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415 - imports model_selection

    order = random_state.permutation(len(rows))
    found = np.empty((len(rows), NEIGHBOURS), dtype=np.int64)
    for block in np.array_split(order, -(-len(rows) // BLOCK)):
        most = min(NEIGHBOURS + 1, len(block))
        near = (
            NearestNeighbors(n_neighbors=most)
            .fit(rows[block])
            .kneighbors(rows[block], return_distance=False)
        )
        # Of a row and its copies any may be first; with few rows, neighbours are repeated.
        found[block] = block[near[:, np.resize(np.arange(most)[min(1, most - 1) :], NEIGHBOURS)]]
    return found
