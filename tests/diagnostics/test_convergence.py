"""Verdicts: each check passes on sound draws and fails on a planted problem."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayestree.diagnostics import Check, Convergence, Evidence, HeldOut, check_convergence


def dataset(chains=4, draws=400, rho=0.0, seed=0, **shifted):
    """Label-free quantities of stationary AR(1) chains; ``name=shift`` moves the first chain."""
    rng = np.random.default_rng(seed)

    def chain(*shape):
        x = rng.normal(size=(chains, draws, *shape))
        for t in range(1, draws):
            x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
        return x

    values = {
        "lp": (("chain", "draw"), chain()),
        "p_right": (("chain", "draw", "node", "point"), 1 / (1 + np.exp(-chain(2, 3)))),
        "effective": (("chain", "draw", "node"), chain(2)),
    }
    for name, shift in shifted.items():
        values[name][1][(0, slice(None), *[-1] * (len(values[name][0]) - 2))] += shift
    return xr.Dataset(values, coords={"node": ["root", "L"]})


def nuts(chains=4, draws=400, seed=0):
    """Records of a sampler that has nothing to complain of."""
    return {
        "diverging": np.zeros((chains, draws), dtype=bool),
        "reached_max_treedepth": np.zeros((chains, draws), dtype=bool),
        "energy": np.random.default_rng(seed).normal(size=(chains, draws)),
    }


def bound(gain=0.0, error=0.3, final=-100.0):
    """What a variational fit records of its bound."""
    found = {"final_elbo": final, "elbo_gain": gain, "elbo_gain_error": error}
    return {"elbo": np.linspace(-900.0, final, 50)} | {k: np.array(v) for k, v in found.items()}


class TestChains:
    def test_chains_that_agree(self):
        found = check_convergence(dataset(), nuts())
        assert [check.verdict for check in found.checks] == ["ok"] * 6
        assert found.converged
        assert found.faithful
        assert found.not_judged == ()
        assert list(found.quantities.index) == ["lp", "p_right", "effective"]
        assert (found.quantities["vary"] == [1, 6, 2]).all()

    def test_a_chain_elsewhere_is_named(self):
        quantities = dataset(p_right=0.9)
        quantities["p_right"][..., 0, :2] = 1.0  # what does not vary counts in its place
        found = check_convergence(quantities, {})
        assert not found.converged
        assert found["r_hat"].verdict == "failed"
        assert "for p_right[node L, point 2]" in found["r_hat"].says
        assert found.quantities.loc["p_right", "vary"] == 4
        assert "Run longer" in found["r_hat"].remedy

    def test_a_small_disagreement_is_doubtful(self):
        found = check_convergence(dataset(draws=2000, effective=0.3), {})
        assert found["r_hat"].verdict == "doubtful"
        assert found.converged

    def test_slow_chains_have_few_effective_draws(self):
        # (1 - rho) / (1 + rho) = 1/19 of 1,600 draws: 84, where 400 are wanted, 100 at least
        found = check_convergence(dataset(rho=0.9), {})
        assert found["ess_bulk"].verdict == "failed"
        assert found["ess_bulk"].threshold == 400
        times = int(np.ceil(400 / found["ess_bulk"].value))
        assert f"about {times} times as long" in found["ess_bulk"].remedy
        stuck = check_convergence(dataset(p_right=50.0), {})
        assert "address R-hat first" in stuck["ess_bulk"].remedy

    def test_what_does_not_vary_is_left_out(self):
        quantities = dataset()
        quantities["p_right"][...] = 1 - 1e-9 * np.random.default_rng(0).uniform(
            size=quantities["p_right"].shape
        )
        quantities["p_right"][0] -= 1e-8  # saturated in all chains, whatever the last digits
        found = check_convergence(quantities, {})
        assert found.converged
        assert "p_right" not in found.quantities.index

    def test_chains_that_are_stuck_apart(self):
        quantities = dataset()[["p_right"]]
        quantities["p_right"][...] = np.linspace(0, 1, 4)[:, None, None, None]
        found = check_convergence(quantities, {})
        assert found["r_hat"].value > 1e6
        assert found["r_hat"].verdict == "failed"

    def test_one_chain(self):
        found = check_convergence(dataset(chains=1, draws=2000), nuts(chains=1))
        assert "the quarters of the chain agree" in found["r_hat"].says
        assert "four or more" in found.not_judged[0]

    def test_too_few_draws(self):
        found = check_convergence(dataset(draws=7), {})
        assert found.checks == ()
        assert "8 draws" in found.not_judged[0]
        assert not found.converged


class TestSampler:
    @pytest.mark.parametrize(
        ("count", "verdict"), [(1, "doubtful"), (16, "doubtful"), (17, "failed")]
    )
    def test_divergences(self, count, verdict):
        stats = nuts()
        stats["diverging"][0, :count] = True
        found = check_convergence(dataset(), stats)["divergences"]
        assert (found.value, found.verdict) == (count, verdict)
        assert "target_acceptance" in found.remedy

    def test_tree_depth(self):
        stats = nuts()
        stats["reached_max_treedepth"][:2] = True
        found = check_convergence(None, stats)["tree_depth"]
        assert (found.value, found.verdict) == (0.5, "failed")

    def test_energy(self):
        stats = nuts()
        stats["energy"][1] = np.cumsum(stats["energy"][1])  # a random walk
        found = check_convergence(None, stats)["e_bfmi"]
        assert found.verdict == "failed"
        assert "worst chain" in found.says


class TestVariational:
    def fit(self, sd=0.0, n=1000):
        log_q = np.random.default_rng(3).normal(size=(1, n))
        log_p = log_q + sd * np.random.default_rng(4).normal(size=(1, n))
        return bound() | {"log_p": log_p, "log_q": log_q}

    def test_a_guide_that_is_the_posterior(self):
        found = check_convergence(dataset(chains=1), self.fit())
        assert found["pareto_k"].value == -np.inf
        assert found.converged
        assert found.faithful
        assert found.not_judged == ()  # what is so for every variational fit is not repeated
        assert found.quantities.empty

    def test_a_guide_that_is_not(self):
        found = check_convergence(dataset(chains=1), self.fit(sd=5.0))
        assert found["pareto_k"].value > 0.7
        assert (found["pareto_k"].verdict, found["pareto_k"].remedy) == ("info", "")
        assert found["pareto_k"].about == "approximation"
        # it says nothing against the predictions, and is no check that a fit could fail
        assert found.settled == "yes"
        assert found.faithful is False
        assert found.predictions.startswith("can be used")
        assert found.intervals.startswith("approximate")
        assert "inference='nuts'" in found.intervals

    def test_the_sign(self):
        stats = self.fit()
        heavy = 0.9 * np.random.default_rng(0).exponential(size=(1, 1000))
        over = check_convergence(None, stats | {"log_p": stats["log_q"] - heavy})
        under = check_convergence(None, stats | {"log_p": stats["log_q"] + heavy})
        assert over["pareto_k"].verdict == "ok"  # the guide is wider than the posterior
        assert (over.faithful, under.faithful) == (True, False)

    def test_few_draws(self):
        short = check_convergence(None, self.fit(sd=1.0, n=20))
        assert "Pareto k needs at least 30 draws" in short.not_judged[-1]
        assert short.faithful is None

    def test_a_small_k_of_few_draws_proves_nothing(self):
        """Exponential ratios of scale 0.9 have k = 0.9; of 50 draws it may come out small."""
        stats = self.fit()
        found = []
        for seed in range(40):
            heavy = 0.9 * np.random.default_rng(seed).exponential(size=(1, 50))
            few = {name: stats[name][:, :50] for name in ("log_p", "log_q")}
            few["log_p"] = few["log_q"] + heavy
            found.append(check_convergence(None, stats | few))
        assert min(one["pareto_k"].value for one in found) < 0.4  # which would be "ok"
        assert {one["pareto_k"].verdict for one in found} == {"info"}
        assert {one.faithful for one in found} == {None, False}
        assert all(
            ("400 or more" in one["pareto_k"].says) == (one.faithful is None) for one in found
        )

    def test_without_densities(self):
        found = check_convergence(dataset(chains=1), bound())
        assert "were not recorded" in found.not_judged[-1]
        assert found.faithful is None

    @pytest.mark.parametrize(
        ("gain", "verdict"),
        [(-30.0, "ok"), (1.9, "ok"), (3.0, "doubtful"), (5.0, "failed"), (np.nan, "failed")],
    )
    def test_the_gain_of_further_steps(self, gain, verdict):
        found = check_convergence(None, bound(gain))["elbo"]
        assert found.verdict == verdict
        assert found.threshold == 2.0
        assert bool(found.remedy) == (verdict != "ok")

    @pytest.mark.parametrize(("rows", "verdict"), [(5000, "doubtful"), (500, "failed")])
    def test_a_gain_that_is_little_for_each_row_does_not_fail(self, rows, verdict):
        """Fifty nats are a hundredth for each of 5,000 rows, and a tenth for each of 500."""
        found = check_convergence(None, bound(50.0) | {"n_rows": np.array(rows)})
        assert found["elbo"].verdict == verdict
        assert f"{50 / rows:+.2g} for each row" in found["elbo"].says
        assert found.predictions.startswith("can be used") == (verdict == "doubtful")
        assert ("Nothing for predictions" in found["elbo"].remedy) == (verdict == "doubtful")
        assert check_convergence(None, bound(1.0) | {"n_rows": np.array(5)})["elbo"].verdict == "ok"

    def test_the_number_of_epochs_to_try(self):
        known = {"epochs": np.array(40), "more_epochs": np.array(1000)}
        found = check_convergence(None, bound(50.0) | known)["elbo"]
        assert found.remedy.startswith("Set epochs to 1000 (the fit had 40)")
        assert "Double the epochs" in check_convergence(None, bound(50.0))["elbo"].remedy

    def test_the_number_of_steps_to_try(self):
        found = check_convergence(None, bound(50.0) | {"n_steps": np.array(150)})["elbo"]
        assert "Vi(n_steps=300) (the fit had 150)" in found.remedy

    def test_a_gain_within_its_error_proves_nothing(self):
        assert check_convergence(None, bound(7.0, error=4.0))["elbo"].verdict == "ok"
        assert check_convergence(None, bound(7.0, error=2.0))["elbo"].verdict == "doubtful"

    def test_a_thousandth_of_a_large_bound_is_accepted(self):
        assert check_convergence(None, bound(7.0, final=-8000.0))["elbo"].verdict == "ok"
        assert check_convergence(None, bound(17.0, final=-8000.0))["elbo"].verdict == "failed"

    def test_a_flat_trace_alone_proves_nothing(self):
        found = check_convergence(None, self.fit() | {"elbo": np.zeros(50)})
        assert found.settled == "yes"
        old = {n: v for n, v in self.fit().items() if not n.startswith("elbo_gain")}
        found = check_convergence(None, old)
        assert "was not recorded" in found.not_judged[0]
        assert (found.settled, found.converged, found.faithful) == ("not known", False, None)
        assert found.predictions.startswith("not usable yet")
        assert found.intervals.startswith("not usable yet")

    def test_restarts_can_be_compared(self):
        found = check_convergence(dataset(chains=3, lp=3.0), bound())
        assert found["r_hat"].verdict == "failed"
        assert "ess_bulk" not in found

    def test_a_tree_without_splits_never_fails(self):
        stats = bound(gain=30.0) | {"n_rows": np.array(200.0)}
        assert check_convergence(None, stats).settled == "no"
        found = check_convergence(None, stats, single_leaf=True)
        assert found.settled == "doubtful"
        assert found["elbo"].remedy.startswith("Nothing: the tree has no split")


class TestResult:
    def test_a_point_estimate_has_nothing_to_check(self):
        found = check_convergence(dataset(chains=1, draws=1), {"loss": np.arange(5.0)})
        assert found.checks == ()
        assert "point estimate" in found.not_judged[0]
        assert not found.converged
        assert found.faithful is None
        assert found.settled == "nothing to judge"
        assert found.intervals.startswith("none")
        assert "held-out" not in str(found)

    def test_text_and_table(self):
        found = check_convergence(dataset(p_right=2.0), nuts())
        text = str(found)
        assert text.startswith(
            "Predictions: not usable yet: the inference has not converged.\n"
            "Intervals: not usable yet: the inference has not converged.\n"
            "Converged: no\n\n"
        )
        assert f"[failed] r_hat = {found['r_hat'].value:.4g} (at most 1.01): " in text
        assert " (at least 0.3): the energy" in text
        assert f"What to do: {found['r_hat'].remedy}" in " ".join(text.split())
        assert text.count("What to do") == sum(check.verdict != "ok" for check in found.checks)
        assert max(map(len, text.splitlines())) <= 88
        frame = found.to_frame()
        assert list(frame.index) == [check.name for check in found.checks]
        assert frame.loc["r_hat", "verdict"] == "failed"
        with pytest.raises(KeyError, match="no check 'elbo' among"):
            found["elbo"]

    def test_nothing(self):
        assert "Converged: not known" in str(check_convergence(None, {}))

    def test_broken_records(self):
        with pytest.raises(ValueError, match=r"elbo.* must be finite"):
            check_convergence(None, {"elbo": np.full(50, np.nan)})
        quantities = dataset()
        quantities["lp"][0, 3] = np.nan
        for stats in ({}, bound()):
            with pytest.raises(ValueError, match="must be finite"):
                check_convergence(quantities, stats)
        densities = {name: np.full((1, 50), np.nan) for name in ("log_p", "log_q")}
        with pytest.raises(ValueError, match=r"log_p.* must not be NaN"):
            check_convergence(None, densities)


class TestVerdict:
    """The overall verdict for each kind of inference."""

    @pytest.mark.parametrize(
        ("verdicts", "kind", "settled"),
        [
            ({"r_hat": "ok", "divergences": "ok"}, "chains", "yes"),
            ({"r_hat": "ok", "divergences": "doubtful"}, "chains", "doubtful"),
            ({"r_hat": "ok", "ess_bulk": "failed"}, "chains", "no"),
            ({"divergences": "ok"}, "chains", "not known"),  # too few draws for R-hat
            ({"divergences": "failed"}, "chains", "no"),
            ({"elbo": "ok", "pareto_k": "info"}, "variational", "yes"),
            ({"elbo": "doubtful", "pareto_k": "info"}, "variational", "doubtful"),
            ({"elbo": "failed"}, "variational", "no"),
            ({"pareto_k": "ok"}, "variational", "not known"),  # too few epochs
            ({"pareto_k": "ok"}, "exact", "yes"),
            ({}, "exact", "not known"),
            ({}, "chains", "not known"),
        ],
    )
    def test_one_word_for_all_checks(self, verdicts, kind, settled):
        found = verdict(verdicts, kind)
        assert found.settled == settled
        assert found.converged == (settled in ("yes", "doubtful"))
        usable = found.predictions.startswith("can be used")
        assert usable == found.converged

    def test_a_variational_fit_says_in_one_line_what_to_do(self):
        head, details = str(verdict({"elbo": "ok", "pareto_k": "info"}, "variational")).split(
            "\n\n"
        )
        assert head.splitlines() == [
            "Predictions: can be used; check their calibration: check_convergence(X_new, y_new).",
            "Intervals: approximate, from one variational fit: somewhat narrow for P(y | x).",
            "    Do not rely on intervals of nodes: fit a small tree with inference='nuts' for",
            "    these.",
            "Converged: yes",
        ]
        assert "[ok] elbo = 1 (at most 1):" in details
        assert "[info] pareto_k = 1:" in details  # it has no limit to pass

    def test_modes_have_intervals_of_their_own(self):
        found = verdict({"elbo": "ok", "modes": "info"}, "variational").intervals
        assert "fits: about right or somewhat narrow for P(y | x)" in found

    def test_predictions_of_modes_come_with_how_far_they_differ(self):
        checks = {"elbo": "ok", "modes": "info"}
        assert (
            "the modes' predictions differ by 1 on average;"
            in verdict(checks, "variational").predictions
        )

    def test_intervals_of_a_sampler(self):
        fine = verdict({"r_hat": "ok"}, "chains").intervals
        rough = verdict({"r_hat": "ok", "ess_tail": "doubtful"}, "chains").intervals
        assert "represent the posterior" in fine
        assert "ess_tail left some doubt" in rough

    def test_a_single_run_of_particles_cannot_show_what_it_misses(self):
        evidence = Evidence(np.array([-1.0]), np.ones((1, 9), int), np.zeros((1, 9), int))
        found = replace(verdict({"r_hat": "ok"}, "chains"), evidence=evidence)
        assert found.faithful is None
        assert "a single run left some doubt" in found.intervals

    def test_modes_are_not_weighted_by_their_probability(self):
        found = verdict({"r_hat": "ok", "modes": "info"}, "chains")
        assert found.faithful is None
        assert "not by how probable they are" in found.intervals

    def test_intervals_of_a_guide_that_covers_the_posterior(self):
        found = verdict({"elbo": "ok", "pareto_k": "ok"}, "variational", value=0.1)
        assert "represent the posterior" in found.intervals

    @pytest.mark.parametrize(
        ("gain", "error", "usable"),
        [(40.0, 4.0, True), (7.9, 4.0, False), (4.9, 1.0, False), (5.1, 1.0, True), (-9, 4, False)],
    )
    def test_unseen_rows_tell_noise_from_structure(self, gain, error, usable):
        seen = bound() | {"unseen_gain": np.array(gain), "unseen_gain_error": np.array(error)}
        found = check_convergence(None, seen)
        assert found.predictions.startswith("can be used" if usable else "no better than a const")
        assert (f"{abs(gain):.1f} nats" in found.predictions) != usable
        assert found.converged  # which is another question

    @pytest.mark.parametrize("kind", ["variational", "point"])
    def test_held_out_rows_have_the_last_word_on_predictions(self, kind):
        checks = {"elbo": "ok"} if kind == "variational" else {}
        right, wrong = (HeldOut(holds, "On 9 held-out rows.") for holds in (True, False))
        assert verdict(checks, kind, held_out=right).predictions.startswith(
            "can be used, judging by"
        )
        assert verdict(checks, kind, held_out=wrong).predictions.startswith("use with care")
        unsettled = verdict({"elbo": "failed"}, "variational", held_out=right).predictions
        assert unsettled == "can be used, judging by held-out rows. On 9 held-out rows."

    def test_predictions_that_are_worth_no_more_than_a_constant(self):
        checks = {"elbo": "failed"}
        nothing = HeldOut(True, "On 9 held-out rows.", "the class frequencies", better=False)
        found = verdict(checks, "variational", held_out=nothing)
        assert found.predictions.startswith("no better than the class frequencies")
        leaf = replace(found, single_leaf=True)
        assert leaf.predictions.startswith(
            "the tree found nothing: they are no better than the class"
        )
        assert replace(leaf, held_out=None).predictions.startswith("the tree found nothing")


def verdict(verdicts, kind, value=1.0, held_out=None):
    checks = [
        Check(
            name, "approximation" if name == "pareto_k" else "convergence", value, 1.0, word, "", ""
        )
        for name, word in verdicts.items()
    ]
    return Convergence(tuple(checks), (), pd.DataFrame(), kind, held_out)
