"""Tensors in files: for rows that are too many for memory."""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import Tensor

#: Numbers of rows in files that are held in memory at a time: 256 MiB in double precision.
HELD = 2**25

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


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
    OSError
        If the disk has no room for it.
    """
    folder = _folder.get() or Path(tempfile.gettempdir())
    size = math.prod(shape)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".bayestree-")
    try:
        _reserve(handle, size * dtype.itemsize, folder)
        # Shared with the file: pages that were written go there, and not to swap.
        flat = torch.from_file(name, shared=True, size=size, dtype=dtype)
    finally:
        os.close(handle)
        Path(name).unlink()
    return flat.view(shape)


def is_mapped(tensor: Tensor) -> bool:
    """Whether a tensor lies in a file of :func:`mapped_tensor`."""
    return tensor.device.type == "cpu" and tensor.untyped_storage().filename is not None


def _reserve(handle: int, size: int, folder: Path) -> None:
    """Make a file so long; where the disk is full this fails, and not a later write to memory."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        raise OSError(
            f"{folder} has no room for {size / 2**30:.1f} GiB of rows ({error.strerror}): make "
            "some, or name another folder for temporary files by the environment variable TMPDIR."
        ) from error
