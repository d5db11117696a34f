"""Estimators that sample by sequential Monte Carlo: every reader accepts random topologies."""

import numpy as np
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    diagnostics,
    export_text,
    inference,
    load,
    plots,
)
from bayestree._utils.arviz_compat import group
from bayestree.inference import Svi
from bayestree.inference.samplers.smc.method import by_topology


def short(max_depth=2, n_experts=2, n_chains=2, n_draws=20):
    """Parameters of a fit with few particles, which move little at few temperatures."""
    method = inference.Smc(
        max_depth=max_depth, n_chains=n_chains, n_draws=n_draws, steepness=6.0, n_rounds=3,
        efficiency=0.3,
    )  # fmt: skip
    return {"inference": method, "n_experts": n_experts, "random_state": 0}


NAMED = {"inference": "smc", "max_depth": 2, "n_experts": 2, "random_state": 0}


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [100.0, 0.01] + [5000.0, 0.3]
    return X, np.where((X[:, 0] > 5000) ^ (rng.random(n) < 0.1), "high", "low")


@pytest.fixture(scope="module")
def classifier():
    return ConvexPolytopeTreeClassifier(**short()).fit(*rows())


@pytest.fixture(scope="module")
def oblique():
    X, y = rows()
    target = 50 + 10 * (y == "high") + np.random.default_rng(1).normal(size=len(y))
    return ConvexPolytopeTreeRegressor(**short(max_depth=1, n_experts=1)).fit(X, target)


def test_predictions_average_over_topologies(classifier):
    X, y = rows()
    probability, sd = classifier.predict_proba(X, return_std=True)
    assert probability.shape == sd.shape == (60, 2)
    # one label in ten is wrong; four standard errors of a share of 60
    assert classifier.score(X, y) > 0.9 - 4 * np.sqrt(0.09 / 60)
    assert len(np.unique(classifier.posterior_.stats["n_leaves"])) > 1


def test_tree_is_of_the_most_probable_topology(classifier):
    posterior = classifier.posterior_
    silent = (posterior.draws["log_weight"] == -1000).all(axis=-1).reshape(-1, 3)
    own = (posterior.point["log_weight"] == -1000).all(axis=-1)
    patterns, counts = np.unique(silent, axis=0, return_counts=True)
    assert len(patterns) > 1
    assert counts[(patterns == own).all(axis=1)].item() == counts.max()
    # it is one of the draws of this topology, the one that predicts most like their average
    X = classifier.fitted_.scaling.standardise(rows()[0])
    each = np.concatenate([*posterior.expectations(X)])
    distance = ((each - posterior.predictive(X)[0]) ** 2).sum(axis=(1, 2))
    nearest = np.flatnonzero((silent == own).all(axis=1))
    nearest = nearest[distance[nearest].argmin()]
    weights = posterior.draws["log_weight"].reshape(-1, *own.shape, 2)
    np.testing.assert_array_equal(weights[nearest], posterior.point["log_weight"])
    assert "x0" in export_text(classifier)


@pytest.mark.filterwarnings("ignore::bayestree.SingleLeafWarning")  # a draw may have
def test_topologies_are_near_optimal_trees(classifier):
    X, y = rows()
    posterior = classifier.posterior_
    split = (posterior.draws["log_weight"] != -1000).any(axis=-1).reshape(-1, 3)
    patterns, counts = np.unique(split, axis=0, return_counts=True)
    data = inference.Data.of(classifier.fitted_.scaling.standardise(X), np.zeros(60), np.ones(60))
    each = by_topology(posterior, data, 0.01)
    assert len(each) == patterns.any(axis=1).sum()  # all have at least one of 40 draws
    assert [share for _, share in each] == sorted(counts[patterns.any(axis=1)] / 40)[::-1]
    for one, share in each:
        own = (one.point["log_weight"] != -1000).any(axis=-1)
        assert (split == own).all(axis=1).mean() == pytest.approx(share)
    assert len(by_topology(posterior, data, 0.5)) == sum(share >= 0.5 for _, share in each)

    found = classifier.near_optimal_trees(X, y)
    assert 1 <= len(found) <= len(each)
    assert found.weight.sum() <= 1 + 1e-12
    assert found.weight.max() >= each[0][1]


def test_a_fixed_topology_is_one(oblique):
    posterior = ConvexPolytopeTreeClassifier(
        max_depth=1, n_modes=1, random_state=0, inference=Svi(epochs=2)
    )
    posterior = posterior.fit(*rows()).posterior_
    data = inference.Data.of(np.zeros((3, 2)), np.zeros(3), np.ones(3))
    assert by_topology(posterior, data, 0.9) == [(posterior, 1.0)]
    single = by_topology(oblique.posterior_, data, 0.0)  # splits by their intercepts
    share = (oblique.posterior_.stats["n_leaves"] == 2).mean()
    assert [share for _, share in single] == [pytest.approx(share)]


def test_evidence(classifier, oblique):
    for fitted in (classifier, oblique):
        found = fitted.evidence()
        runs = fitted.posterior_.stats["log_evidence"]
        assert found.log_evidence == pytest.approx(np.logaddexp(*runs) - np.log(2))
        for table in (found.leaf_probabilities, found.depth_probabilities):
            assert table["probability"].sum() == pytest.approx(1)
        assert "standard error" in str(found)
    with pytest.raises(ValueError, match="fit with inference='smc'"):
        ConvexPolytopeTreeClassifier(inference="grow", max_depth=1).fit(*rows()).evidence()


def test_every_reader_accepts_nodes_that_do_not_split(classifier, oblique, tmp_path, any_k):
    X, y = rows()
    assert all(np.isfinite(value).all() for value in classifier.posterior_.draws.values())
    in_use = classifier.polytope_size().leaf_probabilities()
    assert in_use.sum() == pytest.approx(1)
    # rows need not reach all leaves of a draw
    assert 1 < in_use @ np.arange(len(in_use)) <= classifier.posterior_.stats["n_leaves"].mean()
    for reader in (
        classifier.shrinkage,
        classifier.facets,
        lambda: classifier.split_uncertainty(X),
    ):
        assert "nan" not in str(reader()).lower()
    assert np.isfinite(classifier.loo(X, y).elpd)
    container = classifier.to_arviz(X, y)
    for name in ("posterior", "sample_stats", "log_prior", "log_likelihood"):
        # the changes of a run with fewer temperatures than others end with NaN
        found = group(container, name).drop_vars("changes", errors="ignore")
        assert all(np.isfinite(v).all() for v in found.data_vars.values()), name
    assert set(classifier.sample_posterior_predictive(X)[0]) <= {"high", "low"}
    low, high = oblique.predict_interval(X)
    assert (low < high).all()
    plots.tree(classifier)
    classifier.save(tmp_path / "tree")
    again = load(tmp_path / "tree")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.evidence().log_evidence == classifier.evidence().log_evidence


def test_evidence_is_that_of_y_in_its_own_units(oblique):
    X, y = rows()
    target = 50 + 10 * (y == "high") + np.random.default_rng(1).normal(size=len(y))
    larger = ConvexPolytopeTreeRegressor(**short(max_depth=1, n_experts=1)).fit(X, 8 * target)
    expected = oblique.evidence().runs - len(X) * np.log(8)  # a power of 2 changes no rounding
    np.testing.assert_allclose(larger.evidence().runs, expected)
    # whose unit is another one
    few = short(max_depth=1, n_experts=1, n_draws=4)
    student = ConvexPolytopeTreeRegressor(**few, leaf="student")
    models = {"normal": oblique.evidence(), "student": student.fit(X, target).evidence()}
    assert set(diagnostics.compare_evidence(models).index) == {"normal", "student"}


def test_convergence(classifier):
    found = classifier.check_convergence()
    assert found["log_evidence"].threshold == 0.3
    apart = classifier.label_free()
    apart = apart + 10.0 * apart["chain"]
    judged = diagnostics.check_convergence(apart, classifier.posterior_.stats)["r_hat"]
    assert judged.verdict == "failed"
    assert "particles" in judged.remedy
    remedies = [found[name].remedy for name in ("ess_bulk", "ess_tail")]
    assert all(one.startswith("Use more particles (n_draws, or n_part") for one in remedies)
    of_whole_trees = {"log_likelihood", "prediction"}  # nodes have no fixed meaning
    assert of_whole_trees == set(found.quantities.index)


def test_growth_does_not_decide_about_splits():
    """The topology is sampled even where growth finds no split."""
    X, _ = rows(20)
    y = np.random.default_rng(0).integers(2, size=20)
    fitted = ConvexPolytopeTreeClassifier(**short(max_depth=1, n_draws=100)).fit(X, y)
    assert fitted.posterior_.inference == "smc"
    assert set(np.unique(fitted.posterior_.stats["n_leaves"])) == {1, 2}


def test_settings():
    X, y = rows()
    with pytest.raises(ValueError, match="max_depth must be at most 3 for inference='smc', got 4"):
        ConvexPolytopeTreeClassifier(**NAMED | {"max_depth": 4}).fit(X, y)
    with pytest.raises(ValueError, match=r"steepness must be 0.05 or more .* got 0.002"):
        ConvexPolytopeTreeClassifier(**NAMED | {"inference": inference.Smc(steepness=0.002)}).fit(
            X, y
        )
    method = inference.Smc(
        n_chains=1, n_draws=10, max_depth=1, steepness=2.0, max_experts=1, n_rounds=2
    )
    fitted = ConvexPolytopeTreeClassifier(inference=method, random_state=0).fit(X, y)
    assert fitted.posterior_.model.steepness == 2.0
    assert fitted.posterior_.draws["intercept"].shape == (1, 10, 1, 1)
    assert np.isnan(fitted.evidence().standard_error)


def test_the_default_depth_is_that_of_the_method():
    X, y = rows()
    few = {"inference": inference.Smc(n_draws=10, n_chains=1), "random_state": 0}
    assert ConvexPolytopeTreeClassifier().plan(X, y).limits.max_depth == 4
    fitted = ConvexPolytopeTreeClassifier(**few, n_experts=1).fit(X, y)
    assert fitted.posterior_.model.topology.depth == 2
    assert fitted.max_depth is None
    given = ConvexPolytopeTreeClassifier(**few, n_experts=1, max_depth=2)
    np.testing.assert_array_equal(given.fit(X, y).predict_proba(X), fitted.predict_proba(X))
    method = inference.Smc(n_chains=1, n_draws=10, max_depth=1)
    assert ConvexPolytopeTreeClassifier(inference=method).plan(X, y).limits.max_depth == 1


def test_the_fingerprint_is_that_of_the_rows(classifier):
    X, y = rows()
    one = classifier.evidence().rows
    few = short(max_depth=1, n_experts=1, n_chains=1, n_draws=10)
    oblique = ConvexPolytopeTreeClassifier(**few)
    assert oblique.fit(X[:, :1], y).evidence().rows == one
    other = np.where(np.arange(60) == 0, "low" if y[0] == "high" else "high", y)
    assert oblique.fit(X, other).evidence().rows != one
    assert oblique.fit(X, y, np.arange(60) % 2 + 1).evidence().rows != one


def test_a_settings_object_has_the_steepness_of_estimators_unless_it_states_one():
    few = {"n_draws": 8, "n_chains": 1, "max_experts": 1, "max_depth": 1}
    for stated, expected in (({}, 1.0), ({"steepness": 2.0}, 2.0)):
        clf = ConvexPolytopeTreeClassifier(inference=inference.Smc(**few, **stated), random_state=0)
        assert clf.fit(*rows()).posterior_.model.steepness == expected
    X, _ = rows()
    reg = ConvexPolytopeTreeRegressor(inference=inference.Smc(**few), random_state=0)
    assert reg.fit(X, X[:, 0]).posterior_.model.steepness == 6.0, "numbers may jump"
