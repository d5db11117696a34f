import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from bayestree import EndToEndTreeClassifier
from bayestree.literature._feature_subsets import RandomFeatures, RandomPatch, subset_rule


def drawn(rule, n_nodes, n_features, seed=0):
    return rule(n_nodes, n_features, torch.Generator().manual_seed(seed))


def test_each_node_gets_so_many_features_and_each_feature_its_turn():
    mask = drawn(RandomFeatures(3), 4000, 12)
    assert (mask.sum(1) == 3).all()
    # binomial(4000, 1/4): four standard deviations are 110
    assert (mask.sum(0) - 1000).abs().max() < 110


def test_more_features_than_there_are_is_all():
    assert drawn(RandomFeatures(9), 5, 4).all()


def test_a_patch_is_a_rectangle_inside_the_image():
    mask = drawn(RandomPatch((5, 7), (2, 3)), 3000, 35).view(3000, 5, 7)
    assert (mask.sum((1, 2)) == 6).all()
    assert (mask.any(2).sum(1) == 2).all()
    assert (mask.any(1).sum(1) == 3).all()
    top, left = mask.any(2).int().argmax(1), mask.any(1).int().argmax(1)
    places = torch.bincount(5 * top + left, minlength=20)
    # 4 x 5 places, binomial(3000, 1/20): four standard deviations are 48
    assert (places - 150).abs().max() < 48


def test_the_same_seed_gives_the_same_subsets():
    for rule in (RandomFeatures(2), RandomPatch((2, 5), (1, 2))):
        assert torch.equal(drawn(rule, 20, 10), drawn(rule, 20, 10))
        assert not torch.equal(drawn(rule, 20, 10), drawn(rule, 20, 10, seed=1))


@pytest.mark.parametrize("patch", [(0, 2), (3, 6), (6, 3)])
def test_a_patch_that_does_not_fit(patch):
    with pytest.raises(ValueError, match="patch_size must lie"):
        RandomPatch((5, 5), patch)


def test_bad_counts_and_shapes():
    with pytest.raises(ValueError, match="count must be 1"):
        RandomFeatures(0)
    with pytest.raises(ValueError, match="25 pixels, but there are 24"):
        drawn(RandomPatch((5, 5), (2, 2)), 3, 24)


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
