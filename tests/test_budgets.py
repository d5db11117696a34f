"""The check of the CPU time of the fast tests."""

from pathlib import Path

import pytest

from tests import budgets

HERE = Path(__file__).parent


def case(place, name, cpu=None, *, shared=0.0, processes=0.0, pace=None):
    """A test in the report, with CPU seconds, and the pace as a multiple of the usual one."""
    found = [] if pace is None else [("pace", budgets.PACE * pace)]
    if cpu is not None:
        found += [("cpu", cpu), ("shared", shared), ("processes", processes)]
    written = "".join(f'<property name="{key}" value="{value}"/>' for key, value in found)
    return (
        f'<testcase classname="{place}" name="{name}"><properties>{written}</properties></testcase>'
    )


def report(folder, *cases):
    path = folder / "report.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def test_times_are_relative_to_the_pace_of_the_machine(tmp_path):
    path = report(
        tmp_path,
        case("tests.cli.test_fit.TestFit", "test_a", 4, shared=6, processes=8, pace=50),
        case("tests.cli.test_run", "test_a", 2, pace=1),
        case("tests.test_tree", "test_b[1.5]", 1, pace=2),
        case("", "tests.test_skipped"),
    )
    tests, folders = budgets.measured(path)
    assert tests == {
        "tests.cli.test_fit.TestFit::test_a": 2,
        "tests.cli.test_run::test_a": 1,
        "tests.test_tree::test_b[1.5]": 0.5,
    }
    assert folders == {"tests/cli": 6, "tests": 0.5, budgets.PROCESSES: 4}


def test_no_machine_is_judged_by_more_than_the_budgets(tmp_path):
    tests, _ = budgets.measured(report(tmp_path, case("tests.test_tree", "test_b", 1, pace=0.1)))
    assert tests == {"tests.test_tree::test_b": 1}


def test_a_slow_test_is_found_on_a_machine_that_is_slow_at_all(tmp_path):
    usual = [
        case(f"tests.{name.removeprefix('tests/')}.test_a", "test_b", 1, shared=3 * budget - 1)
        for name, budget in budgets.OF_FOLDERS.items()
        if "/" in name
    ]
    pace = case("tests.cli.test_c", "test_c", 1, pace=0.5)
    assert not [*budgets.exceeded(*budgets.measured(report(tmp_path, *usual, pace)))]
    slow = case("tests.plots.test_c", "test_c", 3 * budgets.SLACK * budgets.OF_TEST + 40)
    found = [*budgets.exceeded(*budgets.measured(report(tmp_path, *usual, pace, slow)))]
    assert [line.split(" took")[0] for line in found] == [
        "tests.plots.test_c::test_c",
        "tests/plots",
    ]


def test_what_takes_too_long_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(budgets, "OF_FOLDERS", {"tests/cli": 10, budgets.PROCESSES: 10})
    much = budgets.SLACK * budgets.OF_TEST
    budgets.main(report(tmp_path, case("tests.cli.test_fit", "test_a", 0.9 * much, pace=1)))
    assert "CPU seconds of 1 tests" in capsys.readouterr().out
    path = report(
        tmp_path,
        case("tests.cli.test_fit", "test_a", 1.1 * much, shared=10, pace=1),
        case("tests.new.test_fit", "test_b", 1),
    )
    with pytest.raises(SystemExit) as ended:
        budgets.main(path)
    for words in ("test_a took 8.8 s", "tests/cli took 19 s", "tests/new took 1 s, and has no"):
        assert words in str(ended.value)


def test_every_folder_has_a_budget():
    folders = {f"tests/{path.relative_to(HERE).parts[0]}" for path in HERE.glob("*/**/test_*.py")}
    assert {*budgets.OF_FOLDERS} == folders | {"tests", budgets.PROCESSES}
