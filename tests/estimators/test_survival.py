"""Trees of right-censored survival times."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from bayestree import ConvexPolytopeTreeSurvival, SingleLeafWarning, export_text, load
from bayestree.diagnostics.scores import concordance
from bayestree.inference import Map, Nuts, Svi

POWER, SCALES = 1.8, (8.0, 2.0)  # of the times on the two sides of a line
MAP, SVI = Map(epochs=60, steepness=None), Svi(epochs=60, n_draws=20)


def planted(n, seed):
    """Rows, censored times and events, and the survival times without censoring."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    scale = np.where(X[:, 0] + X[:, 1] > 0.3, SCALES[1], SCALES[0])
    time, end = scale * rng.weibull(POWER, n), rng.uniform(1, 12, n)
    return X, np.minimum(time, end), time <= end, time


@pytest.fixture(scope="module")
def rows():
    return planted(400, 0)


def tree(**settings):
    return ConvexPolytopeTreeSurvival(
        **{"max_depth": 1, "n_experts": 1, "inference": SVI, "random_state": 0, "n_modes": 1}
        | settings
    )


@pytest.fixture(scope="module")
def fitted(rows):
    X, time, event, _ = rows
    return tree().fit(X, time, event=event)


@pytest.mark.portable
def test_the_planted_distributions_are_found(rows, fitted):
    family = fitted.posterior_.model.leaf
    # The error of an estimated power is 0.78 power / sqrt(events), about 0.09 from 250 events, of
    # which five, and rows near the border that seem to have other times.
    assert family.power == pytest.approx(POWER, abs=0.5)
    inside = np.array([[-3.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    at = np.array([1.0, 2.0, 4.0])
    survival, low, high = fitted.predict_survival_function(inside, at, level=0.9)
    truth = np.exp(-((at / np.array(SCALES)[:, None]) ** POWER))
    # a rate from 100 events has a relative error of 0.1, and d log S = log S times this
    assert survival == pytest.approx(truth, abs=0.12)
    assert (low <= survival).all()
    assert (survival <= high).all()
    medians = fitted.predict_median(inside)
    assert medians == pytest.approx(np.array(SCALES) * np.log(2) ** (1 / POWER), rel=0.25)


@pytest.mark.portable
def test_intervals_and_risks_hold_for_new_rows(fitted):
    X, observed, event, time = planted(4000, 1)
    low, high = fitted.predict_interval(X, 0.8)
    # four standard errors of a share, and the error of the fit
    assert ((low <= time) & (time <= high)).mean() == pytest.approx(0.8, abs=0.026 + 0.05)
    # a censored row counts with the probability that its time is inside
    inside = fitted.in_interval(X, np.column_stack([observed, event]), 0.8)
    assert inside.mean() == pytest.approx(0.8, abs=0.026 + 0.05)
    # those who live until the median have 0.5 left, of which 0.4 are inside the interval
    middle = fitted.in_interval(X, fitted.predict_median(X), 0.8, event=np.zeros(len(X), bool))
    assert middle == pytest.approx(0.8, rel=1e-3)
    # nothing is known of those who are censored at once
    unknown = fitted.in_interval(X, np.full(len(X), 1e-9), 0.8, event=np.zeros(len(X), bool))
    assert unknown == pytest.approx(0.8, rel=1e-3)
    truth = np.where(X[:, 0] + X[:, 1] > 0.3, 1.0, 0.0)
    best = concordance(observed, event, truth)
    found = fitted.score(X, observed, event=event)
    assert found > best - 0.1 * (best - 0.5)
    assert found == concordance(observed, event, fitted.predict(X))
    assert (fitted.in_interval(X, observed, 0.8, event=event) == inside).all()
    with pytest.warns(UserWarning, match="without the event of each row, which the fit had"):
        fitted.in_interval(X, observed)


def test_y_has_three_forms(rows, fitted):
    X, time, event, _ = rows
    both = np.column_stack([time, event])
    fields = [("status", bool), ("days", float)]
    structured = np.array([*zip(event.tolist(), time.tolist(), strict=True)], dtype=fields)
    for y in (both, structured):
        assert np.array_equal(clone(fitted).fit(X, y).predict(X), fitted.predict(X))
        assert fitted.score(X, y) == fitted.score(X, time, event=event)
        assert fitted.training_data(X, y).y.shape == (len(X), 2)
    observed = tree(inference=MAP).fit(X, time)
    assert observed.predict(X).mean() > fitted.predict(X).mean()  # as if all had died
    scores = cross_val_score(tree(inference="grow"), X[:150], structured[:150], cv=2)
    assert (scores > 0.5).all()


def test_exponential_leaves_have_constant_hazards(rows):
    X, time, event, _ = rows
    found = tree(leaf="exponential", inference=MAP).fit(X, time, event=event)
    leaf = found.tree_.apply(X)
    for number, rate in enumerate(found.tree_.value):
        mine = leaf == number
        family = found.posterior_.model.leaf
        expected = (event[mine].sum() + family.shape) / (time[mine].sum() + family.rate)
        assert rate == pytest.approx(expected)
    survival = found.predict_survival_function(X[:5], [2.0, 4.0])
    assert survival[:, 0] ** 2 == pytest.approx(survival[:, 1])


def test_everything_reads_a_fitted_tree(rows, fitted, tmp_path):
    X, time, event, _ = rows
    y = np.column_stack([time, event])
    fitted.save(tmp_path / "survival.safetensors")
    found = load(tmp_path / "survival.safetensors")
    at = [1.0, 5.0]
    assert np.array_equal(
        found.predict_survival_function(X, at), fitted.predict_survival_function(X, at)
    )
    assert "rate" in export_text(found)
    assert fitted.check_convergence(X, y).predictions
    assert "rate" not in str(fitted.explain(X[0]).prediction)
    assert fitted.split_uncertainty(X).total_variance is None
    container = fitted.to_arviz(X, y, groups=["log_likelihood", "posterior_predictive"])
    drawn = container["posterior_predictive"]["obs"].to_numpy()
    assert drawn.shape == (1, 20, len(X))
    assert (drawn > 0).all()
    assert fitted.sample_posterior_predictive(X, 3).shape == (3, len(X))


def test_nuts_modes_and_bands(rows, any_k):
    X, time, event, _ = (part[:120] for part in rows)
    y = np.column_stack([time, event])
    nuts = Nuts(n_warmup=30, n_chains=1, thinning=4, drop_idle=True, n_draws=30)
    sampled = tree(inference=[SVI, nuts]).fit(X, y)
    assert np.isfinite(sampled.loo(X, y).elpd)
    several = tree(n_modes=2, inference=Svi(epochs=4, n_draws=4)).fit(X, y)
    survival, low, high = several.predict_survival_function(X, [1.0, 3.0], level=0.5)
    assert (low <= high).all()
    each = [mode.predict_survival_function(X, [1.0, 3.0]) for mode in several.modes_]
    assert np.allclose(survival, np.tensordot(several.mode_weights_, each, axes=1))


def test_a_tree_without_splits_warns():
    rng = np.random.default_rng(0)
    X, time = rng.normal(size=(60, 2)), rng.exponential(size=60)
    with pytest.warns(SingleLeafWarning, match="single leaf"):
        found = tree(inference=MAP).fit(X, time)
    assert found.score(X, time) == 0.5


@pytest.mark.parametrize(
    ("time", "event", "message"),
    [
        (0.0, 1.0, "times above 0, got 0"),
        (-1.0, 1.0, "times above 0, got -1"),
        (np.inf, 1.0, "infinity"),
        (1.0, 2.0, "event must be true"),
        (1.0, np.nan, "event contains NaN"),
    ],
)
def test_invalid_rows_are_refused(time, event, message):
    times, events = np.ones(6), np.ones(6)
    times[3], events[3] = time, event
    with pytest.raises(ValueError, match=message):
        tree().fit(np.arange(6.0)[:, None], times, event=events)


def test_invalid_arguments_are_refused(fitted):
    X = np.arange(12.0).reshape(4, 3)
    with pytest.raises(ValueError, match="event is false in all rows"):
        tree().fit(X, np.ones(4), event=np.zeros(4))
    for method in (tree().fit, fitted.score):
        with pytest.raises(ValueError, match="event is given twice"):
            method(X, np.ones((4, 2)), event=np.ones(4))
    with pytest.raises(ValueError, match=r"event must have shape \(4,\)"):
        tree().fit(X, np.ones(4), event=np.ones(3))
    wrong = np.ones(4, dtype=[("a", float), ("b", float)])
    with pytest.raises(ValueError, match="one boolean field"):
        tree().fit(X, wrong)
    with pytest.raises(ValueError, match="times of 0 or more"):
        fitted.predict_survival_function(X, [-1.0])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        fitted.predict_survival_function(X, [1.0], level=1.0)


def test_printed_rates_are_those_of_the_rows(rows):
    """Events by the sum of all times, those of censored rows, too; a prior of few rows beside."""
    X, time, event, _ = rows
    shown = tree(leaf="exponential").fit(X, time, event=event)
    assert shown.fitted_.shown.sparsity is not None
    leaf = shown.tree_.apply(X)
    rate = np.bincount(leaf, event) / np.bincount(leaf, time)
    np.testing.assert_allclose(shown.tree_.value, rate, rtol=0.05)
