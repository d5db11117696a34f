"""The trace of the bound, and rank histograms of simulation-based calibration."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from scipy.stats import binom

from bayestree import plots
from tests.plots.cases import drawn


def posterior(trace, **stats):
    return SimpleNamespace(inference="svi", stats={"elbo": np.asarray(trace), **stats})


def test_shows_every_estimate_and_the_bound_of_the_finished_fit():
    trace = -100 * np.exp(-np.arange(60) / 10) - 7
    fitted = SimpleNamespace(posterior_=posterior(trace, final_elbo=np.array(-6.5)))
    ax = plots.elbo(fitted)
    drawn(ax)
    estimate, middle, final = ax.lines
    np.testing.assert_array_equal(estimate.get_ydata(), trace)
    np.testing.assert_array_equal(estimate.get_xdata(), np.arange(1, 61))
    np.testing.assert_array_equal(final.get_ydata(), [-6.5, -6.5])
    # of three estimates, the middle one of a rising trace is the second
    np.testing.assert_array_equal(middle.get_ydata()[1:-1], trace[1:-1])


def test_a_single_bad_estimate_neither_bends_the_median_nor_the_axis():
    trace = np.full(100, -50.0) + np.random.default_rng(0).normal(size=100)
    trace[70] = -1e6
    ax = plots.elbo(posterior(trace))
    assert ax.lines[1].get_ydata().min() > -53
    assert ax.get_ylim()[0] > -56


def test_the_axis_holds_all_but_the_first_tenth():
    trace = np.concatenate([np.full(10, -1e5), np.linspace(-900, -300, 90)])
    low, high = plots.elbo(posterior(trace)).get_ylim()
    assert -1100 < low < -880
    assert high > -300


def test_the_axis_counts_epochs_or_steps():
    assert plots.elbo(posterior(np.zeros(9))).get_xlabel() == "epoch"
    assert plots.elbo(posterior(np.zeros(9), n_steps=np.array(9))).get_xlabel() == "step"


@pytest.mark.parametrize("n_epochs", [1, 2, 5])
def test_draws_short_and_level_traces(n_epochs):
    ax = plots.elbo(posterior(np.full(n_epochs, -3.0)), ax=Figure().subplots())
    drawn(ax)
    low, high = ax.get_ylim()
    assert low < -3 < high


def test_names_the_remedy_where_there_is_no_bound():
    fitted = SimpleNamespace(posterior_=SimpleNamespace(inference="map", stats={}))
    with pytest.raises(ValueError, match=r"inference='map'.*fit with inference='svi'"):
        plots.elbo(fitted)
    with pytest.raises(TypeError, match="fitted estimator or a Posterior, got int"):
        plots.elbo(3)


def bars(ax):
    return ax.containers[0].patches


def steps(ax):
    return [patch for patch in ax.patches if isinstance(patch, StepPatch)]


def test_bars_count_ranks_between_whole_numbers():
    ax = plots.ranks([0, 0, 1, 4, 5, 9, 9, 9], 9, n_bins=5)
    drawn(ax)
    assert [bar.get_height() for bar in bars(ax)] == [3, 0, 2, 0, 3]
    assert [bar.get_x() for bar in bars(ax)] == [-0.5, 1.5, 3.5, 5.5, 7.5]


def test_the_band_is_binomial():
    found = np.arange(300) % 100
    ax = plots.ranks(found, 99, n_bins=20)
    band, expected, *_ = steps(ax)
    values, _, baseline = band.get_data()
    np.testing.assert_array_equal(values, binom.ppf(0.995, 300, 0.05))
    np.testing.assert_array_equal(baseline, binom.ppf(0.005, 300, 0.05))
    np.testing.assert_allclose(expected.get_data().values, 15)


def test_bars_outside_the_band_are_hatched():
    uniform = np.arange(300) % 100
    assert not any(bar.get_hatch() for bar in bars(plots.ranks(uniform, 99)))
    heaped = np.concatenate([uniform, np.full(40, 99)])
    hatched = [bool(bar.get_hatch()) for bar in bars(plots.ranks(heaped, 99))]
    assert hatched == [False] * 19 + [True]


@pytest.mark.parametrize(
    ("n_simulations", "n_draws", "n_bins"),
    [(1000, 99, 20), (1000, 50, 17), (30, 99, 5), (3, 99, 1), (1000, 100, 20), (1000, 4, 5)],
)
def test_default_bins_are_equal_where_that_costs_few(n_simulations, n_draws, n_bins):
    found = np.zeros(n_simulations, dtype=int)
    assert len(bars(plots.ranks(found, n_draws))) == n_bins


def test_wider_bins_are_expected_to_hold_more():
    ax = plots.ranks(np.zeros(1010, dtype=int), 100, n_bins=20)
    expected = steps(ax)[1].get_data().values
    assert sorted(set(expected.round(6))) == [50, 60]
    assert sum(bar.get_height() for bar in bars(ax)) == 1010


@pytest.mark.parametrize(
    ("ranks", "more", "message"),
    [
        ([], {}, "one or more, got"),
        ([[1]], {}, "shape"),
        ([0.5], {}, "integers from 0 to n_draws = 9"),
        ([10], {}, "integers"),
        ([-1], {}, "integers"),
        ([1], {"n_bins": 11}, "n_bins must lie between 1 and n_draws \\+ 1 = 10, got 11"),
        ([1], {"level": 1.0}, "level must lie between 0 and 1"),
    ],
)
def test_refuses_what_are_not_ranks(ranks, more, message):
    with pytest.raises(ValueError, match=message):
        plots.ranks(ranks, 9, **more)
