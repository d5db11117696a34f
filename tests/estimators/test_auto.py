"""``inference="auto"``: which method it selects, and the joint fit of several modes."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    SingleLeafWarning,
    load,
)
from bayestree.estimators._serialization import arrays_of, describe
from bayestree.fitting import defaults
from bayestree.inference import Growth, Svi, Vi, memory_mapped
from bayestree.inference.stage import Minibatches
from bayestree.testing import check_every_stop, same_posterior
from tests.sampling import quickly
from tests.short_checks import short_stages

SMALL = {"max_depth": 1, "random_state": 0}


@pytest.fixture(scope="module", autouse=True)
def _few_steps():
    """Fits of a few steps, which are not judged."""
    with short_stages(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Minibatches, "default_epochs", lambda *_: 3)
        patch.setattr("bayestree.fitted.assessment.warn_if_unconverged", lambda *_: None)
        yield


def labelled(n=90, seed=0):
    """Three classes in sectors of the plane."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + X[:, 1], [-0.6, 0.6])


def numbers(n=90, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, 50 + 2 * np.sign(X[:, 0]) + np.random.default_rng(seed + 1).normal(size=n)


def same_file(a, b):
    one, other = (arrays_of(estimator) for estimator in (a, b))
    return (
        describe(a) == describe(b)
        and one.keys() == other.keys()
        and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
    )


def test_default_steepness_is_1_for_classes_and_6_for_numbers():
    classes, values = ConvexPolytopeTreeClassifier(**SMALL), ConvexPolytopeTreeRegressor(**SMALL)
    classes.set_params(n_modes=1).fit(*labelled())
    values.set_params(n_modes=1).fit(*numbers())
    assert classes.posterior_.model.steepness == 1.0
    assert values.posterior_.model.steepness == 6.0
    stated = clone(values).set_params(inference=Vi(n_steps=5, steepness=3.0))
    assert stated.fit(*numbers()).posterior_.model.steepness == 3.0


@pytest.fixture(scope="module")
def joint():
    return ConvexPolytopeTreeClassifier(**SMALL).fit(*labelled())


def test_four_modes_are_fitted_at_once(joint, monkeypatch):
    X, y = labelled()
    assert len(joint.modes_) == 4
    assert [one.posterior_.inference for one in joint.modes_] == ["vi"] * 4
    assert all(one.posterior_.model.split.n_experts == 4 for one in joint.modes_)
    assert joint.mode_weights_.sum() == pytest.approx(1)
    means = [one.predict_proba(X) for one in joint.modes_]
    mean = np.tensordot(joint.mode_weights_, means, axes=1)
    np.testing.assert_allclose(joint.predict_proba(X), mean)
    assert not np.allclose(means[0], means[1])
    called = []
    plain = Vi.fit_several

    def spied(self, model, data, inits, **common):
        called.append(len(inits))
        return plain(self, model, data, inits, **common)

    monkeypatch.setattr(Vi, "fit_several", spied)
    assert same_file(clone(joint).fit(X, y), joint)  # the same seed
    assert called == [4]
    other = clone(joint).set_params(random_state=1).fit(X, y)
    assert not np.allclose(other.predict_proba(X), joint.predict_proba(X))


def test_number_of_jobs_does_not_matter(joint):
    parallel = clone(joint).set_params(n_jobs=2).fit(*labelled())
    np.testing.assert_array_equal(
        parallel.predict_proba(labelled()[0]), joint.predict_proba(labelled()[0])
    )


def test_one_mode_is_a_single_tree():
    found = ConvexPolytopeTreeClassifier(n_modes=1, **SMALL).fit(*labelled())
    assert found.modes_ == [found]
    assert found.posterior_.inference == "vi"


@pytest.mark.parametrize(
    ("kind", "n_modes"), [(ConvexPolytopeTreeClassifier, 2), (ConvexPolytopeTreeRegressor, 1)]
)
def test_held_out_rows(kind, n_modes, monkeypatch):
    rows = labelled() if kind is ConvexPolytopeTreeClassifier else numbers()
    sizes = []
    plain = Vi.fit_several

    def spied(self, model, data, inits, **common):
        sizes.append(len(data.X))
        return plain(self, model, data, inits, **common)

    monkeypatch.setattr(Vi, "fit_several", spied)
    found = kind(n_modes=n_modes, validation_fraction=0.3, **SMALL).fit(*rows)
    assert sizes == [63]
    assert {float(one.posterior_.stats["n_rows"]) for one in found.modes_} == {63.0}
    assert np.isfinite(found.predict(rows[0])).all()


def grown_without_splits(monkeypatch, bare):
    """Let growth remove the splits of the trees of these numbers."""
    plain = Growth.fit_several

    def pruned(self, model, data, n_trees, **others):
        def prune(tree, kept):
            return set() if tree.root in bare else kept

        return plain(self, model, data, n_trees, **others, prune=prune)

    monkeypatch.setattr(Growth, "fit_several", pruned)


@pytest.mark.parametrize("bare", quickly([{0}, {1, 3}, {0, 1, 2}], quick=(1,)))
def test_some_modes_may_have_a_single_leaf(bare, monkeypatch, tmp_path):
    grown_without_splits(monkeypatch, bare)
    X, y = labelled()
    found = ConvexPolytopeTreeClassifier(**SMALL).fit(X, y)
    methods = [one.posterior_.inference for one in found.modes_]
    assert methods == ["conjugate" if number in bare else "vi" for number in range(4)]
    assert all((one.posterior_.n_chains, one.posterior_.n_draws) == (1, 50) for one in found.modes_)
    np.testing.assert_allclose(found.predict_proba(X).sum(1), 1)
    leaf = found.modes_[min(bare)].predict_proba(X)
    np.testing.assert_allclose(leaf, leaf[:1].repeat(len(X), 0))
    assert found.mode_weights_.sum() == pytest.approx(1)
    found.save(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(
        load(tmp_path / "tree.safetensors").predict_proba(X), found.predict_proba(X)
    )


def test_modes_without_any_split_are_warned_of_once(monkeypatch):
    grown_without_splits(monkeypatch, {0, 1, 2, 3})
    with pytest.warns(SingleLeafWarning, match="no mode has kept a split") as caught:
        found = ConvexPolytopeTreeClassifier(**SMALL).fit(*labelled())
    assert len(caught) == 1
    assert found.get_n_leaves() == 1


@pytest.mark.parametrize("leaf", quickly(["ordinal", "logistic"], quick=(1,)))
def test_other_leaves_of_classes(leaf):
    X, y = labelled()
    found = ConvexPolytopeTreeClassifier(n_modes=2, leaf=leaf, **SMALL).fit(X, y)
    assert found.plan_.method == "vi"
    np.testing.assert_allclose(found.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize(
    "leaf", quickly(["linear", "poisson", "constant", "student"], quick=(0, 1))
)
def test_leaves_of_numbers(leaf):
    X, y = numbers()
    y = np.round(4 + 3 * np.sign(X[:, 0])) if leaf == "poisson" else y
    found = ConvexPolytopeTreeRegressor(n_modes=2, leaf=leaf, **SMALL).fit(X, y)
    assert [one.posterior_.inference for one in found.modes_] == ["vi", "vi"]
    mean, sd = found.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
    assert found.modes_[0].posterior_.model.leaf == found.modes_[1].posterior_.model.leaf


def test_several_outputs_and_survival_times():
    X, y = numbers()
    both = ConvexPolytopeTreeRegressor(n_modes=2, **SMALL).fit(X, np.stack([y, -y], axis=1))
    assert both.predict(X).shape == (90, 2)
    spread = np.random.default_rng(1).exponential(size=len(X))
    times = ConvexPolytopeTreeSurvival(n_modes=2, **SMALL)
    times.fit(X, np.where(X[:, 0] > 0, 20.0, 1.0) * spread, event=spread < 3)
    assert {one.posterior_.inference for one in (*both.modes_, *times.modes_)} == {"vi"}


def test_files_keep_the_method_and_the_predictions(joint, tmp_path):
    X, y = labelled()
    joint.save(tmp_path / "tree.safetensors")
    loaded = load(tmp_path / "tree.safetensors")
    assert (loaded.inference, loaded.plan_.method, loaded.plan_.n_experts) == ("auto", "vi", 4)
    assert loaded.get_params() == joint.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(X), joint.predict_proba(X))
    by_svi = ConvexPolytopeTreeClassifier(
        n_modes=1, inference=Svi(epochs=2, n_draws=12), **SMALL
    ).fit(X, y)
    by_svi.save(tmp_path / "svi.safetensors")
    assert load(tmp_path / "svi.safetensors").plan_.method == "svi"


def test_files_of_many_rows_keep_svi(monkeypatch, tmp_path):
    """Even if the tree that is shown has a single leaf, whose posterior is exact."""
    monkeypatch.setattr(defaults, "MOST_NUMBERS", 100)
    found = ConvexPolytopeTreeClassifier(n_modes=2, **SMALL).fit(*labelled())
    bare = replace(found.fitted_.trees[0].posterior, inference="conjugate")
    trees = [replace(found.fitted_.trees[0], posterior=bare), found.fitted_.trees[1]]
    found.fitted_ = replace(found.fitted_, trees=trees, medoid=0)
    found.save(tmp_path / "tree.safetensors")
    loaded = load(tmp_path / "tree.safetensors")
    assert loaded.posterior_.inference == "conjugate"
    assert loaded.plan_.method == "svi"


def test_a_warm_start_keeps_the_method(monkeypatch, tmp_path):
    X, y = labelled()
    found = ConvexPolytopeTreeClassifier(n_modes=2, warm_start=True, **SMALL).fit(X, y)
    topologies = [one.posterior_.model.topology for one in found.modes_]
    found.save(tmp_path / "tree.safetensors")
    monkeypatch.setattr(defaults, "MOST_NUMBERS", 100)
    for estimator in (found, load(tmp_path / "tree.safetensors")):
        estimator.fit(X, y)
        assert [one.posterior_.inference for one in estimator.modes_] == ["vi", "vi"]
        assert [one.posterior_.model.topology for one in estimator.modes_] == topologies
    fresh = clone(found).fit(X, y)
    assert {one.posterior_.inference for one in fresh.modes_} == {"svi"}
    monkeypatch.undo()
    again = fresh.fit(X, y)  # few rows now, but a fit by SVI is continued
    assert {one.posterior_.inference for one in again.modes_} == {"svi"}


def test_a_warm_start_with_a_mode_of_a_single_leaf(monkeypatch):
    X, y = labelled()
    with monkeypatch.context() as patch:
        grown_without_splits(patch, {1})
        found = ConvexPolytopeTreeClassifier(n_modes=3, warm_start=True, **SMALL).fit(X, y)
    found.fit(X, y)
    methods = [one.posterior_.inference for one in found.modes_]
    assert methods == ["vi", "conjugate", "vi"]


def test_the_method_follows_the_rows_and_the_parameters(monkeypatch):
    X, y = labelled()
    found = ConvexPolytopeTreeClassifier(n_modes=1, **SMALL)
    methods = []
    several = ({}, 180), ({"dtype": "float32"}, 180), ({"dtype": "auto"}, 180), ({}, 179)
    for changes, most in several:
        monkeypatch.setattr(defaults, "MOST_NUMBERS", most)
        found.set_params(**changes).fit(X, y)
        assert found.plan_.method == found.posterior_.inference
        methods.append(found.posterior_.inference)
    assert methods == ["vi", "svi", "vi", "svi"]


def test_fits_in_batches_are_by_svi():
    X, y = labelled()
    found = ConvexPolytopeTreeClassifier(n_modes=1, **SMALL)
    for rows in (slice(0, 60), slice(60, None)):
        found.partial_fit(X[rows], y[rows])
        assert (found.inference, found.plan_.method) == ("auto", "svi")
        assert found.posterior_.inference == "svi"
    assert clone(found).fit(X, y).posterior_.inference == "vi"
    assert found.fit(X, y).posterior_.inference == "vi"


def test_a_failed_batch_leaves_the_estimator_as_it_was():
    X, y = labelled()
    found = ConvexPolytopeTreeClassifier(n_modes=1, **SMALL)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        found.partial_fit(X, y[1:])
    assert found.inference == "auto"
    assert not hasattr(found, "fitted_")


def test_sample_weights_are_copies_of_rows(monkeypatch):
    X, y = labelled()
    weights = np.arange(len(X)) % 3
    given = []
    plain = Vi.fit_several

    def spied(self, model, data, inits, **common):
        given.append(data)
        return plain(self, model, data, inits, **common)

    monkeypatch.setattr(Vi, "fit_several", spied)
    found = ConvexPolytopeTreeClassifier(n_modes=2, **SMALL)
    found.fit(X, y, sample_weight=weights.astype(float))
    copies = clone(found).fit(X.repeat(weights, axis=0), y.repeat(weights))
    weighted, repeated = given
    assert float(weighted.weights.sum()) == float(repeated.weights.sum()) == weights.sum()
    for one, other in zip(found.modes_, copies.modes_, strict=True):
        n_rows = {float(mode.posterior_.stats["n_rows"]) for mode in (one, other)}
        assert n_rows == {float(weights.sum())}
    assert np.isfinite(found.predict_proba(X)).all()


def test_an_interrupted_fit_goes_on():
    X, y = labelled(60)
    estimator = ConvexPolytopeTreeClassifier(
        n_modes=2, inference=Vi(n_steps=4, n_draws=4), max_depth=2, random_state=0
    )
    assert check_every_stop(lambda: clone(estimator).fit(X, y), same_file) == [
        "grow",
        "vi",
        "vi, further steps",
    ]


def test_rows_that_stay_in_a_file(monkeypatch, tmp_path):
    X, y = labelled()
    mapped = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    found = ConvexPolytopeTreeClassifier(n_modes=1, **SMALL)
    assert clone(found).fit(mapped, y).posterior_.inference == "vi"  # they fit in memory
    monkeypatch.setattr(memory_mapped, "HELD", 100)
    assert clone(found).fit(mapped, y).posterior_.inference == "svi"


@pytest.mark.portable
def test_the_mixture_predicts_as_a_planted_line_allows(monkeypatch):
    """y has its class with probability 0.9 on each side of a line: 0.325 nats for new rows.

    The tree has four parameters, which cost 4 / (2 n) nats a row, 0.007 for 300 rows; the prior
    and the transition between the sides may cost as much again, several times. Four standard errors
    of a mean over 4,000 rows, of standard deviation 0.66, are 0.042.
    """
    monkeypatch.setitem(Vi.__init__.__kwdefaults__, "n_steps", 150)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4300, 2))
    y = (X[:, 0] > 0.2) ^ (rng.random(4300) < 0.1)
    found = ConvexPolytopeTreeClassifier(n_modes=2, max_depth=1, random_state=0).fit(
        X[:300], y[:300]
    )
    assert log_loss(y[300:], found.predict_proba(X[300:])) < 0.325 + 4 * 0.007 + 0.042


def test_a_method_with_its_own_settings_fits_all_modes_at_once():
    X, y = labelled()
    given = {"inference": Vi(n_steps=6, n_draws=5), "max_depth": 1, "random_state": 0}
    two, again = (ConvexPolytopeTreeClassifier(n_modes=2, **given).fit(X, y) for _ in range(2))
    pairs = zip(two.modes_, again.modes_, strict=True)
    assert all(same_posterior(a.posterior_, b.posterior_) for a, b in pairs)
    assert {len(one.posterior_.stats["elbo"]) for one in two.modes_} == {6}
    assert len(ConvexPolytopeTreeClassifier(**given).fit(X, y).modes_) == 4
