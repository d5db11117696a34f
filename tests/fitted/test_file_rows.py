"""Estimators on arrays that are mapped from files."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from bayestree import (
    AlternatingTreeClassifier,
    ConvexPolytopeTreeClassifier,
    ConvexPolytopeTreeRegressor,
    EndToEndForestClassifier,
    EndToEndTreeClassifier,
)
from bayestree.fitted import validation
from bayestree.fitted.training_rows import FileRows, mean_of, units
from bayestree.fitting.modes import Stages
from bayestree.inference import Data, Map, Svi, memory_mapped
from tests.sampling import quickly

N, WIDTH = 12_000, 4
SMALL = {"max_depth": 2, "dtype": "float32", "random_state": 0}
QUICK = SMALL | {"epochs": 4, "learning_rate": 0.05}
POLYTOPE = {"n_modes": 1, "n_experts": 3} | SMALL
MAP, SVI = Map(epochs=4, steepness=None), Svi(epochs=4, n_draws=4)


@pytest.fixture
def small(monkeypatch):
    """At most 2,000 mapped rows are in memory at a time."""
    monkeypatch.setattr(memory_mapped, "HELD", 2000 * WIDTH)


# A column of the table is constant.
pytestmark = pytest.mark.filterwarnings("ignore::bayestree.UnusedColumnsWarning")


def table(kind: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = (100 * rng.standard_normal((N, WIDTH))).astype(kind)
    X[:, 1] = 7  # constant
    return X, (X[:, 0] > 30) + 2 * (X[:, 2] + X[:, 3] > 0)


def in_file(X: np.ndarray, folder) -> np.memmap:
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


ESTIMATORS = [
    ConvexPolytopeTreeClassifier(inference="grow", **POLYTOPE),
    ConvexPolytopeTreeClassifier(inference=MAP, validation_fraction=0.2, **POLYTOPE),
    ConvexPolytopeTreeClassifier(inference=SVI, **POLYTOPE),
    EndToEndTreeClassifier(**QUICK),
    EndToEndTreeClassifier(inference=Svi(epochs=4, n_draws=3), prior="laplace", **QUICK),
]


@pytest.mark.usefixtures("small")
class TestLargeFiles:
    @pytest.fixture(autouse=True)
    def sizes(self, monkeypatch):
        """Numbers of rows that were read at a time; all of them at once fails."""
        read, sizes = FileRows.__getitem__, []

        def watched(self, rows):
            found = read(self, rows)
            assert len(found) <= 10_000
            sizes.append(len(found))
            return found

        monkeypatch.setattr(FileRows, "__getitem__", watched)
        monkeypatch.setattr("bayestree.routed_tree.CHUNK", 1000)
        monkeypatch.setattr("bayestree.tree.MOST_ROWS", 1000)
        return sizes

    @pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
    def test_classifiers(self, estimator, sizes, tmp_path):
        X, y = table()
        weights = np.where(np.arange(N) % 10 == 0, 0.0, 1.0)
        rows = in_file(X, tmp_path)
        fitted = estimator.fit(rows, y, weights)
        assert sizes
        assert fitted.tree_.leaf_rows.sum() == weights.sum()
        assert fitted.score(rows, y) > 0.5  # the most frequent class: 0.31
        np.testing.assert_allclose(fitted.predict_proba(rows), fitted.predict_proba(X), rtol=1e-5)
        np.testing.assert_array_equal(fitted.apply(rows), fitted.apply(X))

    def test_table_of_a_file(self, sizes, tmp_path):
        X, y = table()
        names = list("abcd")
        rows = pd.DataFrame(in_file(X, tmp_path), columns=names, copy=False)
        fitted = ConvexPolytopeTreeClassifier(inference=MAP, **POLYTOPE).fit(rows, y)
        assert sizes
        assert fitted.feature_names_in_.tolist() == names
        assert fitted.posterior_.model.topology.n_nodes > 0
        found = fitted.predict_proba(rows)
        np.testing.assert_allclose(
            found, fitted.predict_proba(pd.DataFrame(X, columns=names)), rtol=1e-5
        )

    @pytest.mark.portable
    def test_regressor(self, sizes, tmp_path):
        X, y = table("i2")
        rows = in_file(X, tmp_path)
        fitted = ConvexPolytopeTreeRegressor(**POLYTOPE).fit(rows, y * 100.0)
        assert sizes
        assert fitted.score(rows, y * 100.0) > 0.7
        some, own = rows[:2500], X[:2500]
        for found, expected in zip(
            [*fitted.predict(some, return_std=True), *fitted.predict_interval(some)],
            [*fitted.predict(own, return_std=True), *fitted.predict_interval(own)],
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)

    def test_diagnostics(self, tmp_path):
        X, y = table()
        fitted = ConvexPolytopeTreeClassifier(inference=SVI, **POLYTOPE).fit(
            in_file(X, tmp_path), y
        )
        assert "log_p" not in fitted.posterior_.stats
        assert "[not assessed] Pareto k" in str(fitted.check_convergence())
        reach = fitted.fitted_.shown.reach
        reached = {node: rows for node, rows, _ in fitted.tree_.walk(X)}
        for node, rows in reached.items():
            own = (
                X[rows] - fitted.fitted_.scaling.units.center
            ) / fitted.fitted_.scaling.units.scale
            np.testing.assert_allclose(reach.low[node], own.min(axis=0))
            np.testing.assert_allclose(reach.high[node], own.max(axis=0))
            assert reach.rows[node] == len(rows)

    def test_files_are_gone(self, tmp_path):
        (tmp_path / "scratch").mkdir()
        X, y = table()
        with memory_mapped.scratch_in(tmp_path / "scratch"):
            ConvexPolytopeTreeClassifier(inference=MAP, **POLYTOPE).fit(in_file(X, tmp_path), y)
        assert list((tmp_path / "scratch").iterdir()) == []

    def test_missing_values(self, tmp_path):
        X, y = table()
        X[2500, 2] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            ConvexPolytopeTreeClassifier().fit(in_file(X, tmp_path), y)

    def test_values_too_large(self, tmp_path):
        X, y = table("f8")
        X[2500, 2] = 1e200
        with pytest.raises(ValueError, match="too large"):
            ConvexPolytopeTreeClassifier().fit(in_file(X, tmp_path), y)

    def test_columns_must_agree(self, tmp_path):
        X, y = table()
        fitted = ConvexPolytopeTreeClassifier(inference="grow", **POLYTOPE).fit(X, y)
        with pytest.raises(ValueError, match="3 features"):
            fitted.predict(in_file(np.repeat(X[:, :3], 2, axis=0), tmp_path))

    @pytest.mark.parametrize("rule", ["standard", "common", "range", "variance", "none"])
    def test_units(self, rule, tmp_path):
        X, _ = table("f8")
        weights = np.random.default_rng(1).uniform(0, 2, N)
        found = units(FileRows(in_file(X, tmp_path)), weights, rule)
        np.testing.assert_allclose(found, units(X, weights, rule), rtol=1e-12)


@pytest.mark.parametrize("kind", quickly(["f4", "f8"], quick=(0,)))
@pytest.mark.parametrize("estimator", ESTIMATORS[:4], ids=str)
def test_rows_in_memory_that_are_not_copied_give_the_same_numbers(estimator, kind, monkeypatch):
    X, y = table(kind)
    expected = estimator.fit(X, y).predict_proba(X)
    read, whole = FileRows.__getitem__, []
    monkeypatch.setattr(validation, "is_large", lambda X: isinstance(X, np.ndarray))
    monkeypatch.setattr("bayestree.routed_tree.CHUNK", 1000)
    monkeypatch.setattr(
        FileRows, "__getitem__", lambda self, rows: whole.append(1) or read(self, rows)
    )
    estimator.fit(X, y)
    monkeypatch.undo()
    assert whole
    # Some kernels sum parts in another order: in single precision, a few hundred steps make of
    # this differences of 1e-6.
    np.testing.assert_allclose(estimator.predict_proba(X), expected, atol=1e-5)


def test_a_mean_is_that_of_numpy(monkeypatch):
    monkeypatch.setattr("bayestree.routed_tree.CHUNK", 1000)
    rng = np.random.default_rng(0)
    X, weights = rng.normal(1e3, 1.0, (N, WIDTH)), rng.uniform(0, 2, N)
    np.testing.assert_allclose(
        mean_of(X, weights), np.average(X, axis=0, weights=weights), rtol=1e-15
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "estimator",
    [
        AlternatingTreeClassifier(max_depth=2, random_state=0),
        EndToEndForestClassifier(2, max_depth=2, epochs=2, random_state=0),
    ],
    ids=str,
)
def test_fits_that_need_all_rows_read_them(estimator, tmp_path):
    X, y = (column[:2500] for column in table())
    expected = estimator.fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(estimator.fit(in_file(X, tmp_path), y).predict_proba(X), expected)


def test_small_files_are_read(tmp_path):
    X, y = (column[:1500] for column in table())
    estimator = ConvexPolytopeTreeClassifier(inference=MAP, **POLYTOPE)
    expected = estimator.fit(X, y).predict_proba(X)
    rows = in_file(X, tmp_path)
    np.testing.assert_array_equal(estimator.fit(rows, y).predict_proba(rows), expected)


LIMITED = """
import resource, sys
import numpy as np
from bayestree import ConvexPolytopeTreeClassifier
from bayestree.inference import Svi, memory_mapped

memory_mapped.HELD = 2**18
clf = ConvexPolytopeTreeClassifier(
    n_modes=1, max_depth=1, n_experts=2, inference=Svi(epochs=1, batch_size=5000, n_draws=1),
    dtype="float32", random_state=0,
)
X = np.load(sys.argv[1], mmap_mode="r")
y = np.asarray(X[:, 0] > 0)
# A fit of a part takes the same path: imports, and buffers of BLAS that depend on its kernels and
# threads, are then part of what is in use.
clf.fit(X[:20_000], y[:20_000]).score(X[:20_000], y[:20_000])
fields = (line.split() for line in open("/proc/self/status"))
used = next(int(line[1]) for line in fields if line[0] == "VmData:") * 1024
room = X.nbytes * 3 // 4  # the fit needs half of this
resource.setrlimit(resource.RLIMIT_DATA, (used + room, used + room))
try:
    np.ones(X.shape, dtype=X.dtype)
except MemoryError:
    print(clf.fit(X, y).score(X, y))
"""


@pytest.mark.statistical
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on data is one of Linux")
def test_file_larger_than_the_memory_of_the_process(tmp_path):
    n = 500_000  # 120 MB, of which three quarters have room
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (n, 60))
    block = np.random.default_rng(0).standard_normal((n // 50, 60), dtype=np.float32)
    for start in range(0, n, len(block)):
        X[start : start + len(block)] = block
    del X
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", LIMITED, str(tmp_path / "X.npy")],
        capture_output=True,
        text=True,
        check=False,
        # Each thread that happens to allocate would get 64 MB of address space of its own.
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.95


def test_rows_held_out_of_a_file_stay_in_files():
    X = memory_mapped.mapped_tensor((50, 2), torch.float64)
    data = Data(X, torch.arange(50) % 2, torch.ones(50, dtype=torch.float64))
    stages = Stages(ConvexPolytopeTreeClassifier()._before_rows(), validation_fraction=0.2)
    training, validation = stages.held_out(data, np.random.RandomState(0))
    assert training.mapped
    assert validation.mapped
    assert (len(training.X), len(validation.X)) == (40, 10)
