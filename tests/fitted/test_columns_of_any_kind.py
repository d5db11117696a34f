"""Columns of X that hold other things than numbers, and values that are missing."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score

import bayestree as bt
import bayestree.plots
from bayestree import (
    AlternatingTreeClassifier,
    AlternatingTreeRegressor,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
    UnknownCategoryWarning,
    UnusedColumnsWarning,
)
from bayestree.inference import Svi
from bayestree.report.page import html_report

N = 60
COERCE = "convert it by pandas.to_numeric(X['d'], errors='coerce')"
PLAIN = "write numbers with a decimal point and without other marks"
DAYS = pd.date_range("2024-01-01", periods=N)


def frame(**columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)}).assign(**columns)


def mixed():
    """Numbers, text, ordered categories, dates and names, with missing values, and a target."""
    rng = np.random.default_rng(1)
    sizes = pd.Categorical(rng.choice(["S", "M", "L"], N), ["S", "M", "L"], ordered=True)
    X = frame(
        sex=pd.Series(rng.choice(["m", "f"], N)),
        size=sizes,
        day=DAYS,
        town=[f"t{i % 40}" for i in rng.permutation(N)],
    )
    X.loc[::7, "a"], X.loc[3, "sex"], X.loc[4, "day"] = np.nan, None, pd.NaT
    return X, np.where(X["size"].isin(["M", "L"]) ^ (X["sex"] == "m"), "yes", "no")


def refusal(X, method="fit", kind=ValueError):
    estimator = AlternatingTreeRegressor(max_depth=1, random_state=0)
    y = frame()["a"]
    if method == "predict":
        estimator.fit(frame(), y)
    given = (X, y) if method == "fit" else (X,)
    with pytest.raises(kind) as found:
        getattr(estimator, method)(*given)
    return str(found.value)


QUICK = [
    ConvexPolytopeTreeClassifier(
        max_depth=2, n_experts=2, inference=Svi(epochs=5, n_draws=5), n_modes=2
    ),
    ConvexPolytopeTreeClassifier(
        max_depth=2,
        n_experts=2,
        inference=Svi(epochs=5, n_draws=5),
        n_modes=2,
    ),
    AlternatingTreeClassifier(max_depth=2),
    EndToEndTreeClassifier(max_depth=2, epochs=2, min_gain=0.0),
    EndToEndForestClassifier(2, max_depth=2, epochs=2),
]


@pytest.mark.parametrize("estimator", QUICK, ids=lambda one: type(one).__name__)
def test_any_table(estimator, tmp_path):
    X, y = mixed()
    fitted = clone(estimator).set_params(random_state=0).fit(X, y)
    assert fitted.n_features_in_ == 6
    assert list(fitted.feature_names_in_) == list(X)
    for part in ("a missing", "sex=m", "sex missing", "size>=M", "day (weekday)", "town: P(yes)"):
        assert part in fitted.encoding_.feature_names
    probability = fitted.predict_proba(X)
    new = X.assign(a=np.nan, sex="new", size=None, day=pd.NaT, town="new", b=np.nan)
    with pytest.warns(bt.UnknownCategoryWarning) as caught:
        assert np.isfinite(fitted.predict_proba(new)).all()
    said = {str(one.message).partition(":")[0]: str(one.message) for one in caught}
    assert said.keys() == {"column 'sex'", "column 'town'"}
    assert "60 rows hold a category" in said["column 'sex'"]
    assert "('new'); it counts as the mean of the training rows. Replace it" in said["column 'sex'"]
    fitted.save(tmp_path / "m.safetensors")
    loaded = bt.load(tmp_path / "m.safetensors")
    assert loaded.encoding_ == fitted.encoding_
    np.testing.assert_array_equal(loaded.predict_proba(X), probability)


def test_everything_that_reads_rows_takes_the_columns(tmp_path, any_k):
    X, y = mixed()
    fitted = ConvexPolytopeTreeClassifier(
        max_depth=2, inference=Svi(epochs=30, n_draws=20), n_modes=2, random_state=0
    ).fit(X, y)
    for mode in fitted.modes_:
        assert mode.predict(X).shape == (N,)
    assert fitted.split_uncertainty(X).to_frame("row") is not None
    assert fitted.co_membership(X).shape == (N, N)
    assert np.isfinite(fitted.loo(X, y, method="psis").elpd)
    assert fitted.sample_posterior_predictive(X, 3, random_state=0).shape == (3, N)
    assert fitted.check_convergence(X, y) is not None
    assert fitted.modes_[0].to_arviz(X, y) is not None
    assert fitted.tree_.feature_names == tuple(fitted.encoding_.feature_names)
    encoded = fitted.encoding_.encode(X).to_numpy()
    assert fitted.tree_.apply(encoded).tolist() == fitted.apply(X).tolist()
    assert "[sex=m] >= " in bt.export_text(fitted)
    assert fitted.prior_size(X, n_draws=20) is not None
    assert fitted.feature_importances_.shape == (6,)
    found = fitted.importance(X, y, n_repeats=1, max_draws=4)
    assert found.features == tuple(X)
    assert found.to_frame()["loss"].idxmax() in {"size", "sex"}, "which determine y"
    change = fitted.explain(X.iloc[0]).change
    if change.row is not None:
        after = fitted.encoding_.encode(pd.DataFrame([change.cells], columns=X.columns))
        np.testing.assert_allclose(after.to_numpy()[0], change.row, err_msg="a real row")
    assert len(bt.export_onnx(fitted, X=X)) > 0, "compares with the tree at these rows"
    oblique = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    bt.plots.node_scatter(oblique, X, y)
    with pytest.raises(ValueError, match="boundary draws two columns of numbers"):
        bt.plots.boundary(fitted)
    page = html_report(fitted, X=X, y=y)
    assert "size&gt;=M" in page
    assert "fitted to 60 rows of 6 columns (13 features)" in page
    used = page[page.index('<th scope="col">Column</th>') :].partition("</table>")[0]
    assert '<th scope="row">size</th>' in used
    assert "size&gt;=M</th>" not in used
    columns = X.drop(columns="town")  # which needs y
    assert ConvexPolytopeTreeClassifier().prior_size(columns, n_draws=20) is not None


def test_missing_values_inform_the_split():
    """y is whether a value is missing: no imputation alone can find that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = rng.random(200) < 0.3
    X[y, 1] = np.nan
    for fitted in (
        ConvexPolytopeTreeClassifier(inference="grow", max_depth=1, random_state=0).fit(X, y),
        AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y),
    ):
        assert fitted.score(X, y) == 1.0
        assert fitted.encoding_.feature_names == ["x0", "x1", "x1 missing"]
        assert re.search(r"x1 (is (not )?)?missing", bt.export_text(fitted))


def test_values_missing_only_in_new_rows_count_as_the_mean():
    X, y = frame(), frame()["a"] > 0
    fitted = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    mean = np.full(3, X["a"].mean())
    gap = X.assign(a=np.nan)[:3]
    np.testing.assert_array_equal(
        fitted.predict_proba(gap), fitted.predict_proba(gap.assign(a=mean))
    )
    same = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X.to_numpy(), y)
    np.testing.assert_array_equal(same.predict_proba(gap.to_numpy()), fitted.predict_proba(gap))


def test_columns_are_matched_by_position_where_names_are_missing():
    X, y = mixed()
    named = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        found = named.predict_proba(X.to_numpy())
    np.testing.assert_array_equal(found, named.predict_proba(X))
    X = X[["a", "sex"]].to_numpy()
    unnamed = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="X has feature names"):
        found = unnamed.predict_proba(pd.DataFrame(X, columns=["a", "sex"]))
    np.testing.assert_array_equal(found, unnamed.predict_proba(X.tolist()))
    row = X[1].tolist()
    assert unnamed.explain(row).expected == pytest.approx(unnamed.predict_proba([row])[0])


def test_statistics_of_y_cannot_be_continued():
    X, y = mixed()
    fitted = AlternatingTreeClassifier(max_depth=1, warm_start=True, random_state=0).fit(X, y)
    with pytest.raises(
        ValueError, match=r"continue with the features of column 'town'.*warm_start=False"
    ):
        fitted.fit(X, y)
    some = AlternatingTreeClassifier(max_depth=1, warm_start=True, random_state=0)
    some.fit(X.drop(columns="town"), y).fit(X.drop(columns="town"), y)


def of_towns(n, seed, effect, response):
    """Rows of 60 towns with effects on the log-odds, or on the mean, of y."""
    rng = np.random.default_rng(seed)
    place, a = rng.integers(60, size=n), rng.normal(size=n)
    mean = a + effect * np.sin(17.0 * place)
    X = pd.DataFrame({"a": a, "town": [f"town {number}" for number in place]})
    if response == "class":
        return X, np.where(rng.logistic(size=n) < mean, "yes", "no")
    return X, mean + rng.normal(size=n)


@pytest.mark.parametrize("response", ["class", "number"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_the_fit_do_not_see_their_own_y_when_they_are_given_again(response, weighted):
    """y is independent of the town, whose means over all rows nevertheless seem to explain it."""
    X, y = of_towns(300, 0, 0.0, response)
    weights = np.random.default_rng(1).integers(1, 3, 300) if weighted else None
    kind = ConvexPolytopeTreeClassifier if response == "class" else ConvexPolytopeTreeRegressor
    fitted = kind(max_depth=1, inference="grow", random_state=0).fit(X, y, weights)
    data = fitted.training_data(X, y, weights)
    among = data.X.numpy()[:, 1]
    new = fitted.fitted_.scaling.standardise(fitted.encoding_.encode(X).to_numpy())[:, 1]
    # Four standard errors; the means of about five rows have a correlation of sqrt(1 / 5).
    assert abs(np.corrcoef(among, data.y.numpy())[0, 1]) < 4 / np.sqrt(300)
    assert np.corrcoef(new, data.y.numpy())[0, 1] > 0.3
    # Any other rows are new ones.
    np.testing.assert_array_equal(fitted.training_data(X[:200], y[:200]).X[:, 1], new[:200])


@pytest.mark.parametrize("response", ["class", "number"])
def test_the_log_score_of_the_rows_of_the_fit_does_not_see_their_y(response):
    X, y = of_towns(300, 0, 1.0, response)
    settings = {
        "max_depth": 1,
        "n_modes": 1,
        "inference": Svi(epochs=10),
        "random_state": 0,
    }
    kind = ConvexPolytopeTreeClassifier if response == "class" else ConvexPolytopeTreeRegressor
    fitted = kind(**settings).fit(X, y)
    halves = [fitted.log_score(X[part], y[part]) for part in (slice(150), slice(150, None))]
    assert fitted.log_score(X, y).mean() < np.concatenate(halves).mean(), "as new rows"


def test_codes_with_leading_zeros_are_text():
    X = frame(zip=["007", "7"] * 30)
    fitted = AlternatingTreeClassifier(max_depth=1).fit(X, X["zip"])
    assert "zip=7" in fitted.encoding_.feature_names
    assert fitted.score(X, X["zip"]) == 1.0


def test_categories_of_any_number_of_codes():
    codes = pd.Categorical([*range(25), "other"] * 2 + [*range(8)])
    fitted = AlternatingTreeClassifier(max_depth=1).fit(frame(code=codes), codes == "other")
    assert "code=other" in fitted.encoding_.feature_names


def test_what_moves_a_missing_value():
    """A column of which a row has no value does not change, and its mark goes with the value."""
    X, y = mixed()
    fitted = AlternatingTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    change = fitted.explain(X.iloc[0]).change
    mark = fitted.tree_.feature_names.index("a missing")
    assert change.row is None or change.row[mark - 1] == fitted.encoding_.encode(X)["a"][0]
    dependence = fitted.partial_dependence(X, "a", grid=[0.5])
    rows = fitted.encoding_.encode(X).to_numpy(copy=True)
    rows[:, mark - 1], rows[:, mark] = 0.5, 0.0
    assert dependence.mean[0] == pytest.approx(fitted.tree_.predict(rows).mean(axis=0))


def test_interactions_of_columns():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"kind": rng.choice([*"abcdefgh"], 200)}).assign(u=rng.normal(size=200))
    X["v"] = rng.normal(size=200)
    fitted = AlternatingTreeClassifier(max_depth=3, random_state=0).fit(X, (X.u > 0) ^ (X.v > 0))
    found = fitted.interactions(X).to_frame()
    assert set(found["feature"]) | set(found["other"]) == {"kind", "u", "v"}
    assert set(found.iloc[0][["feature", "other"]]) == {"u", "v"}


def test_importance_of_slopes():
    X = frame()
    fitted = bt.ConvexPolytopeTreeRegressor(
        leaf="linear", n_modes=1, max_depth=1, inference=Svi(epochs=5, n_draws=5), random_state=0
    )
    fitted.fit(X, 3 * X["a"])
    loss = fitted.importance(X, 3 * X["a"], n_repeats=1).to_frame()["loss"]
    assert loss["a"] > 100 * abs(loss["b"])


def test_weights_of_zero_remove_rows():
    X, y = mixed()
    weights = np.arange(N) % 4 > 0
    X.loc[~weights, "sex"] = "other"
    settings = AlternatingTreeClassifier(max_depth=2, random_state=0)
    some = clone(settings).fit(X, y, weights.astype(float))
    assert "sex=other" not in some.encoding_.feature_names


def test_columns_of_other_kinds_need_their_kind_in_new_rows():
    X, y = mixed()
    fitted = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="column 'b' holds dates"):
        fitted.predict(X.assign(b=X["day"]))
    with pytest.warns(bt.UnknownCategoryWarning, match=r"cannot be read as a date \('red'\)"):
        found = fitted.predict_proba(X.assign(day="red"))
    np.testing.assert_array_equal(found, fitted.predict_proba(X.assign(day=pd.NaT)))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("other", [{}, {"c": ["x", "y"] * 30}])
def test_what_is_not_a_number_in_new_rows_counts_as_missing(gaps, other):
    X = frame(**other)
    y = X["b"] > 0
    X.loc[5, "b"] = np.nan if gaps else 0.0
    fitted = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    new, missing = X.astype({"b": object}), X.copy()
    new.loc[[1, 2, 3], "b"] = ["?", "1.5", "-"]
    missing.loc[[1, 2, 3], "b"] = [np.nan, 1.5, np.nan]
    said = (
        r"column 'b': 2 rows hold a value that cannot be read as a number \('\?', '-'\); it "
        "counts as a missing one. If it is a number, write numbers with a decimal point"
    )
    with pytest.warns(UnknownCategoryWarning, match=said):
        found = fitted.predict_proba(new)
    np.testing.assert_array_equal(found, fitted.predict_proba(missing))


@pytest.mark.filterwarnings("ignore:column 'cylinders' holds numbers")
def test_text_is_a_category_whatever_the_fold():
    """Also where a part of the rows holds nothing but numbers."""
    kind = np.array([*["3", "4", "6", "8"] * 14, *["rotary"] * 4])
    X, y = frame(cylinders=kind), np.where(np.isin(kind, ["4", "8"]), "even", "odd")
    estimator = AlternatingTreeClassifier(max_depth=3, random_state=0)
    without = estimator.fit(X.head(56), y[:56])
    assert without.encoding_.columns[2].levels == ("3", "4", "6", "8")
    with pytest.warns(UnknownCategoryWarning, match="4 rows hold a category .* \\('rotary'\\)"):
        assert set(without.predict(X)) == {"even", "odd"}
    with pytest.warns(UnknownCategoryWarning, match="'rotary'"):
        scores = cross_val_score(estimator, X, y, cv=KFold(2), error_score="raise")
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("cells", "found", "remedy"),
    [
        ([*"123"] * 20, "numbers as text", "convert it by pandas.to_numeric(X['d'])"),
        ([*"1234567890"] * 5 + ["?"] * 10, "numbers in 50 of 60 rows, but '?' in row 51", COERCE),
        ([*"12345-"] * 10, "numbers in 50 of 60 rows, but '-' in row 6", COERCE),
        ([*"12345", " "] * 10, "numbers in 50 of 60 rows, but ' ' in row 6", COERCE),
        (["1\xa0000", "2\xa0500"] * 30, r"numbers such as '1\xa0000'", PLAIN),
        (["1\u202f000,5", "2\u202f500"] * 30, r"numbers such as '1\u202f000,5'", PLAIN),
    ],
)
def test_numbers_as_text(cells, found, remedy):
    estimator = AlternatingTreeRegressor(max_depth=1, random_state=0)
    said = f"column 'd' holds {found}; its values are categories. If it is a quantity, "
    with pytest.warns(UserWarning, match=re.escape(said + remedy)):
        fitted = estimator.fit(frame(d=cells), frame()["a"])
    assert fitted.encoding_.columns[2].is_text


def test_many_numbers_as_text():
    """Text is not refused in a frame, although a single mistake in a file would be."""
    X = frame(d=[*map(str, range(N - 1)), "?"])
    with pytest.warns(UnusedColumnsWarning, match="'d' holds numbers as text, and a different"):
        AlternatingTreeRegressor(max_depth=1, random_state=0).fit(X, X["a"])


@pytest.mark.filterwarnings("ignore:column 'x0' holds numbers as text")
def test_arrays_and_lists_of_text():
    X = np.array([["1", "x"], ["2", "y"], ["1", "y"]] * 10)
    for given in (X, X.astype(object), X.tolist()):
        fitted = AlternatingTreeClassifier(max_depth=1).fit(given, X[:, 1])
        assert fitted.encoding_.feature_names == ["x0=2", "x1=y"]
        assert fitted.score(given, X[:, 1]) == 1.0


@pytest.mark.parametrize("kind", [np.float32, object])
def test_gaps_of_arrays_and_lists(kind):
    X = np.arange(3.0 * N).reshape(N, 3).astype(kind)
    X[[4, 7], 2] = np.nan
    y = np.arange(N) % 2
    for given in (X, X.tolist()):
        fitted = AlternatingTreeClassifier(max_depth=1).fit(given, y)
        assert fitted.encoding_.feature_names == ["x0", "x1", "x2", "x2 missing"]


@pytest.mark.filterwarnings("ignore:column 'c' is empty; ignored")
def test_columns_without_values():
    X, y = frame(c=np.nan), frame()["a"] > 0
    fitted = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X, y)
    same = AlternatingTreeClassifier(max_depth=1, random_state=0).fit(X[["a", "b"]], y)
    np.testing.assert_array_equal(fitted.predict_proba(X), same.predict_proba(X[["a", "b"]]))


def test_infinite_values_are_refused():
    X = frame(b=[np.inf] + [1.0] * (N - 1))
    assert "1 infinite value ('b': 1), first at row 1; replace them" in refusal(X)
    assert "1 infinite value ('b': 1), first at row 1" in refusal(X.assign(c="x"))


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (AlternatingTreeClassifier, [None, "no", "yes"]),
        (AlternatingTreeClassifier, [np.nan, "no", "yes"]),
        (AlternatingTreeClassifier, pd.Series([None, "no", "yes"])),
        (AlternatingTreeClassifier, pd.Series([pd.NA, 0, 1], dtype="Int64")),
        (AlternatingTreeRegressor, np.array([np.nan, 1.0, 2.0])),
        (AlternatingTreeRegressor, [None, 1.0, 2.0]),
    ],
)
def test_gaps_in_y(estimator, y):
    order = [1, 2, *[0, 1, 2] * 2]  # missing at the third and the sixth row
    some = y.iloc[order] if isinstance(y, pd.Series) else [y[i] for i in order]
    with pytest.raises(ValueError, match=r"y .*: 2 missing values, first at row 3; drop the rows"):
        estimator().fit(frame().head(len(order)), some)


def test_types_of_numbers_and_of_categories():
    X = frame(b=[True, False] * 30, c=pd.Categorical([1, 1, 2] * 20), d=["01", "2"] * 30)
    model = AlternatingTreeRegressor(max_depth=1, random_state=0).fit(X, X["a"])
    assert model.encoding_.feature_names == ["a", "b", "c=2", "d=2"]


def test_images_need_every_pixel():
    X, y = np.random.default_rng(0).random((20, 4)), np.arange(20) % 2
    X[3, 2] = np.nan
    estimator = EndToEndTreeClassifier(max_depth=1, image_shape=(2, 2))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        estimator.fit(X, y)
    with pytest.raises(ValueError, match="could not convert string to float: 'red'"):
        estimator.fit(pd.DataFrame(X).assign(c="red")[[0, 1, 3, "c"]].rename(columns=str), y)


def test_other_errors_are_those_of_scikit_learn():
    assert "holds mixed values" in refusal(np.array([[1, {}]] * N, dtype=object))
    assert "feature names should match" in refusal(frame().rename(columns={"a": "c"}), "predict")
    X, y = mixed()
    fitted = AlternatingTreeClassifier(max_depth=1).fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(X.rename(columns={"sex": "gender"}))
