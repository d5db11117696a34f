"""Polytope sizes, against direct sums."""

import subprocess
import sys

import numpy as np
import pytest

from bayestree.diagnostics import polytope_size
from bayestree.diagnostics.polytopes import needed, node_reach
from bayestree.diagnostics.size import size_of

LOG2 = np.log(2.0)


def draws_of(rng, chains=2, draws=3, nodes=2, experts=4, features=3):
    return {
        "log_weight": rng.normal(size=(chains, draws, nodes, experts)),
        "intercept": rng.normal(size=(chains, draws, nodes, experts)),
        "hyperplane": rng.normal(size=(chains, draws, nodes, experts, features)),
    }


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    return draws_of(rng), X, [np.arange(50), np.arange(0, 50, 3)]


class TestPolytopeSize:
    def test_direct_sums(self, case):
        draws, X, rows = case
        size = polytope_size(draws, X, rows)
        for chain, draw, node in np.ndindex(2, 3, 2):
            one = (chain, draw, node)
            activation = X[rows[node]] @ draws["hyperplane"][one].T + draws["intercept"][one]
            votes = (np.exp(draws["log_weight"][one]) * np.log1p(np.exp(activation))).max(axis=0)
            assert size.weights[one] == (votes >= 0.01 * LOG2).sum()
            assert size.effective[one] == pytest.approx(votes.sum() ** 2 / (votes**2).sum())
            low, high = X[rows[node]].min(axis=0), X[rows[node]].max(axis=0)
            split = (
                np.exp(draws["log_weight"][one]),
                draws["hyperplane"][one],
                draws["intercept"][one],
            )
            assert size.facets[one] == len(needed(*split, low, high))
            beyond = split[0] * np.log1p(np.exp(activation)) > LOG2
            alone = beyond & (beyond.sum(axis=1) == 1)[:, None]
            cutting = alone.mean(axis=0)[needed(*split, low, high)] >= 0.01
            assert size.cutting[one] == cutting.sum()

    def test_only_the_rows_of_the_node_count(self, case):
        draws, X, rows = case
        far = np.vstack([X, np.full((1, 3), 1e3)])
        same = polytope_size(draws, far, rows)
        np.testing.assert_array_equal(same.facets, polytope_size(draws, X, rows).facets)
        np.testing.assert_array_equal(same.rows, [50, 17])

    def test_a_dead_expert_counts_by_no_measure(self, case):
        draws, X, rows = case
        draws["log_weight"][..., 1:] = -800.0
        size = polytope_size(draws, X, rows)
        assert (size.weights == 1).all()
        assert (size.facets <= 1).all()
        np.testing.assert_allclose(size.effective, 1.0)

    def test_equal_votes_are_all_effective(self, case):
        draws, X, rows = case
        for values in draws.values():
            values[...] = values[:, :, :, :1]
        size = polytope_size(draws, X, rows)
        np.testing.assert_allclose(size.effective, 4.0)
        assert (size.facets <= 1).all()

    @pytest.mark.parametrize(("n_cut", "counted"), [(9, 0), (10, 1), (11, 1)])
    def test_a_facet_that_cuts_off_a_hundredth_of_the_rows(self, n_cut, counted):
        X = np.linspace(0.0, 1.0, 1000)[:, None]
        border = (X[-n_cut] + X[-n_cut - 1]) / 2  # x <= border is the left side
        draws = {"hyperplane": np.ones((1, 1, 1, 1, 1)), "intercept": -border.reshape(1, 1, 1, 1)}
        size = polytope_size(draws, X, [np.arange(1000)])
        assert size.facets.item() == 1
        assert size.cutting.item() == counted

    def test_a_corner_of_the_box_without_rows(self):
        """x1 + x2 <= 1.5 cuts off a corner of the box of rows on the other diagonal."""
        X = np.column_stack([np.linspace(0, 1, 200), np.linspace(1, 0, 200)])
        plane, intercept = np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([-1.5, -0.8])
        draws = {"hyperplane": plane[None, None, None], "intercept": intercept[None, None, None]}
        size = polytope_size(draws, X, [np.arange(200)])
        assert (size.facets.item(), size.cutting.item()) == (2, 1)

    def test_a_prior_drawn_again_with_other_numbers_is_not_measured(self, case):
        draws, X, rows = case
        prior = {site: values[0, :, 0] for site, values in draws.items()}
        reach = node_reach(draws, X, rows, np.arange(2), prior=prior)
        other = prior | {"intercept": prior["intercept"] + 1}
        size = size_of(draws, reach, "ab", prior=other)
        assert not size.has_prior
        assert "prior_mean" not in size.to_frame()
        with pytest.raises(ValueError, match="needs votes over training rows"):
            size.prior_probabilities()

    def test_a_variational_fit_says_so_in_its_first_line(self, case):
        draws, X, rows = case
        reach = node_reach(draws, X, rows, np.arange(2))
        first, second = str(size_of(draws, reach, "ab", variational=True)).splitlines()[:2]
        assert "variational fit" in first
        assert "inference='mcmc'" in second
        assert "variational" not in str(size_of(draws, reach, "ab"))

    def test_splits_without_weights(self, case):
        draws, X, rows = case
        weighted = draws | {"log_weight": np.zeros_like(draws["log_weight"])}
        del draws["log_weight"]
        plain, unit = polytope_size(draws, X, rows), polytope_size(weighted, X, rows)
        np.testing.assert_array_equal(plain.facets, unit.facets)
        np.testing.assert_array_equal(plain.weights, unit.weights)

    def test_summary(self, case):
        size = polytope_size(*case, labels=["root", "L"])
        assert size.headline == "cutting"
        table = size.probabilities()
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
        np.testing.assert_array_equal(
            table @ np.arange(table.shape[1]), size.cutting.reshape(-1, 2).mean(axis=0)
        )
        assert table[0, size.mode()[0]] == table[0].max()
        interval = size.interval(0.9)
        assert (interval[:, 0] <= size.mode()).all()
        assert (size.mode() <= interval[:, 1]).all()
        frame = size.to_frame()
        assert list(frame.index) == ["root", "L"]
        np.testing.assert_array_equal(frame["facets"], size.mode())
        np.testing.assert_allclose(frame["box_mean"], size.facets.mean(axis=(0, 1)))
        assert "root" in str(size)
        assert "Counted: facets that alone cut off at least 1 % of the node's rows" in str(size)
        assert size.probabilities("effective").sum() == pytest.approx(2)
        assert not [name for name in map(str, frame) if name.startswith("prior")]

    def test_max_draws_takes_some_of_each_chain(self, case):
        _draws, _X, _rows = case
        whole, part = polytope_size(*case), polytope_size(*case, max_draws=4)
        assert part.facets.shape == (2, 2, 2)
        np.testing.assert_array_equal(part.facets, whole.facets[:, [0, 2]])
        np.testing.assert_array_equal(part.weights, whole.weights[:, [0, 2]])

    def test_the_prior_in_the_same_boxes(self, case):
        draws, X, rows = case
        prior = {site: values[0, :, 0] for site, values in draws.items()}
        size = polytope_size(draws, X, rows, prior=prior)
        np.testing.assert_array_equal(size.prior.facets[:, 0], size.facets[0, :, 0])
        np.testing.assert_array_equal(size.prior.cutting[:, 0], size.cutting[0, :, 0])
        np.testing.assert_array_equal(size.prior.weights[:, 0], size.weights[0, :, 0])
        np.testing.assert_allclose(size.prior.effective[:, 0], size.effective[0, :, 0])
        for draw in range(3):  # the other node, whose rows are others
            low, high = X[rows[1]].min(axis=0), X[rows[1]].max(axis=0)
            one = [prior[s][draw] for s in ("log_weight", "hyperplane", "intercept")]
            expected = len(needed(np.exp(one[0]), one[1], one[2], low, high))
            assert size.prior.facets[draw, 1] == expected
        table = size.prior_probabilities()
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
        np.testing.assert_allclose(
            table @ np.arange(table.shape[1]), size.prior.cutting.mean(axis=0)
        )
        frame = size.to_frame()
        np.testing.assert_allclose(frame["prior_mean"], size.prior.cutting.mean(axis=0))
        assert (frame["prior_low"] <= frame["prior_high"]).all()
        assert (frame["prior_low"] < frame["prior_high"]).any()
        middle = np.median(size.prior.cutting, axis=0)  # of three draws, within any small interval
        for end in ("prior_low", "prior_high"):
            np.testing.assert_array_equal(size.to_frame(0.2)[end], middle)
        assert "prior_mean" not in size.to_frame(prior=False)
        assert polytope_size(draws, X, rows, prior=prior, max_prior_draws=2).prior.facets.shape == (
            2,
            2,
        )

    def test_the_prior_is_measured_when_it_is_asked_for(self, case, monkeypatch):
        prior = {site: values[0, :, 0] for site, values in case[0].items()}
        size = polytope_size(*case, prior=prior)
        calls = []
        monkeypatch.setattr(
            "bayestree.diagnostics.size.needed", lambda *a: calls.append(a) or np.arange(3)
        )
        str(size)
        size.to_frame(prior=False)
        assert calls == []
        size.prior_probabilities()
        size.prior_probabilities("facets")
        assert len(calls) == 6

    def test_what_is_not_known_is_refused_with_a_remedy(self, case):
        draws, X, rows = case
        size = polytope_size(draws, X, rows)
        with pytest.raises(ValueError, match="not given, or is improper"):
            size.prior_probabilities()
        with pytest.raises(ValueError, match="not given, or is improper"):
            size.to_frame(prior=True)
        with pytest.raises(ValueError, match=r"leaves in use were not counted.* fit it again"):
            size.leaf_probabilities()
        prior = {site: values[0, :, 0] for site, values in draws.items()}
        reach = node_reach(draws, X, rows, np.arange(2))._replace(cut=None)
        old = size_of(draws, reach, "ab", prior=prior)
        assert old.headline == "facets"
        assert "Counted: facets in the box" in str(old)
        assert "box_mean" not in old.to_frame()
        np.testing.assert_allclose(old.to_frame()["facets_mean"], old.facets.mean(axis=(0, 1)))
        with pytest.raises(
            ValueError, match=r"each facet cuts off were not counted.* fit it again"
        ):
            old.median("cutting")
        assert old.prior_probabilities().shape[0] == 2
        with pytest.raises(ValueError, match=r"needs votes over training rows.* fit it again"):
            old.prior_probabilities("weights")
        with pytest.raises(ValueError, match="max_prior_draws must be 1 or more, got 0"):
            polytope_size(draws, X, rows, prior=prior, max_prior_draws=0)

    def test_leaves_in_use(self, case):
        draws, X, rows = case
        leaves = np.array([[2, 3, 3], [3, 3, 1]])
        reach = node_reach(draws, X, rows, np.arange(2))._replace(leaves=leaves)
        size = size_of(draws, reach, ["root", "L"])
        np.testing.assert_allclose(size.leaf_probabilities(), [0, 1 / 6, 1 / 6, 4 / 6])
        assert "Leaves in use by a draw: 3 (1 to 3)" in str(size)
        some = size_of(draws, reach, ["root", "L"], max_draws=4)
        np.testing.assert_array_equal(some.n_leaves, leaves[:, [0, 2]])

    def test_a_tree_without_a_split(self):
        size = polytope_size(draws_of(np.random.default_rng(0), nodes=0), np.zeros((4, 3)), [])
        assert size.facets.shape == (2, 3, 0)
        assert len(size.to_frame()) == 0
        assert "without a split" in str(size)
        assert size.mode().shape == (0,)

    def test_bad_input(self, case):
        draws, X, rows = case
        with pytest.raises(ValueError, match="2 nodes, got 1"):
            polytope_size(draws, X, rows[:1])
        with pytest.raises(ValueError, match=r"must not be empty for node 1"):
            polytope_size(draws, X, [rows[0], rows[1][:0]])
        with pytest.raises(ValueError, match=r"X must have shape \(n, 3\)"):
            polytope_size(draws, X[:, :2], rows)
        with pytest.raises(ValueError, match="max_draws must be 1 or more, got 0"):
            polytope_size(draws, X, rows, max_draws=0)
        with pytest.raises(ValueError, match="labels must name 2 nodes, got 1"):
            polytope_size(draws, X, rows, labels=["root"])
        with pytest.raises(ValueError, match="level must lie between 0 and 1, got 1"):
            polytope_size(draws, X, rows).interval(1)


def test_needs_no_torch():
    code = "import bayestree.diagnostics, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
