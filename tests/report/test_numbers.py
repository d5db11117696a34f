"""Numbers in the texts of a report, computed by hand."""

import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

import bayestree as bt
from bayestree import export_text
from bayestree.diagnostics import calibration, evidence
from bayestree.inference import Vi
from bayestree.report import cards, comparison, figures, findings, sections, what_if
from bayestree.report.compared import Compared, agreement_of
from bayestree.report.rows import trend_of
from bayestree.report.scores import scores_of
from bayestree.report.study import Study, study_of, with_minus
from bayestree.report.trees import LabelledTree, compared_modes
from bayestree.topology import Topology
from bayestree.tree import Tree

N = 90
SHORT = {"inference": Vi(n_steps=3, n_draws=8), "n_modes": 2, "mode_weights": "equal"}
SHORT |= {"max_depth": 2, "n_experts": 2, "min_leaf": 5, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(2 * N, 3))
value = 2 * X[:, 0] + np.abs(X[:, 1]) + 0.5 * rng.normal(size=2 * N)
label = (value > 0.5).astype(int) + (X[:, 2] > 1)
weights = rng.integers(1, 4, size=2 * N).astype(float)
copies = np.repeat(np.arange(N), weights[N:].astype(int))  # of held-out rows


@pytest.fixture(scope="module")
def studies():
    made = {"classes": bt.ConvexPolytopeTreeClassifier, "numbers": bt.ConvexPolytopeTreeRegressor}
    found = {}
    for name, y in (("classes", label), ("numbers", value)):
        fit = made[name](**SHORT).fit(X[:N], y[:N], weights[:N])
        rows = {"X": X[:N], "y": y[:N], "weights": weights[:N]}
        held = {"X_held": X[N:], "y_held": y[N:], "weights_held": weights[N:]}
        found[name] = study_of(fit, **rows, **held)
    return found


def in_text(text):
    """The numbers of a text, as they are written."""
    return re.findall(r"-?\d+(?:\.\d+)?", text.replace("\N{MINUS SIGN}", "-").replace(",", ""))


def flat(values):
    nested = isinstance(values, list | tuple | np.ndarray)
    return [one for own in values for one in flat(own)] if nested else [values]


def assert_written(said, expected):
    """Whether numbers are those that are expected, to the last digit that is written."""
    for one, own in zip(flat(said), flat(expected), strict=True):
        digits = len(one.partition(".")[2]) if isinstance(one, str) else 9
        assert float(one) == pytest.approx(float(own), abs=0.501 * 10.0**-digits)


def quartiles(study):
    each = np.repeat(value[:N], weights[:N].astype(int))
    expected = np.quantile(each, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf")
    return sections.data(study)[1]["quartiles"], expected


def held_out_of_leaves(study):
    tree = LabelledTree(study, study.tree, "")
    leaf, y = study.tree.apply(X[N:][copies]), study.held.y[copies]
    said = cards.leaf_cards(study, tree, [0, 1, 2])
    expected = [
        ((leaf == one).sum(), (y[leaf == one] == study.tree.value[one].argmax()).sum())
        if study.classifies
        else ((leaf == one).sum(), y[leaf == one].mean())
        for one in range(3)
    ]
    return [in_text(one["held"])[:2] for one in said], expected


def uncertainty_of_nodes(study):
    found = study.uncertainty
    reached, apart = found.reached[copies, 1], found.disagreement[copies, 1]
    parts = (reached.sum().round(), 100 * (reached @ (apart > 0.1)) / reached.sum())
    return in_text(cards._uncertainty(study, 1)), [
        *parts, 10, 100 * (reached @ apart) / reached.sum(),
    ]  # fmt: skip


def sides_in_the_histogram(study):
    sample = cards._sample(study, study.tree)
    drawn = cards._histogram(study, LabelledTree(study, study.tree, ""), 0, sample)
    right = study.tree.goes_right(0, X[:N]).sum()
    said = re.search('Histogram of .*?: (.*?)[<"]', drawn)[1]
    return in_text(said)[:2], (N - right, right)


def sources_of_uncertainty(study):
    found = study.uncertainty
    parts = (found.total_entropy, found.mutual_information)
    if not study.classifies:
        parts = (found.total_variance, found.explained)
    total, posterior = (one[copies].mean() for one in parts)
    return in_text(sections._sources(found)), (total, 100 * posterior / total)


def size_of_the_tree(study):
    tree = study.tree
    return in_text(findings._tree(study).text)[:3], (tree.n_nodes, tree.n_leaves, tree.depth)


def modes(study):
    found, fit = compared_modes(study), study.estimator
    predict = "predict_proba" if study.classifies else "predict"
    mean, leaf = getattr(fit, predict)(X[N:]), fit.apply(X[N:])
    expected, said = [], []
    for line in found["modes"]:
        mode = fit.modes_[line["number"] - 1]
        other = mode.apply(X[N:])
        alike = [
            (leaf[i] == leaf[j]) == (other[i] == other[j]) for i, j in combinations(range(N), 2)
        ]
        apart = np.abs(getattr(mode, predict)(X[N:]) - mean).mean()
        expected += [apart, np.mean(alike)]
        said += [*in_text(line["apart"]), line["alike"]]
    return said, expected


def leaves_of_disagreement(study):
    found, fit = compared_modes(study)["groups"], study.estimator
    each, mean = [one.predict(X[N:]) for one in fit.modes_], fit.predict(X[N:])
    if study.classifies:
        size = 100 * np.mean([one != mean for one in each], axis=0)
    else:
        size = np.sqrt(np.mean([(one - mean) ** 2 for one in each], axis=0))
    leaf = np.array([study.tree.topology.leaf_labels[one] for one in fit.apply(X[N:])])
    expected = [(np.sum(leaf == one["path"]), size[leaf == one["path"]].mean()) for one in found]
    return [(one["rows"], *in_text(one["apart"])) for one in found], expected


def sizes_of_polytopes(study):
    found = study.sizes
    said = sections._size_row(study, found, 0)
    own = (found.facets, found.weights, found.effective)
    prior = getattr(found._known_prior(), found.headline)[:, 0].mean()
    texts = (said["box"], said["weights"], said["effective"], said["prior"])
    return texts, [*(one[:, :, 0].mean() for one in own), prior]


def bound_of_evidence(study):
    trace = study.posterior.stats["elbo"]
    said = re.search("lower bound over .*? from (.*?) nats", figures.elbo(study.posterior))[1]
    return in_text(said), np.round([trace[0], trace[-1]])


def distance_of_predictions(study):
    compared = Compared({"one": study, "other": study_of_one_mode(study)})
    (found,) = comparison.predictions(compared)[1]["agreements"]
    apart = np.abs(study.predicted - compared.studies[1].predicted)
    if study.classifies:
        apart = np.abs(study.probability - compared.studies[1].probability).sum(axis=1) / 2
    return in_text(found["distance"]), [apart[copies].mean()]


def probabilities_of_the_truth(study):
    """Or predicted numbers."""
    found = agreement_of(study, study_of_one_mode(study))
    if not study.classifies:
        return found.values[0], study.predicted
    place = [[*study.labels].index(one) for one in study.held.target]
    return found.values[0], study.probability[np.arange(N), place]


def rows_of_the_largest_errors(study):
    groups = dict(what_if._choice(study).groups)
    if study.classifies:
        right = probabilities_of_the_truth(study)[1]
        error = study.probability.max(axis=1) - right
    else:
        error = np.abs(study.held.y - study.predicted)
    found = groups["Rows with the largest errors"]
    return found, np.argsort(-error, kind="stable")[: len(found)]


def columns_that_matter(study):
    """By the splits; features are named x0, x1 and x2."""
    other = study_of_one_mode(study)
    found = comparison._findings(Compared({"7": study, "8": other}))
    (said,) = (one.text for one in found if one.topic == "Features")
    shares = [one.importance.total for one in (study, other)]
    order = [np.argsort(-share) for share in shares]
    # as few columns as have 90 % of the importance
    main = [j[np.cumsum(s[j]) - s[j] < 0.9] for s, j in zip(shares, order, strict=True)]
    parts = {"importance": study.importance, "columns": study.columns, "image_shape": None}
    answer = findings._depends(SimpleNamespace(effects=[], **parts))
    return (in_text(said), in_text(answer)), (
        [*main[0], 7, *main[1], 8],
        order[0][: np.count_nonzero(shares[0])],
    )


def uncertainty_of_rows(study):
    found = study.uncertainty
    said = str(found).partition("Mean over the rows: ")[2]
    return in_text(said), [part[copies].mean() for part in found._parts().values()]


def sparse_facets(study):
    """Coefficients, and what the best of the longer trees would gain."""
    fit, path = study.estimator, study.estimator.sparsity_path()
    kept, best = np.count_nonzero(study.tree.hyperplane), path.loss.argmin()
    text = " ".join(export_text(fit).split())
    note = re.search("summary of the posterior: [0-9]+", text)[0]
    gain, own = path.loss[-1] - path.loss[best], 100 * path.agreement[-1]
    longer = (path.coefficients[best], gain, path.se[-1]) if gain > 0 else ()
    said = in_text(note), in_text(path.summary)
    return said, ((kept,), (kept, path.columns[-1], *longer, own))


def study_of_one_mode(study):
    one = study.estimator.modes_[0]
    return study_of(one, X_held=X[N:], y_held=study.held.y, weights_held=weights[N:])


CASES = [
    (make, kind)
    for make in (
        quartiles, held_out_of_leaves, uncertainty_of_nodes, sides_in_the_histogram,
        sources_of_uncertainty, size_of_the_tree, modes, leaves_of_disagreement,
        sizes_of_polytopes, bound_of_evidence, distance_of_predictions, uncertainty_of_rows,
        sparse_facets, probabilities_of_the_truth, rows_of_the_largest_errors, columns_that_matter,
    )
    for kind in ("classes", "numbers")
    if make is not quartiles or kind == "numbers"
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind"), CASES)
def test_numbers_are_those_by_hand(studies, make, kind):
    said, expected = make(studies[kind])
    assert len(expected)
    assert_written(said, expected)


def test_a_uniform_guess_has_the_log_loss_of_three_classes(studies):
    assert in_text(scores_of(studies["classes"]).get("log_loss").reference) == ["1.10"]


def test_what_exceeds_calibration_has_its_standard_error():
    right = np.arange(400) < 240
    said, tone = findings._verdict(calibration(right.astype(int), np.full(400, 0.9)))
    error = 100 * np.sqrt(0.6 * 0.4 / 400)
    assert tone == "doubtful"
    assert_written(in_text(said), [90, 60, 30, error])


@pytest.mark.parametrize(("share", "tone"), [(0.845, "ok"), (0.835, "doubtful")])
def test_intervals_may_miss_two_standard_errors(share, tone):
    """Those of 100 rows are 0.9 - 2 sqrt(0.9 0.1 / 100) = 0.84."""
    rows = SimpleNamespace(held_out=True)
    study = SimpleNamespace(coverage=(np.array([share]), 100), scored=rows)
    assert findings._intervals(study).tone == tone


def test_minus_signs_are_true_but_in_dates():
    assert [*map(with_minus, ("-2", "1e-05", "2019-03-07 10:00"))] == [
        "\N{MINUS SIGN}2",
        "1e\N{MINUS SIGN}05",
        "2019-03-07 10:00",
    ]


def test_seconds_are_added():
    each = [{"fit": 2.0, "report": 1.5}, {"fit": 4.0}]
    made = [SimpleNamespace(manifest={"seconds": one}, run_file="") for one in each]
    compared = SimpleNamespace(studies=made, pairs=zip("ab", made, strict=True))
    stages = comparison.repeat(compared)[1]["stages"]
    assert dict(stages)["together"] == ["3.5", "4.0"]


def test_a_curve_rises_by_how_much_and_not_by_how_often():
    mean = np.array([0.0, 5.0, 4.9, 4.8])
    curve = SimpleNamespace(grid=np.arange(4.0), mean=mean, low=mean - 1, high=mean + 1)
    assert trend_of(curve) == "rises"


def test_the_evidence_has_its_standard_error():
    runs = {"log_evidence": np.array([-10.0, -10.0 + np.log(3)]), "n_leaves": np.ones((2, 8), int)}
    said = str(evidence(runs | {"depth": np.zeros((2, 8), int)}))
    assert said.startswith("Log evidence -9.31 (standard error 0.50), 2 runs of 8 draws")


def test_the_size_of_a_polytope_is_a_median_with_its_interval():
    sizes = SimpleNamespace(
        interval=lambda: np.array([[1.0, 9.0]]), median=lambda: np.array([3]),
        has_prior=True, labels=range(9), prior=SimpleNamespace(), prior_probabilities=lambda: 5,
    )  # fmt: skip
    assert Study.size_text(SimpleNamespace(sizes=sizes), 0) == "3 (1 to 9)"
    # The prior of more than 8 nodes takes long, unless it has been counted before.
    found = vars(Study)["size_prior"].func
    assert found(SimpleNamespace(sizes=sizes)) is None
    sizes.prior.counts = 1
    assert found(SimpleNamespace(sizes=sizes)) == 5


@pytest.mark.parametrize(("n_nodes", "n_draws"), [(1, 100), (120, 50), (6000, 10)])
def test_polytopes_of_many_nodes_are_measured_in_fewer_draws(n_nodes, n_draws):
    study = SimpleNamespace(
        has_split_draws=True, known_sizes=None, tree=SimpleNamespace(n_nodes=n_nodes),
        soft=SimpleNamespace(polytope_size=lambda max_draws: max_draws),
    )  # fmt: skip
    assert vars(Study)["sizes"].func(study) == n_draws


def leaning(n_facets=1):
    """A stump whose facets are 3 x0 + 4 x1 <= 2, of features of the scales 1 and 1/2."""
    return Tree.from_standardised(
        Topology.stump(),
        np.ones((1, n_facets)),
        np.full((1, n_facets, 2), [3.0, 2.0]),
        np.full((1, n_facets), -2.0),
        center=np.zeros(2),
        scale=np.array([1.0, 0.5]),
    ).fill(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 1]), np.ones(2), 2)


def test_coefficients_of_a_facet_have_the_length_1_and_squares_as_shares():
    study = SimpleNamespace(features=("x0", "x1"), image_shape=None)
    (row,) = cards._point_facets(study, leaning(), 0, brief=False)["rows"]
    found = [(one["name"], one["value"], one["strength"]) for one in row["coefficients"]]
    assert found == [("x0", "0.6", 9 / 13), ("x1", "0.8", 4 / 13)]


def test_margins_are_positive_on_the_right():
    """The log-odds of one facet, and of two votes that add up."""
    rows, one = np.array([[0.0, 0.0], [2.0, 1.0]]), leaning()
    np.testing.assert_allclose(cards.log_odds(one, 0, rows), [-2.0, 8.0])
    votes = 2 * np.logaddexp(0, [-2.0, 8.0])
    np.testing.assert_allclose(cards.log_odds(leaning(2), 0, rows), np.log(np.expm1(votes)))


def test_held_out_rows_are_those_that_were_scored():
    """The page may hold fewer of them."""
    study = SimpleNamespace(
        data={}, training_rows=9.0, held=range(3), metrics={"scored_rows": 50}, posterior=None,
        encoding=SimpleNamespace(is_plain=True), features=("x0",), manifest={},
    )  # fmt: skip
    facts = dict(sections._facts(study))
    assert (facts["Training rows"], facts["Held-out rows"]) == ("9", "50")


def test_bars_of_importance_are_relative_to_the_largest(studies):
    study = studies["classes"]
    total = -np.sort(-study.importance.total)
    used = [one[1:] for one in sections.features(study)[1]["used"]]
    np.testing.assert_allclose(used, np.stack((total, total / total[0]), axis=1)[: len(used)])


def test_the_ends_of_a_histogram_are_probabilities(monkeypatch):
    """Those of the log-odds -2 and 2: twice the distances of rows one unit from the border."""
    monkeypatch.setattr(figures, "picture", lambda draw, *_, **__: draw.keywords["ends"])
    posterior = SimpleNamespace(model=SimpleNamespace(steepness=2.0))
    study = SimpleNamespace(has_split_draws=True, posterior=posterior)
    tree = SimpleNamespace(side_names=("yes", "no"), classes=("a", "b"), anchor=str)
    sample = cards.Sample({0: np.array([-1.0, 1.0])}, {})
    assert cards._histogram(study, tree, 0, sample) == ("P(no) = 0.12", "0.88")
