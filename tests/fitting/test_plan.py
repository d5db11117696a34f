"""The plan of a fit: what is decided from the parameters, the rows and the fit before."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    ConvexPolytopeTreeSurvival,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
)
from bayestree._utils.parameters import ParameterError
from bayestree.estimators._parameters import CLASSES as CLASS_FAMILIES
from bayestree.estimators._parameters import NUMERIC, ClassName, NumericName
from bayestree.fitting import defaults
from bayestree.fitting.defaults import polytope_plan
from bayestree.fitting.plan import Table
from bayestree.inference import Em, Growth, Map, Mcmc, Nuts, Smc, Svi, Vi
from bayestree.models import (
    Categorical,
    Flat,
    GammaProcess,
    Gaussian,
    GroupedScale,
    InverseGammaScale,
    Laplace,
    LinearGaussian,
    LiteralGammaProcess,
    Spatial,
)

CLASSES, NUMBERS = Table(500, 5, 3), Table(500, 5, 0)


def plan(table=CLASSES, leaf=None, start=None, **given):
    kind = ConvexPolytopeTreeClassifier if table.n_classes else ConvexPolytopeTreeRegressor
    family = leaf or (Categorical(table.n_classes) if table.n_classes else Gaussian())
    return polytope_plan(kind(**given).get_params(deep=False), family, table, start)


def test_memory_is_that_of_the_starts_and_of_the_draws():
    found = plan(n_experts=3, n_modes=2, inference=Svi(n_draws=50))
    starts = Growth().n_restarts * 3 * (20 + 500 // 2)  # coefficients and scores
    draws = 2 * 50 * 3 * (20 + 2)
    assert found.dtype == "float64"
    assert found.memory(20) == {"n_experts=3": 8 * starts, "n_draws=50": 8 * draws + 1000 * 2}


def test_names_are_those_of_the_tables():
    assert get_args(defaults.MethodName) == (*defaults.PIPELINES,)
    assert ("auto", *get_args(NumericName)) == (*NUMERIC,)
    assert get_args(ClassName) == (*CLASS_FAMILIES,)


@pytest.mark.parametrize(
    ("table", "method"),
    [
        (Table(10_000, 100, 2), "vi"),
        (Table(100_000, 100, 2), "vi"),
        (Table(100_001, 100, 2), "svi"),
        (Table(10_000, 1000, 2), "vi"),
        (Table(10_001, 101, 2), "svi"),
        (Table(50, 2, 2, in_parts=True), "svi"),
        (Table(50, 2, 2, in_batches=True), "svi"),
        (Table(), "vi"),
    ],
)
def test_auto_goes_by_the_rows(table, method):
    assert plan(table).method == method


@pytest.mark.parametrize("inference", ["auto", "vi"])
@pytest.mark.parametrize(("n_rows", "experts", "batch"), [(10_000, 4, 2000), (10_001, 8, 5000)])
def test_many_rows_get_more_experts_and_larger_steps_but_no_sweeps(
    n_rows, experts, batch, inference
):
    found = plan(Table(n_rows, 5, 2), inference=inference)
    assert (found.n_experts, found.last.batch_size) == (experts, batch)
    assert (found.last.n_sweeps > 0) == (n_rows == 10_000 and inference == "auto")


def test_wide_tables_get_no_sweeps():
    assert [plan(Table(300, d)).last.n_sweeps > 0 for d in (100, 101)] == [True, False]


@pytest.mark.parametrize(
    "given",
    [
        {"prior": "laplace"},
        {"prior": Laplace(1.0)},
        {"monotonic_cst": [1, 0, 0, 0, 0]},
        {"image_shape": (1, 5)},
        {"device": "cuda"},
        {"dtype": "float32"},
    ],
    ids=str,
)
def test_auto_goes_by_what_svi_alone_can_follow(given):
    found = plan(**given)
    assert found.method == "svi"
    assert next(iter(given)) in found.reasons["method"]
    assert next(iter(given)) in str(found)


@pytest.mark.parametrize(
    "given",
    [
        {"n_modes": 2},
        {"n_experts": 20},
        {"prior": InverseGammaScale(width=10)},
        {"prior": GroupedScale(groups="columns")},
        {"weight_prior": GammaProcess(0.3)},
    ],
    ids=str,
)
def test_other_parameters_do_not_change_the_method(given):
    assert plan(**given).method == "vi"


@pytest.mark.parametrize(
    ("table", "inference", "experts", "growth", "steepness", "trees"),
    [
        (CLASSES, "vi", 4, 0.15, 1, 4),
        (CLASSES, "mcmc", 4, 0.15, None, 1),
        (CLASSES, Vi(), 4, 0.15, 1, 4),
        (CLASSES, "svi", 20, 0.015, None, 3),
        (CLASSES, "map", 20, 0.015, None, 1),
        (CLASSES, "grow", 20, 0.015, None, 1),
        (CLASSES, "smc", 20, 0.015, 1, 1),
        (NUMBERS, "vi", 4, 0.15, 6, 4),
        (NUMBERS, "svi", 8, 0.15, None, 3),
        (NUMBERS, "smc", 8, 0.15, 6, 1),
    ],
    ids=str,
)
def test_defaults_of_the_methods(table, inference, experts, growth, steepness, trees):
    found = plan(table, inference=inference)
    assert (found.n_experts, found.n_trees) == (experts, trees)
    assert found.stages[0] == Growth(learning_rate=growth)
    assert getattr(found.last, "steepness", None) == steepness
    stated = plan(table, inference=inference, n_experts=3, n_modes=1)
    assert (stated.n_experts, stated.n_trees) == (3, 1)


def test_map_anneals_before_another_method_and_chooses_alone():
    assert plan(inference="svi").stages[1].steepness == (1.0, 6.0)
    found = plan(inference=Svi(steepness=3.0))
    stated = found.stages[1:]
    # at the steepness that MAP has reached
    assert stated == (Map(epochs=300, steepness=(1.0, 3.0)), Svi(epochs=1000))
    assert "(Map makes three tenths of its epochs before another method)" in str(found)
    assert plan(inference=[Svi(steepness=3.0), Nuts()]).stages[1:3] == stated
    assert plan(inference=[Map(steepness=3.0), Svi()]).stages[1:] == stated
    assert plan(inference=[Vi(steepness=3.0), Mcmc()]).stages[1] == Vi(steepness=3.0)
    assert plan(inference="map").last.steepness is None
    assert plan(inference=Map(steepness=3.0)).last.steepness == (1.0, 3.0)
    assert plan(inference=Map()).last.steepness == (1.0, 6.0)  # as it states


def test_map_before_svi_has_its_minibatches():
    before, last = plan(inference=Svi(epochs=7, batch_size=30, guide="AutoNormal")).stages[1:]
    assert (before.epochs, before.batch_size) == (2, 30)  # three tenths of the epochs
    assert (last.epochs, last.batch_size) == (7, 30)


@pytest.mark.parametrize(
    ("n_rows", "given", "epochs"),
    [
        (500, {}, [300, 1000]),  # of one step
        (2_000, {}, [75, 250]),
        (2_000, {"validation_fraction": 0.25}, [100, 333]),  # three steps for 1,500 rows
        (20_000, {"inference": Svi(batch_size=1000)}, [18, 60]),
        (20_000, {"inference": Svi(epochs=7)}, [2, 7]),
        (20_000, {"inference": [Map(epochs=9), Svi()]}, [3, 60]),
        (2_000, {"inference": "map"}, [250]),
        (2_000, {"inference": Map()}, [250]),
        (2_000, {"inference": Map(optimiser="lbfgs")}, [30]),
        (None, {}, [None, None]),
        (None, {"inference": [Map(epochs=1), Svi()]}, [1, None]),
    ],
    ids=str,
)
def test_epochs_are_those_of_the_rows_that_are_fitted(n_rows, given, epochs):
    found = plan(Table(n_rows, 5, 2), **{"inference": "svi"} | given)
    assert [one.epochs for one in found.stages[1:]] == epochs


@pytest.mark.parametrize(
    ("given", "weights", "reason"),
    [
        ({}, "stacking", True),
        ({"mode_weights": "elbo"}, "elbo", False),
        ({"inference": "map", "n_modes": 2}, "equal", False),
        ({"inference": "map", "n_modes": 2, "validation_fraction": 0.2}, "stacking", True),
        ({"inference": "svi", "n_modes": 1}, "equal", False),
    ],
    ids=str,
)
def test_weights_of_several_trees(given, weights, reason):
    found = plan(**given)
    assert found.to_json()["mode_weights"] == found.mode_weights == weights
    assert ("averaged" in found.reasons) is reason
    assert (f"averaged  by {weights} weights" in str(found)) is (found.n_trees > 1)


def test_processes_are_for_trees_that_are_not_fitted_at_once(monkeypatch):
    monkeypatch.setattr(defaults, "processes_for", lambda n_trees: n_trees + 1)
    many = Table(10_000, 5, 2)
    assert plan(many, inference="svi").n_jobs == 4
    assert plan(many, inference="svi", n_jobs=2).n_jobs == 2
    assert plan(many, n_jobs=2).n_jobs is None  # by VI, at once
    assert plan(many, inference=Nuts(), n_jobs=2).n_jobs is None  # of its chains
    for table, given in (
        (Table(9_999, 5, 2), {}),
        (many._replace(on_disk=True), {}),
        (many, {"device": "cuda"}),
    ):
        assert plan(table, inference="svi", **given).n_jobs is None


def test_stages_in_a_list_replace_their_kind():
    given = [Growth(steps=9), Svi(epochs=4), Nuts(n_chains=2)]
    found = plan(inference=given)
    assert found.method == "nuts"
    assert found.stages[0] == given[0]
    assert found.stages[2:] == (given[1], Nuts(n_chains=2))
    assert plan(inference=tuple(given)) == found


@pytest.mark.parametrize(
    ("inference", "message"),
    [
        ([Map(), Vi()], r"Map\(\), but a fit that ends with Vi has the stages Growth, Vi"),
        ([Svi(), Svi(epochs=2), Nuts()], "each stage once"),
        ([], "each stage once"),
        ([Svi(), Growth(), Nuts()], "in the order Growth, Map, Svi, Nuts"),
        ([Map(steepness=2.0), Svi(steepness=3.0)], "different steepness, .* state one"),
        (Em(epochs=2), None),
    ],
)
def test_stages_that_do_not_go_together(inference, message):
    if message is None:  # continues from a grown tree, as a method of a user may
        assert [type(one) for one in plan(inference=inference).stages] == [Growth, Map, Em]
        return
    with pytest.raises(ParameterError, match=message):
        plan(inference=inference)


def test_parameters_fill_in_settings_and_must_not_contradict_them():
    assert plan(inference=Smc(n_chains=2), max_depth=1, n_jobs=2).last.max_depth == 1
    assert plan(inference=Nuts(), n_jobs=2).last.n_jobs == 2
    assert plan(inference=Nuts(), n_jobs=2, n_modes=2).last.n_jobs is None  # for the trees
    with pytest.raises(ParameterError, match=r"contradicts .* in inference: set"):
        plan(inference=Smc(max_depth=3), max_depth=1)


@pytest.mark.parametrize(
    ("table", "given", "prior"),
    [
        (CLASSES, {}, InverseGammaScale(0.5, 0.1, 0.1)),
        (NUMBERS, {}, InverseGammaScale(2.0, 1.0, 1.0)),
        (CLASSES, {"prior": "laplace"}, Laplace(1.0, 10.0)),
        (CLASSES, {"prior": "flat"}, Flat()),
        (CLASSES, {"prior": "spatial", "image_shape": (1, 5)}, Spatial(1.0, (1, 5))),
        (CLASSES, {"prior": Laplace(3.0)}, Laplace(3.0)),
    ],
    ids=str,
)
def test_priors_by_name_and_as_objects(table, given, prior):
    found = plan(table, **given)
    assert found.prior == prior
    assert found.weight_prior == GammaProcess()
    assert f"prior     {prior}" in str(found)
    assert found.to_json()["prior"] == str(prior)
    assert ("prior" in found.reasons) == (given == {})


def test_a_prior_on_weights_without_a_law_needs_a_guide_of_pyro():
    class Own(LiteralGammaProcess):
        proper = True

    found = plan(weight_prior=Own())
    assert found.last == Svi(epochs=1000, guide="AutoNormal")
    assert found.reasons["method"] == "weight_prior needs it"
    assert "weights   Own()" in str(found)
    assert "GammaProcess" not in str(plan(n_experts=1))  # the weight of one expert is 1


def test_a_prior_without_expectations_gets_a_guide_that_needs_none():
    class Own(Flat):
        expects = False

    assert plan(prior=Own()).last.guide == "AutoNormal"
    assert plan(prior=Own(), inference="svi").last.guide == "polytope"


@pytest.mark.parametrize(
    ("table", "leaf", "given", "dtype"),
    [
        (Table(9_999, 5, 2), None, {"inference": "svi"}, "float64"),
        (Table(10_000, 5, 2), None, {"inference": "svi"}, "float32"),
        (Table(10_000, 5, 2), None, {"inference": "svi", "dtype": "float64"}, "float64"),
        (Table(10_000, 5, 2), None, {"inference": "vi"}, "float64"),
        (Table(10_000, 5, 2), None, {"inference": Svi(guide="AutoNormal")}, "float64"),
        (Table(10_000, 5), LinearGaussian(), {"inference": "svi"}, "float64"),
    ],
)
def test_precision(table, leaf, given, dtype):
    assert plan(table, leaf, **given).dtype == dtype


@pytest.mark.parametrize(
    ("table", "given", "sparse"),
    [
        (CLASSES, {}, True),
        (CLASSES, {"inference": "map"}, False),
        (CLASSES, {"sparsity": None}, False),
        (CLASSES, {"image_shape": (1, 5)}, False),
        (Table(500, 501, 2), {}, False),
        (Table(500, 5, 2, in_batches=True), {}, False),  # later ones cannot choose columns
    ],
)
def test_which_trees_get_sparse_facets(table, given, sparse):
    assert plan(table, **given).sparse is sparse


def test_numbers_by_svi_may_be_fitted_again_with_steeper_splits():
    assert plan(NUMBERS, inference="svi").steeper
    for table, given in (
        (CLASSES, {"inference": "svi"}),
        (NUMBERS, {}),
        (NUMBERS, {"inference": Svi(steepness=6.0)}),
        (NUMBERS, {"inference": Svi(guide="AutoNormal")}),
    ):
        assert not plan(table, **given).steeper


def test_a_map_before_another_method_does_not_decide_its_steepness():
    found = plan(inference=[Map(epochs=2), Svi(steepness=1.0)])
    assert found.stages[1] == Map(epochs=1, steepness=(1.0, 1.0))

    class OwnMap(Map):
        pass

    assert plan(inference=OwnMap(steepness=12.0)).last.steepness == (1.0, 12.0)


def test_text_says_what_is_certain():
    assert "if it has at most 32 leaves" in str(plan())
    asked = str(plan(sparsity=0.05))
    assert "with facets of at most 12 columns" in asked
    assert "32 leaves" not in asked
    assert "at most 4 of a split" in str(plan(inference="smc"))
    assert "steeper splits" in str(plan(NUMBERS, inference="svi"))


def test_depth_of_many_classes():
    assert plan(Table(500, 5, 16)).limits.max_depth == 4
    assert plan(Table(500, 5, 26)).limits.max_depth == 7
    assert plan(Table(500, 5, 26), inference="nuts").limits.max_depth == 4
    assert plan(Table(500, 5, 26), max_depth=3).limits.max_depth == 3


def test_time_is_stated_where_it_was_measured():
    for size, seconds in (
        (Table(150, 4, 3), 1.4 * 0.0088 * 150**0.82 * 4**0.17 * 1.5**0.49),
        (Table(2000, 10), 1.4 * 0.0156 * 2000**0.6 * 10**0.88),
        (Table(9000, 90, 2), 0.0088 * 9000**0.82 * 90**0.17),
    ):
        found = plan(size)
        assert found.seconds == pytest.approx(seconds)
        assert f"time      about {seconds:.2g} s of one core" in str(found)
        assert found.to_json()["seconds"] == found.seconds
    for given in (
        {"inference": "svi"},
        {"inference": Vi(kl_weight=0.5)},
        {"max_depth": 5},
        {"n_modes": 1},
        {"n_experts": 6},
    ):
        assert plan(Table(150, 4, 3), **given).seconds is None
    for size in (
        Table(n_classes=2),
        Table(20_000, 4, 2),
        Table(150, 140),
        Table(150, 4, in_parts=True),
        Table(150, 4, several_outputs=True),
    ):
        assert plan(size, inference="vi").seconds is None
    assert plan(Table(150, 4, 3)).of_one_tree().seconds is None
    given = ConvexPolytopeTreeClassifier(leaf="logistic").get_params(deep=False)
    assert polytope_plan(given, Categorical(3), Table(150, 4, 3)).seconds is None


def table(n=60, d=2):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("size", "given", "n_sweeps"),
    [
        (Table(150, 4, 3), {}, 30),
        (Table(150, 4, 3), {"inference": "vi"}, 0),
        (Table(4000, 50, 2), {}, 15),
        (Table(4000, 50, 2), {"n_experts": 3}, 20),
        (Table(4000, 50, 2), {"n_modes": 1}, 15),  # as one of several trees is planned
        (Table(4000, 85, 2), {}, 0),
        (Table(150, 4, 3), {"interaction_constraints": [[0, 1], [2, 3]]}, 0),
        (Table(n_classes=2), {}, 0),
    ],
)
def test_sweeps_take_less_long_than_the_fit_or_are_left_out(size, given, n_sweeps):
    assert plan(size, **given).last.n_sweeps == n_sweeps


def test_estimators_plan_without_a_fit():
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(random_state=0)
    found = clf.plan(X, y)
    assert found.table == Table(60, 2, 2)
    assert not hasattr(clf, "fitted_")
    assert str(found).splitlines()[0] == "Plan of a fit to 60 rows, 2 features, 2 classes"
    for text in (
        "vi",
        "Growth()",
        "Vi(steepness=1.0, n_steps=60, n_sweeps=30)",
        "up to 10,000 rows or 100 features in memory",
    ):
        assert text in str(found)
    assert ConvexPolytopeTreeRegressor().plan(X, y).table.n_classes == 0
    assert ConvexPolytopeTreeSurvival().plan(X, np.c_[1.0 + y, y]).method == "vi"
    assert EndToEndTreeClassifier().plan(X, y).last.steepness == 2.8
    assert EndToEndTreeClassifier(inference="svi").plan(X, y).last.epochs == 1000


def test_a_plan_is_refused_as_the_fit_would_be():
    X, y = table()
    with pytest.raises(ValueError, match="cannot keep predictions monotone"):
        ConvexPolytopeTreeClassifier(inference=Vi(), monotonic_cst=[1, 0]).plan(X, y)
    with pytest.raises(ValueError, match="at most one class"):
        ConvexPolytopeTreeClassifier().plan(X, np.ones(60))


def test_the_fit_carries_out_its_plan():
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(
        inference=Mcmc(n_chains=1, n_warmup=2, n_draws=3), max_depth=1, random_state=0
    )
    expected = clf.plan(X, y)
    clf.fit(X, y)
    assert clf.plan_ == expected
    assert clf.posterior_.inference == "mcmc"
    assert clf.posterior_.draws["leaf_probs"].shape[:2] == (1, 3)
    assert clf.posterior_.model.split.n_experts == 4


@pytest.mark.parametrize(
    ("inference", "given"),
    [
        (Smc(max_depth=1, n_chains=1, n_draws=30), {"n_particles": 30, "n_rounds": 3}),
        (Map(steepness=None, batch_size=60, learning_rate=0.1), {"epochs": 1000}),
    ],
    ids=["smc", "map"],
)
def test_the_fit_has_the_sizes_of_its_plan(inference, given):
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(inference=inference, n_experts=1, random_state=0)
    planned = clf.plan(X, y).last.chosen(*given)
    settings = clf.fit(X, y).posterior_.settings
    assert planned == given == {name: settings[name] for name in given}


@pytest.mark.parametrize(
    ("inference", "given", "predicts", "averages"),
    [
        ("grow", {}, "by the deterministic tree (by default without", False),
        ("grow", {"n_modes": 2}, "by the mean over the trees (by default without", True),
        ("grow", {"prediction": "posterior"}, "by the mean over the draws", True),
        (Vi(n_steps=2, n_draws=2), {"n_modes": 1}, "by the mean over the draws (by", True),
        (Vi(n_steps=2, n_draws=2), {}, "by the mean over the draws of all trees (by", True),
        (Vi(n_steps=2, n_draws=2), {"prediction": "tree"}, "by the deterministic tree", False),
    ],
)
def test_the_fit_predicts_as_its_plan_says(inference, given, predicts, averages):
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(inference=inference, max_depth=1, random_state=0, **given)
    assert f"  predicts  {predicts}" in str(clf.plan(X, y))
    assert clf.fit(X, y).fitted_.averages(clf.prediction) == averages


@pytest.mark.parametrize(
    ("given", "columns"), [({}, 3), ({"sparsity": 0.1}, 12), ({"max_columns": 1}, 1)]
)
def test_sparse_trees_have_the_columns_of_their_plan(given, columns):
    clf = ConvexPolytopeTreeClassifier(**given)
    found = polytope_plan(clf.get_params(deep=False), Categorical(2), Table(500, 20, 2))
    task = SimpleNamespace(plan=found, encoding=SimpleNamespace(places=()), feature_names=())
    assert found.max_columns == clf._projection(task)._sparsity.most == columns


def test_changed_parameters_make_another_plan():
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(
        inference=Map(epochs=1, steepness=(1.0, 1.0)), max_depth=1, random_state=0
    ).fit(X, y)
    assert clf.set_params(inference__epochs=2).plan(X, y).last.epochs == 2
    assert clf.set_params(inference="auto").plan(X, y).method == "vi"
    assert clf.plan_.last.epochs == 1  # of the fit
    for inference in ("svi", [Growth(), Svi()]):
        with pytest.raises(ParameterError, match="not one object with settings: set one first"):
            clf.set_params(inference=inference).set_params(inference__epochs=3)


def test_rows_of_no_weight_do_not_count():
    X, y = table()
    weights = np.r_[np.zeros(10), np.ones(50)]
    assert ConvexPolytopeTreeClassifier().plan(X, y, weights).table.n_rows == 50


def test_batches_follow_the_parameters():
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(inference=Svi(epochs=1), n_modes=1, random_state=0)
    clf.partial_fit(X, y).set_params(inference=Svi(epochs=2)).partial_fit(X, y)
    if clf.get_n_leaves() > 1:
        assert clf.posterior_.stats["epochs"] == 2


def test_rows_may_stay_in_a_file_if_the_plan_reads_them_in_chunks():
    assert ConvexPolytopeTreeClassifier()._in_parts()
    assert ConvexPolytopeTreeRegressor(inference="map")._in_parts()
    assert not ConvexPolytopeTreeClassifier(inference="vi")._in_parts()
    assert not ConvexPolytopeTreeRegressor(leaf="linear")._in_parts()


def test_members_have_the_plan_of_one_tree():
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(inference="grow", n_modes=2, max_depth=1, random_state=0)
    clf.fit(X, y)
    assert clf.plan_.n_trees == 2
    assert [one.plan_.n_trees for one in clf.modes_] == [1, 1]
    forest = EndToEndForestClassifier(n_estimators=2, max_depth=1, epochs=1, random_state=0)
    forest.fit(X, y)
    assert [one.plan_.table.n_rows for one in forest.estimators_] == [60, 60]


def test_batches_keep_the_plan_of_the_first():
    X, y = table()
    clf = ConvexPolytopeTreeClassifier(
        inference=Svi(epochs=1), n_modes=1, n_experts=1, max_depth=1, random_state=0
    )
    for rows in (slice(0, 40), slice(40, 60)):
        clf.partial_fit(X[rows], y[rows])
    assert clf.plan_.table.n_rows == 40
    assert not clf.plan_.sparse
