"""Trees whose coefficients share scales, by columns or groups of them."""

import numpy as np
import pandas as pd
import pytest

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor, load
from bayestree.diagnostics.shrinkage import ONE_SD
from bayestree.inference import Map, Mcmc, Nuts, Smc, Svi, Vi
from bayestree.models import GroupedScale, InverseGammaScale
from bayestree.runs.schema import RunFile

# short fits, and a constant column
pytestmark = pytest.mark.filterwarnings("ignore:the fit has not", "ignore:the fit ignores")

CHEAP = {"max_depth": 1, "n_modes": 1, "n_experts": 2, "random_state": 0}
QUICK = Vi(n_steps=15, n_draws=5)
SVI = Svi(epochs=5, n_draws=5)
BY_COLUMN = GroupedScale(0.5, 0.1, 0.1, groups="columns")
CHAINS = {"n_chains": 2, "n_warmup": 10, "n_draws": 5, "drop_idle": True}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"constant": 1.0, "a": rng.normal(size=150), "b": rng.normal(size=150)})
    frame["kind"] = rng.choice(["u", "v", "w"], size=150)
    y = frame["a"] + 2 * (frame["kind"] == "u") + 0.3 * rng.normal(size=150) > 0.5
    frame.loc[::9, "a"] = np.nan
    return frame, y.to_numpy()


METHODS = {
    "vi": QUICK,
    "map": Map(epochs=5, steepness=None),
    "grow": "grow",
    "svi": SVI,
    "pyro": Svi(guide="AutoNormal", epochs=5, n_draws=5),
    "mcmc": Mcmc(thinning=6, **CHAINS),
    "nuts": [SVI, Nuts(thinning=4, **CHAINS)],
    "smc": Smc(n_chains=2, n_draws=5, max_experts=4),
}


@pytest.mark.parametrize("inference", METHODS.values(), ids=METHODS)
def test_every_method_fits_shared_scales(table, inference):
    X, y = table
    clf = ConvexPolytopeTreeClassifier(inference=inference, prior=BY_COLUMN, **CHEAP)
    prior = clf.fit(X, y).posterior_.model.priors.hyperplane
    names = ["constant", "a", "a missing", "b", "kind=u", "kind=v", "kind=w"]
    assert list(clf.tree_.feature_names) == names
    assert isinstance(prior, GroupedScale)
    assert prior.groups == ((1, 2), (4, 5, 6))
    assert np.isfinite(clf.posterior_.point["hyperplane"]).all()


def test_what_reads_a_fitted_tree(table, tmp_path):
    X, y = table
    prior = GroupedScale(0.5, 0.1, 0.1, groups=[["a", "b"]])
    clf = ConvexPolytopeTreeClassifier(inference=QUICK, prior=prior, **CHEAP)
    clf.fit(X, y).save(tmp_path / "tree.safetensors")
    restored = load(tmp_path / "tree.safetensors")
    assert restored.prior == prior
    assert restored.posterior_.model == clf.posterior_.model
    assert restored.posterior_.model.among(np.arange(7) > 0).priors.hyperplane == GroupedScale(
        0.5, 0.1, 0.1, groups=((0, 1, 2),)
    )
    assert clf.prior_size(X, n_draws=20, random_state=0).probabilities().shape[0] == 1
    stats = clf.posterior_.stats
    without = clf.posterior_
    clf.posterior_ = type(without)(
        **{**vars(without), "stats": {n: v for n, v in stats.items() if n != "log_p"}}
    )
    found = clf.to_arviz(X, y).sample_stats["lp"].to_numpy()
    np.testing.assert_allclose(found, stats["log_p"])  # without the constant column


def test_shrinkage_counts_a_group_once(table):
    """Factors of a group have one prior precision, (a + n/2) / (b + sum of squares / 2)."""
    X, y = table
    settings = {"inference": Vi(n_steps=40, n_draws=60), "n_experts": 1}
    prior = GroupedScale(0.5, 0.1, 0.1, groups=[["a", "b", "kind"]])
    clf = ConvexPolytopeTreeClassifier(prior=prior, **CHEAP | settings).fit(X, y)
    found, draws = clf.shrinkage(), clf.posterior_.draws
    assert found.matched[0, 0] == 1
    assert np.isnan(found.kappa[0, 0, 0])  # the constant column
    plane = draws["hyperplane"][0, :, 0, 0, 1:]
    low, high = np.quantile(plane, ONE_SD, axis=0)
    spread = ((high - low) / 2) ** 2
    total = (np.median(plane, axis=0) ** 2 + spread).sum()
    rate = np.median(draws["shrinkage"][0, :, 0, 0]) + total / 2
    expected = (prior.shape + 6 / 2) * spread / rate
    np.testing.assert_allclose(found.kappa[0, 0, 1:], np.minimum(expected, 1))


def test_with_facets_within_groups(table):
    X, y = table
    clf = ConvexPolytopeTreeClassifier(
        inference=QUICK, prior=BY_COLUMN, interaction_constraints="no_interactions", **CHEAP
    ).fit(X, y)
    rows = clf.posterior_.draws["hyperplane"].reshape(-1, 7)
    used = {frozenset(np.flatnonzero(row).tolist()) for row in rows}
    assert used <= {frozenset((1, 2)), frozenset((3,)), frozenset((4, 5, 6))}


def test_columns_of_one_feature_keep_their_own_scales(table):
    X, y = table
    reg = ConvexPolytopeTreeRegressor(inference="grow", prior=BY_COLUMN, max_depth=1)
    prior = reg.fit(X[["b"]].assign(c=X["b"] ** 2), y * 1.0).posterior_.model.priors.hyperplane
    assert type(prior) is InverseGammaScale


def test_a_run_file_has_lists():
    parts = {
        "data": {"path": "x.csv", "target": "y", "task": "regression"},
        "model": {"scale_groups": [["a", "b"]]},
    }
    tree = RunFile.from_parts(parts, "run.toml").estimator("regression")
    assert tree.prior == GroupedScale(2.0, groups=(("a", "b"),))


REFUSED = [
    ([["a", "x9"]], "groups: 'x9' is not a column of the fit"),
    ([["a", "b"], ["b", "kind"]], "each in one group at most"),
    ([["a", "a"]], "each in one group at most"),
    ([[]], "groups must have features"),
    (["a", "b"], "groups must be 'columns' or a list of lists"),
    ("rows", "groups must be 'columns' or a list of lists"),
]


@pytest.mark.parametrize(("groups", "message"), REFUSED)
def test_refused(table, groups, message):
    with pytest.raises(ValueError, match=message):
        ConvexPolytopeTreeClassifier(prior=GroupedScale(groups=groups), **CHEAP).fit(*table)


@pytest.mark.statistical
def test_a_planted_group_is_kept_and_the_others_shrink():
    """Four small effects of one of six groups: the ratio of noise to signal falls in most sets."""
    groups = [[*range(first, first + 4)] for first in range(0, 24, 4)]
    fell = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(100, 24))
        y = rng.random(100) < 1 / (1 + np.exp(-X[:, :4] @ [1, -1, 1, -1]))
        noise = []
        for given in ((), groups):
            prior = GroupedScale(0.5, 0.1, 0.1, groups=given)
            clf = ConvexPolytopeTreeClassifier(prior=prior, **CHEAP | {"n_experts": 1})
            plane = clf.fit(X, y).posterior_.draws["hyperplane"][0, :, 0, 0]
            size = np.abs(plane).mean(axis=0).reshape(6, 4).mean(axis=1)
            noise.append(size[1:].mean() / size[0])
            assert size.argmax() == 0
        fell += noise[1] < noise[0]
    # if groups did nothing, 7 or more of 8 would fall with a probability of 3.5 %
    assert fell >= 7
