"""Files that cannot be written: name, reason and remedy."""

import errno
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bayestree import cli
from bayestree._utils import write
from bayestree._utils.write import NoRoomForFileError, naming, whole_file, write_whole
from tests.finished import finished, table
from tests.forked import forked

FULL = Path("/dev/full")  # a device that has no room
resource = pytest.importorskip("resource")


def run(limit, commands):
    """Run commands with a limit on file sizes, and say how each ended."""
    # Python 3.11 truncates its bytecode files at the limit, and then cannot load them.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    for words in commands:
        result = CliRunner().invoke(cli.app, words)
        sys.stdout.write(json.dumps([result.exit_code, result.stderr]) + "\n")


def limited(limit, folder, monkeypatch, *commands):
    """Outcomes of commands that run in a process with this limit on file sizes."""
    monkeypatch.chdir(folder)
    status, printed, told = forked(run, limit, commands)
    assert status == 0, told
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.skipif(not FULL.exists(), reason="this system has no such device")
def test_a_full_disk(tmp_path):
    path = tmp_path / "tree.txt"
    with pytest.raises(NoRoomForFileError) as found, whole_file(path):
        FULL.write_text("tree")
    assert found.value.errno == errno.ENOSPC
    assert str(found.value) == (
        f"{str(path)!r} cannot be written: No space left on device; free some disk space, or "
        "write elsewhere."
    )
    assert list(tmp_path.iterdir()) == []


def test_the_draft_is_closed_when_it_is_renamed_under_windows(tmp_path, monkeypatch):
    """Windows renames no open files."""
    still_open = set()

    def opened(*args, real=os.open):
        handle = real(*args)
        still_open.add(handle)
        return handle

    def close(handle, real=os.close):
        real(handle)
        still_open.remove(handle)

    def replace(draft, path, real=Path.replace):
        assert not still_open
        return real(draft, path)

    (tmp_path / ".tree.txt.0").write_text("of a killed process")
    monkeypatch.setattr(write, "fcntl", None)
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(Path, "replace", replace)
    write_whole(tmp_path / "tree.txt", "tree")
    monkeypatch.undo()
    assert (tmp_path / "tree.txt").read_text() == "tree"
    assert names(tmp_path) == ["tree.txt"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_mask_of_the_process_is_left_alone(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", None)
            write_whole(tmp_path / "tree.txt", "tree")
    finally:
        os.umask(before)
    assert (tmp_path / "tree.txt").stat().st_mode & 0o777 == 0o640


def die(path):
    with whole_file(Path(path)) as draft:
        draft.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_drafts_of_killed_processes_go(tmp_path):
    path = tmp_path / "tree.txt"
    for _ in range(2):  # the second one removes the draft of the first
        status, _, _ = forked(die, str(path))
        assert status == -signal.SIGKILL
        assert names(tmp_path) == [".tree.txt.0"]
    write_whole(path, "whole")
    assert names(tmp_path) == ["tree.txt"]
    assert path.read_text() == "whole"


def test_drafts_of_others_stay(tmp_path):
    path = tmp_path / "tree.txt"
    (tmp_path / "other").write_text("precious")
    (tmp_path / ".tree.txt.1").symlink_to("other")
    (tmp_path / ".tree.txt.2").mkdir()
    with whole_file(path) as first:
        first.write_text("first")
        with whole_file(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert (tmp_path / "other").read_text() == "precious"
    assert names(tmp_path) == [".tree.txt.1", ".tree.txt.2", "other", "tree.txt"]


def test_file_systems_without_locks(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(write.fcntl, "flock", flock)
    (tmp_path / ".tree.txt.0").write_text("perhaps of a living process")
    write_whole(tmp_path / "tree.txt", "tree")
    assert names(tmp_path) == [".tree.txt.0", "tree.txt"]


def test_threads_write_one_file(tmp_path):
    path = tmp_path / "tree.txt"
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda number: write_whole(path, str(number) * 100), range(200)):
            assert len(set(path.read_text())) <= 3
    assert names(tmp_path) == ["tree.txt"]


def test_other_errors_are_left_alone(tmp_path):
    with pytest.raises(FileNotFoundError), naming(tmp_path / "a"):
        (tmp_path / "absent").read_text()


SHORT = ("--inference", "svi", "--epochs", "2", "--draws", "3", "--depth", "1", "--experts", "2")


def test_a_limit_on_the_size_of_files(tmp_path, monkeypatch):
    table().to_csv(tmp_path / "data.csv", index=False)
    run, fit = str(finished("svi")), ["fit", "data.csv", "--target", "kind", "--drop", "price"]
    fit += [*SHORT, "--quiet"]
    ended = limited(
        2000,
        tmp_path,
        monkeypatch,
        ["predict", run, "data.csv", "--out", "new.csv"],
        ["predict", run, "data.csv", "--out", "new.parquet"],
        ["cards", "schema", "run", "--out", "run.schema.json"],
        [*fit, "--out", "tree"],
    )
    names = ["new.csv", "new.parquet", "run.schema.json", "tree/"]
    for name, (code, said) in zip(names, ended, strict=True):
        assert code == 2, name
        assert name in said
        assert said.endswith(
            "cannot be written: File too large; raise the limit on file sizes (see "
            "`ulimit -f`), or write elsewhere.\n"
        )
    assert json.loads((tmp_path / "tree" / "manifest.json").read_text())["status"] == "failed"


def test_the_posterior_is_refused_only_if_it_does_not_fit(tmp_path, monkeypatch):
    """The library of its format ends the process where a write fails."""
    table().to_csv(tmp_path / "data.csv", index=False)
    words = ["fit", "data.csv", "--target", "kind", "--set", "report=false", "--quiet"]
    words += [*SHORT, "--out"]
    [(code, said)] = limited(10**9, tmp_path, monkeypatch, [*words, "whole"])
    assert code == 0, said
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "whole").iterdir()}
    largest = sizes.pop("posterior.nc")
    assert largest > 2 * max(sizes.values())  # else another file is refused first
    for limit, expected in ((largest // 2, 2), (largest + 4096, 0)):
        [(code, said)] = limited(limit, tmp_path, monkeypatch, [*words, str(limit)])
        assert code == expected, said
        assert ("posterior.nc' cannot be written: File too large; raise" in said) == (code == 2)


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError])
def test_a_place_that_cannot_be_written_is_named_with_a_remedy(tmp_path, monkeypatch, kind):
    def refused(path, *_):  # as the kernel does in /proc and /sys
        number = errno.ENOENT if kind is FileNotFoundError else errno.EACCES
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(kind, match=r"/a.txt' cannot be written: \w.*; choose another folder\.$"):
        write_whole(tmp_path / "a.txt", "text")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "folder" / "below"
    with pytest.raises(NotADirectoryError, match="below' cannot be written"), naming(place):
        place.mkdir(parents=True)
