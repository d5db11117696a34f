"""CPU time that the fast tests may take: ``python -m tests.budgets REPORT``.

REPORT is the JUnit file of ``make test-fast``, in which ``tests/conftest.py`` notes the CPU seconds
of each test, those of the fixtures that it set up for others, and now and then those of a fixed
piece of work. Waiting for other processes is no CPU time, but machines differ, and processes that
share a core or its caches slow each other. Times are therefore divided by that of the fixed work,
measured in between, relative to the machine on which the budgets were set; and again by the ratio
of the median folder to its budget, if that is more than 1: what slows all tests is no fault of one.
The check fails where a test or a folder still takes more than ``SLACK`` times its budget.
"""

import sys
from collections import defaultdict
from statistics import median
from xml.etree import ElementTree

PACE = 0.0072  # CPU seconds of the fixed work, tests.conftest.pace, where the budgets were set
SLACK = 1.6
OF_TEST = 5.0  # CPU seconds, without fixtures that other tests share

#: A pool of processes ends long after the tests that used it: all processes count together.
PROCESSES = "all other processes"
#: CPU seconds of the fast tests of each folder, but those that test-portable runs, where samplers
#: are compiled (``.venv/compiled.stamp``), and at least 10: imports fall to the first test.
OF_FOLDERS = {
    "tests": 60,
    "tests/_utils": 10,
    "tests/cli": 40,
    "tests/diagnostics": 15,
    "tests/distributed": 20,
    "tests/estimators": 200,
    "tests/explain": 20,
    "tests/export": 10,
    "tests/fitted": 75,
    "tests/fitting": 10,
    "tests/fuzz": 10,
    "tests/inference": 135,
    "tests/literature": 15,
    "tests/models": 10,
    "tests/plots": 20,
    "tests/report": 40,
    "tests/runs": 75,
    "tests/statistical": 15,
    "tests/tables": 15,
    "tests/testing": 25,
    PROCESSES: 75,
}


def measured(report):
    """CPU seconds of tests and of folders, as on the machine where the budgets were set."""
    tests, folders, paces = {}, defaultdict(float), []
    for case in ElementTree.parse(report).iter("testcase"):
        place, name = case.get("classname", ""), case.get("name")
        found = {one.get("name"): float(one.get("value", "nan")) for one in case.iter("property")}
        if "pace" in found:
            paces.append(found["pace"])
        if "cpu" in found:  # a file may be skipped as a whole
            tests[f"{place}::{name}"] = found["cpu"]
            folder = place.split(".")[1]
            folder = "tests" if folder.startswith("test_") else f"tests/{folder}"
            folders[folder] += found["cpu"] + found["shared"]
            folders[PROCESSES] += found["processes"]
    rate = max(1.0, median(paces) / PACE)  # what is faster at this work may not be at all others
    known = [
        spent / rate / OF_FOLDERS[name] for name, spent in folders.items() if name in OF_FOLDERS
    ]
    rate *= max(1.0, median(known))
    return [{name: spent / rate for name, spent in one.items()} for one in (tests, folders)]


def exceeded(tests, folders):
    """A line for each budget that is exceeded."""
    for name, spent in tests.items():
        if spent > SLACK * OF_TEST:
            yield f"{name} took {spent:.1f} s; a test may take {OF_TEST:.0f} s"
    for name, spent in folders.items():
        if name not in OF_FOLDERS:
            yield f"{name} took {spent:.0f} s, and has no budget"
        elif spent > SLACK * OF_FOLDERS[name]:
            yield f"{name} took {spent:.0f} s; its budget is {OF_FOLDERS[name]} s"


def main(report):
    tests, folders = measured(report)
    print(f"CPU seconds of {len(tests)} tests, {sum(folders.values()):.0f} in all:")
    for name, spent in sorted(folders.items()):
        print(f"{spent:8.1f} of {OF_FOLDERS.get(name, 0):4}  {name}")
    for name, spent in sorted(tests.items(), key=lambda one: -one[1])[:20]:
        print(f"{spent:8.1f}  {name}")
    if found := list(exceeded(tests, folders)):
        sys.exit("Tests take too long (see tests/budgets.py):\n" + "\n".join(found))


if __name__ == "__main__":
    main(sys.argv[1])
