"""The measurements of ``python -m benchmarks``: scores by row, tests, and what is repeated."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from benchmarks.papers.measure import KEY, Results, row_scores
from benchmarks.papers.methods import METHODS, MOST_SETTINGS
from benchmarks.papers.render import ahead, rendered
from benchmarks.papers.tables import TABLES

ON_THE_SAME_ROWS, OVER_FOLDS = TABLES["cpt"], TABLES["wodt"]


def measured(tree, rows=None, *, method="cpt", data="letter", table="cpt", **changes):
    """Fits with these scores, of one seed each, or of one fold each over folds."""
    tree = np.atleast_1d(np.asarray(tree, dtype=float))
    several = np.arange(len(tree))
    rows = [np.full(2, one) for one in tree] if rows is None else rows
    known = {
        "table": table,
        "set": data,
        "method": method,
        "column": "defaults",
        "seed": several if table == "cpt" else 0,
        "fold": 0 if table == "cpt" else several,
        "score": tree,
        "tree_score": tree,
        "rows": rows,
        "leaves": 4.0,
        "search_s": 0.0,
        "fit_s": 1.0,
        "settings": "{}",
        "error": "",
    }
    return pd.DataFrame(known | changes).assign(tree=tree)


class TestScores:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=80)
    p = np.clip(0.3 * y + rng.normal(0.3, 0.2, 80), 0, 1).round(1)  # with ties

    def fitted(self):
        return SimpleNamespace(
            predict_proba=lambda X: np.column_stack([1 - self.p, self.p])[X],
            predict=lambda X: 2.0 * self.p[X],
            classes_=np.array([0, 1]),
        )

    def test_the_mean_is_the_score(self):
        rows, model = np.arange(80), self.fitted()
        area = row_scores(model, rows, self.y, "auc").mean()
        assert area == pytest.approx(roc_auc_score(self.y, self.p))
        error = row_scores(model, rows, self.y, "rmse").mean()
        assert error == pytest.approx(np.sqrt(np.mean((2 * self.p - self.y) ** 2)))
        share = row_scores(model, rows, 2.0 * self.p, "accuracy").mean()
        assert share == 1

    @pytest.mark.parametrize("measure", ["auc", "rmse"])
    def test_influences_of_rows(self, measure):
        """Leaving out a row changes the score by its influence / (n - 1), to first order."""
        rows, model = np.arange(80), self.fitted()
        each = row_scores(model, rows, self.y, measure)
        without = [
            row_scores(model, kept, self.y[kept], measure).mean()
            for kept in (np.delete(rows, i) for i in rows)
        ]
        change = (each.mean() - np.array(without)) * 79
        assert np.corrcoef(change, each)[0, 1] > 0.99
        np.testing.assert_allclose(change.std(), each.std(), rtol=0.1)


class TestDifferences:
    def test_by_row(self):
        rows = np.random.default_rng(0).integers(2, size=(2, 500)) * 1.0
        one, other = (measured(part.mean(), [part]) for part in rows)
        found = ahead(one, other, ON_THE_SAME_ROWS, "letter")
        expected = stats.ttest_rel(*rows)
        assert found.mean == pytest.approx(rows[0].mean() - rows[1].mean())
        assert found.p == pytest.approx(expected.pvalue)
        assert found.mean / found.error == pytest.approx(expected.statistic)

    def test_seeds_that_differ_widen_the_error(self):
        rows = [np.repeat([1.0, 0.0], [n, 100 - n]) for n in (60, 80, 70)]
        several = measured([0.6, 0.8, 0.7], rows)
        one = measured(0.5, [np.tile([1.0, 0.0], 50)])
        by_row = ahead(measured(0.7, [np.mean(rows, axis=0)]), one, ON_THE_SAME_ROWS, "letter")
        found = ahead(several, one, ON_THE_SAME_ROWS, "letter")
        assert found.mean == pytest.approx(by_row.mean)
        assert found.error == pytest.approx(np.sqrt(by_row.error**2 + 0.01 / 3))
        assert found.p > by_row.p

    def test_over_folds(self):
        ours, theirs = np.array([0.9, 0.8, 0.7, 0.9, 0.8]), np.array([0.8, 0.8, 0.6, 0.7, 0.8])
        one, other = (measured(each, table="wodt", data="wine") for each in (ours, theirs))
        found = ahead(one, other, OVER_FOLDS, "wine")
        # Nadeau and Bengio: 1 / 5 + 1 / 4 instead of 1 / 5
        plain = stats.ttest_rel(ours, theirs)
        assert found.mean / found.error == pytest.approx(plain.statistic * np.sqrt(0.2 / 0.45))

    def test_equal_scores(self):
        one = measured(0.5)
        assert ahead(one, one, ON_THE_SAME_ROWS, "letter") == (0, 0, 1)


class TestResults:
    def row(self, seconds, error=""):
        key = dict(zip(KEY, ("cpt", "letter", "cart", "defaults", 0, 0), strict=True))
        return (
            measured(0.5, fit_s=seconds, error=error).drop(columns="tree").iloc[0].to_dict() | key
        )

    def test_a_file_continues(self, tmp_path):
        path = tmp_path / "found.parquet"
        Results(path).add(self.row(3.0))
        again = Results(path)
        assert again.done == {("cpt", "letter", "cart", "defaults", 0, 0)}
        assert again.settings(dict(zip(KEY, *again.done, strict=True))) == {}
        assert not again.given_up
        assert [file.name for file in tmp_path.iterdir()] == ["found.parquet"]

    def test_a_greater_limit_repeats_what_was_given_up(self, tmp_path):
        path = tmp_path / "found.parquet"
        Results(path).add(self.row(3.0, "more than 3 CPU s"))
        assert Results(path, 3.0).given_up == {("cpt", "letter", "cart", "defaults")}
        longer = Results(path, 9.0)
        assert not longer.done
        longer.add(self.row(5.0))
        assert len(Results(path).frame) == 1


def test_rivals_are_named(tmp_path):
    frame = pd.concat(
        [
            measured(0.9, leaves=40.0),
            measured(0.95, method="tao", leaves=30.0),
            measured(0.8, method="cart", leaves=20.0),
            measured(0.99, method="random-forest", leaves=9e3),
        ]
    ).drop(columns="tree")
    text = rendered(frame, tmp_path)
    line = next(one for one in text.splitlines() if one.startswith("| letter | .9000; 40"))
    cells = [cell.strip() for cell in line.split("|")[3:-1]]
    assert cells[:5] == ["tao +0.0500 ± 0.0000", "tao 30, cart 20", "tao", "no", cells[4]]
    assert cells[4].startswith("random-forest +0.0900")
    assert (tmp_path / "cpt-leaves.png").exists()


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_few_and_distinct(name):
    method = METHODS[name]
    for data in ("letter", "iris"):
        settings = method.settings(data)
        assert len(settings) <= MOST_SETTINGS
        assert len({str(one) for one in settings}) == len(settings)
