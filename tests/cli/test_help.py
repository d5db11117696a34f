"""The help of the command line."""

import io
import subprocess
import sys

import bayestree
from bayestree import cli
from tests.cli.command import run


class TestHelp:
    def test_no_torch(self):
        code = (
            "import sys; from typer.testing import CliRunner; from bayestree.cli import app\n"
            "for words in (['--help'], ['run', '--help'], ['fit', '--help'], ['--version']):\n"
            "    assert CliRunner().invoke(app, words).exit_code == 0\n"
            "assert not {'torch', 'pandas', 'sklearn', 'numpy'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_version(self):
        assert run("--version").stdout == f"bayestree {bayestree.__version__}\n"

    def test_every_option_is_explained(self):
        page = run("fit", "--help").stdout
        for option in ("--target", "--test-fraction", "--weights", "--drop", "--force"):
            assert option in page
        assert "bayestree predict iris-tree new.csv" in run("--help").stdout


def test_a_terminal_that_lacks_a_character_shows_another(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(cli, "app", lambda: sys.stdout.write("├─ L: leaf"))
    cli.main()
    sys.stdout.flush()
    assert raw.getvalue().split() == [b"??", b"L:", b"leaf"]
