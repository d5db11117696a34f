"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file under a temporary name beside it, and rename; text as UTF-8."""
    with whole_file(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A draft to write to, which gets its name when the block ends without an error."""
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
