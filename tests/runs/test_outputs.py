"""Scores: worked examples."""

import numpy as np
import pandas as pd
import pytest

from bayestree import ConvexPolytopeTreeClassifier
from bayestree.cli.shared import score_lines
from bayestree.inference import Map
from bayestree.report.rows import rows_of
from bayestree.report.scores import scores_of
from bayestree.report.study import Study, fit_baseline
from bayestree.runs.outputs import _baseline_scores, _objective, format_scores, predictions, scored
from bayestree.runs.store import open_run
from tests.finished import finished

X = pd.DataFrame({"x": [0.0, 1.0, 2.0]})


class Classifier:
    classes_ = np.array(["a", "b"])

    def predict_proba(self, X):
        return np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])


class Regressor:
    def predict(self, X):
        return X["x"].to_numpy()


class TestClasses:
    def test_scores(self):
        found = scored(Classifier(), X, np.array(["a", "b", "a"]), None)
        assert found == {
            "accuracy": pytest.approx(2 / 3),
            "accuracy_of_most_frequent_class": pytest.approx(2 / 3),
            "log_loss": pytest.approx(-np.log([0.9, 0.6, 0.2]).mean()),
        }

    def test_weights(self):
        found = scored(Classifier(), X, np.array(["a", "b", "a"]), np.array([1.0, 0.0, 3.0]))
        assert found["accuracy"] == 0.25
        assert found["accuracy_of_most_frequent_class"] == 1.0
        assert found["log_loss"] == pytest.approx(-(np.log(0.9) + 3 * np.log(0.2)) / 4)

    def test_weights_of_zero_count_as_one(self):
        y = np.array(["a", "b", "a"])
        assert scored(Classifier(), X, y, np.zeros(3)) == scored(Classifier(), X, y, None)

    def test_a_class_that_training_did_not_hold(self):
        found = scored(Classifier(), X, np.array(["c", "b", "b"]), None)
        assert np.isfinite(found["log_loss"])
        assert found["accuracy"] == pytest.approx(2 / 3)

    def test_predictions(self):
        found = predictions(Classifier(), X)
        assert list(found.columns) == ["prediction", "p(a)", "p(b)"]
        assert list(found["prediction"]) == ["a", "b", "b"]


class TestNumbers:
    def test_scores(self):
        found = scored(Regressor(), X, np.array([0.0, 1.0, 5.0]), None)
        assert found["rmse"] == pytest.approx(np.sqrt(3.0))
        assert found["r2"] == pytest.approx(1 - 9 / 14)

    def test_one_row_has_no_r2(self):
        assert scored(Regressor(), X[:1], np.array([2.0]), None) == {"rmse": 2.0}

    def test_predictions_without_a_model_of_y(self):
        assert list(predictions(Regressor(), X).columns) == ["prediction"]


class TestBaseline:
    @pytest.mark.parametrize(("kind", "name"), [("svi", "logistic"), ("numbers", "ridge")])
    def test_metrics_have_the_scores_of_a_linear_model(self, kind, name):
        run = open_run(finished(kind))
        rows, found = run.rows(), run.metrics["baseline"]
        model = fit_baseline(
            rows.X, rows.y, rows.weights, classifies=run.columns.task == "classification"
        ).model
        assert found["model"] == f"{name} regression"
        assert found["training_rows"] == 64
        own = found["accuracy" if kind == "svi" else "r2"]
        assert own == pytest.approx(model.score(rows.X_held, rows.y_held))
        assert "accuracy_of_most_frequent_class" not in found

    def test_rows_of_weight_zero_are_not_fitted_to(self):
        rows = open_run(finished("numbers")).rows()
        kept = np.arange(len(rows.X)) % 3 > 0
        some = rows._replace(X=rows.X[kept], y=rows.y[kept], weights=rows.weights[kept])
        found = _baseline_scores(rows._replace(weights=kept * 1.0))
        assert found == pytest.approx(_baseline_scores(some))

    def test_the_report_has_the_same(self):
        run = open_run(finished("svi"))
        rows = run.rows()
        given = rows_of(run.estimator, rows.X, rows.y, rows.weights, held_out=False)
        held = rows_of(run.estimator, rows.X_held, rows.y_held, rows.weights_held, held_out=True)
        scores = scores_of(Study(run.estimator, given, held, metrics=run.metrics))
        for key in ("accuracy", "log_loss"):
            assert scores.get(key).baseline == pytest.approx(run.metrics["baseline"][key])


def test_format_scores():
    assert format_scores({"log_loss": 0.123456, "r2": 1.0}) == "log loss 0.1235, r2 1"


@pytest.mark.parametrize(
    ("objective", "key", "label"),
    [
        ("likelihood", "log_joint", "log joint density: "),
        ("impurity", "impurity", "objective (impurity): "),
    ],
)
def test_what_map_has_reached_is_named_after_its_objective(objective, key, label):
    rows = np.arange(40.0)[:, None]
    stage = Map(epochs=2, objective=objective)
    tree = ConvexPolytopeTreeClassifier(max_depth=1, inference=stage).fit(rows, rows[:, 0] > 19)
    found = _objective(tree)
    assert found == {"objective": {key: [tree.posterior_.stats["log_joint"][-1]]}}
    _, line = score_lines({"scored_rows": 40, "scored_on": "training rows"} | found)
    assert line.startswith(label)
