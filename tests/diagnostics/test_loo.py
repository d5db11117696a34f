"""Leave-one-out scores against exact ones, and against ArviZ's."""

import numpy as np
import pytest
import xarray as xr
from scipy.special import betaln
from scipy.stats import beta

from bayestree._utils import arviz_compat
from bayestree.diagnostics import loo, loo_of

# Tosses of a coin under a Beta(1, 1) prior: the posterior is Beta(10, 4).
Y = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1])
HEADS, TAILS = 1 + Y.sum(), 1 + (1 - Y).sum()
EXACT = np.log(np.where(Y, HEADS - 1, TAILS - 1) / (HEADS + TAILS - 1))


def tosses(a=HEADS, b=TAILS, draws=1000, seed=0):
    """Log-likelihood (4 chains) of each toss, and log_p, log_q, for draws of Beta(a, b)."""
    theta = np.random.default_rng(seed).beta(a, b, size=(4, draws // 4))
    terms = np.where(Y, np.log(theta)[..., None], np.log1p(-theta)[..., None])
    return terms, terms.sum(axis=-1) + 7.0, beta.logpdf(theta, a, b)


def mean_and_error(scores):
    scores = np.array(scores)
    return scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(scores))


class TestExact:
    def test_draws_of_the_posterior(self):
        found = [loo(tosses(seed=seed)[0]).elpd for seed in range(20)]
        mean, error = mean_and_error(found)
        assert mean == pytest.approx(EXACT.sum(), abs=4 * error)

    def test_draws_of_an_approximation(self):
        wrong = [tosses(6, 4, seed=seed) for seed in range(20)]
        mean, error = mean_and_error([loo(t, log_p=p, log_q=q).elpd_row for t, p, q in wrong])
        np.testing.assert_array_less(np.abs(mean - EXACT), 4 * error)
        # and without the correction they miss it
        plain, spread = mean_and_error([loo(t).elpd for t, _, _ in wrong])
        assert abs(plain - EXACT.sum()) > 10 * spread

    def test_the_exact_approximation_needs_no_correction(self):
        terms, log_p, log_q = tosses()
        one, other = loo(terms), loo(terms, log_p=log_p, log_q=log_q)
        np.testing.assert_allclose(other.elpd_row, one.elpd_row, rtol=1e-9)
        assert other.corrected
        assert not one.corrected

    def test_effective_parameters(self):
        # log p(y_i | y) - log p(y_i | y_-i), summed
        exact = np.log(np.where(Y, HEADS, TAILS) / (HEADS + TAILS)).sum() - EXACT.sum()
        mean, error = mean_and_error([loo(tosses(seed=seed)[0]).p_loo for seed in range(20)])
        assert mean == pytest.approx(exact, abs=4 * error)


class TestTails:
    def test_an_approximation_that_is_too_narrow(self):
        terms, log_p, log_q = tosses(100, 40)
        found = loo(terms, log_p=log_p, log_q=log_q)
        assert len(found.bad_rows) == len(Y)
        assert "Refit without the rows" in found.warning
        assert not found.trusted
        assert found.warning in " ".join(str(found).split())

    def test_a_row_that_decides_alone(self):
        # draws of N(0, 1 / 2); a row far away is a point of 1 / p with a heavy tail
        theta = np.random.default_rng(0).normal(scale=0.5**0.5, size=(4, 500))
        rows = np.array([0.1, -0.2, 9.0])
        found = loo(-0.5 * (rows - theta[..., None]) ** 2)
        np.testing.assert_array_equal(found.bad_rows, [2])
        assert "1 of 3 rows" in found.warning

    def test_a_good_fit_has_no_warning(self):
        found = loo(tosses()[0])
        assert found.warning == ""
        assert found.good_k == pytest.approx(2 / 3)
        assert found.to_frame()["good"].all()
        assert list(found.to_frame().columns) == ["elpd", "k", "good"]
        assert "12 rows, 1000 draws\n" in str(found)


class TestCompare:
    def test_rows_are_paired(self):
        one, other = loo(tosses()[0]), loo(tosses(seed=1)[0] - 0.5 * Y - 0.25)
        found = one.compare(other)
        assert found.elpd == pytest.approx(one.elpd - other.elpd)
        # the rows of one outcome have one term: 9 differences of 0.75, 3 of 0.25, nearly
        assert found.elpd == pytest.approx(9 * 0.75 + 3 * 0.25, abs=0.3)
        gaps = np.where(Y, 0.75, 0.25)
        assert found.se == pytest.approx(np.sqrt(12) * gaps.std(ddof=1), rel=0.2)
        assert found.n_bad == 0
        back = other.compare(one)
        assert (back.elpd, back.se) == pytest.approx((-found.elpd, found.se))

    def test_a_score_does_not_differ_from_itself(self):
        found = loo(tosses()[0])
        assert found.compare(found) == (0, 0, 0)

    def test_bad_rows_of_either_count_once(self):
        wrong = tosses(100, 40)
        bad = loo(wrong[0], log_p=wrong[1], log_q=wrong[2])
        good = loo(tosses()[0])
        for found in (bad.compare(good), good.compare(bad), bad.compare(bad)):
            assert found.n_bad == len(Y)
        assert "unreliable rows: 12" in str(bad.compare(good))
        assert "k too large" not in str(good.compare(good))

    def test_one_row_has_no_standard_error(self):
        found = loo(tosses()[0][..., :1])
        assert np.isnan(found.compare(found).se)

    def test_other_rows_are_refused(self):
        terms = tosses()[0]
        with pytest.raises(ValueError, match="the same rows: it has 11, this has 12"):
            loo(terms).compare(loo(terms[..., 1:]))


def container(terms):
    theta = np.exp(terms[..., 0])
    groups = {
        "posterior": xr.Dataset({"theta": (("chain", "draw"), theta)}),
        "log_likelihood": xr.Dataset({"obs": (("chain", "draw", "row"), terms)}),
    }
    return arviz_compat.container(groups, {})


class TestArviz:
    def test_equals_its_loo(self):
        terms, _, _ = tosses()
        terms = np.repeat(terms, 2, axis=1)  # every draw twice: half as many effective ones
        held = container(terms)
        found, theirs = loo_of(held), arviz_compat.arviz().loo(held, pointwise=True)
        new = arviz_compat.major_version() > 0
        assert found.elpd == pytest.approx(float(theirs.elpd if new else theirs.elpd_loo))
        unbiased = 1.0 if new else np.sqrt(12 / 11)
        assert found.se == pytest.approx(float(theirs.se) * unbiased)
        assert found.p_loo == pytest.approx(float(theirs.p if new else theirs.p_loo))
        np.testing.assert_allclose(found.k, theirs.pareto_k, rtol=1e-6)
        rows = theirs.elpd_i if new else theirs.loo_i
        np.testing.assert_allclose(found.elpd_row, rows, rtol=1e-9)

    def test_one_chain_counts_in_full(self):
        terms = np.repeat(tosses()[0][:1], 2, axis=1)
        np.testing.assert_array_equal(loo_of(container(terms)).k, loo(terms).k)

    def test_a_score_that_cannot_be_trusted_is_refused(self):
        far = np.random.default_rng(0).normal(scale=3, size=(4, 250, 20))
        found = loo(-0.5 * far**2)
        assert not found.trusted
        with pytest.raises(ValueError, match=r"fails: k is above .* method='kfold'"):
            loo_of(container(-0.5 * far**2))
        # one row of ten is inspected, not refused
        few = np.concatenate([-0.5 * far[..., :1] ** 2, np.zeros((4, 250, 9))], axis=2)
        assert loo_of(container(few)).trusted

    def test_modes_as_chains_are_of_earlier_versions(self):
        held = container(tosses()[0])
        groups = {name: arviz_compat.group(held, name) for name in arviz_compat.names(held)}
        groups["log_likelihood"] = groups["log_likelihood"].assign_coords(
            mode=("chain", [0, 0, 1, 1])
        )
        with pytest.raises(ValueError, match="earlier version"):
            loo_of(arviz_compat.container(groups, {}))

    def test_what_is_missing_is_named(self):
        with pytest.raises(ValueError, match="no variable 'y', only"):
            loo_of(container(tosses()[0]), "y")
        without = arviz_compat.container({"posterior": xr.Dataset()}, {})
        with pytest.raises(ValueError, match="no group 'log_likelihood'"):
            loo_of(without)


def test_bad_input():
    terms, log_p, log_q = tosses()
    with pytest.raises(ValueError, match=r"\(chain, draw, row\), got \(4, 250\)"):
        loo(terms[:, :, 0])
    with pytest.raises(ValueError, match="one draw is a point estimate"):
        loo(terms[:1, :1])
    with pytest.raises(ValueError, match="log_p and log_q belong together"):
        loo(terms, log_p=log_p)
    with pytest.raises(ValueError, match=r"must have shape \(4, 250\)"):
        loo(terms, log_p=log_p[:, :9], log_q=log_q[:, :9])
    terms[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="1 of 1000 are NaN or inf"):
        loo(terms)


def test_the_model_of_these_tests():
    # the ratio of evidences is the exact leave-one-out score
    one = betaln(HEADS, TAILS) - betaln(HEADS - Y, TAILS - (1 - Y))
    np.testing.assert_allclose(one, EXACT)
