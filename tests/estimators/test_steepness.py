"""The steepness that a fit by MAP chooses, and the fits that do not choose."""

import numpy as np
import pytest
from sklearn.base import clone

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Map, Svi
from bayestree.inference.map import STEEPNESS

MAP = Map(epochs=10, steepness=None)
SHORT = {"inference": MAP, "max_depth": 2, "n_experts": 2, "random_state": 0}


def rows(n=150, noise=0.2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, ((X[:, 0] * X[:, 1] > 0) ^ (rng.random(n) < noise)).astype(int)


@pytest.mark.parametrize("kind", [ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor])
def test_the_fit_is_that_with_the_chosen_steepness(kind):
    X, y = rows()
    found = kind(**SHORT).fit(X, y if kind is ConvexPolytopeTreeClassifier else X[:, 0] + y)
    chosen = found.posterior_.model.steepness
    assert found.posterior_.settings["steepness"] == (1.0, chosen)
    assert chosen == STEEPNESS[int(found.posterior_.stats["left_out"].argmax())]
    given = clone(found).set_params(inference__steepness=chosen)
    given.fit(X, y if kind is ConvexPolytopeTreeClassifier else X[:, 0] + y)
    assert "left_out" not in given.posterior_.stats
    np.testing.assert_array_equal(given.predict(X), found.predict(X))
    np.testing.assert_array_equal(given.tree_.hyperplane, found.tree_.hyperplane)


def test_a_continued_fit_keeps_the_steepness():
    X, y = rows()
    first = ConvexPolytopeTreeClassifier(**SHORT).set_params(inference__steepness=3.0).fit(X, y)
    first.set_params(inference__steepness=None, warm_start=True).fit(X, y)
    assert first.posterior_.settings["steepness"] == (3.0, 3.0)
    grown = ConvexPolytopeTreeClassifier(**SHORT).set_params(inference="grow")
    grown.fit(X, y).set_params(inference=MAP, warm_start=True).fit(X, y)
    assert "left_out" in grown.posterior_.stats  # of a tree that was not refined


def test_later_batches_keep_the_steepness():
    X, y = rows()
    found = ConvexPolytopeTreeClassifier(**SHORT).partial_fit(X[:75], y[:75])
    chosen = found.posterior_.model.steepness
    found.partial_fit(X[75:], y[75:])
    assert found.posterior_.settings["steepness"] == (chosen, chosen)


def test_only_the_last_stage_chooses():
    found = ConvexPolytopeTreeClassifier(**SHORT | {"inference": [MAP, Svi()]}, n_modes=1)
    assert found.plan(*rows()).stages[1] == Map(epochs=3, steepness=(1.0, 6.0))  # of 10


def test_held_out_rows_choose():
    X, y = rows(noise=0.05)
    found = ConvexPolytopeTreeClassifier(**SHORT, validation_fraction=0.4).fit(X, y)
    plain = ConvexPolytopeTreeClassifier(**SHORT).fit(X, y)
    # 60 rows are scored once, and each of 150 once
    assert found.posterior_.stats["left_out"].max() > plain.posterior_.stats["left_out"].max()


def test_a_settings_object_chooses_if_it_says_so():
    X, y = rows()
    assert "left_out" in ConvexPolytopeTreeClassifier(**SHORT).fit(X, y).posterior_.stats
    stated = ConvexPolytopeTreeClassifier(**SHORT | {"inference": Map(epochs=10)}).fit(X, y)
    assert stated.posterior_.settings["steepness"] == (1.0, 6.0)
