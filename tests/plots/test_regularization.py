"""Error against size over a series of penalties."""

from types import SimpleNamespace

import numpy as np
import pytest

from bayestree import plots
from tests.plots.cases import drawn


def path(classifies=True):
    one = SimpleNamespace(**({"classes_": [0, 1]} if classifies else {}))
    return SimpleNamespace(
        lambdas=np.array([0.1, 1.0, 10.0]),
        train_score=np.array([1.0, 0.95, 0.8]),
        score=np.array([0.9, 0.92, 0.79]),
        nonzeros=np.array([200, 30, 0]),
        leaves=np.array([9, 5, 1]),
        best=1,
        estimators=(one,),
    )


@pytest.mark.parametrize("classifies", [False, True])
def test_errors_and_sizes_stand_where_they_should(classifies):
    ax = plots.regularization_path(path(classifies))
    drawn(ax)
    factor = 100 if classifies else 1
    train, validation, best = ax.lines
    np.testing.assert_array_equal(train.get_xdata(), [200, 30, 1])
    np.testing.assert_allclose(train.get_ydata(), factor * np.array([0, 0.05, 0.2]), atol=1e-12)
    np.testing.assert_allclose(validation.get_ydata(), factor * np.array([0.1, 0.08, 0.21]))
    assert best.get_xdata() == [30]
    assert best.get_label() == "λ = 1, 5 leaves"
    assert [text.get_text() for text in ax.texts] == ["0.1", "1", "10"]


def test_wants_a_path():
    with pytest.raises(TypeError, match=r"bayestree.regularization_path, got int"):
        plots.regularization_path(3)
