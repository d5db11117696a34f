import pytest
import torch

from bayestree.inference.splitters.feature_subsets import RandomFeatures, RandomPatch


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
