"""Tensors in files: for rows that are too many for memory."""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

#: Numbers of rows in files that are held in memory at a time: 256 MiB in double precision.
HELD = 2**25
PREFIX = ".rows."  # of files for the moment in which they have a name

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


class NoRoomError(OSError):
    """A disk has no room for the rows."""


@contextmanager
def scratch_in(folder: Path) -> Iterator[None]:
    """Let the block have its files in a folder; by default they are where temporary files are."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def mapped_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of zeros in a file, which is gone when the tensor is, or the process.

    What is written to it needs memory only as long as there is some to spare.

    Parameters
    ----------
    shape : tuple of int
        Without a 0.
    dtype : torch.dtype

    Raises
    ------
    NoRoomError
        If the disk has no room for it.
    """
    size = math.prod(shape)
    with _unnamed_file(size * dtype.itemsize) as path:
        # Shared with the file: pages that were written go there, and not to swap.
        return torch.from_file(str(path), shared=True, size=size, dtype=dtype).view(shape)


def mapped_array(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """The same as an array of NumPy, a ``numpy.memmap``."""
    kind = np.dtype(dtype)
    with _unnamed_file(math.prod(shape) * kind.itemsize) as path:
        return np.memmap(path, kind, "r+", shape=shape)


def is_mapped(tensor: Tensor) -> bool:
    """Whether a tensor lies in a file of :func:`mapped_tensor`."""
    return tensor.device.type == "cpu" and tensor.untyped_storage().filename is not None


@contextmanager
def _unnamed_file(size: int) -> Iterator[Path]:
    """A file of so many bytes to be mapped in the block, after which it has no name."""
    folder = _folder.get() or Path(tempfile.gettempdir())
    handle, name = tempfile.mkstemp(dir=folder, prefix=PREFIX)
    try:
        os.truncate(handle, size)
        try:
            yield Path(name)
        finally:
            Path(name).unlink()
        # What a full disk cannot hold is refused here: writing to the map would end the process.
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(handle, 0, size)
    except OSError as error:
        raise NoRoomError(
            f"{folder} has no room for {size / 2**30:.1f} GiB of rows ({error.strerror}): make "
            "some, or name another folder for temporary files by the environment variable TMPDIR."
        ) from error
    finally:
        os.close(handle)
