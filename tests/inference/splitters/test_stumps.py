import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayestree.inference.splitters.stumps import best_threshold
from bayestree.models import Categorical, Gaussian
from bayestree.models.criteria import Entropy, SquaredError

CLASSES, REALS = Categorical(3), Gaussian()


def log_likelihood(y, weights, *, classes):
    """Log-likelihood of rows in their best leaf; minus the sum of squares for real values."""
    total = weights.sum()
    if total == 0:
        return 0.0
    if not classes:
        return -(weights * (y - np.average(y, weights=weights)) ** 2).sum()
    counts = np.array([weights[y == c].sum() for c in range(3)])
    share = counts[counts > 0] / total
    return (counts[counts > 0] * np.log(share)).sum()


def worth(scores, y, weights, threshold, *, classes):
    sides = (scores > threshold), (scores <= threshold)
    return sum(log_likelihood(y[side], weights[side], classes=classes) for side in sides)


def search(scores, y, weights, min_leaf, *, classes):
    leaf = CLASSES if classes else REALS
    statistics = leaf.statistics(torch.as_tensor(y), torch.as_tensor(weights))
    criterion = Entropy() if classes else SquaredError()
    return best_threshold(torch.as_tensor(scores), criterion, statistics, min_leaf)


@st.composite
def node_rows(draw, *, classes):
    n = draw(st.integers(2, 12))
    # Few values: ties between scores, and rows of weight zero.
    scores = np.array(draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))) / 3
    label = st.integers(0, 2) if classes else st.integers(-50, 50)
    y = np.array(draw(st.lists(label, min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=float)
    weights[0] += 1
    return scores, y if classes else y / 10, weights, draw(st.integers(1, 4))


@pytest.mark.parametrize("classes", [True, False])
@settings(max_examples=300)
@given(st.data())
def test_best_threshold_is_that_of_trying_all(classes, data):
    scores, y, weights, min_leaf = data.draw(node_rows(classes=classes))
    values = np.unique(scores)
    tried = [
        worth(scores, y, weights, t, classes=classes)
        for t in values[:-1]
        if min(np.sum(scores > t), np.sum(scores <= t)) >= min_leaf
    ]
    found = search(scores, y, weights, min_leaf, classes=classes)
    if not tried:
        assert found is None
        return
    threshold, gain = found
    assert min(np.sum(scores > threshold), np.sum(scores <= threshold)) >= min_leaf
    reached = worth(scores, y, weights, threshold, classes=classes)
    assert reached == pytest.approx(max(tried), rel=1e-9, abs=1e-9)
    whole = log_likelihood(y, weights, classes=classes)
    if classes:
        assert gain == pytest.approx(max(tried) - whole, abs=1e-9)
    elif -max(tried) > 1e-6:
        expected = weights.sum() / 2 * np.log(whole / max(tried))
        assert gain == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("classes", [True, False])
@settings(max_examples=100)
@given(st.data())
def test_a_weight_is_so_many_rows(classes, data):
    scores, y, weights, _ = data.draw(node_rows(classes=classes))
    weights = weights + 1
    times = weights.astype(int)
    found = search(scores, y, weights, 1, classes=classes)
    repeated = search(  # type: ignore[call-arg, misc]
        *(np.repeat(v, times) for v in (scores, y)), np.ones(times.sum()), 1, classes=classes
    )
    if found is None:
        assert repeated is None
    else:
        same = [worth(scores, y, weights, t, classes=classes) for t in (found[0], repeated[0])]
        assert same[0] == pytest.approx(same[1], rel=1e-9, abs=1e-9)
        if classes or same[0] < -1e-6:  # the gain of a perfect fit of reals is unbounded
            assert found[1] == pytest.approx(repeated[1], rel=1e-9, abs=1e-9)


def test_a_threshold_between_neighbouring_numbers_still_separates_them():
    y, found = np.array([0, 1] * 3), 0
    for low in np.linspace(0.1, 1, 50, dtype=np.float32):
        scores = np.array([low, np.nextafter(low, np.float32(1))] * 3)
        result = search(scores, y, np.ones(6), 1, classes=True)
        if result is not None:
            found += 1
            assert (scores > np.float32(result[0])).tolist() == [False, True] * 3
    assert found > 0


def test_equal_scores_are_not_separated():
    assert search(np.full(5, 0.3), np.array([0, 1, 0, 1, 2]), np.ones(5), 1, classes=True) is None
