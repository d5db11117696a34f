"""``partial_fit``: batches are combined, nothing is forgotten, and the memory does not grow."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss

import bayestree
from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.estimators import _data_sets
from bayestree.inference import Map, Svi

FAST = {"n_modes": 1, "max_depth": 1, "n_experts": 2, "random_state": 0}
NOISE = 0.5


def by_map(epochs=25):
    """The parameter that fits by so many epochs of MAP."""
    return {"inference": Map(epochs=epochs, steepness=None)}


def labelled(n, seed=0):
    """Two classes on the sides of a line, with a gradual transition."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * 3 + 7
    probability = 1 / (1 + np.exp(-2 * (X[:, 0] - X[:, 1])))
    return X, np.where(rng.random(n) < probability, "right", "left")


def numbers(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * 3 + 7
    return X, 20 * np.where(X[:, 0] > X[:, 1], 1.0, -1.0) + 20 * NOISE * rng.normal(size=n)


def streamed(estimator, X, y, n_batches=3):
    for rows in np.array_split(np.arange(len(X)), n_batches):
        estimator.partial_fit(X[rows], y[rows])
    return estimator


@pytest.fixture(scope="module", params=["map", "svi"])
def classifiers(request):
    """One fit of all rows, of the first batch, and of all batches."""
    X, y = labelled(450)
    svi = {"inference": Svi(epochs=10, n_draws=10)}
    new = ConvexPolytopeTreeClassifier(**FAST, **svi if request.param == "svi" else by_map())
    return new.fit(X, y), clone(new).fit(X[:150], y[:150]), streamed(clone(new), X, y)


@pytest.mark.portable
def test_batches_are_as_good_as_all_rows_at_once(classifiers):
    X, y = labelled(4000, seed=1)
    whole, first, batches = (log_loss(y, one.predict_proba(X)) for one in classifiers)
    # Five parameters cost 5 / (2 n) nats a row: 0.006 with 450 rows and 0.017 with 150. Four
    # standard errors of the mean difference of scores on 4,000 rows, of sd 0.3 at most, are 0.02.
    assert batches < whole + 0.02
    assert batches < first + 0.02


def test_leaves_count_all_rows(classifiers):
    *_, batches = classifiers
    assert batches.tree_.leaf_rows.sum() == pytest.approx(450)
    shares = batches.tree_.value
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert shares.max(axis=0).min() > 0.8  # both sides are nearly pure


def test_the_tree_can_be_read_and_saved(tmp_path):
    X, y = labelled(100)
    new = ConvexPolytopeTreeClassifier(**FAST, **by_map(2))
    batches = new.partial_fit(X, y)
    assert "leaf" in bayestree.export_text(batches)
    batches.save(tmp_path / "tree.safetensors")
    loaded = bayestree.load(tmp_path / "tree.safetensors")
    found = [one.partial_fit(X, y).predict_proba(X) for one in (loaded, batches)]
    np.testing.assert_array_equal(*found)


@pytest.mark.portable
@pytest.mark.parametrize("leaf", ["constant", "linear"])
def test_means_and_scales_are_those_of_all_rows(leaf):
    X, y = numbers(300)
    new = ConvexPolytopeTreeRegressor(leaf=leaf, **FAST, **by_map())
    batches = streamed(new, X, y)
    X, y = numbers(4000, seed=1)
    # a variance of 1 + NOISE^2, of which a tree of two leaves leaves NOISE^2, and 3 % of the rows
    # beyond the line, at 4 each
    assert batches.score(X, y) > 1 - (NOISE**2 + 4 * 0.03) / (1 + NOISE**2) - 0.05
    low, high = batches.predict_interval(X, 0.9)
    assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.96
    assert batches.tree_.leaf_rows.sum() == pytest.approx(300)


def test_a_batch_of_one_side_does_not_undo_the_split():
    X, y = labelled(300)
    clf = ConvexPolytopeTreeClassifier(**FAST, **by_map()).partial_fit(X, y)
    before = clf.score(X, y)
    X_right, y_right = labelled(200, seed=3)
    right = X_right[:, 0] > X_right[:, 1] + 3
    clf.partial_fit(X_right[right], y_right[right])
    assert clf.get_n_leaves() == 2
    assert clf.score(X, y) > before - 4 * (0.25 / 300) ** 0.5


def test_the_memory_does_not_grow(monkeypatch):
    monkeypatch.setattr(_data_sets, "SAMPLE", 150)
    X, y = labelled(100)
    clf = ConvexPolytopeTreeClassifier(**FAST, **by_map(1))
    size = {}
    for batch in range(4):
        clf.partial_fit(X, y)
        size[batch] = sum(array.nbytes for array in clf.fitted_.shown.stream.values())
    assert size[2] == size[3]
    assert clf.fitted_.shown.stream["n_rows"] == 400
    sample = clf.fitted_.shown.stream["sample"]
    assert len(sample) == 150
    # of the four copies of each row, also those of later batches
    assert np.unique(sample, axis=0, return_counts=True)[1].max() > 2


def test_the_sample_has_the_rows_of_the_smallest_numbers(monkeypatch):
    X, y = labelled(300)
    new = ConvexPolytopeTreeClassifier(**FAST, **by_map(1))
    every = streamed(clone(new), X, y).fitted_.shown.stream
    monkeypatch.setattr(_data_sets, "SAMPLE", 50)
    few = streamed(clone(new), X, y).fitted_.shown.stream
    assert len(every["sample"]) == 300
    for name in ("key", "sample"):
        np.testing.assert_array_equal(few[name], every[name][:50])


def test_weights_are_kept():
    X, y = labelled(200)
    clf = ConvexPolytopeTreeClassifier(**FAST, **by_map(2))
    clf.partial_fit(X, y, sample_weight=np.full(200, 2.0)).partial_fit(X, y)
    assert clf.tree_.leaf_rows.sum() == pytest.approx(600)


def test_exposures_come_with_y():
    rng = np.random.default_rng(0)
    X, years = rng.normal(size=(200, 2)), rng.uniform(1, 3, 200)
    y = np.column_stack((rng.poisson(np.where(X[:, 0] > 0, 6, 1) * years), years))
    settings = FAST | by_map(2) | {"leaf": "poisson"}
    reg = streamed(ConvexPolytopeTreeRegressor(**settings), X, y, 2)
    again = ConvexPolytopeTreeRegressor(**settings).partial_fit(X[:100], y[:100])
    again.partial_fit(X[100:], y[100:, 0], exposure=y[100:, 1])
    assert np.array_equal(again.predict(X), reg.predict(X))
    leaf, prior = reg.tree_.apply(X), reg.posterior_.model.leaf
    sums = [np.bincount(leaf, column) for column in y.T]
    # rows beyond the moving border are few
    expected = (sums[0] + prior.shape) / (sums[1] + prior.rate)
    assert reg.tree_.value == pytest.approx(expected, rel=0.2)


def test_batches_of_one_class():
    """The first has no split, and the classes are still those that were announced."""
    X, y = labelled(400)
    order = np.argsort(y)
    clf = ConvexPolytopeTreeClassifier(**FAST, **by_map())
    clf.partial_fit(X[order[:60]], y[order[:60]], classes=["left", "middle", "right"])
    clf.partial_fit(X[order[-60:]], y[order[-60:]])
    clf.partial_fit(X, y)
    assert clf.classes_.tolist() == ["left", "middle", "right"]
    assert clf.score(X, y) > 0.7
    with pytest.raises(ValueError, match="at most one class"):
        clone(clf).partial_fit(X[order[:60]], y[order[:60]], classes=["left"])


class TestErrors:
    def started(self, **others):
        X, y = labelled(100)
        clf = ConvexPolytopeTreeClassifier(**FAST | by_map(1) | others)
        return clf.partial_fit(X, y), X, y

    def test_classes(self):
        clf, X, y = self.started()
        with pytest.raises(
            ValueError, match=r"classes that were absent from the fit, \['middle'\]"
        ):
            clf.partial_fit(X, np.where(y == "left", "middle", y))
        with pytest.raises(ValueError, match="are not those of the first batch"):
            clf.partial_fit(X, y, classes=["left", "middle", "right"])
        fresh = clone(clf)
        with pytest.raises(ValueError, match=r"y holds \['right'\], .* among classes"):
            fresh.partial_fit(X, y, classes=["left", "middle"])
        fresh.partial_fit(X, y, classes=["left", "middle", "right"])
        assert fresh.predict_proba(X).shape == (100, 3)
        fresh.partial_fit(X, np.where(y == "left", "middle", y))

    def test_features(self):
        clf, X, y = self.started()
        with pytest.raises(ValueError, match="X has 1 features"):
            clf.partial_fit(X[:, :1], y)

    def test_a_tree_of_fit(self):
        clf, X, y = self.started()
        with pytest.raises(ValueError, match="keeps nothing of its rows"):
            clf.fit(X, y).partial_fit(X, y)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"inference": "smc"}, "needs inference='map' or 'svi', got 'smc'"),
            ({"inference": "grow"}, "needs inference='map' or 'svi', got 'grow'"),
            ({"inference": "svi", "n_modes": None}, "set n_modes=1"),
        ],
    )
    def test_what_needs_all_rows(self, changes, said):
        clf = ConvexPolytopeTreeClassifier(**FAST | {"inference": "map"} | changes)
        assert not hasattr(clf, "partial_fit")
        with pytest.raises(AttributeError) as caught:
            clf.partial_fit(*labelled(20))
        assert said in f"{caught.value} {caught.value.__cause__}"
