"""The rows that a tree predicts worst, in a report of encoded rows as a run has them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

import bayestree
from bayestree.report.scores import confusion_of, residuals, worst_errors
from bayestree.report.study import study_of
from bayestree.tables import Features
from tests.explain.test_counterfactual import table


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    X["open"] = np.arange(len(X)) % 3 == 0
    return bayestree.AlternatingTreeClassifier(max_depth=2, random_state=0).fit(X, y), X, y


def encoded(clf, X):
    return Features.of(clf.encoding_.encode(X), clf.encoding_)


def test_the_rows_are_those_of_the_least_probable_classes_as_the_table_has_them(fitted):
    clf, X, y = fitted
    study = study_of(clf, X_held=encoded(clf, X), y_held=y)
    assert confusion_of(study) == confusion_matrix(y, clf.predict(X)).tolist()
    found = worst_errors(study)
    true = clf.predict_proba(X)[np.arange(len(X)), (y == clf.classes_[1]).astype(int)]
    wrong = np.flatnonzero(clf.predict(X) != y)
    assert found["wrong"] == len(wrong)
    assert [one["number"] for one in found["rows"]] == wrong[
        np.argsort(true[wrong], kind="stable")
    ][: len(found["rows"])].tolist()
    for one in found["rows"]:
        assert (one["true"], one["predicted"]) == (y[one["number"]], clf.predict(X)[one["number"]])
        for name, cell in zip(found["columns"], one["cells"], strict=True):
            value = X[name].iloc[one["number"]]
            if isinstance(value, str):
                assert value in cell
            elif isinstance(value, float) and not np.isnan(value):
                assert float(cell.replace("\N{MINUS SIGN}", "-")) == pytest.approx(value, rel=1e-3)


def test_rows_may_be_withheld(fitted):
    clf, X, y = fitted
    study = study_of(clf, X_held=encoded(clf, X), y_held=y, example_rows=False)
    assert worst_errors(study) is None
    assert residuals(study) is None, "those of regressions"


def test_encoded_rows_are_shown_as_those_of_the_table(fitted):
    clf, X, _ = fitted
    given, found = (clf.encoding_.shown(one) for one in (X, encoded(clf, X)))
    for name, expected, own in zip(clf.encoding_.names, given, found, strict=True):
        if name != "town":  # of many categories, whose features need not differ
            pd.testing.assert_series_equal(pd.Series(own), pd.Series(expected), obj=name)
