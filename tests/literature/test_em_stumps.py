"""Stumps fitted by EM, and the features that they may use."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from bayestree import EndToEndTreeClassifier
from bayestree.inference import Data, GrowthLimits, em, grow
from bayestree.inference.posterior import Posterior
from bayestree.literature._em_stumps import (
    EmStumps,
    EndToEndSplitter,
    NodeAdam,
    subset_rule,
)
from bayestree.models import (
    Categorical,
    Flat,
    Gaussian,
    Laplace,
    Network,
    Oblique,
    Priors,
    named,
)
from bayestree.topology import Topology
from tests.inference.problems import normal, quadrants, step

FLAT = Priors(hyperplane=Flat())
LIMITS = GrowthLimits(max_depth=2, min_rows=2, min_leaf=1, min_gain=0.0)


def splitter(leaf=None, **changes):
    settings = {"learning_rate": 0.02, "epochs": 60, "priors": FLAT} | changes
    return EndToEndSplitter(Oblique(), leaf or Categorical(2), **settings)


def stumps(data, rows, sites, *, priors=FLAT, batch_size=1000):
    """Stumps from given parameters."""
    settings = splitter(priors=priors, batch_size=batch_size, learning_rate=0.01)
    made = EmStumps(settings, data, rows)
    for name, value in sites.items():
        made.sites[name].copy_(value)
    return made


def start(n_nodes, n_features=2):
    torch.manual_seed(3)
    return Oblique().start(n_nodes, n_features, torch.zeros(0, dtype=torch.float64))


def accuracy(posterior, data):
    """Of the deterministic tree."""
    model, sites = posterior.model.with_(steepness=math.inf), posterior.point_sites()
    leaf = model.leaf_log_probs(sites, data.X).argmax(-1)
    return float((sites["leaf_probs"][leaf].argmax(-1) == data.y).double().mean())


@pytest.mark.parametrize("priors", [FLAT, Priors(hyperplane=Laplace(2.0))])
def test_a_stump_is_the_em_of_a_tree_of_one_split(priors):
    data = quadrants(80)._replace(weights=normal(80).exp())
    made = stumps(data, [torch.arange(80)], start(1), priors=priors)
    leaves = {"leaf_probs": torch.full((2, 2), 0.5, dtype=torch.float64)}
    model = named.end_to_end(Categorical(2), prior=priors.hyperplane)
    model = model.with_(topology=Topology.stump())
    init = Posterior.from_point(model, start(1) | leaves, "start")
    found = em(model, data, init=init, epochs=6, learning_rate=0.01, random_state=0)
    for epoch in range(6):
        made.epoch(1.0 + 0.1 * epoch)
    # their gradients differ by a factor, which Adam's epsilon of 1e-8 alone can tell; a step of
    # Adam is 0.01
    for name, value in made.sites.items():
        np.testing.assert_allclose(value, found.point[name], atol=1e-4)
    np.testing.assert_allclose(made.leaves["leaf_probs"][0], found.point["leaf_probs"], atol=1e-4)


def test_nodes_of_a_batch_go_their_own_ways():
    data = quadrants(300)
    rows = [torch.arange(120, 300), torch.arange(50), torch.arange(50, 75)]
    sites = start(3)
    together = stumps(data, rows, sites)
    alone = [
        stumps(data, [own], {k: v[i : i + 1] for k, v in sites.items()})
        for i, own in enumerate(rows)
    ]
    for one in (together, *alone):
        for _ in range(5):
            one.epoch(2.0)
    for i, one in enumerate(alone):
        for name, value in one.sites.items():
            np.testing.assert_allclose(together.sites[name][i], value[0], rtol=1e-10)
        np.testing.assert_allclose(
            together.leaves["leaf_probs"][i], one.leaves["leaf_probs"][0], rtol=1e-10
        )


def test_nodes_with_more_rows_take_more_steps_and_all_rows_count_for_the_leaves():
    data = quadrants(300)
    rows = [torch.arange(250), torch.arange(250, 300)]
    parts, whole = (stumps(data, rows, start(2), batch_size=size) for size in (60, 1000))
    for one in (parts, whole):
        one.epoch(1.0)
    assert parts.adam.steps.tolist() == [5.0, 1.0]
    torch.testing.assert_close(parts.leaves, whole.leaves)


def test_each_node_has_an_adam_of_its_own():
    value = normal(2, 3)
    mine = {"weight": value.clone()}
    adam = NodeAdam(mine, 0.1)
    theirs = [value[i : i + 1].clone().requires_grad_() for i in range(2)]
    reference = [torch.optim.Adam([one], lr=0.1) for one in theirs]
    for count in (2, 1, 1, 2):
        active = {"weight": mine["weight"][:count].clone().requires_grad_()}
        active["weight"].square().sum().backward()
        adam.step(active)
        for one, optimiser in list(zip(theirs, reference, strict=True))[:count]:
            optimiser.zero_grad()
            one.square().sum().backward()
            optimiser.step()
    torch.testing.assert_close(mine["weight"], torch.cat(theirs).detach())


@dataclass(frozen=True)
class Unlucky(Oblique):
    """Starts far from all rows, as long as ``log`` is short."""

    log: list = None

    def start(self, n_nodes, n_features, like):
        sites = super().start(n_nodes, n_features, like)
        self.log.append(n_nodes)
        if len(self.log) < 3:
            sites["intercept"] += 1e3
        return sites


@pytest.mark.parametrize(("attempts", "succeeds"), [(2, False), (5, True)])
def test_failed_stumps_are_tried_again(attempts, succeeds):
    data = quadrants(60)
    split = Unlucky(log=[])
    fit = EndToEndSplitter(split, Categorical(2), epochs=3, attempts=attempts)
    found = fit(data, [torch.arange(40), torch.arange(40, 60)])
    assert all((one is not None) == succeeds for one in found)
    assert split.log == [2] * (3 if succeeds else 2)


def test_the_gain_is_rows_times_information():
    # 8 rows on a line, classes 0001 0111: a split in the middle leaves shares 3/4 and 1/4.
    X = torch.arange(8.0, dtype=torch.float64).unsqueeze(1) - 3.5
    data = Data.of(X, torch.tensor([0, 0, 0, 1, 0, 1, 1, 1]))
    ones, zeros = torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1).double()
    found = splitter()._finished(data, torch.arange(8), {"hyperplane": ones, "intercept": zeros})
    assert found.right.tolist() == [False] * 4 + [True] * 4
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found.gain == pytest.approx(8 * (math.log(2) - entropy), rel=1e-9)


def corner(n=400):
    """Class 1 where both features are positive: two half-spaces, found greedily."""
    X = normal(n, 2)
    return Data.of(X, (X > 0).all(1).long())


@pytest.mark.portable
@pytest.mark.parametrize("order", ["level", "best"])
def test_growth_and_training_as_a_whole_find_a_corner(order):
    data = corner()
    model = named.end_to_end(Categorical(2))
    grown, again = (
        grow(model, data, splitter=splitter(), limits=LIMITS, order=order, random_state=0)
        for _ in range(2)
    )
    assert accuracy(grown, data) > 0.85
    found = em(grown.model, data, init=grown, epochs=200, learning_rate=0.02, random_state=0)
    assert accuracy(found, data) > max(0.95, accuracy(grown, data))
    for name, value in grown.point.items():
        np.testing.assert_array_equal(value, again.point[name])


@pytest.mark.portable
def test_values_are_split_too():
    data = step(200, noise=0.1)
    model = named.end_to_end(Gaussian())
    fit = splitter(Gaussian(), epochs=200)
    limits = GrowthLimits(1, min_rows=2, min_leaf=1, min_gain=0.0)
    found = grow(model, data, splitter=fit, limits=limits, random_state=0)
    side = found.model.scores(found.point_sites(), data.X)[:, 0] > math.log(2)
    agreement = (side == (data.X[:, 0] > 0)).double().mean()
    assert abs(agreement - 0.5) > 0.45


def test_a_split_keeps_to_its_features():
    data = Data.of(normal(200, 6), torch.arange(200) % 2)

    def pairs(n_nodes, n_features, generator):
        score = torch.rand(n_nodes, n_features, generator=generator)
        return score >= score.topk(2).values[:, -1:]

    fit = splitter(features=pairs, epochs=5)
    model = named.end_to_end(Categorical(2))
    grown = grow(model, data, splitter=fit, limits=LIMITS, random_state=0)
    assert ((grown.point["hyperplane"] != 0).sum(-1) == 2).all()
    found = em(grown.model, data, init=grown, epochs=5, keep_zeros=True, random_state=0)
    np.testing.assert_array_equal(found.point["hyperplane"] != 0, grown.point["hyperplane"] != 0)
    assert (found.point["hyperplane"] != grown.point["hyperplane"]).any()


def test_the_narrowed_start_is_on_the_sphere():
    made = EmStumps(
        splitter(batch_size=10),
        quadrants(20),
        [torch.arange(20)] * 2,
        torch.tensor([[True, False], [False, True]]),
    )
    square = made.sites["hyperplane"].square().sum(-1) + made.sites["intercept"].square()
    torch.testing.assert_close(square, torch.ones_like(square))
    assert (made.sites["hyperplane"][[0, 1], 0, [0, 1]] == 0).all()


def tiny(n_features):
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, 1))


@pytest.mark.portable
def test_a_network_is_fitted_by_the_same_lines():
    data = quadrants(300)
    split = Network(tiny)
    fit = EndToEndSplitter(split, Categorical(2), epochs=150, learning_rate=0.05)
    model = named.end_to_end(Categorical(2), split=split)
    limits = GrowthLimits(1, min_rows=2, min_leaf=1, min_gain=0.0)
    # One start in eight ends in a poor optimum, of accuracy 3/4.
    scores = []
    for seed in range(3):
        grown = grow(model, data, splitter=fit, limits=limits, random_state=seed)
        found = em(grown.model, data, init=grown, epochs=100, steepness=5.0, learning_rate=0.05)
        scores.append(accuracy(found, data))
    assert max(scores) > 0.85  # a hyperplane reaches about a half
    with pytest.raises(ValueError, match="linear"):
        EndToEndSplitter(split, Categorical(2), features=lambda n, d, _: torch.ones(n, d) > 0)(
            data, [torch.arange(300)]
        )


@pytest.mark.parametrize("name", ["epochs", "batch_size", "attempts", "min_leaf"])
def test_counts_out_of_range_are_named(name):
    with pytest.raises(ValueError, match=name):
        splitter(**{name: 0})


def drawn(rule, n_nodes, n_features, seed=0):
    return rule(n_nodes, n_features, torch.Generator().manual_seed(seed))


def test_each_node_gets_so_many_features_and_each_feature_its_turn():
    mask = drawn(subset_rule(12, 3, None, None), 4000, 12)
    assert (mask.sum(1) == 3).all()
    # binomial(4000, 1/4): four standard deviations are 110
    assert (mask.sum(0) - 1000).abs().max() < 110


def test_more_features_than_there_are_is_all():
    assert drawn(subset_rule(4, 9, None, None), 5, 4).all()


def test_a_patch_is_a_rectangle_inside_the_image():
    mask = drawn(subset_rule(35, None, (5, 7), (2, 3)), 3000, 35).view(3000, 5, 7)
    assert (mask.sum((1, 2)) == 6).all()
    assert (mask.any(2).sum(1) == 2).all()
    assert (mask.any(1).sum(1) == 3).all()
    top, left = mask.any(2).int().argmax(1), mask.any(1).int().argmax(1)
    places = torch.bincount(5 * top + left, minlength=20)
    # 4 x 5 places, binomial(3000, 1/20): four standard deviations are 48
    assert (places - 150).abs().max() < 48


def test_the_same_seed_gives_the_same_subsets():
    for given in ((2, None, None), (None, (2, 5), (1, 2))):
        rule = subset_rule(10, *given)
        assert torch.equal(drawn(rule, 20, 10), drawn(rule, 20, 10))
        assert not torch.equal(drawn(rule, 20, 10), drawn(rule, 20, 10, seed=1))


@pytest.mark.parametrize("patch", [(3, 6), (6, 3)])
def test_a_patch_that_does_not_fit(patch):
    with pytest.raises(ValueError, match="patch_size must lie"):
        subset_rule(25, None, (5, 5), patch)


# Some pixels of the digits are always white.
pytestmark = pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")

QUICK = {"max_depth": 4, "epochs": 5, "learning_rate": 0.02, "random_state": 0}


@pytest.mark.parametrize(
    ("given", "count"), [("sqrt", 5), (3, 3), (0.5, 15), (0.001, 1), (1.0, 30), (1, 1)]
)
def test_max_features(given, count):
    mask = drawn(subset_rule(30, given, None, None), 2, 30)
    assert (mask.sum(1) == count).all()


def test_all_features_by_default():
    assert subset_rule(30, None, (5, 6), None) is None


def test_patches():
    mask = drawn(subset_rule(30, None, [5, 6], [2, 2]), 4, 30)
    assert (mask.sum(1) == 4).all()


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
