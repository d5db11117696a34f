"""The trace of the bound."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

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
