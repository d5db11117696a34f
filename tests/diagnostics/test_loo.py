"""Leave-one-out scores against exact ones and ArviZ's; weights and score of a mixture."""

import itertools
import sys

import numpy as np
import pytest
import xarray as xr
from scipy.special import betaln, logsumexp
from scipy.stats import beta

from bayestree._utils import arviz_compat
from bayestree._utils.arviz_compat import arviz, major_version
from bayestree.diagnostics import Loo, elbo_weights, loo, loo_of, mixed_loo, stacking_weights

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

    def test_is_what_its_loo_returns(self):
        held = container(np.repeat(tosses()[0], 2, axis=1))
        mine, theirs = loo_of(held).to_arviz(), arviz().loo(held, pointwise=True)
        assert type(mine) is type(theirs)
        assert str(mine).splitlines()[0] == str(theirs).splitlines()[0]
        names = {"elpd", "elpd_i", "p"} if major_version() else {"elpd_loo", "loo_i", "p_loo"}
        for name in names | {"n_samples", "n_data_points", "good_k", "pareto_k"}:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-6)

    @pytest.mark.filterwarnings("ignore:The inplace keyword")
    def test_compares_scores_by_refits(self):
        noise = np.random.default_rng(0).normal(size=(2, 150))
        one, other = (Loo.of(-1 + row, row, n_folds=5, n_draws=200) for row in noise)
        given = {"one": one.to_arviz(), "other": other.to_arviz()}
        table = arviz().compare(given)
        first = "one" if one.elpd > other.elpd else "other"
        assert list(table.index) == sorted(given, key=lambda name: name != first)
        gap = one.compare(other)
        # ArviZ 0.x divides the variance by n, 1.x rounds for print
        assert abs(float(table["elpd_diff"].iloc[1])) == pytest.approx(abs(gap.elpd), abs=0.5)
        assert float(table["dse"].iloc[1]) == pytest.approx(gap.se, rel=0.05)
        assert "200 posterior samples" in str(given["one"]) or "5-fold" in str(given["one"])

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
    with pytest.raises(ValueError, match="1 of 12000 are NaN or inf"):
        loo(terms)


def test_the_model_of_these_tests():
    # the ratio of evidences is the exact leave-one-out score
    one = betaln(HEADS, TAILS) - betaln(HEADS - Y, TAILS - (1 - Y))
    np.testing.assert_allclose(one, EXACT)


def densities(n=200, shift=(0.0, 0.2, -0.1), seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 1)) + np.array(shift) + 0.5 * rng.normal(size=(n, len(shift)))


def total(scores, weights, prior_rows=0.0):
    weights = np.asarray(weights)
    prior = prior_rows * np.log(weights).sum() if prior_rows else 0.0
    with np.errstate(divide="ignore"):
        return logsumexp(scores + np.log(weights), axis=1).sum() + prior


@pytest.mark.parametrize("prior_rows", [0.0, 5.0])
@pytest.mark.parametrize("shift", [(0.0, 0.2, -0.1), (0.0, 0.0, -3.0)])
def test_no_weights_of_a_grid_score_higher(shift, prior_rows):
    scores = densities(shift=shift)
    best = total(scores, found := stacking_weights(scores, prior_rows=prior_rows), prior_rows)
    assert found.sum() == pytest.approx(1)
    inner = range(1, 50)
    grid = [
        np.array([a, b, 50 - a - b]) / 50 for a, b in itertools.product(inner, inner) if a + b < 50
    ]
    assert best > max(total(scores, one, prior_rows) for one in grid) - 1e-4
    near = min(grid, key=lambda one: np.abs(one - found).sum())
    highest = max(grid, key=lambda one: total(scores, one, prior_rows))
    # the objective is flat at its top: its curvature is that of some 200 rows
    assert np.abs(near - highest).max() <= 0.1


@pytest.mark.parametrize("prior_rows", [0.0, 5.0])
@pytest.mark.parametrize("second", [0.0, 0.05, 1.0, -np.inf])
def test_the_best_of_all_mixtures_of_two(second, prior_rows):
    """A grid of 20,001 mixtures, whose best one is the highest to 1e-6 nats or so."""
    scores = densities(60, shift=(0.0, 0.0))
    scores[:, 1] = scores[:, 0] + second * (scores[:, 1] - scores[:, 0] - 0.02)
    if second == -np.inf:  # a quarter of the rows exclude one model
        scores[:, 1] = np.where(np.arange(60) % 4, scores[:, 0] + 0.3, -np.inf)
    share = np.linspace(0, 1, 20_001)[:, None, None]
    with np.errstate(divide="ignore"):
        each = logsumexp(scores + np.log(np.concatenate([share, 1 - share], axis=2)), axis=2)
        prior = prior_rows * np.log(share * (1 - share)) if prior_rows else 0 * share
    found = stacking_weights(scores, prior_rows=prior_rows)
    assert total(scores, found, prior_rows) > (each.sum(axis=1) + prior[:, 0, 0]).max() - 1e-6


@pytest.mark.parametrize("prior_rows", [0.0, 5.0])
@pytest.mark.parametrize("kind", ["nearly copies", "unneeded", "flat", "many", "excluding"])
def test_the_score_is_the_highest_after_few_steps(kind, prior_rows, monkeypatch):
    """By the bound on the gap: max_u (u - w) . g, g the gradient of the score.

    EM takes thousands of steps in most of these cases.
    """
    monkeypatch.setattr(sys.modules["bayestree.diagnostics.loo"], "MAX_STEPS", 40)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2000, 4))
    if kind == "nearly copies":
        scores[:, 3] = scores[:, 0] + 1e-3 * rng.normal(size=2000)
    elif kind == "unneeded":  # a copy that is slightly worse
        scores[:, 3] = scores[:, 0] - 1e-6
    elif kind == "flat":
        scores *= 0.01
        scores -= np.log(np.exp(scores).mean(axis=0))
    elif kind == "many":
        scores = 0.3 * rng.normal(size=(500, 40))
    else:
        scores[:1999][rng.random((1999, 4)) < 0.3] = -np.inf
        scores = scores[np.isfinite(scores).any(axis=1)]
    found = stacking_weights(scores, prior_rows=prior_rows)
    density = np.exp(scores - scores.max(axis=1, keepdims=True))
    gradient = (density / (density @ found)[:, None]).sum(axis=0)
    if prior_rows:
        gradient += prior_rows / found
    # the last rounding of the weights adds to the limit of 1e-6
    assert gradient.max() - (len(scores) + len(found) * prior_rows) < 1.1e-6
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter", "ignore:The inplace keyword")
def test_the_weights_are_those_of_arviz():
    """ArviZ maximises the same score, to a tolerance of its own."""
    if major_version() > 0:
        pytest.skip("the function of ArviZ 1.x has other arguments")
    rng = np.random.default_rng(0)
    y = rng.normal(size=(1, 1, 80))
    models = {}
    for name, centre in {"a": 0.0, "b": 0.5, "c": -0.8}.items():
        mean = rng.normal(centre, 0.1, size=(2, 200, 1))
        models[name] = -0.5 * (y - mean) ** 2
    found = stacking_weights(np.stack([loo(one).elpd_row for one in models.values()], axis=1))
    data = {
        name: arviz().from_dict(posterior={"m": one[..., 0]}, log_likelihood={"y": one})
        for name, one in models.items()
    }
    theirs = arviz().compare(data, ic="loo", method="stacking")["weight"]
    np.testing.assert_allclose(found, [theirs[name] for name in models], atol=0.02)


def test_a_prior_of_many_rows_makes_the_weights_equal():
    scores = densities(shift=(0.0, -4.0))
    alone, shared = (stacking_weights(scores, prior_rows=rows) for rows in (0.0, 1e6))
    assert alone[0] > 0.9
    np.testing.assert_allclose(shared, 0.5, atol=1e-3)


def test_a_weight_is_a_number_of_equal_rows():
    scores, rows = densities(30), np.arange(30) % 4
    np.testing.assert_allclose(
        stacking_weights(scores, row_weights=rows, prior_rows=2),
        stacking_weights(np.repeat(scores, rows, axis=0), prior_rows=2),
    )
    assert stacking_weights(scores, row_weights=np.zeros(30)).tolist() == [1 / 3] * 3
    for bad in (-np.ones(30), np.ones(29), np.full(30, np.nan)):
        with pytest.raises(ValueError, match="row_weights must be 30 finite numbers"):
            stacking_weights(scores, row_weights=bad)


def test_equal_models_have_equal_weights():
    np.testing.assert_allclose(stacking_weights(np.zeros((10, 4))), 0.25)


def test_a_row_that_a_model_excludes_rules_it_out_for_that_row_alone():
    scores = np.array([[0.0, -np.inf], [-np.inf, 0.0], [0.0, -np.inf]])
    np.testing.assert_allclose(stacking_weights(scores), [2 / 3, 1 / 3], atol=1e-3)


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (np.zeros(3), {}, "shape"),
        (np.zeros((0, 2)), {}, "shape"),
        (np.array([[0.0, np.nan]]), {}, r"rows \[0\]"),
        (np.array([[0.0, 0.0], [-np.inf, -np.inf]]), {}, r"rows \[1\]"),
        (np.zeros((3, 2)), {"prior_rows": -1.0}, "prior_rows must be 0 or more"),
    ],
)
def test_invalid_scores_are_refused(scores, options, message):
    with pytest.raises(ValueError, match=message):
        stacking_weights(scores, **options)


def test_weights_of_bounds():
    np.testing.assert_allclose(elbo_weights([-1000.0, -1000.0 + np.log(3)]), [0.25, 0.75])


def test_the_score_of_a_mixture():
    rng = np.random.default_rng(1)
    terms = [rng.normal(-1, 0.3, size=(1, 100, 30)) for _ in range(3)]
    each = [loo(one) for one in terms]
    weights = np.array([0.5, 0.5, 0.0])
    found = mixed_loo(each, weights)
    expected = np.log((np.exp(each[0].elpd_row) + np.exp(each[1].elpd_row)) / 2)
    np.testing.assert_allclose(found.elpd_row, expected)
    assert found.elpd == pytest.approx(expected.sum())
    pooled = np.concatenate(terms[:2], axis=1)  # equal weights of equally many draws
    fitted = logsumexp(pooled[0], axis=0) - np.log(200)
    assert found.p_loo == pytest.approx(fitted.sum() - expected.sum())
    np.testing.assert_array_equal(found.k, np.maximum(each[0].k, each[1].k))
    assert found.n_draws == 200
    assert "200 draws" in str(found)


def test_the_score_of_a_mixture_by_hand():
    """p(y) is .25 * .5 + .75 * .1 = .2 and .25 * .2 + .75 * .4 = .35; the first counts thrice."""
    weights, p = np.array([3.0, 1.0]), np.array([[0.5, 0.2], [0.1, 0.4]])
    each = [Loo.of(weights * np.log(one), weights * np.log(2 * one)) for one in p]
    found = mixed_loo(each, [0.25, 0.75], row_weights=weights)
    np.testing.assert_allclose(found.elpd_row, [3 * np.log(0.2), np.log(0.35)])
    assert found.elpd == pytest.approx(np.log(0.2**3 * 0.35))
    assert found.p_loo == pytest.approx(4 * np.log(2))


def test_other_rows_are_refused():
    with pytest.raises(ValueError, match="same rows"):
        mixed_loo([loo(np.zeros((1, 40, n))) for n in (3, 4)], [0.5, 0.5])
