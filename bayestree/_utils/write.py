"""Atomic writing of files, and URLs of those that do not lie on this machine."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows, which neither renames nor removes open files
    fcntl = None

URL = re.compile(r"([a-z][\w+.:-]+):/+(.*)", re.DOTALL)  # two letters or more: c:/ is a drive
REMEDIES = {
    errno.EFBIG: "raise the limit on file sizes (see `ulimit -f`), or write elsewhere",
    errno.ENOSPC: "free some disk space, or write elsewhere",
    errno.EDQUOT: "free some space within your quota, or write elsewhere",
}


class NoRoomForFileError(OSError):
    """A file does not fit on the disk or exceeds a limit."""

    def __str__(self) -> str:
        """Return the file, the reason and a remedy."""
        remedy = REMEDIES[self.errno or errno.ENOSPC]
        return f"{self.filename!r} cannot be written: {self.strerror}; {remedy}."


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file or folder if the block cannot write it, or runs out of space."""
    try:
        yield
    except OSError as error:
        own = Path(str(error.filename))
        if own in (path, *path.parents) or own.name.startswith(f".{path.name}."):  # its draft
            raise type(error)(
                f"{str(path)!r} cannot be written: {error.strerror}; choose another folder."
            ) from error
        if error.errno not in REMEDIES or isinstance(error, NoRoomForFileError):
            raise
        raise NoRoomForFileError(error.errno, os.strerror(error.errno), str(path)) from error


def write_whole(path: Path, content: bytes | memoryview | str) -> None:
    """Write a file atomically (text as UTF-8), by renaming a temporary file."""
    with whole_file(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a draft file, renamed to ``path`` when the block ends without an error.

    Drafts of the same file that killed processes left behind are removed.
    """
    with naming(path):
        draft, handle = _new_draft(path)
        try:
            try:
                yield draft
                os.fsync(handle)
            finally:
                if fcntl is None:
                    os.close(handle)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            if fcntl is not None:
                os.close(handle)  # which ends the lock, so not before the draft is gone


def _new_draft(path: Path) -> tuple[Path, int]:
    """Create a draft, and open it; it is locked until it is closed or the process ends."""
    number = 0
    while True:
        draft = path.with_name(f".{path.name}.{number}")
        try:
            handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            number += not _remove_stale(draft)
            continue
        if fcntl is not None:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if fcntl is None or os.fstat(handle).st_nlink:
            return draft, handle
        os.close(handle)  # another process has removed it before it was locked


def _remove_stale(draft: Path) -> bool:
    """Return whether a draft is gone, after removing it if no living process has locked it."""
    try:
        if fcntl is None:
            draft.unlink()
            return True
        handle = os.open(draft, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # By now, another process may have put its own draft in the place of the open one.
            stale = os.path.samestat(os.fstat(handle), draft.lstat())
            if stale:
                draft.unlink()
            return stale
        finally:
            os.close(handle)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def url_of(path: str | Path) -> str | None:
    """Return the URL that a path states, also as pathlib writes it (``s3:/bucket/rows``)."""
    found = URL.fullmatch(str(path))
    if found is None:
        return None
    protocol, place = found.groups()
    return f"{protocol}://{'/' if protocol == 'file' else ''}{place}"
