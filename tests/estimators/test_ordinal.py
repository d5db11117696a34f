"""Classifiers with leaves of ordered classes, and what reads them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from bayestree import ConvexPolytopeTreeClassifier, export_text, load, plots
from bayestree.diagnostics import ranked_probability
from bayestree.inference import Nuts, Svi
from bayestree.inference.pointwise import log_likelihood

GRADES = ("poor", "fair", "good", "very good", "excellent")
CUTS = norm.ppf([0.2, 0.4, 0.6, 0.8])


def planted(n, seed):
    """Grades whose latent mean is -0.8 or 0.8 on the sides of a line, and their probabilities."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    mean = np.where(X[:, 0] + X[:, 1] > 0, 0.8, -0.8)
    ends = np.concatenate([[-np.inf], CUTS, [np.inf]])
    truth = np.diff(norm.cdf((ends - mean[:, None]) / 0.6), axis=1)
    return X, np.searchsorted(CUTS, rng.normal(mean, 0.6)), truth


def tree(**settings):
    return ConvexPolytopeTreeClassifier(
        **{
            "leaf": "ordinal",
            "max_depth": 1,
            "n_experts": 1,
            "inference": Svi(epochs=60, n_draws=20),
            "random_state": 0,
        }
        | {"n_modes": 1}
        | settings
    )


@pytest.fixture(scope="module")
def rows():
    return planted(300, 0)


@pytest.fixture(scope="module")
def fitted(rows):
    X, y, _ = rows
    grades = pd.Categorical.from_codes(y, GRADES, ordered=True)
    return tree().fit(X, pd.Series(grades))


@pytest.mark.portable
def test_planted_probabilities_are_found(fitted):
    X, y, truth = planted(4000, 1)
    own = fitted.predict_proba(X)
    flat = np.full_like(own, 0.2)
    # of the information in the sides of the line: 300 rows leave an error of about 10 % at most
    best, found, base = (ranked_probability(y, p).mean() for p in (truth, own, flat))
    assert found - best < 0.25 * (base - best)


def test_classes_have_the_order_of_the_categories(rows, fitted):
    X, y, _ = rows
    assert fitted.classes_.tolist() == list(GRADES)
    assert fitted.tree_.class_names == GRADES
    probability = fitted.predict_proba(X)
    # the outer classes are the least and the most probable ones of the same rows
    assert np.corrcoef(probability[:, 0], probability[:, -1])[0, 1] < 0
    assert np.corrcoef(probability @ np.arange(5), y)[0, 1] > 0.5
    labels = np.array(GRADES)[y]
    assert fitted.score(X, labels) == np.mean(fitted.predict(X) == labels)
    scores = ranked_probability(labels, probability, fitted.classes_)
    np.testing.assert_allclose(scores, ranked_probability(y, probability))


def test_a_table_of_one_column_keeps_its_order(rows):
    X, y, _ = rows
    backwards = pd.DataFrame({"grade": pd.Categorical(y, range(5)[::-1], ordered=True)})
    with pytest.warns(match="column-vector"):
        clf = tree(inference=Svi(epochs=1)).fit(X, backwards)
    assert clf.classes_.tolist() == [4, 3, 2, 1, 0]
    clf.set_params(warm_start=True)
    with pytest.raises(ValueError, match=r"has them in the order \[0, 1, 2, 3, 4\]"):
        clf.fit(X, y)


def test_numbers_are_sorted_and_text_is_sorted_with_a_warning(rows):
    X, y, _ = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tree(inference="grow").fit(X, 10 - y).classes_.tolist() == [6, 7, 8, 9, 10]
    with pytest.warns(UserWarning, match="alphabet, excellent < fair < good"):
        tree(inference="grow").fit(X, np.array(GRADES)[y])


def test_files_draws_and_scores(rows, fitted, tmp_path):
    X, y, _ = rows
    fitted.save(tmp_path / "grades.safetensors")
    restored = load(tmp_path / "grades.safetensors")
    np.testing.assert_array_equal(restored.predict_proba(X), fitted.predict_proba(X))
    assert restored.posterior_.model.leaf == fitted.posterior_.model.leaf
    assert restored.classes_.tolist() == list(GRADES)
    labels = np.array(GRADES)[y]
    drawn = fitted.sample_posterior_predictive(X[:5], 400, random_state=0)
    shares = (drawn[..., None] == np.array(GRADES)).mean(0)
    # binomial errors of 400 draws, up to four of them
    np.testing.assert_allclose(shares, fitted.predict_proba(X[:5]), atol=4 * 0.5 / 20)
    terms = log_likelihood(
        fitted.posterior_.model, fitted.posterior_.each(), fitted.training_data(X, labels)
    )
    mean = np.log(np.exp(terms).mean(0))
    expected = np.log(fitted.predict_proba(X)[np.arange(len(y)), y])
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="importance sampling fails"):
        fitted.loo(X, labels, method="psis")
    found = fitted.loo(X, labels, method="kfold", n_folds=5)  # without a warning about the order
    assert found.elpd == pytest.approx(mean.sum(), abs=15)  # a few parameters
    assert fitted.to_arviz(X, labels)["posterior"]["leaf_probs"].shape[-1] == 5
    assert "very good" in export_text(fitted)


def test_plots_and_diagnostics_accept_classes_out_of_order(rows, fitted):
    X, y, _ = rows
    labels = np.array(GRADES)[y]
    found = fitted.split_uncertainty(X[:20])
    assert found.total_entropy.shape == (20,)
    plots.split_uncertainty(fitted, X[:20], labels[:20])
    plots.node_scatter(fitted, X, labels)
    assert len(str(fitted.check_convergence())) > 0


def test_the_posterior_of_nuts_agrees_with_svi(rows, fitted):
    """On one split, predictions differ by the noise of 150 rows a side at most."""
    X, y, _ = rows
    nuts = Nuts(n_chains=1, n_warmup=30, thinning=4, drop_idle=True, n_draws=40)
    sampled = tree(inference=[Svi(epochs=20, n_draws=20), nuts]).fit(X, y)
    gap = np.abs(sampled.predict_proba(X) - fitted.predict_proba(X))
    assert gap.mean() < 0.02  # the sd of a share of 150 rows is 0.03


def test_an_autoguide_knows_the_support_of_the_leaves(rows):
    X, y, _ = rows
    clf = tree(inference=Svi(guide="AutoNormal", epochs=5, n_draws=20)).fit(X, y)
    assert clf.predict_proba(X).shape == (300, 5)


def test_regressors_and_other_names_are_refused(rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match="leaf"):
        tree(leaf="linear").fit(X, y)
