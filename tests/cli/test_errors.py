"""Failures of verbs: one line for people, and JSON for programs that request it."""

import json
import subprocess
import sys

import pytest
import typer.main

from bayestree import cli
from bayestree.cli.shared import print_json
from bayestree.runs import rows
from tests.cli.command import QUICK, refused, run

#: A command of each verb that prints JSON, with input that it refuses.
REFUSED = {
    "run": ("run", "absent.toml"),
    "fit": ("fit", "absent.csv", "--target", "y", "--out", "tree"),
    "plan": ("plan", "absent.toml"),
    "predict": ("predict", "absent", "absent.csv"),
    "summary": ("summary", "absent"),
    "diagnose": ("diagnose", "absent"),
    "report": ("report", "absent"),
    "explain": ("explain", "absent", "0"),
    "compare": ("compare", "absent", "other"),
    "export": ("export", "absent"),
    "sweep": ("sweep", "absent.toml"),
    "show": ("cards", "show", "absent"),
    "parameters": ("cards", "parameters", "absent"),
}


def error_of(result):
    """The error on standard output, which holds nothing else."""
    content = json.loads(result.stdout)
    assert list(content) == ["error"]
    return content["error"]


def test_all_verbs_are_here():
    with_json = {
        name
        for name, verb in typer.main.get_command(cli.app).commands.items()  # type: ignore[attr-defined]
        if any("--json" in option.opts for option in verb.params)
    }
    assert with_json <= set(REFUSED)


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_input_that_is_refused(words, place):
    plain, told = run(*words), run(*words, "--json")
    assert (plain.exit_code, told.exit_code) == (2, 2)
    assert plain.stdout == ""
    assert plain.stderr == told.stderr == f"bayestree: {error_of(told)}\n"


@pytest.mark.parametrize("words", [("fit", "a.csv"), ("summary", "a", "--nod"), ("sumary",)])
def test_wrong_options(words, place):
    plain, told = run(*words), run(*words, "--json")
    assert (plain.exit_code, told.exit_code) == (2, 2)
    assert plain.stdout == ""
    assert error_of(told).rstrip(".") in " ".join(told.stderr.replace("│", "").split())


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt, 130, "interrupted; repeat the command with --resume"),
        (RuntimeError("of the program"), 70, "RuntimeError: of the program"),
    ],
)
def test_ends_of_other_kinds(raised, code, said, place, monkeypatch, capsys):
    def fail(*_, **__):
        raise raised

    (place / "data.csv").write_text("size,kind\n1,a\n2,b\n")
    monkeypatch.setattr(rows, "read_rows", fail)
    words = ["fit", "data.csv", "--target", "kind", "--out", "tree", *QUICK, "--json"]
    monkeypatch.setattr(sys, "argv", ["bayestree", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr()
    assert ended.value.code == code
    assert json.loads(told.out)["error"].startswith(said)
    assert ("Traceback" in told.err) == (code == 70)  # for the report of a fault


def test_nobody_reads_the_output():
    command = [sys.executable, "-m", "bayestree.cli", "cards", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # as `| head` does after its first lines
    assert (process.wait(), process.stderr.read()) == (141, b"")
    process.stderr.close()


def test_text_that_the_locale_cannot_decode(place):
    undecoded = "größe".encode().decode("ascii", "surrogateescape")  # as Python does in LC_ALL=C
    message = refused("fit", "data.csv", "--target", undecoded, "--out", "tree")
    assert "'größe' is not text in the encoding of this locale" in message
    assert "set LC_ALL=C.UTF-8" in message
    assert not any(place.iterdir())


def test_json_is_valid_in_every_encoding(capsys):
    print_json({"class": "groß"})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"class": "groß"}
