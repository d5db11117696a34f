"""Weights of posteriors that are mixed, and the score of their mixture."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from bayestree._utils.arviz_compat import arviz, major_version
from bayestree.diagnostics import elbo_weights, loo, mixed_loo, stacking, stacking_weights


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
    monkeypatch.setattr(stacking, "MAX_STEPS", 40)
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


def test_other_rows_are_refused():
    with pytest.raises(ValueError, match="same rows"):
        mixed_loo([loo(np.zeros((1, 40, n))) for n in (3, 4)], [0.5, 0.5])
