"""Trees whose facets are scores of whole points, and facets of missing values, in words."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from bayestree import (
    ConvexPolytopeTreeClassifier,
    export_dot,
    export_json,
    export_rules,
    export_text,
    load,
    plots,
)
from bayestree.report.cards import _point_facets
from bayestree.report.study import Study
from bayestree.tables.profiling import UnusedColumnsWarning

QUICK = {"inference": "vi", "max_depth": 2, "n_modes": 1, "random_state": 0}
MOST = 5


def patients(n=600, seed=0):
    """A score of age, cholesterol and sex decides; some ages are missing."""
    rng = np.random.default_rng(seed)
    age, chol, sex = rng.integers(30, 80, n), rng.integers(150, 310, n), rng.integers(2, size=n)
    high = 2 * age / 10 + 2 * chol / 50 + 4 * sex > 22
    frame = pd.DataFrame({"age": age * 1.0, "chol": chol, "sex": np.array(["female", "male"])[sex]})
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    return frame, np.where(high, "ill", "well")


@pytest.fixture(scope="module")
def fitted():
    X, y = patients()
    return ConvexPolytopeTreeClassifier(**QUICK, points=MOST).fit(X, y), X, y


def scores_of(tree):
    """The facets of several columns, as numbers of experts."""
    return np.flatnonzero(np.count_nonzero(tree.hyperplane, axis=1) > 1).tolist()


def sums(text, features):
    """Mark the rows for which a printed inequality holds, from its printed numbers alone."""
    if found := re.fullmatch(r"(\w+) is (not )?missing", text):
        return features[f"{found[1]} missing"] == (found[2] is None)
    left, relation, limit = re.fullmatch(r"(.*) (<=|>=) (-?[\d.]+)", text).groups()
    total = 0.0
    for sign, size, unit, name in re.findall(
        r"([+-]? ?)([\d.]+) (?:per ([\d.]+) )?(\[[^]]+\]|[^ ]+)", left
    ):
        term = float(size) * features[name.strip("[]")] / float(unit or 1)
        total = total - term if "-" in sign else total + term
    return total <= float(limit) if relation == "<=" else total >= float(limit)


def test_facets_are_scores_of_few_points(fitted):
    tree = fitted[0].tree_
    assert scores_of(tree)
    for expert in scores_of(tree):
        points, worth = tree.points(expert)
        assert 1 <= np.abs(points).max() <= MOST
        assert np.gcd.reduce(points) == 1
        np.testing.assert_allclose(tree.hyperplane[expert], points * worth / tree.unit, rtol=1e-15)
    # 1, 2 or 5 times a power of ten
    assert {float(f"{one:e}".split("e")[0]) for one in tree.unit.tolist()} <= {1.0, 2.0, 5.0}


def test_the_text_is_the_tree_with_missing_values_as_it_says(fitted):
    """Every row takes the side of the printed inequalities, also those without an age."""
    clf, X, _ = fitted
    features = clf.encoding_.encode(X)
    rules = export_rules(clf)
    (fill,) = re.findall(r"Where missing, age = ([\d.]+)\.", rules)
    assert (features["age"][X["age"].isna()] == float(fill)).all()
    assert "Facets are scores" in rules
    lines = re.findall(
        r"(?:left if  |│      )(.* [<>]= .*|.* missing)$", export_text(clf), re.MULTILINE
    )
    beyond = features.to_numpy() @ clf.tree_.hyperplane.T + clf.tree_.intercept > 0
    assert len(lines) == beyond.shape[1]
    for line in lines:
        # a limit of one column has no points
        facet = line if line.endswith("missing") else re.sub(r"^(?=[^\d-])", "1 ", line)
        assert any((sums(facet, features) == ~one).all() for one in beyond.T)


def test_exports_agree(fitted):
    clf, X, _ = fitted
    described = plots._tree.plain_description(clf.tree_)
    described.separator = " "
    facets = [str(described.half_space(k)) for k in scores_of(clf.tree_)]
    (written,) = json.loads(export_json(clf))["trees"]
    of_json = [one for node in written["nodes"] for one in node["facets"]]
    for text in facets:
        terms = text.rpartition(" ")[0].rpartition(" ")[0]
        assert all(terms in each for each in (export_text(clf), export_rules(clf), export_dot(clf)))
        assert text in [one["text"] for one in of_json]
    exact = [one["coefficients"] for one in of_json]
    assert exact == [row[row != 0].tolist() for row in clf.tree_.hyperplane]
    explained = str(clf.explain(X.iloc[[0]]))
    assert "points" in explained
    total = [float(one) for one in re.findall(r"([-\d.]+) points", explained)]
    turn = next(one for one in clf.explain(X.iloc[[0]]).turns if np.isfinite(one.points).any())
    assert total[0] == pytest.approx(turn.points[np.isfinite(turn.points)][0], rel=1e-3)


def test_the_cost_of_points_is_stated(fitted):
    clf, X, y = fitted
    path = clf.sparsity_path()
    cost, se = path.rounding.tolist()
    assert abs(cost) / len(X) <= se  # as if one more row lost as much as the worst
    said = f"Points {'cost' if cost >= 0 else 'gain'} {abs(cost):.3f} ± {se:.3f} nats a row."
    assert said in str(path).replace("\n", " ")
    assert said in " ".join(export_text(clf).split())
    plain = ConvexPolytopeTreeClassifier(**QUICK).fit(X, y)
    assert plain.sparsity_path().rounding is None
    assert plain.tree_.unit is None
    # the same tree before its rounding: the loss to the best tree differs by the cost of points
    assert path.loss[-1] - plain.sparsity_path().loss[-1] == pytest.approx(cost)


def test_more_points_follow_the_coefficients_better(fitted):
    _, X, y = fitted
    found = [
        ConvexPolytopeTreeClassifier(**QUICK, points=most).fit(X, y).sparsity_path().rounding[0]
        for most in (1, 100)
    ]
    assert found[1] <= found[0]


def test_a_file_keeps_the_points(fitted, tmp_path):
    clf, X, _ = fitted
    clf.save(tmp_path / "clf.bayestree")
    again = load(tmp_path / "clf.bayestree")
    np.testing.assert_array_equal(again.tree_.unit, clf.tree_.unit)
    np.testing.assert_array_equal(again.sparsity_path().rounding, clf.sparsity_path().rounding)
    assert export_text(again) == export_text(clf)
    np.testing.assert_array_equal(again.apply(X), clf.apply(X))


def test_points_ask_for_a_sparse_tree(fitted):
    _, X, y = fitted
    clf = ConvexPolytopeTreeClassifier(**QUICK | {"max_depth": 1}, sparsity=None, points=1)
    assert set(np.abs(clf.fit(X, y).tree_.points(0)[0]).tolist()) <= {0, 1}
    with pytest.raises(ValueError, match="points"):
        clf.set_params(points=0).fit(X, y)


def test_an_explicit_number_of_terms_binds(fitted):
    clf = fitted[0]
    assert "more" not in export_text(clf)
    short = [export(clf, max_features=1) for export in (export_text, export_rules, export_dot)]
    assert all(re.search(r"\+ … \d more", text) for text in short)


@pytest.fixture(scope="module")
def alone():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": np.full(400, 50.0), "noise": rng.normal(size=400)})
    X.loc[rng.random(400) < 0.4, "age"] = np.nan
    y = np.where(rng.random(400) < 0.1, X["age"].notna(), X["age"].isna())
    clf = ConvexPolytopeTreeClassifier(**QUICK | {"max_depth": 1}, max_columns=1)
    with pytest.warns(UnusedColumnsWarning, match="age"):  # that it is missing varies
        return clf.fit(X, y), X


class TestMissing:
    """That a value is missing decides, so that this is a condition of its own."""

    def test_the_condition_is_said_in_words(self, alone):
        clf, X = alone
        said = re.search(r"left if  (age is (?:not )?missing)$", export_text(clf), re.MULTILINE)[1]
        inside = clf.apply(X) == 0
        np.testing.assert_array_equal(inside, X["age"].isna() == ("not" not in said))
        assert f"IF ({said}) THEN" in export_rules(clf)
        assert f'[label="{said}\\n' in export_dot(clf)
        assert f"  {said}\n" in str(clf.explain(X.iloc[[0]]))
        assert said in [text.get_text().splitlines()[0] for text in plots.tree(clf).texts]
        (row,) = _point_facets(Study(clf), clf.tree_, 0, brief=True)["rows"]
        assert (row["left"], row["limit"]) == (said, "")

    def test_rules_negate_it(self, alone):
        tree = alone[0].tree_
        swapped = tree._with(hyperplane=-tree.hyperplane, intercept=-tree.intercept)
        said = [re.search(r"IF \((.*?)\)", export_rules(one))[1] for one in (tree, swapped)]
        assert sorted(said) == ["age is missing", "age is not missing"]

    def test_a_term_has_brackets(self):
        X, y = patients()
        X["age"] = X["age"].where(np.random.default_rng(0).random(len(X)) > 0.3)
        clf = ConvexPolytopeTreeClassifier(**QUICK | {"max_depth": 1}, sparsity=None).fit(X, y)
        text = export_rules(clf)
        assert "[age missing]" in text
        assert "[sex=male]" in text
