"""Atomic writing of files."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """Give a draft file, renamed to ``path`` when the block ends without an error."""
    with naming(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        draft = Path(name)
        try:
            try:
                yield draft
                os.fsync(handle)
            finally:
                os.close(handle)  # before the renaming: Windows renames no open files
            # mkstemp creates files that only the owner can read
            draft.chmod(0o666 & ~_umask())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
