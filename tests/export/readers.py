"""Readers of exported trees, which route rows by the content of the files alone.

Leaves are told apart by their numbers of rows, which the trees of the tests make unique.
"""

import json
import re
from typing import NamedTuple

import numpy as np

NUMBER = r"(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
COMPARE = {"<=": np.less_equal, ">=": np.greater_equal, "<": np.less, ">": np.greater}
FLIPPED = {"<=": ">=", "<": ">"}


class Condition(NamedTuple):
    """A sum of features on one side of a limit."""

    total: str
    sign: str
    bound: str

    def holds(self, X, names):
        return COMPARE[self.sign](linear(self.total, X, names), float(self.bound))


def linear(text, X, names):
    """Value of ``2 a - 0.5 b + 3`` at each row; each term must be read, and none read twice."""
    name = "|".join(re.escape(one) for one in sorted(names, key=len, reverse=True))
    term = rf"(?P<sign>[+-] ?)?(?:(?P<factor>{NUMBER}) )?(?P<name>{name})|(?P<one>[+-] ?{NUMBER})"
    value, at, text = np.zeros(len(X)), 0, text.strip()
    while at < len(text):
        match = re.compile(rf" *(?:{term})").match(text, at)
        assert match, f"cannot read {text[at:]!r}"
        if match["name"]:
            factor = float(match["factor"] or 1) * (-1 if "-" in (match["sign"] or "") else 1)
            value = value + factor * X[:, names.index(match["name"])]
        else:
            value = value + float(match["one"].replace(" ", ""))
        at = match.end()
    return value


def conditions(text):
    """One printed inequality, or the two of ``1 < x <= 2``."""
    low, below, total, above, high = re.fullmatch(
        rf"(?:(-?{NUMBER}) (<=|<) )?(.+) (<=|>=|<|>) (-?{NUMBER})", text
    ).groups()
    first = [Condition(total, FLIPPED[below], low)] if below else []
    return [*first, Condition(total, above, high)]


def holds(text, X, names):
    """Mask of the rows that satisfy a condition of a rule on one facet."""
    if text in ("always", "never"):
        return np.full(len(X), text == "always")
    return np.all([one.holds(X, names) for one in conditions(text)], axis=0)


def softplus_sum(lines, X, names):
    """Votes, added up, of lines such as ``+ 0.8 softplus(2 a - 3)``."""
    total = np.zeros(len(X))
    for line in lines:
        weight, inner = re.fullmatch(rf"(?:\+ )?({NUMBER}) softplus\((.*)\)", line.strip()).groups()
        inner = inner if inner.startswith("-") else f"+ {inner}"
        total += float(weight) * np.logaddexp(0.0, linear(inner, X, names))
    return total


def polytopes_of_rules(text):
    """Votes and limit of each ``inside(path)``."""
    found = {}
    blocks = re.findall(r"^inside\((\w+)\) where\n((?:  .*\n)+)", text, re.MULTILINE)
    for path, block in blocks:
        *votes, limit = block.splitlines()
        found[path] = votes, float(limit.strip().removeprefix("<= "))
    return found


def rules_rows(text, X, names):
    """Number of rows that the rule, which holds for each row of X, has by its ``n =``."""
    inside = {
        path: softplus_sum(votes, X, names) <= limit
        for path, (votes, limit) in polytopes_of_rules(text).items()
    }
    found, free = np.full(len(X), np.nan), np.ones(len(X), dtype=bool)
    rules = re.findall(
        r"^\d+: (?:IF (.+) THEN|ELSE|ALWAYS) .* \(?(?:p = [\d.]+, )?n = (\d+)\)$",
        text,
        re.MULTILINE,
    )
    for condition, rows in rules:
        takes = np.ones(len(X), dtype=bool) if condition else free.copy()
        for part in condition.split(" AND ") if condition else []:
            side = re.fullmatch(r"(inside|outside)\((\w+)\)", part)
            if side:
                takes &= inside[side[2]] == (side[1] == "inside")
            else:
                takes &= holds(part[1:-1], X, names)
        assert not (takes & ~free).any(), "two rules hold for one row"
        found[takes] = int(rows)
        free &= ~takes
    return found


def text_rows(text, X, names):
    """Rows of the leaf that each row of X reaches by the text, where splits have one facet."""
    split = dict(re.findall(r"(\w+): \d+ rows?(?:, 1 facet)?\n[│ ]*left if  (.+)", text))
    leaf = dict(re.findall(r"(\w+): leaf, (\d+) row", text))
    return _walk("root", X, split, leaf, names)


def _walk(path, X, split, leaf, names):
    if path in leaf:
        return np.full(len(X), int(leaf[path]))
    left = holds(split[path], X, names)
    found = np.zeros(len(X), dtype=int)
    for side, rows in (("L", left), ("R", ~left)):
        below = path.replace("root", "") + side
        found[rows] = _walk(below, X[rows], split, leaf, names)
    return found


def dot_leaves(text, X, names):
    """Number of the leaf that each row of X reaches by the drawing, where splits have one facet."""
    split = dict(re.findall(r'(n\d+) \[label="(.+?)\\n\d+ rows?"\]', text))
    edge = {(a, side): b for a, b, side in re.findall(r'(n\d+) -> (\w+) \[label="(\w+)"', text)}

    def walk(name, X):
        if name.startswith("leaf"):
            return np.full(len(X), int(name[4:]))
        left = holds(split[name], X, names)
        found = np.zeros(len(X), dtype=int)
        yes, no = ("yes", "no") if (name, "yes") in edge else ("inside", "outside")
        for side, rows in ((yes, left), (no, ~left)):
            found[rows] = walk(edge[name, side], X[rows])
        return found

    return walk("n0" if split else "leaf0", X)


def json_leaves(text, X):
    """Number of the leaf that each row of X reaches by the JSON, as docs/show/export.md says."""
    (tree,) = json.loads(text)["trees"]

    def walk(place, X):
        if "leaf" in place:
            return np.full(len(X), place["leaf"])
        node, votes = tree["nodes"][place["node"]], np.zeros(len(X))
        for facet in node["facets"]:
            inner = X[:, facet["features"]] @ np.array(facet["coefficients"], dtype=float)
            votes += facet["weight"] * np.logaddexp(0.0, inner + facet["intercept"])
        right, found = votes > np.log(2), np.zeros(len(X), dtype=int)
        found[right], found[~right] = walk(node["right"], X[right]), walk(node["left"], X[~right])
        return found

    return walk(tree["root"], X)


def printed_facets(text, path):
    """Half-spaces that the text lists at a polytope."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if re.search(rf"(^|[─ ]){path}: \d+ rows", line))
    found = []
    for line in lines[start + 2 :]:
        match = re.fullmatch(r"[│ ]*│      (.+)", line)
        if not match or "─" in line:
            return found
        found.append(match[1])
    return found
