"""Model files: a saved estimator is restored, and nothing else is read."""

import json
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sklearn.exceptions import NotFittedError

import bayestree
from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    inference,
    load,
)
from bayestree.estimators import files
from bayestree.estimators._serialization import arrays_of, describe
from bayestree.estimators.files import ModelFileError
from bayestree.estimators.registry import ESTIMATORS
from bayestree.fitted.serialization import REMOVED, from_plain, model_from_plain, plain, plain_model
from bayestree.inference import Map, Svi
from bayestree.models import (
    Flat,
    GammaProcess,
    Gaussian,
    InverseGammaScale,
    LiteralGammaProcess,
    Oblique,
    Polytope,
    Priors,
    SoftTree,
)
from bayestree.models.likelihoods import MixtureLikelihood
from bayestree.runs.cards import read_toml
from bayestree.tables.files import check_file
from bayestree.topology import Topology
from tests.fuzz.test_models import signed, taken_apart

DATA = Path(__file__).parents[1] / "data"
NUTS = (DATA / "iris-v3-nuts.safetensors").read_bytes()
FAST = {"n_modes": 1, "inference": Svi(epochs=2, n_draws=3), "n_experts": 4, "max_depth": 2}
FAST |= {"random_state": 0}


def rows(n=60, d=3):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)


def classifier(y=None, **changes):
    X, sides = rows()
    y = sides if y is None else np.asarray(y)[sides]
    return ConvexPolytopeTreeClassifier(**FAST | changes).fit(X, y)


def regressor(**changes):
    X, _ = rows()
    return ConvexPolytopeTreeRegressor(**FAST | changes).fit(X, 100 + 5 * X[:, 0] ** 2)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    classifier().save(path)
    return path.read_bytes()


def there_and_back(estimator, folder):
    path = folder / "model.safetensors"
    estimator.save(path)
    assert [p.name for p in folder.iterdir()] == ["model.safetensors"]
    return bayestree.load(path)


def assert_same_arrays(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype
        np.testing.assert_array_equal(values, other[name])


class TestRoundTrip:
    @pytest.mark.parametrize(
        "inference", ["grow", Map(epochs=2, steepness=None), Svi(epochs=2, n_draws=3)], ids=str
    )
    @pytest.mark.parametrize("prediction", ["auto", "tree"])
    def test_classifier(self, inference, prediction, tmp_path):
        one = classifier(inference=inference, prediction=prediction)
        two = there_and_back(one, tmp_path)
        X, _ = rows()
        for a, b in zip(
            one.predict_proba(X, return_std=True),
            two.predict_proba(X, return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.apply(X), two.apply(X))
        np.testing.assert_array_equal(one.classes_, two.classes_)
        assert two.get_params() == one.get_params()
        assert two.n_features_in_ == 3
        assert not hasattr(two, "feature_names_in_")

    def test_regressor(self, tmp_path):
        one = regressor(dtype="float32")
        two = there_and_back(one, tmp_path)
        X, _ = rows()
        np.testing.assert_array_equal(one.predict(X), two.predict(X))
        np.testing.assert_array_equal(one.predict_interval(X), two.predict_interval(X))
        assert not hasattr(two, "classes_")

    def test_posterior(self, tmp_path):
        one = classifier(inference=Svi(epochs=2, n_draws=3))
        before, after = one.posterior_, there_and_back(one, tmp_path).posterior_
        for part in ("draws", "point", "stats"):
            assert_same_arrays(getattr(before, part), getattr(after, part))
        assert after.model == before.model
        assert after.settings == before.settings
        assert after.inference == "svi"

    def test_tree_and_sizes(self, tmp_path):
        one = classifier()
        two = there_and_back(one, tmp_path)
        assert bayestree.export_text(one) == bayestree.export_text(two)
        assert one.tree_.topology == two.tree_.topology
        pd.testing.assert_frame_equal(
            one.polytope_size().to_frame(), two.polytope_size().to_frame()
        )

    @pytest.mark.parametrize(
        "labels",
        [
            ["no", "yes"],
            np.array(["nein", "ja"], dtype=object),
            [True, False],
            [0.5, 2.0],
            np.array([3, 7], dtype=np.int8),
        ],
        ids=["text", "objects", "booleans", "floats", "small integers"],
    )
    def test_classes(self, labels, tmp_path):
        labels = np.asarray(labels)
        if labels.dtype == float:
            labels = labels.round()
        one = classifier(labels)
        two = there_and_back(one, tmp_path)
        assert two.classes_.dtype == one.classes_.dtype
        np.testing.assert_array_equal(one.predict(rows()[0]), two.predict(rows()[0]))

    def test_feature_names(self, tmp_path):
        X, y = rows()
        frame = pd.DataFrame(X, columns=["größe", "age", "a b"])
        one = ConvexPolytopeTreeClassifier(**FAST).fit(frame, y)
        two = there_and_back(one, tmp_path)
        np.testing.assert_array_equal(one.feature_names_in_, two.feature_names_in_)
        np.testing.assert_array_equal(one.predict(frame), two.predict(frame))
        assert "größe" in bayestree.export_text(two)
        with pytest.raises(ValueError, match="feature names should match"):
            two.predict(frame[["age", "größe", "a b"]])

    def test_class_weight(self, tmp_path):
        one = classifier(class_weight={0: 1.0, 1: 2.5}, random_state=np.int64(3))
        assert there_and_back(one, tmp_path).get_params() == one.get_params()

    def test_a_random_state_goes_on_where_it_was(self, tmp_path):
        one = classifier(random_state=np.random.RandomState(5))
        two = there_and_back(one, tmp_path)
        np.testing.assert_array_equal(one.random_state.rand(3), two.random_state.rand(3))

    def test_the_same_fit_gives_the_same_bytes(self, saved, tmp_path):
        there_and_back(classifier(), tmp_path)
        assert (tmp_path / "model.safetensors").read_bytes() == saved

    def test_of_the_rows_only_the_sample_is_in_the_file(self, tmp_path):
        there_and_back(classifier(), tmp_path)
        held = load_file(tmp_path / "model.safetensors")
        X = rows()[0]
        sample = held.pop("reach/sample")
        assert len(sample) <= 200
        assert sample.shape[1] == X.shape[1], "without y"
        assert all(values.shape[:1] != (len(X),) for values in held.values())


class TestModels:
    @pytest.mark.parametrize(
        "model",
        [
            SoftTree(Topology.stump(), split=Polytope(7), steepness=2.5),
            SoftTree(
                Topology.leaf(),
                split=Oblique(),
                priors=Priors(LiteralGammaProcess(floor=0.1), Flat()),
                leaf=Gaussian(strength=3.0),
                likelihood="variance",
            ),
            SoftTree(
                Topology.complete(2),
                priors=Priors(
                    GammaProcess(2.0, rate_prior=(1.0, 2.0)), InverseGammaScale(form="explicit")
                ),
            ),
        ],
    )
    def test_every_part(self, model):
        spec = json.loads(json.dumps(plain_model(model)))
        assert model_from_plain(spec, model.topology) == model

    @pytest.mark.parametrize("name", ["mixture", "own"])
    def test_a_likelihood_of_somebody_else(self, name):
        class Own(MixtureLikelihood):
            pass

        model = SoftTree(Topology.leaf(), Polytope(1), likelihood=Own(name))
        with pytest.raises(TypeError, match=r"of the type 'Own' cannot be written"):
            plain_model(model)

    def test_a_copied_likelihood(self):
        model = pickle.loads(pickle.dumps(SoftTree(Topology.leaf(), Polytope(1))))
        assert plain_model(model)["likelihood"] == "mixture"

    def test_a_part_of_somebody_else(self):
        class Oblique(bayestree.models.Oblique):
            pass

        with pytest.raises(TypeError, match=r"'Oblique' cannot be written"):
            plain_model(SoftTree(Topology.leaf(), split=Oblique()))

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: (
                st.lists(inner)
                | st.lists(inner).map(tuple)
                | st.dictionaries(st.text() | st.integers(), inner)
            ),
            max_leaves=8,
        )
    )
    def test_settings(self, value):
        assert from_plain(json.loads(json.dumps(plain(value)))) == value


class TestRefusals:
    def test_not_fitted(self, tmp_path):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ConvexPolytopeTreeClassifier().save(tmp_path / "model.safetensors")
        assert not list(tmp_path.iterdir())

    def test_another_class(self, tmp_path):
        class Mine(ConvexPolytopeTreeClassifier):
            pass

        with pytest.raises(TypeError, match=r"estimator must be one of .*, got Mine"):
            files.save(Mine(), tmp_path / "model.safetensors")

    def test_an_inference_method_of_ones_own(self, tmp_path):
        class Map(inference.Map):
            pass

        class Best(Map):
            pass

        path = tmp_path / "model.safetensors"
        written = plain(Best(epochs=3))
        assert from_plain(written) == Best(epochs=3)
        assert written["part"][0] == f"{__name__}:{Best.__qualname__}"
        assert from_plain({"part": ["Best", *written["part"][1:]]}) == Best(epochs=3)  # version 0.2
        assert type(from_plain(plain(inference.Map()))) is inference.Map
        small = {"max_depth": 1, "n_experts": 2, "random_state": 0}
        one = ConvexPolytopeTreeClassifier(**small, inference=Best(epochs=2))
        one.fit(*rows()).save(path)
        assert type(load(path).inference) is Best
        Best.__qualname__ = "Other"  # as if it had not been imported
        with pytest.raises(ModelFileError, match=r"Best' is not defined here; .* has no such"):
            load(path)

    def test_an_estimator_that_is_not_registered(self, tmp_path, monkeypatch):
        class Own(ConvexPolytopeTreeClassifier):
            pass

        path = tmp_path / "model.safetensors"
        monkeypatch.setitem(ESTIMATORS, "Own", Own)
        Own(**FAST).fit(*rows()).save(path)
        monkeypatch.delitem(ESTIMATORS, "Own")
        with pytest.raises(ModelFileError, match="the class 'Own' is not defined here; import it"):
            load(path)

    def test_what_cannot_be_written_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "model.safetensors"
        path.write_bytes(b"old")
        one = classifier()
        one.random_state = object()
        with pytest.raises(TypeError, match="cannot be written to a model file"):
            one.save(path)
        assert path.read_bytes() == b"old"
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_full_disk_leaves_the_old_file_and_no_draft(self, tmp_path, monkeypatch):
        path = tmp_path / "model.safetensors"
        path.write_bytes(b"old")
        one = classifier(inference="grow")

        def full(*_):
            raise OSError("disk full")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="disk full"):
            one.save(path)
        assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
        assert path.read_bytes() == b"old"

    def test_folders(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="give the name of a file"):
            classifier(inference="grow").save(tmp_path)
        with pytest.raises(FileNotFoundError, match="does not exist"):
            classifier(inference="grow").save(tmp_path / "absent" / "model.safetensors")
        with pytest.raises(ModelFileError, match="is a folder"):
            bayestree.load(tmp_path)

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no model file"):
            bayestree.load(tmp_path / "absent.safetensors")

    def test_foreign(self, tmp_path):
        path = tmp_path / "foreign.safetensors"
        save_file({"a": np.zeros(3)}, path)
        with pytest.raises(ModelFileError, match="not written by bayestree"):
            bayestree.load(path)
        path.write_bytes(pickle.dumps({"a": 1}))
        with pytest.raises(ModelFileError, match="not a safetensors file"):
            bayestree.load(path)
        path.write_bytes(b"")
        with pytest.raises(ModelFileError, match="not a safetensors file"):
            bayestree.load(path)

    def test_newer(self, saved, tmp_path):
        path = tmp_path / "newer.safetensors"
        path.write_bytes(saved.replace(rb"\"version\": 4,", rb"\"version\": 5,"))
        with pytest.raises(
            ModelFileError, match=r"has version 5, and bayestree .* upgrade bayestree"
        ):
            bayestree.load(path)

    def test_a_class_outside_the_table(self, tmp_path):
        described, arrays = describe(classifier()), arrays_of(classifier())
        path = tmp_path / "odd.safetensors"
        path.write_bytes(files._to_bytes(described | {"class": "Popen"}, arrays))
        with pytest.raises(ModelFileError, match="Popen"):
            bayestree.load(path)

    @pytest.mark.parametrize(
        ("changes", "levels", "said"),
        [
            ({"class": "LocallyConstantEnsembleRegressor"}, {}, "LocallyConstantEnsembleRegressor"),
            ({}, {"reach/level": np.array([0.1])}, "extend=True"),
        ],
    )
    def test_what_was_removed(self, changes, levels, said, tmp_path):
        described, arrays = describe(classifier()), arrays_of(classifier())
        path = tmp_path / "tree.safetensors"
        path.write_bytes(files._to_bytes(described | changes, arrays | levels))
        with pytest.raises(ModelFileError, match=f"was fitted with {said}, which this version"):
            bayestree.load(path)

    def test_parameters_that_were_removed_are_dropped(self, tmp_path):
        clf = classifier()
        described = describe(clf)
        described["params"]["mapping"] += [["extend", True], ["search_facets", True]]
        path = tmp_path / "tree.safetensors"
        path.write_bytes(files._to_bytes(described, arrays_of(clf)))
        assert bayestree.load(path).get_params() == clf.get_params()

    @settings(max_examples=200, deadline=None)
    @given(data=st.data())
    def test_any_changed_byte_is_noticed(self, saved, tmp_path_factory, data):
        # half of the time in the header, where a change is most likely to be read
        header = int.from_bytes(saved[:8], "little") + 8
        place = data.draw(st.integers(0, header - 1) | st.integers(0, len(saved) - 1))
        changed = bytearray(saved)
        changed[place] ^= data.draw(st.integers(1, 255))
        path = tmp_path_factory.getbasetemp() / "changed.safetensors"
        path.write_bytes(changed)
        with pytest.raises(ModelFileError):
            bayestree.load(path)

    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_any_cut_is_noticed(self, saved, tmp_path_factory, data):
        path = tmp_path_factory.getbasetemp() / "cut.safetensors"
        path.write_bytes(saved[: data.draw(st.integers(0, len(saved) - 1))])
        with pytest.raises(ModelFileError):
            bayestree.load(path)

    @settings(max_examples=100, deadline=None)
    @given(content=st.binary(max_size=200), length=st.none() | st.integers(0, 2**64 - 1))
    def test_any_other_file_is_refused(self, content, length, tmp_path_factory):
        path = tmp_path_factory.getbasetemp() / "other.safetensors"
        path.write_bytes(content if length is None else length.to_bytes(8, "little") + content)
        with pytest.raises(ModelFileError):
            bayestree.load(path)


def test_a_distilled_tree_of_version_0_2_0_gives_way_to_the_medoid(tmp_path):
    clf = classifier(n_modes=2)
    shown = clf._view(clf.fitted_.trees[0])
    described = describe(clf) | {"distilled": describe(shown)}
    described["params"]["mapping"] += [["mode_tree", "distilled"], ["refine", None]]
    arrays = {f"distilled/0/{name}": values for name, values in arrays_of(shown).items()}
    path = tmp_path / "distilled.safetensors"
    path.write_bytes(files._to_bytes(described, arrays_of(clf) | arrays))
    with pytest.warns(UserWarning, match="tree_ is the tree of the medoid instead"):
        loaded = load(path)
    X, _ = rows()
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(loaded.tree_.predict(X), clf.tree_.predict(X))


def current(params):
    return {name: value for name, value in params.items() if name not in REMOVED}


def test_version_3_of_nuts_stays_readable():
    """tests/data/iris-v3-nuts.*: iris, 2 chains of NUTS, 20 + 4 draws; the first as warm-up."""
    recorded = json.loads((DATA / "iris-v3-nuts.json").read_text())
    clf = bayestree.load(DATA / "iris-v3-nuts.safetensors")
    X = pd.DataFrame(recorded["X"], columns=recorded["columns"])
    np.testing.assert_allclose(clf.predict_proba(X), recorded["predict_proba"], rtol=1e-9)
    assert clf.predict(X).tolist() == recorded["predict"]
    expected = type(clf).with_objects(current(recorded["params"]), "svi")
    assert expected.items() <= clf.get_params().items()
    sampler = clf.inference[-1]
    assert (sampler.n_chains, sampler.n_warmup, clf.plan_.last.n_draws) == (2, 20, 4)
    posterior = clf.posterior_
    np.testing.assert_array_equal(posterior.stats["lp"], recorded["lp"])
    assert posterior.warmup_draws.keys() == posterior.draws.keys()
    np.testing.assert_array_equal(
        posterior.warmup_draws["hyperplane"], posterior.draws["hyperplane"][:, :1]
    )
    np.testing.assert_array_equal(posterior.warmup_stats["lp"], posterior.stats["lp"][:, :1])
    size = clf.polytope_size()
    assert size.n_leaves.tolist() == recorded["n_leaves"]
    assert size.prior_probabilities("weights").shape[0] == clf.tree_.n_nodes


def test_a_file_of_version_0_1_0_is_refused_unless_version_0_2_0_has_converted_it(tmp_path):
    described, arrays = taken_apart(NUTS)
    del described["columns"]
    with pytest.raises(ModelFileError, match=r"by bayestree 0\.1\.0; load and save it"):
        read(described, arrays, tmp_path)
    clf = bayestree.load(DATA / "iris-v3-nuts.safetensors")
    recorded = json.loads((DATA / "iris-v3-nuts.json").read_text())
    size = clf.polytope_size()
    assert "prior_mean" in size.to_frame()
    assert size.headline == "facets"
    assert "Counted: facets in the box of the node's rows" in str(size)
    with pytest.raises(ValueError, match="fit it again"):
        size.sizes("cutting")
    facets = clf.facets("root")
    assert facets.feature_names == tuple(recorded["columns"])
    assert facets.counts.sum() == size.facets[..., 0].sum()
    assert "of the rows" not in str(facets)
    assert clf.shrinkage().counts.any()
    X = pd.DataFrame(recorded["X"], columns=recorded["columns"])
    assert clf.split_uncertainty(X).mean.shape == (len(X), clf.tree_.n_nodes)


@pytest.mark.parametrize("name", ["forest", "linear"])
def test_version_3_stays_readable(name):
    """tests/data/iris-v3-*: a forest of two trees (E2EDF), and TAO with linear leaves."""
    recorded = json.loads((DATA / "iris-v3.json").read_text())
    found = bayestree.load(DATA / f"iris-v3-{name}.safetensors")
    X = pd.DataFrame(recorded["X"], columns=recorded["columns"])
    says = found.predict_proba(X) if name == "forest" else found.predict(X)
    np.testing.assert_allclose(says, recorded[name], rtol=1e-9)


ORDINAL = {"part": ["Ordinal", {"mapping": [["n_classes", 10**10]]}]}
STATE = np.random.RandomState(0).get_state(legacy=False)
POSITION = {"random_state": plain(STATE | {"state": STATE["state"] | {"pos": 10**6}})}


def read(described, arrays, folder):
    path = folder / "model.safetensors"
    path.write_bytes(signed(described, arrays))
    return bayestree.load(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_features": 3}, "feature_names are not one distinct text"),
        ({"n_features": 3, "feature_names": None}, "4 columns are encoded, not 3"),
        ({"n_features": True}, "n_features is True"),
        ({"n_features": -1}, "n_features is -1"),
        ({"feature_names": ["a", "a", "b", "c"]}, "feature_names are not one distinct text"),
        ({"feature_names": ["a", "b", "c", 4]}, "feature_names are not one distinct text"),
        ({"classes": {"array": [["x", "y"], "<U1"]}}, "a row is not 2 finite numbers"),
        ({"classes": None}, "does not have the contents of a model file"),
        ({"classes": {"array": [[1, 1, 2], "int64"]}}, "classes are not distinct"),
        ({"classes": {"array": [[0, np.nan, np.nan], "float64"]}}, "classes are not distinct"),
        ({"classes": {"array": [["a", "b"], "S2000000000"]}}, "an array has the type"),
        ({"classes": {"array": [[1, 2], "(100000000,)f8"]}}, "an array has the type"),
        ({"n_features": 10**9, "feature_names": None}, "cannot hold 1000000000 features"),
        ({"params": {"mapping": [["leaf", ORDINAL]]}}, "4 features, 10000000003 classes"),
        ({"params": {"mapping": [["random_state", POSITION]]}}, "random_state has a position"),
        ({"columns": [{"kind": "numbers", "name": "a", "fill": [np.nan]}]}, "not JSON compliant"),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(changes, said, tmp_path):
    described, arrays = taken_apart(NUTS)
    with pytest.raises(ModelFileError, match=said):
        read(described | changes, arrays, tmp_path)


def with_array(arrays, name, change):
    return arrays | {name: np.ascontiguousarray(change(arrays[name]))}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("draws/hyperplane", lambda a: a[:, :-1], "draws/.* has the shape"),
        ("draws/hyperplane", lambda a: a[:, :0], "has the shape|not those"),
        ("draws/hyperplane", lambda a: a[..., :-1], "draws/hyperplane has the shape"),
        ("point/hyperplane", lambda a: a[..., :-1], r"point/hyperplane has .*, not \("),
        ("tree/hyperplane", lambda a: a.ravel(), "tree/hyperplane has the shape"),
        ("tree/expert_start", lambda a: a + 1, "does not ascend from 0"),
        ("tree/expert_start", lambda a: a[::-1], "does not ascend from 0"),
        ("tree/leaf_rows", lambda a: a > 0, "tree/leaf_rows has the type bool, not numbers"),
        ("tree/value", lambda a: a[:, :-1], "tree/value has the shape"),
        ("tree/leaf_rows", lambda a: a[:-1], "tree/leaf_rows has the shape"),
        ("reach/low", lambda a: a[:-1], "reach/low has the shape"),
        ("reach/nodes", lambda a: a + 100, "reach/nodes are not among"),
        ("reach/largest", lambda a: a[:, :-1], "reach/largest has the shape"),
        ("standard/scale", lambda a: a[:-1], "units are not those"),
        ("tree/children", lambda a: a * 0, "does not have the contents of a model file"),
        ("draws/leaf_probs", lambda a: a * np.nan, "draws/leaf_probs .* not probabilities"),
        ("point/leaf_probs", lambda a: a / 2, "point/leaf_probs .* not probabilities"),
        ("draws/intercept", lambda a: a * np.inf, "draws/intercept has values that are not finite"),
        ("draws/shrinkage", lambda a: -a, "draws/shrinkage has .* 0 or more"),
        ("tree/value", lambda a: -a, "tree/value has values that are not probabilities"),
        ("tree/weight", lambda a: -a, "tree/weight has .* 0 or more"),
        ("standard/scale", lambda a: a * 1e-320, "standard/scale has .* not at least 1e-150"),
        ("standard/center", lambda a: a[:3], "units are not those of 4 features"),
        ("reach/low", lambda a: a * np.nan, "reach/low has values that are not finite"),
        ("warmup_draws/intercept", lambda _: np.empty((10**5, 10**5, 0)), "in a file of"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, change, said, tmp_path):
    described, arrays = taken_apart(NUTS)
    with pytest.raises(ModelFileError, match=said):
        read(described, with_array(arrays, name, change), tmp_path)


@pytest.mark.parametrize("name", ["tree/value", "tree/slope"])
def test_leaves_whose_predictions_would_overflow_are_refused(name, tmp_path):
    described, arrays = taken_apart((DATA / "iris-v3-linear.safetensors").read_bytes())
    arrays[name] = np.full_like(arrays[name], 1e308)
    with pytest.raises(ModelFileError, match=f"{name} has values that are not finite and at most"):
        read(described, arrays, tmp_path)


def test_labels_of_different_lengths_take_little_memory(tmp_path):
    described, arrays = taken_apart(NUTS)
    texts = {"array": [["a" * 10_000, *"b" * 10_000], "<U9"]}
    described["params"]["mapping"].append(["class_weight", texts])
    tracemalloc.start()
    read(described, arrays, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000, "not 400 MB"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipes_and_devices_are_refused_and_links_followed(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    for place in (pipe, Path(os.devnull)):
        for reader in (load, check_file, lambda path: read_toml(path, "run file")):
            with pytest.raises(ValueError, match="is a pipe, a socket or a device"):
                reader(place)
    link.symlink_to(DATA / "iris-v3-nuts.safetensors")
    assert load(link).n_features_in_ == 4


def test_draws_of_another_site_are_refused(tmp_path):
    described, arrays = taken_apart(NUTS)
    arrays["draws/other"] = arrays["draws/hyperplane"]
    with pytest.raises(ModelFileError, match="draws are not those of the point estimate"):
        read(described, arrays, tmp_path)


def test_a_file_that_is_signed_again_is_read(tmp_path):
    described, arrays = taken_apart(NUTS)
    assert read(described, arrays, tmp_path).n_features_in_ == 4
