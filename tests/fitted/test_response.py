"""What y of a fit holds, also according to models that were read."""

import numpy as np
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    EndToEndForestClassifier,
    load,
)

X = np.random.default_rng(0).normal(size=(80, 2))
SIDE = (X[:, 0] > 0).astype(int)
FITS = (
    ConvexPolytopeTreeClassifier(inference="grow", random_state=0),
    ConvexPolytopeTreeClassifier(inference="grow", n_modes=2, random_state=0),
    EndToEndForestClassifier(n_estimators=2, max_depth=1, epochs=2, random_state=0),
)


def read_again(fitted, folder):
    fitted.save(folder / "model.safetensors")
    return load(folder / "model.safetensors")


@pytest.mark.parametrize("clf", FITS, ids=("tree", "modes", "forest"))
@pytest.mark.parametrize("labels", [("no", "yes"), (3, 7)], ids=("text", "numbers"))
def test_every_mixture_knows_its_classes(clf, labels, tmp_path):
    y = np.array(labels)[SIDE]
    clf.fit(X, y)
    for one in (clf, read_again(clf, tmp_path)):
        response = one.fitted_.response
        assert response.class_names == tuple(map(str, labels))
        assert response.labels.tolist() == one.classes_.tolist()
        np.testing.assert_array_equal(response.encode(y), SIDE)
        np.testing.assert_array_equal(response.decode(SIDE), y)
        assert response.separate(y)[1] is None


@pytest.mark.parametrize(
    ("reg", "extra"),
    [
        (ConvexPolytopeTreeRegressor(leaf="poisson", inference="grow"), "exposure"),
        (ConvexPolytopeTreeSurvival(inference="grow"), "event"),
    ],
)
def test_numbers_are_separated_from_their_extra_column(reg, extra, tmp_path):
    own = 1.0 * SIDE if extra == "event" else 1.0 + SIDE
    y = 1.0 + np.arange(80) % 5
    reg.fit(X, np.column_stack((y, own)))
    for one in (reg, read_again(reg, tmp_path)):
        response = one.fitted_.response
        assert (response.classifies, response.extra, response.n_outputs) == (False, extra, 1)
        for found, known in zip(
            response.separate(np.column_stack((y, own))), (y, own), strict=True
        ):
            np.testing.assert_array_equal(found, known)
        with pytest.raises(ValueError, match=f"y lacks the {extra}"):
            response.separate(y, refuse=True)


def test_numbers_return_from_the_units_of_the_fit():
    y = X * (1.0, 100.0)
    response = ConvexPolytopeTreeRegressor(inference="grow").fit(X, y).fitted_.response
    assert response.n_outputs == 2
    np.testing.assert_allclose(response.encode(y).std(axis=0), 1.0)
    np.testing.assert_allclose(response.decode(response.encode(y)), y)
