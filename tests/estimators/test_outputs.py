"""Regression with several outputs: one tree, and everything that reads it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score
from sklearn.utils import get_tags

from bayestree import ConvexPolytopeTreeRegressor, export_json, export_text, load
from bayestree.inference import Map, Nuts, Svi

N = 200


def planted(seed=0, n=N):
    """Two outputs of other units that depend on the same side of a line, and one of noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    right = X[:, 0] > 0
    mean = np.column_stack([np.where(right, 5, -5), np.where(right, 90, 110), np.zeros(n)])
    return X, mean + rng.normal(size=(n, 3)), mean


def regressor(**others):
    settings = {
        "max_depth": 1,
        "n_experts": 1,
        "inference": Svi(epochs=8, n_draws=8),
        "n_modes": 1,
    }
    return ConvexPolytopeTreeRegressor(random_state=0, **settings | others)


@pytest.fixture(scope="module")
def fitted():
    X, Y, _ = planted()
    return regressor().fit(X, Y), X, Y


@pytest.mark.portable
def test_all_outputs_are_predicted_in_their_units(fitted):
    reg, _, _ = fitted
    X, Y, mean = planted(1, 2000)
    assert reg.n_outputs_ == 3
    found = reg.predict(X)
    # 100 rows of each leaf: standard errors 0.1; a split that is off by 0.05 costs 2 % of the rows
    # the difference of the means, 10 and 20
    assert np.median(np.abs(found - mean), axis=0) == pytest.approx(0, abs=0.5)
    assert reg.score(X, Y) == pytest.approx(r2_score(Y, found))
    low, high = reg.predict_interval(X, 0.8)
    inside = reg.in_interval(X, Y, 0.8)
    assert inside.shape == low.shape == Y.shape
    # four standard errors of a share of 0.8 in 2,000 rows, and those of the scales from 200
    assert inside.mean(axis=0) == pytest.approx(0.8, abs=0.036 + 0.05)
    assert (low < high).all()


def test_draws_and_scores_are_those_of_independent_outputs(fitted, any_k):
    reg, X, Y = fitted
    drawn = reg.sample_posterior_predictive(X[:5], 2000, random_state=0)
    assert drawn.shape == (2000, 5, 3)
    low, high = reg.predict_interval(X[:5], 0.5)
    share = ((low <= drawn) & (drawn <= high)).mean(axis=0)
    assert (np.abs(share - 0.5) < 5 * 0.5 / 2000**0.5).all()
    groups = reg.to_arviz(X, Y)
    assert groups["posterior"]["leaf_mean"].dims == ("chain", "draw", "leaf", "output")
    assert groups["posterior_predictive"]["obs"].shape == (1, 8, N, 3)
    np.testing.assert_allclose(groups["observed_data"]["obs"], Y)
    assert np.isfinite(reg.loo(X, Y, method="psis").elpd)


def test_one_output_is_a_regressor_of_its_own(fitted):
    reg, X, Y = fitted
    for j in range(3):
        one = reg.output(j)
        np.testing.assert_allclose(one.predict(X), reg.predict(X)[:, j], rtol=1e-12)
        np.testing.assert_allclose(one.tree_.predict(X), reg.tree_.predict(X)[:, j])
        ends = zip(one.predict_interval(X), reg.predict_interval(X), strict=True)
        assert all((single == both[:, j]).all() for single, both in ends)
    one = reg.output(1)
    assert one.check_convergence(X, Y[:, 1]) is not None
    assert one.split_uncertainty(X[:3]).expected_y.shape == (3,)
    assert "mean" in export_text(one)
    assert export_json(one)
    assert one.explain(X[0], target=100.0).change.prediction > 100
    each = [reg.output(j).feature_importances_ for j in range(3)]
    np.testing.assert_allclose(reg.feature_importances_, np.mean(each, axis=0))
    with pytest.raises(ValueError, match="from 0 to 2, got 3"):
        reg.output(3)
    with pytest.raises(ValueError, match="a single output"):
        one.output(0)


def test_texts_have_the_means_of_all_outputs(fitted):
    reg, _, _ = fitted
    assert export_text(reg, decimals=3).count("means ") == 2
    assert "means" in reg._repr_html_()


def test_methods_for_one_output_name_the_way_to_it(fitted):
    reg, X, Y = fitted
    for name, arguments in {
        "explain": (X[0],),
        "importance": (X, Y),
        "shapley_values": (X,),
        "partial_dependence": (X, "x0"),
        "interactions": (X,),
        "split_uncertainty": (X,),
        "label_free": (),
        "check_convergence": (),
    }.items():
        with pytest.raises(ValueError, match=rf"use output\(0\).{name}"):
            getattr(reg, name)(*arguments)
    with pytest.raises(ValueError, match=r"pass output\(0\)"):
        export_json(reg)
    with pytest.raises(ValueError, match="y must have 3 outputs"):
        reg.loo(X, Y[:, :2])


def test_modes_files_tables_and_weights(tmp_path):
    X, Y, _ = planted(n=120)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.where(X[:, 1] > 0, "p", "q"))
    weights = np.where(np.arange(120) < 100, 1, 0)
    reg = regressor(n_modes=2, inference=Svi(epochs=1, n_draws=8))
    reg.fit(table, pd.DataFrame(Y), sample_weight=weights)
    reg.save(tmp_path / "outputs.safetensors")
    again = load(tmp_path / "outputs.safetensors")
    assert (again.predict(table) == reg.predict(table)).all()
    assert again.n_outputs_ == 3
    np.testing.assert_allclose(again.output(2).predict(table), reg.predict(table)[:, 2])
    assert again.output(0).modes_[0].n_outputs_ == 1
    drawn = reg.to_arviz(table, Y)["posterior_predictive"]["obs"]
    assert drawn.shape == (1, 100, 120, 3)  # of the mixture


NUTS = [Svi(epochs=5, n_draws=8), Nuts(n_warmup=20, thinning=4, drop_idle=True, n_draws=10)]
LONG = pytest.param(NUTS, marks=pytest.mark.statistical)


@pytest.mark.parametrize("inference", ["grow", Map(epochs=5, steepness=None), LONG], ids=str)
def test_other_inference(inference):
    X, Y, _ = planted(n=80)
    reg = regressor(inference=inference).fit(X, Y)
    assert reg.predict(X).shape == (80, 3)
    assert reg.score(X, Y) > 0.5  # the tree explains two of three outputs


def test_other_shapes_of_y():
    X, Y, _ = planted(n=40)
    with pytest.raises(ValueError, match="several outputs need leaf='constant'"):
        regressor(leaf="linear").fit(X, Y)
    with pytest.raises(ValueError, match="partial_fit takes one output"):
        regressor().partial_fit(X, Y)
    reg = regressor(inference=Map(epochs=2, steepness=None)).fit(X, Y)
    with pytest.raises(ValueError, match="y must have 3 outputs"):
        reg.set_params(warm_start=True).fit(X, Y[:, :2])
    assert get_tags(reg).target_tags.multi_output
    assert not get_tags(regressor(leaf="poisson")).target_tags.multi_output
