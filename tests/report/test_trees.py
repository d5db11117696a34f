"""Sheets and texts."""

import numpy as np
import pytest
from hypothesis import given

from bayestree.description import HalfSpace
from bayestree.report.findings import listed
from bayestree.report.scores import with_error
from bayestree.report.study import MINUS, SPACE, number, percent
from bayestree.report.trees import MAX_TIPS, printed, sheets, shown_nodes
from bayestree.topology import Topology
from tests.strategies import topologies


@given(topologies(max_nodes=40))
def test_sheets_have_every_node_once(topology):
    rows = topology.sum_below(np.ones(topology.n_leaves))
    shown = shown_nodes(rows, 30)
    found = sheets(topology, rows, shown)
    opened = [node for sheet in found for node in sheet.nodes]
    assert sorted(opened) == np.flatnonzero(shown).tolist()
    assert all(len(sheet.tips) == len(sheet.nodes) + 1 <= MAX_TIPS for sheet in found)
    ends = {tip for sheet in found for tip in sheet.tips}
    assert all(sheet.root in ends for sheet in found[1:])


def test_tips_are_from_left_to_right():
    topology = Topology.complete(3)
    rows = topology.sum_below(np.ones(8))
    (sheet,) = sheets(topology, rows, shown_nodes(rows))
    paths = [topology.leaf_labels[~tip] for tip in sheet.tips]
    assert paths == sorted(paths)


def test_a_tree_without_a_split_has_one_sheet():
    (sheet,) = sheets(Topology.leaf(), np.zeros(0), np.zeros(0, dtype=bool))
    assert sheet.tips == (~0,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1234.5678, "1,235"), (3440.0, "3,440"), (2.5, "2.5"),
        (-0.00123, f"{MINUS}0.00123"),
        (1.0, "1"), (123456.7, "123,457"), (3e9, "3e+09"), (np.nan, "not known"),
        (np.inf, "not finite"),
    ],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_values_are_as_fine_as_their_errors():
    assert with_error(0.062417, 0.0163) == "0.062 ± 0.016"
    assert with_error(43.21, 2.87) == "43.2 ± 2.9"
    assert with_error(1.5, None) == "1.5"


def test_facets_have_typographic_signs():
    facet = HalfSpace(0, "a - 2 b >=", "-0.5", -0.5, 0, 1.0)
    assert printed(facet) == (f"a {MINUS} 2 b ≥", f"{MINUS}0.5")


def test_shares_are_percentages():
    found = [percent(share).replace(SPACE, " ") for share in (0, 1, 0.5, 0.999)]
    assert found == ["0 %", "100 %", "50.0 %", "99.9 %"]


def test_lists_end_with_and():
    assert listed(["a"], 4) == "a"
    assert listed(["a", "b", "c"], 4) == "a, b and c"
    assert listed(["a", "b", "c", "d", "e"], 2) == "a, b and 3 more"
