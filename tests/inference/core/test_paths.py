"""What the caches of a chain say about rows is what the model says about each."""

import numpy as np
import pytest

from bayestree.inference.core.paths import draw_paths
from tests.inference.core.chains import CASES, chains_of, sites_of


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES)
class TestPaths:
    def test_likelihood_equals_that_of_the_model(self, parts):
        chains, data = chains_of(parts)
        expected = [
            float(chains.model.log_likelihood(sites_of(chains, c), *data)) for c in range(3)
        ]
        np.testing.assert_allclose(chains.log_likelihood(), expected, 1e-9)

    def test_reach_equals_that_of_the_model(self, parts):
        chains, data = chains_of(parts)
        for c, found in enumerate(chains.reach()):
            expected = chains.model.leaf_log_probs(sites_of(chains, c), data.X).T
            seen = expected.numpy() > -600
            np.testing.assert_allclose(np.log(found[seen]), expected.numpy()[seen], 1e-8, 1e-8)

    # one by one; given a median, which must be right for so few; by many medians
    @pytest.mark.parametrize("copies", [1, 10, 4000])
    def test_drawn_paths_follow_x_and_y(self, parts, copies):
        chains, data = chains_of(parts, n_chains=1)
        n, size, rng = len(data.X), 4000, np.random.default_rng(0)
        each, counts = np.empty((chains.n_leaves, n)), np.zeros((chains.n_leaves, n))
        for _ in range(size // copies):
            draw_paths(chains.rows, chains.each[0], np.full(n, copies), rng, each)
            counts += each
        joint = chains.reach()[0] * np.exp(chains.log_density[0] - chains.log_density[0].max(0))
        share = joint / joint.sum(0)
        error = np.sqrt(share * (1 - share) / size)
        # the largest of at most 80 z-scores; small counts follow a Poisson law
        assert (np.abs(counts / size - share) <= 4 * error + 6 / size).all()
        assert (counts.sum(0) == size).all()


@pytest.mark.parametrize("certain", [False, True])  # whether all rows go right at each node
def test_the_number_of_copies_takes_no_time(certain):
    chains, data = chains_of(CASES["complete"], n_chains=1)
    if certain:
        chains.each[0].branches[:] = np.array([0.0, 1.0])[:, None, None]
    counts = np.empty((chains.n_leaves, len(data.X)))
    copies, rng = np.full(len(data.X), 10**15), np.random.default_rng(0)  # one by one: for days
    draw_paths(chains.rows, chains.each[0], copies, rng, counts)
    assert (counts.sum(axis=0) == 10**15).all()
    assert not certain or (counts[-1] == 10**15).all()
