"""What is asked of a fit, in states of torch and NumPy that the caller has chosen."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from bayestree import (
    ConvexPolytopeTreeClassifier,
    export_onnx,
    export_rules,
    export_text,
    html_comparison,
    html_report,
    load,
    plots,
)
from bayestree.diagnostics import calibration
from bayestree.inference import Svi
from tests.unusual_state import unusual_state

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
y = X[:, 0] + 0.5 * X[:, 1] > 0
X[:20] *= 2_000  # so far away that exp(-score) underflows
SVI = Svi(epochs=5, n_draws=4)
SHORT = {"inference": SVI, "max_depth": 1, "n_modes": 1, "random_state": 0}
CALLS = {
    "report": lambda clf, _: html_report(clf, X=X, y=y, X_held=X, y_held=y),
    "comparison": lambda clf, _: html_comparison({"one": clf, "other": clf}, X=X, y=y),
    "text": lambda clf, _: export_text(clf) + export_rules(clf),
    "ONNX": lambda clf, _: export_onnx(clf),
    "tree": lambda clf, _: plots.tree(clf).figure.canvas.draw(),
    "boundary": lambda clf, _: plots.boundary(clf, X, y).figure.canvas.draw(),
    "shrinkage": lambda clf, _: plots.shrinkage(clf),
    "sides": lambda clf, _: plots.split_uncertainty(clf, X=X),
    "calibration": lambda clf, _: calibration(y, clf.predict_proba(X)[:, 1]),
    "deterministic tree": lambda clf, _: clf.tree_.score(0, X),
    "posterior": lambda clf, _: clf.posterior_.predictive(X),
    "explanation": lambda clf, _: str(clf.explain(X[30])),
    "robustness": lambda clf, _: clf.robustness(X[30]),
    "importance": lambda clf, _: clf.importance(X, y),
    "Shapley values": lambda clf, _: clf.shapley_values(X[:5]),
    "dependence": lambda clf, _: clf.partial_dependence(X, 0),
    "convergence": lambda clf, _: clf.check_convergence(X),
    "sizes": lambda clf, _: (clf.polytope_size(), clf.split_uncertainty(X), clf.facets()),
    "ArviZ": lambda clf, _: clf.to_arviz(X, y),
    "file": lambda clf, path: (clf.save(path), load(path).predict_proba(X)),
    "batches": lambda clf, _: [clone(clf).partial_fit(X, y)],
}


@pytest.fixture(scope="module")
def classifier():
    return ConvexPolytopeTreeClassifier(**SHORT).fit(X, y)


@pytest.mark.filterwarnings("ignore::bayestree.UnconvergedWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_fit_answers_in_any_state(classifier, call, tmp_path):
    with unusual_state():
        CALLS[call](classifier, tmp_path / "tree.safetensors")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_file_that_is_read_in_inference_mode_leaves_later_fits_alone(classifier, mode, tmp_path):
    path = tmp_path / "tree.safetensors"
    classifier.save(path)
    with mode():
        there = load(path).predict_proba(X)
    assert np.array_equal(there, classifier.predict_proba(X))
    again = ConvexPolytopeTreeClassifier(**SHORT).fit(X, y)
    assert np.array_equal(again.predict_proba(X), there)
