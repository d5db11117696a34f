import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    export_text,
    load,
)
from bayestree.fitting import modes
from bayestree.inference import Map, Nuts, Svi
from bayestree.models import InverseGammaScale, Oblique, Polytope

CHEAP = {"max_depth": 2, "n_experts": 4, "min_gain": 1.0, "random_state": 0}
INFERENCES = {
    "grow": {"inference": "grow"},
    "map": {"inference": Map(epochs=10, batch_size=100, steepness=None)},
    "svi": {"inference": Svi(epochs=10, batch_size=100, n_draws=6), "n_modes": 1},
}


def classifier(inference="grow", **options):
    return ConvexPolytopeTreeClassifier(**CHEAP | INFERENCES[inference] | options)


def regressor(inference="grow", **options):
    return ConvexPolytopeTreeRegressor(**CHEAP | INFERENCES[inference] | options)


PAIRS = [(classifier, "grow"), (regressor, "map"), (classifier, "svi"), (regressor, "svi")]


def ring(n=300, seed=0, noise=0.0):
    generator = np.random.default_rng(seed)
    # Columns of unlike units, so that the scaling inside is at work.
    Z = generator.normal(size=(n, 2))
    y = (np.hypot(*Z.T) > 1.1).astype(int)
    return Z * [100.0, 0.01] + [5000.0, 0.3], np.where(generator.random(n) < noise, 1 - y, y)


def jump(n=300, seed=0, noise=0.3):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 2))
    return X, 50 + 10 * (np.sign(X[:, 0]) + noise * generator.normal(size=n))


@pytest.fixture(scope="module", params=list(INFERENCES))
def fitted_classifier(request):
    X, y = ring(noise=0.1)
    return classifier(request.param).fit(X, y), X, y


@pytest.fixture(scope="module", params=list(INFERENCES))
def fitted_regressor(request):
    X, y = jump()
    return regressor(request.param).fit(X, y), X, y


@pytest.mark.portable
def test_a_ring_is_learned(fitted_classifier):
    model, _, _ = fitted_classifier
    X, y = ring(2000, seed=9)
    # A quarter of the rows lie within 0.2 of the circle; elsewhere errors are those of chance.
    clear = np.abs(np.hypot((X[:, 0] - 5000) / 100, (X[:, 1] - 0.3) / 0.01) - 1.1) > 0.4
    assert model.score(X[clear], y[clear]) > 0.95


def test_predict_is_the_argmax_of_predict_proba(fitted_classifier):
    model, X, _ = fitted_classifier
    for how in ("auto", "tree", "posterior"):
        same = clone(model).set_params(prediction=how)
        same.__dict__ |= {k: v for k, v in vars(model).items() if k.endswith("_") or k[0] == "_"}
        probability = same.predict_proba(X)
        np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-9)
        assert np.array_equal(same.predict(X), same.classes_[probability.argmax(1)])


def test_spread_is_that_of_the_draws(fitted_classifier):
    model, X, _ = fitted_classifier
    mean, sd = model.predict_proba(X, return_std=True)
    np.testing.assert_allclose(mean, model.predict_proba(X))
    assert sd.shape == mean.shape
    assert (sd >= 0).all()
    assert (sd > 0.001).any() == (model.posterior_.inference == "svi")


def test_routes_are_those_of_the_tree(fitted_classifier):
    model, X, _ = fitted_classifier
    leaf = model.apply(X)
    assert set(leaf) == set(range(model.get_n_leaves()))
    path = model.decision_path(X)
    assert path.shape == (len(X), 2 * model.get_n_leaves() - 1)
    assert np.asarray(path.sum(1)).max() - 1 == model.get_depth()
    np.testing.assert_allclose(model.tree_.leaf_rows, np.bincount(leaf))


def test_one_draw_predicts_as_its_deterministic_tree():
    X, y = ring()
    model = classifier(prediction="tree", smoothing=0).fit(X, y)
    shares = np.array([np.bincount(y[model.apply(X) == i], minlength=2) for i in model.apply(X)])
    np.testing.assert_allclose(model.predict_proba(X), shares / shares.sum(1, keepdims=True))


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [-1, 1], [0.0, 2.0], [False, True], ["b", "a"]],
    ids=str,
)
def test_labels_of_any_kind(labels):
    X, y = ring(150)
    labels = np.array(labels)
    named = classifier().fit(X, labels[y])
    plain = classifier().fit(X, np.argsort(np.argsort(labels))[y])
    assert named.classes_.tolist() == sorted(labels.tolist())
    np.testing.assert_allclose(named.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(named.predict(X), np.sort(labels)[plain.predict(X)])


def test_data_frames_name_the_features():
    X, y = ring(150)
    frame = pd.DataFrame(X, columns=["income", "rate"])
    model = classifier().fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["income", "rate"]
    assert "income" in export_text(model)
    np.testing.assert_array_equal(model.predict(frame), classifier().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["rate", "income"]])


def test_pipelines_grids_and_clones():
    X, y = ring(150)
    pipeline = make_pipeline(StandardScaler(), classifier())
    search = GridSearchCV(pipeline, {"convexpolytopetreeclassifier__max_depth": [0, 2]}, cv=2).fit(
        X, y
    )
    assert search.best_params_ == {"convexpolytopetreeclassifier__max_depth": 2}
    model = classifier("svi", prior=InverseGammaScale(0.7))
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(("make", "inference"), PAIRS)
def test_one_expert_is_the_oblique_tree(make, inference):
    X, y = ring(150)
    model = make(inference, n_experts=1).fit(X, y)
    assert model.posterior_.model.split == Oblique()
    assert "log_weight" not in model.posterior_.draws
    assert (model.tree_.weight == 1).all()
    assert (model.tree_.n_facets == 1).all()
    assert make(inference, n_experts=2).fit(X, y).posterior_.model.split == Polytope(2)


@pytest.mark.portable
def test_weights_act_as_repeated_rows_on_average():
    """Over seeds, the accuracy on fresh rows is that of the repeated rows."""
    X, y = ring(120, noise=0.1)
    times = np.random.default_rng(0).integers(0, 4, len(X))
    fresh = ring(1000, seed=5)
    scores = np.array(
        [
            [
                classifier(random_state=seed).fit(X, y, times).score(*fresh),
                classifier(random_state=seed)
                .fit(np.repeat(X, times, 0), np.repeat(y, times))
                .score(*fresh),
            ]
            for seed in range(8)
        ]
    )
    difference = scores[:, 0] - scores[:, 1]
    assert abs(difference.mean()) < 4 * max(difference.std(), 0.01) / np.sqrt(8)


@pytest.mark.parametrize(("make", "inference"), PAIRS)
def test_rows_of_weight_zero_are_as_absent(make, inference):
    X, y = ring(120)
    outlier = np.concatenate([X, [[1e9, -1e9]] * 30]), np.concatenate([y, [1] * 30])
    weights = np.repeat([1.0, 0.0], [120, 30])  # far enough to spoil means and quantiles
    given = {} if inference == "grow" else {"inference__batch_size": 20}
    with_them = make(inference).set_params(**given).fit(*outlier, sample_weight=weights)
    without = make(inference).set_params(**given).fit(X, y)
    name = "predict_proba" if make is classifier else "predict"
    # the sums for the mean of y are rounded in another order
    np.testing.assert_allclose(getattr(with_them, name)(X), getattr(without, name)(X), atol=1e-12)


def test_class_weight_multiplies_row_weights():
    X, y = ring(150, noise=0.1)
    named = classifier(class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    given = classifier().fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    np.testing.assert_allclose(named.predict_proba(X), given.predict_proba(X))
    balanced = classifier(class_weight="balanced", max_depth=0).fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X), 0.5, atol=1e-9)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_infinite_values_are_refused_with_a_remedy(make):
    X, y = ring(60)
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*first at row 4; replace them"):
        make().fit(X, y)


@pytest.mark.parametrize("inference", INFERENCES)
def test_one_class_is_refused(inference):
    X, y = ring(60)
    with pytest.raises(ValueError, match="one class"):
        classifier(inference).fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="one class"):
        classifier(inference).fit(X, y, sample_weight=(y == 1).astype(float))


@pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
@pytest.mark.parametrize(("make", "inference"), PAIRS)
def test_constant_columns_change_nothing_and_all_constant_is_one_leaf(make, inference):
    X, y = ring(100)
    wide = np.column_stack((X, np.full(100, 1e8 / 3)))
    model = make(inference).fit(wide, y)
    assert model.get_n_leaves() > 1
    assert np.isfinite(model.predict(wide)).all()
    alone = make(inference).fit(np.ones((100, 2)), y)
    assert alone.get_n_leaves() == 1
    if make is classifier:
        np.testing.assert_allclose(
            alone.set_params(prediction="tree").predict_proba(np.ones((1, 2)))[0],
            np.bincount(y) / 100,
        )


@pytest.mark.parametrize("inference", INFERENCES)
def test_y_without_variance_is_predicted_exactly(inference):
    X, _ = jump(80)
    model = regressor(inference).fit(X, np.full(80, 7.25))
    # a leaf has a least variance, so that draws of its mean spread a little
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 7.25, rtol=1e-12, atol=4 * sd.max())
    assert sd.max() < 1e-3
    low, high = model.predict_interval(X)
    assert (low <= 7.25).all()
    assert (high >= 7.25).all()


@pytest.mark.portable
def test_a_jump_is_learned(fitted_regressor):
    model, _, _ = fitted_regressor
    X, planted = jump(2000, seed=9, noise=0)
    clear = np.abs(X[:, 0]) > 0.3
    # One of these 40 rows on the wrong side would cost a tenth of the variance.
    assert r2_score(planted[clear], model.predict(X[clear])) > 0.9


def test_the_mean_and_its_spread(fitted_regressor):
    model, X, _ = fitted_regressor
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, model.predict(X))
    assert (sd >= 0).all()
    assert (sd > 0.001).any() == (model.posterior_.inference == "svi")


@pytest.mark.portable
def test_intervals_cover():
    """Intervals have nominal coverage on new rows away from the jump, whose place is uncertain."""
    model = regressor("svi").set_params(inference__epochs=60).fit(*jump(1000))
    X, y = jump(3000, seed=4)
    clear = np.abs(X[:, 0]) > 0.5
    for level in (0.5, 0.9):
        low, high = model.predict_interval(X[clear], level)
        covered = np.mean((low <= y[clear]) & (y[clear] <= high))
        error = np.sqrt(level * (1 - level) * (1 / clear.sum() + 1 / 1000))
        assert abs(covered - level) < 4 * error


@pytest.mark.parametrize(
    ("worse", "settings", "expected"),
    [(True, {}, 20.0), (False, {}, 6.0), (True, {"inference__steepness": 6.0}, 6.0)],
)
def test_splits_become_steeper_where_the_mean_is_worse_than_the_tree(
    monkeypatch, worse, settings, expected
):
    monkeypatch.setattr(modes, "fits_worse_than_tree", lambda found, data: worse)
    model = regressor("svi", max_depth=1).set_params(**settings).fit(*jump(100))
    assert model.posterior_.model.steepness == expected


def two_noises(n, seed):
    """A step of 2 at 0, with noise of sd 0.25 left of it and 1 right of it."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    right = X[:, 0] > 0
    return X, np.where(right, 2.0, 0.0) + np.where(right, 1.0, 0.25) * rng.normal(size=n)


@pytest.mark.portable
def test_intervals_cover_on_both_sides_of_unequal_noise():
    model = regressor("svi").set_params(inference__epochs=60).fit(*two_noises(1000, seed=0))
    X, y = two_noises(8000, seed=1)
    low, high = model.predict_interval(X)
    inside = (low <= y) & (y <= high)
    for side in (X[:, 0] < -0.1, X[:, 0] > 0.1):
        # The relative error of the scale of m rows, 1 / sqrt(2 m), moves both ends of the interval
        # by z = 1.645 times as much; there the normal density is 0.103. Two leaves share a side.
        of_scale = 2 * 1.645 * 0.103 / np.sqrt(2 * 250)
        error = np.hypot(np.sqrt(0.9 * 0.1 / side.sum()), of_scale)
        assert abs(inside[side].mean() - 0.9) < 4 * error


@pytest.mark.portable
@pytest.mark.parametrize("inference", INFERENCES)
def test_leaves_are_as_wide_as_their_rows(inference):
    """The noise is 3 in every leaf, whatever the scale of y."""
    model = regressor(inference, max_depth=1).fit(*jump(300))
    scale = model.posterior_.point["leaf_scale"] * model.fitted_.scaling.units.y_scale
    # Four standard errors of the scale of 150 normal numbers.
    np.testing.assert_allclose(scale, 3.0, rtol=4 / np.sqrt(2 * 150))


@pytest.mark.parametrize("level", [0.0, 1.0, -1, np.nan])
def test_levels_outside_zero_and_one_are_refused(level):
    model = regressor(max_depth=0).fit(*jump(60))
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        model.predict_interval(jump(60)[0], level)


@pytest.mark.portable
def test_units_of_y_do_not_matter():
    """These factors change the units without rounding, so that the optimisation paths agree."""
    X, y = jump(256)
    y = np.round(1024 * y) / 1024
    plain, scaled = regressor().fit(X, y), regressor().fit(X, 2**20 * y - 2**28)
    np.testing.assert_allclose(scaled.predict(X), 2**20 * plain.predict(X) - 2**28, rtol=1e-6)


@pytest.mark.portable
@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")
def test_a_held_out_share_chooses_the_depth():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(200, 2)), generator.integers(2, size=200)
    free = classifier(min_gain=0.0, max_depth=4).fit(X, y)
    chosen = classifier(min_gain=0.0, max_depth=4, validation_fraction=0.3).fit(X, y)
    assert chosen.get_depth() < free.get_depth()


@pytest.mark.portable
def test_float32_is_nearly_float64():
    X, y = ring(200)
    double, single = (classifier(dtype=name).fit(X, y) for name in ("float64", "float32"))
    assert single.posterior_.point["hyperplane"].dtype == np.float32
    assert np.mean(double.predict(X) == single.predict(X)) > 0.9


@pytest.mark.parametrize(
    "bad",
    [
        {"max_depth": -1},
        {"n_experts": 0},
        {"inference": "gibbs"},
        {"rate": 0.0},
        {"validation_fraction": 1.0},
        {"dtype": "float16"},
        {"prediction": "mean"},
    ],
)
def test_bad_parameters_are_named(bad):
    name = next(iter(bad))
    with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
        classifier().set_params(**bad).fit(*ring(60))


@pytest.mark.parametrize("name", ["AutoNothing", "AutoGuide", "AutoContinuous", "AutoGuideList"])
def test_an_unknown_guide_is_refused(name):
    with pytest.raises(ValueError, match="guide must be"):
        classifier("svi").set_params(inference__guide=name).fit(*ring(100))


def test_the_target_acceptance_sets_the_steps_of_nuts():
    X, y = ring(n=80)
    common = {"max_depth": 1, "n_experts": 2, "random_state": 0}
    chain = {"n_chains": 1, "n_warmup": 60, "thinning": 4, "drop_idle": True}
    steps = []
    for target in (0.6, 0.95):
        stages = [Svi(epochs=5), Nuts(target_acceptance=target, n_draws=4, **chain)]
        clf = ConvexPolytopeTreeClassifier(inference=stages, **common)
        steps.append(clf.fit(X, y).posterior_.stats["step_size"].mean())
    assert steps[1] < 0.7 * steps[0]


@pytest.mark.parametrize("name", ["meta", "gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(ValueError, match=f"device '{name}' cannot be used"):
        classifier(device=name).fit(*ring(60))


@pytest.mark.parametrize("bad", [{0: -1.0, 1: 1.0}, "balance"])
def test_class_weights_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="class_weight"):
        classifier(class_weight=bad).fit(*ring(60))


def test_the_class_that_is_left_is_named():
    X, y = ring(60)
    with pytest.raises(ValueError, match=r"at most one class, \[1\]"):
        classifier().fit(X, y, sample_weight=y)


def test_values_without_a_square_are_refused():
    X, y = jump(60)
    with pytest.raises(ValueError, match=r"120 too large values \('x0': 60, 'x1': 60\)"):
        regressor().fit(X * 1e200, y)
    with pytest.raises(ValueError, match="y holds values too large"):
        regressor().fit(X, y * 1e200)


@pytest.mark.portable
@pytest.mark.parametrize("unit", [2.0**-400, 2.0**-66, 2.0**66, 2.0**330])
def test_units_of_x_do_not_matter(unit):
    """Powers of 2 round nothing, so that the paths are the same."""
    X, y = jump(200)
    np.testing.assert_allclose(
        regressor().fit(X * unit, y).predict(X * unit), regressor().fit(X, y).predict(X)
    )


@pytest.mark.parametrize(
    ("make", "guide"),
    [
        (classifier, "AutoNormal"),
        (regressor, "AutoDelta"),
        (classifier, "AutoLowRankMultivariateNormal"),
    ],
)
def test_guides_of_pyro_are_fitted_and_saved(make, guide, tmp_path):
    X, y = ring(100)
    model = (
        make("svi")
        .set_params(inference=Svi(guide=guide, epochs=3, batch_size=100, n_draws=6))
        .fit(X, y)
    )
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    draws, point = model.posterior_.draws, model.posterior_.point
    np.testing.assert_allclose(np.exp(point["log_weight"]), draws["weight"].mean((0, 1)))
    assert len(model.polytope_size().mode()) == model.tree_.n_nodes


def test_classifier_and_regressor_have_the_same_parameters():
    both = classifier().get_params().keys() - {"class_weight", "smoothing"}
    assert both == regressor().get_params().keys()
