"""Random subsets of features for each split of an end-to-end tree."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bayestree import EndToEndTreeClassifier
from bayestree.estimators._subsets import subset_rule
from bayestree.inference.splitters.feature_subsets import RandomFeatures, RandomPatch

# Some pixels of the digits are always white.
pytestmark = pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")

QUICK = {"max_depth": 4, "epochs": 5, "learning_rate": 0.02, "random_state": 0}


@pytest.mark.parametrize(
    ("given", "count"), [("sqrt", 5), (3, 3), (0.5, 15), (0.001, 1), (1.0, 30), (1, 1)]
)
def test_max_features(given, count):
    assert subset_rule(30, given, None, None) == RandomFeatures(count)


def test_all_features_by_default():
    assert subset_rule(30, None, (5, 6), None) is None


def test_patches():
    assert subset_rule(30, None, [5, 6], [2, 2]) == RandomPatch((5, 6), (2, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch_size": (2, 2)}, "needs image_shape"),
        ({"patch_size": (2, 2), "image_shape": (8, 8), "max_features": 3}, "give one of them"),
        ({"patch_size": (9, 2), "image_shape": (8, 8)}, "patch_size must lie"),
        ({"patch_size": (2, 0), "image_shape": (8, 8)}, "patch_size must be two"),
        ({"patch_size": (2, 2), "image_shape": (8, 9)}, "72 pixels, and X has 64"),
        ({"max_features": 3, "inference": "svi"}, "draws are never exactly 0"),
    ],
)
def test_what_cannot_be(settings, message):
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        EndToEndTreeClassifier(**QUICK, **settings).fit(X, y)


def test_a_split_keeps_to_its_features_through_all_of_the_fit():
    X, y = load_digits(return_X_y=True)
    few = EndToEndTreeClassifier(max_features=6, **QUICK).fit(X, y).tree_.hyperplane != 0
    assert few.sum(axis=1).max() == 6
    assert few.any(axis=0).sum() > 30  # not the same six everywhere
    patch = {"patch_size": (3, 4), "image_shape": (8, 8)}
    pixels = EndToEndTreeClassifier(**patch, **QUICK).fit(X, y).tree_.hyperplane != 0
    for image in pixels.reshape(-1, 8, 8):
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        assert np.ptp(rows) < 3
        assert np.ptp(columns) < 4


def test_constant_pixels_count_as_pixels():
    """All pixels of an image are in the fit, so a share of 1 means every pixel."""
    X, y = load_digits(return_X_y=True)
    blank = np.zeros((len(X), 192))
    blank[:, ::3] = X
    clf = EndToEndTreeClassifier(max_features=1.0, image_shape=(8, 24), **QUICK).fit(blank, y)
    used = clf.tree_.hyperplane != 0
    assert (used == used[0]).all()
    assert used[0].sum() == (np.ptp(X, axis=0) > 0).sum()
