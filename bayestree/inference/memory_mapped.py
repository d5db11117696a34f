"""Free memory; memory-mapped tensors and arrays, for rows that do not fit into it."""

import atexit
import math
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from bayestree._utils.arrays import AnyArray
from bayestree._utils.parallel import memory_forced
from bayestree._utils.wording import InputError

#: Numbers of memory-mapped rows that are in memory at a time: 256 MiB in double precision.
HELD = 2**25
PREFIX = ".rows."  # of temporary files, until they are unlinked
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


class NoRoomError(OSError):
    """There is not enough disk space for the rows."""


@contextmanager
def scratch_in(folder: Path) -> Iterator[None]:
    """Create the files of the block in a folder instead of the default temporary directory."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def free_memory() -> float:
    """Return the bytes that this process may still take; infinite where the system is silent."""
    found = [math.inf]
    with suppress(ImportError, OSError):  # elsewhere than on Linux
        import resource  # noqa: PLC0415 - of Unix

        text = Path("/proc/self/status").read_text() + Path("/proc/meminfo").read_text()
        kib = {name: int(n) for name, n in re.findall(r"(\w+):\s+(\d+) kB", text)}
        found.append(1024 * (kib["MemAvailable"] + kib["SwapFree"]))
        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            found.append(limit - 1024 * kib["VmSize"])
        with suppress(ValueError):  # "max", or the limit of a container
            found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()) - 1024 * kib["VmRSS"])
    return min(found)


def check_memory(what: str, needed: float) -> None:
    """Raise InputError if ``what`` needs more bytes than are free."""
    forced = memory_forced.get() or os.environ.get("BAYESTREE_FORCE_MEMORY")
    if needed > (free := max(free_memory(), 0)) and not forced:
        raise InputError(
            f"{what} needs {needed / 2**30:,.1f} GiB of memory or more, and {free / 2**30:,.1f} "
            "are free: reduce it, or set --force-memory (or BAYESTREE_FORCE_MEMORY=1)."
        )


def mapped_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Create a tensor of zeros, of non-empty shape, in a file that is deleted with it."""
    size = math.prod(shape)
    with _unnamed_file(size * dtype.itemsize) as path:
        # A shared mapping: the system can write pages to the file rather than to swap.
        return torch.from_file(str(path), shared=True, size=size, dtype=dtype).view(shape)


def mapped_array(shape: tuple[int, ...], dtype: DTypeLike) -> AnyArray:
    """Create an array (``numpy.memmap``) as :func:`mapped_tensor` does."""
    kind = np.dtype(dtype)
    with _unnamed_file(math.prod(shape) * kind.itemsize) as path:
        return np.memmap(path, kind, "r+", shape=shape)


def is_mapped(tensor: Tensor) -> bool:
    """Return whether a tensor is memory-mapped by :func:`mapped_tensor`."""
    return tensor.device.type == "cpu" and tensor.untyped_storage().filename is not None


@contextmanager
def _unnamed_file(size: int) -> Iterator[Path]:
    """Create a file of ``size`` bytes to be mapped in the block, and unlink it afterwards."""
    folder = _folder.get() or Path(tempfile.gettempdir())
    handle, name = tempfile.mkstemp(dir=folder, prefix=PREFIX)
    try:
        size = max(size, 1)  # an empty file cannot be mapped
        os.truncate(handle, size)
        try:
            yield Path(name)
        finally:
            try:
                Path(name).unlink()
            except PermissionError:  # Windows refuses to unlink a file that is mapped
                atexit.register(_unlink_at_exit, Path(name))
        # Reserve the space now: on a full disk, writing to the mapping would kill the process.
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(handle, 0, size)
    except OSError as error:
        raise NoRoomError(
            f"{folder} has no room for {size / 2**30:.1f} GiB of rows ({error.strerror}): free "
            "some space, or set the environment variable TMPDIR to another folder."
        ) from error
    finally:
        os.close(handle)


def _unlink_at_exit(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
