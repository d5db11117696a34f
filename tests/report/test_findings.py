"""The sentences at the top of the page, for predictions with known errors."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayestree
from bayestree.diagnostics import calibration
from bayestree.models import Categorical
from bayestree.report.findings import (
    Finding,
    _calibration,
    _depends,
    _intervals,
    _leak,
    _prediction,
    _tree,
    _uncertainty,
    answer_of,
)
from bayestree.report.rows import Effect, LabelledRows, Range
from bayestree.report.scores import ScoreLine, Scores, scores_of
from bayestree.report.study import Study, study_of

N = 4000


def found(probability, y):
    """The finding about probabilities of class 1 of held-out rows."""
    study = SimpleNamespace(
        calibration=calibration(y, probability), scored=SimpleNamespace(held_out=True)
    )
    return _calibration(study)


def drawn(true, seed=0):
    return (np.random.default_rng(seed).uniform(size=len(true)) < true).astype(int)


TRUE = np.linspace(0.02, 0.98, N)
LOGIT = np.log(TRUE / (1 - TRUE))


def sharpened(factor):
    """The probabilities with their log-odds multiplied."""
    return 1 / (1 + np.exp(-factor * LOGIT))


def test_true_probabilities_come_true():
    finding = found(TRUE, drawn(TRUE))
    assert finding.tone == "ok"
    assert finding.text.startswith("Probabilities are well calibrated")


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.5, "not confident enough"), (2.0, "too confident")]
)
def test_the_direction_is_that_of_the_error(factor, verdict):
    finding = found(sharpened(factor), drawn(TRUE))
    assert finding.text.startswith(f"Probabilities are {verdict}: ")
    assert finding.tone == "doubtful"


def test_two_impossible_rows_do_not_turn_the_verdict():
    """Like those of a forest with cautious votes, except two rows that no tree voted for."""
    p, y = sharpened(0.5), drawn(TRUE)
    p[:2], y[:2] = 0.0, 1
    says = found(p, y).text
    assert says.startswith("Probabilities are not confident enough: ")
    assert says.endswith(" 2 held-out rows have a class with a predicted probability of 0.")


def test_errors_in_both_directions_are_told_apart():
    p = np.where(np.arange(N) % 2, 0.6, 0.9)
    y = drawn(np.where(np.arange(N) % 2, 0.9, 0.6))
    assert "some too high and some too low" in found(p, y).text


@pytest.mark.parametrize(("off", "tone"), [(0.04, "ok"), (0.07, "doubtful")])
def test_small_errors_are_calibrated_whatever_the_number_of_rows(off, tone):
    p = np.where(np.arange(N) % 2, 0.7, 0.8)
    assert found(p, drawn(p - off)).tone == tone  # standard errors are .007
    coverage, scored = (np.array([0.5, 0.9 - off]), N), SimpleNamespace(held_out=True)
    assert _intervals(SimpleNamespace(coverage=coverage, scored=scored)).tone == tone


@pytest.mark.parametrize(("held_out", "verdict"), [(False, "Do not trust it"), (True, "Trust it")])
def test_noise_is_not_trusted_without_held_out_rows(held_out, verdict):
    lines = [
        ScoreLine("accuracy", 0.9, is_share=True, baseline=0.8),
        ScoreLine("baseline", 0.6, is_share=True),
    ]
    scores = Scores(lines, "100 rows", held_out, "logistic regression", 0.02)
    convergence = SimpleNamespace(no_better_than_constant=True)
    study = SimpleNamespace(
        classifies=True, survives=False, is_forest=False, effects=[], importance=None,
        target="kind", data={"target": "kind"}, convergence=convergence,
    )  # fmt: skip
    answer = answer_of(study, scores, [])
    assert answer.verdict == verdict
    assert ("better than a constant" in answer.sentences[-1]) != held_out


@pytest.mark.parametrize(
    ("tones", "verdict"),
    [
        (("ok", "ok"), "Trust it"),
        (("doubtful", "ok"), "Doubtful"),
        (("doubtful", "failed"), "Do not trust it"),
    ],
)
def test_the_verdict_is_that_of_the_worst_reason(tones, verdict):
    lines = [
        ScoreLine("accuracy", 0.9, is_share=True, baseline=0.8),
        ScoreLine("baseline", 0.6, is_share=True),
    ]
    scores = Scores(lines, "100 held-out rows", True, "logistic regression", 0.02)
    findings = [
        Finding(topic, "", tone)
        for topic, tone in zip(("Calibration", "Convergence"), tones, strict=True)
    ]
    study = SimpleNamespace(
        classifies=True, survives=False, is_forest=False, effects=[], importance=None,
        target="kind", data={"target": "kind"}, convergence=None,
    )  # fmt: skip
    answer = answer_of(study, scores, findings)
    assert answer.verdict == verdict
    assert "it predicts better than logistic regression" in [one.text for one in answer.reasons]
    constant = scores._replace(each=[lines[0]._replace(value=0.5), lines[1]])
    assert answer_of(study, constant, findings).verdict == "Do not trust it"


class Fitted:
    """Predicts the sign of the first feature."""

    classes_ = np.array(["a", "b"])
    tree = SimpleNamespace(value=np.eye(2), class_names=("a", "b"), n_features=2)
    response = SimpleNamespace(leaf=Categorical(2))
    fitted_ = SimpleNamespace(hard_trees=[(1.0, tree)], forest=False, response=response)

    def predict_proba(self, X):
        right = np.where(X[:, 0] > 0, 0.9, 0.1)
        return np.stack([1 - right, right], axis=1)


def test_a_tree_is_compared_with_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.where(X[:, 1] > 0, "b", "a")  # what logistic regression finds, and the tree does not
    train, held = (
        LabelledRows(X[part], y[part], np.ones(300), held_out)
        for part, held_out in ((slice(300), False), (slice(300, None), True))
    )
    study = Study(Fitted(), train, held)
    scores = scores_of(study)
    accuracy = scores.get("accuracy")
    own, other = (X[300:, 0] > 0) == (y[300:] == "b"), study.baseline.model.predict(X[300:])
    right = other == y[300:]
    assert accuracy.baseline == right.mean() > 0.9
    gap, error = own.mean() - right.mean(), np.std(own * 1.0 - right) / np.sqrt(300)
    assert scores.baseline_error == pytest.approx(error)
    says = _prediction(study, scores).text
    assert "logistic regression, fitted to the same training rows, is correct for" in says
    scores = scores_of(Study(Fitted(), train, held, metrics={"training_rows": 5000}))
    assert "logistic regression, fitted to 300 of the training" in _prediction(study, scores).text
    minus = "\N{MINUS SIGN}"
    assert f"difference {minus}{-100 * gap:.1f} ± {100 * error:.1f} percentage points" in says


def test_the_standard_error_of_a_score_is_that_of_weighted_rows():
    """The mean is 6 / 8; rows of the shares 5/8, 1/8, 1/8, 1/8 are 1/4, 3/4, 3/4, 1/4 off."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    y = np.array(["b", "b", "a", "a"])  # Fitted is wrong about the middle rows
    held = LabelledRows(X, y, np.array([5.0, 1.0, 1.0, 1.0]), held_out=True)
    scores = scores_of(Study(Fitted(), None, held))
    accuracy = scores.get("accuracy")
    assert accuracy.value == pytest.approx(6 / 8)
    variance = (5 / 8) ** 2 / 16 + (9 + 9 + 1) / 16 / 8**2
    assert accuracy.error == pytest.approx(np.sqrt(variance))
    assert scores.get("baseline").value == pytest.approx(6 / 8)  # of "b"


def test_the_most_uncertain_node_is_named():
    table = pd.DataFrame({"unsure": [0.1, 0.6, np.nan]}, index=["root", "L", "R"])
    rows = SimpleNamespace(kind="held-out rows")
    study = SimpleNamespace(uncertainty=True, evaluated=rows, uncertainty_table=table)
    said = _uncertainty(study).text.replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith("At node L, the most uncertain one, 60.0 % of the held-out rows may")


def test_the_span_of_leaves_leaves_out_a_twentieth_at_either_end():
    sizes = SimpleNamespace(n_leaves=np.arange(1, 101).reshape(4, 25))
    tree = SimpleNamespace(n_nodes=7, n_leaves=8, depth=3)
    said = _tree(SimpleNamespace(is_forest=False, tree=tree, sizes=sizes)).text
    assert said.endswith("The posterior uses 5 to 95 leaves (90\N{NO-BREAK SPACE}%).")


@pytest.mark.parametrize(
    ("held", "named"),
    [
        (None, "a (predicted y rises from 1 to 3)"),
        ([0], "a (predicted y rises from 1 to 3), b and c"),
    ],
)
def test_columns_with_an_established_loss_matter(held, named):
    """Where the rows of the fit are scored, it must exceed a twentieth of the largest, here 0.1."""
    losses = [
        Range(2.0, 1.0, 3.0),
        Range(0.5, 0.09, 0.9),
        Range(0.4, 0.05, 0.7),
        Range(1.0, -0.1, 2.0),
    ]
    curve = SimpleNamespace(grid=np.arange(3.0), mean=np.array([1.0, 2.0, 3.0]))
    study = SimpleNamespace(
        effects=[
            Effect(column, curve, 0, "unclear" if column else "rises", loss)
            for column, loss in enumerate(losses)
        ],
        columns=list("abcd"), held=held, classifies=False, survives=False, target="y",
    )  # fmt: skip
    assert _depends(study) == f"What matters most is {named}."
    study.effects = study.effects[3:]
    assert _depends(study).startswith("No column has an established effect")


@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_a_column_that_determines_y_alone_is_a_likely_leak(kind):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(40, 9, 200), "place": rng.choice(list("abc"), 200)})
    cost = pd.Series(50 + 3 * X["age"] + rng.normal(0, 20, 200), name="claim")
    y = cost if kind == "Regressor" else (cost > 170).astype(int)
    leaks = []
    for table in (X, X.assign(refund=y * rng.uniform(0.999, 1.001, 200))):
        tree = getattr(bayestree, f"ConvexPolytopeTree{kind}")(n_modes=2, random_state=0)
        study = study_of(tree.fit(table, y), X=table, y=y)
        leaks.append(_leak(study, scores_of(study)))
    assert leaks[0] is None
    assert leaks[1].text.startswith("refund alone predicts claim almost without error. Leave it")
    assert leaks[1].tone == "doubtful"
    if kind == "Classifier":  # of 20 rows, 10 are right by chance
        few = study_of(tree, X_held=table.head(20), y_held=y.head(20))
        assert _leak(few, scores_of(few)) is None
