"""`bayestree warm-up`: the compiled code of a fit."""

import subprocess
import sys
from types import SimpleNamespace

from bayestree.inference.core import experts
from tests.cli.command import refused


def test_everything_that_is_compiled_is_loaded_or_compiled():
    script = (
        "from tests.cli.command import done\n"
        "from bayestree.inference.core import experts, paths, slopes\n"
        "print(done('warm-up').stdout, end='')\n"
        "each = experts.sweep, paths.refresh, paths.draw_paths, slopes.evidence, slopes.slopes\n"
        "print([len(f.signatures) for f in each])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    said, compiled = ended.stdout.splitlines()
    assert experts.sweep.stats.cache_path in said
    assert compiled == "[1, 1, 1, 1, 1]"
    assert not ended.stderr  # of warnings


def test_without_a_folder_for_the_code(monkeypatch):
    unkept = SimpleNamespace(stats=SimpleNamespace(cache_path=None))
    monkeypatch.setattr(experts, "sweep", unkept)
    assert "set NUMBA_CACHE_DIR to a folder" in refused("warm-up")
