"""Files about the project agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import bayestree

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_one_version():
    released = re.findall(r"^## \[?(\d[^\]\s]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == bayestree.__version__ == citation["version"] == released[0]


def test_unreleased_changes_come_first():
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0].strip("[]") == "Unreleased"


def test_hooks_use_the_pinned_ruff():
    pinned = re.search(r"^ruff==.*", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert f"[{pinned[0]}]" in (ROOT / ".pre-commit-config.yaml").read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_targets_of_the_makefile(workflow):
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands
    assert {command.split()[1] for command in commands} <= targets
    assert all(job["timeout-minutes"] for job in jobs.values())


def test_hosted_tests_cover_the_supported_versions():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    named = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == named
