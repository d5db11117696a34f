"""Files that are there whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: What to do where there is no room for a file.
REMEDIES = {
    errno.EFBIG: "raise the limit on the size of files (see `ulimit -f`), or write elsewhere",
    errno.ENOSPC: "make room on the disk, or write elsewhere",
    errno.EDQUOT: "make room within your quota, or write elsewhere",
}


class NoRoomForFileError(OSError):
    """A file that is too large for the disk, or for a limit."""

    def __str__(self) -> str:
        """Name the file, the reason and a remedy."""
        remedy = REMEDIES[self.errno or errno.ENOSPC]
        return f"{self.filename!r} cannot be written: {self.strerror}; {remedy}."


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file where the block finds no room for it; the operating system does not.

    Raises
    ------
    NoRoomForFileError
    """
    try:
        yield
    except OSError as error:
        if error.errno not in REMEDIES or isinstance(error, NoRoomForFileError):
            raise
        raise NoRoomForFileError(error.errno, os.strerror(error.errno), str(path)) from error


def write_whole(path: Path, content: bytes | memoryview | str) -> None:
    """Write a file under a temporary name beside it, and rename; text as UTF-8."""
    with whole_file(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A draft to write to, which gets its name when the block ends without an error."""
    with naming(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        draft = Path(name)
        try:
            yield draft
            os.fsync(handle)
            # mkstemp makes files that nobody else may read
            draft.chmod(0o666 & ~_umask())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A draft folder to write to, moved into place when the block ends without an error.

    Files that are already in ``folder`` stay, but for those of the same name.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        draft = Path(name) / folder.name
        draft.mkdir()
        yield draft
        if folder.is_dir() and any(folder.iterdir()):
            for file in sorted(draft.iterdir()):
                file.replace(folder / file.name)
        else:
            if folder.is_dir():
                folder.rmdir()
            draft.rename(folder)
