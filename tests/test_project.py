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
    steps = [step for job in jobs.values() for step in job["steps"]]
    commands = [step["run"].split() for step in steps if "run" in step]
    assert commands
    assert {words[1] for words in commands if words[0] == "make"} <= targets
    # other systems may have no make
    assert all(words[:2] == ["python", "-m"] for words in commands if words[0] != "make")
    assert all(job["timeout-minutes"] for job in jobs.values())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(workflow):
    used = re.findall(r"uses: (\S+)(.*)", workflow.read_text())
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action, _ in used)
    assert all(re.fullmatch(r"  # v[\d.]+", version) for _, version in used)


def test_a_release_is_built_from_one_index_by_tools_pinned_by_hash():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    settings = [workflow, workflow["jobs"]["build"], *workflow["jobs"]["build"]["steps"]]
    assert not any("INDEX" in str(one.get("env")) for one in settings)
    lock = (ROOT / "requirements-release.txt").read_text()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    pinned = re.findall(
        r"^([a-z0-9-]+)==.*(?:\\\n +--hash=sha256:[0-9a-f]{64}.*)+", lock, re.MULTILINE
    )
    assert {"build", "twine", *(one.split(">=")[0] for one in needed)} <= {*pinned}
    assert len(pinned) == len(re.findall(r"^[a-z0-9-]+==", lock, re.MULTILINE))


def test_hosted_tests_cover_the_supported_versions():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    named = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == named


def test_releases_are_tested_before_they_are_published_without_a_password():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert {*jobs["publish"]["needs"]} == {*jobs} - {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "with" not in jobs["publish"]["steps"][-1]  # no password


def test_the_authors_and_the_keywords_are_those_of_the_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["authors"] == PROJECT["authors"]
    assert citation["license"] == PROJECT["license"]
    dates = re.findall(r"^## \[\d.*\] - (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert str(citation["date-released"]) == dates[0]


def test_the_oldest_versions_are_the_lower_bounds():
    extras = PROJECT["optional-dependencies"]
    lines = "\n".join([*PROJECT["dependencies"], *extras["cluster"], *extras["export"]])
    bounds = dict(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?>=([0-9.]+)$", lines, re.MULTILINE))
    assert len(bounds) == len(lines.splitlines())
    pinned = (ROOT / "constraints-oldest.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==(.+)$", pinned, re.MULTILINE))
    padded = {name: [*version.split("."), "0", "0"][:3] for name, version in pins.items()}
    assert {name: padded.get(name) for name in bounds} == {
        name: [*version.split("."), "0", "0"][:3] for name, version in bounds.items()
    }


CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def test_the_conda_recipe_agrees_with_the_project():
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    context, about, needs = (recipe[name] for name in ("context", "about", "requirements"))
    assert context["version"] == PROJECT["version"]
    assert f">={context['python_min']}" == PROJECT["requires-python"]
    assert (about["summary"], about["license"]) == (PROJECT["description"], PROJECT["license"])
    (script,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(script)]
    assert sorted(needs["run"][1:]) == sorted(map(of_conda, PROJECT["dependencies"]))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert sorted([*map(of_conda, build), "pip"]) == sorted(needs["host"][1:])


def of_conda(requirement):
    name, relation, version = requirement.partition(">=")
    return f"{CONDA.get(name, name)} {relation}{version}"


def test_the_readme_on_pypi_has_no_links_into_the_repository():
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"][
        "hooks"
    ]
    text = (ROOT / "README.md").read_text()
    for one in hooks["fancy-pypi-readme"]["substitutions"]:
        text, n_replaced = re.subn(one["pattern"], one["replacement"], text)
        assert n_replaced
    assert re.findall(r"\]\((?!https?:).*?\)", text) == []
    assert "![" not in text


@pytest.mark.parametrize("folder", ["models", "inference"])
def test_the_cards_are_listed(folder):
    *_, listed = (ROOT / folder / "README.md").read_text().partition("\n- ")
    names = set(re.findall(r"`([\w-]+)`", listed))
    assert names == {card.stem for card in (ROOT / folder).glob("*.toml")}
