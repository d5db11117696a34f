"""How notebooks show fitted trees."""

import pandas as pd
import pytest
from sklearn import config_context

from tests.fitted_cases import CLASSIFIERS, REGRESSORS, rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("name", ["polytopes", "forest", "bivariate"])
def test_a_fitted_tree_is_shown(name):
    X, y, _ = rows()
    frame = pd.DataFrame(X, columns=["a<b", "c&d", "e", "f"])
    clf = CLASSIFIERS[name]()
    assert "<details open><summary>" not in clf._repr_html_()
    clf.fit(frame, y)
    for html in (clf._repr_html_(), clf._repr_mimebundle_()["text/html"]):
        assert "depth" in html
        assert html.count("<details open><summary>") == 1
        assert "a&lt;b" in html
        assert "leaf, " in html


def test_large_trees_are_counted_only(monkeypatch):
    monkeypatch.setattr("bayestree.estimators._estimator.MAX_LEAVES", 1)
    X, _, y = rows()
    reg = REGRESSORS["alternating"]().fit(X, y)
    html = reg._repr_html_()
    assert f"{reg.get_n_leaves()} leaves, depth {reg.get_depth()}" in html
    assert "bayestree.export_text writes it" in html


def test_text_displays_show_no_html():
    X, y, _ = rows()
    clf = CLASSIFIERS["bivariate"]().fit(X, y)
    with config_context(display="text"):
        assert not hasattr(clf, "_repr_html_")
        assert set(clf._repr_mimebundle_()) == {"text/plain"}
