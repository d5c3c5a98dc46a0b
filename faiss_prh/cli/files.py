"""Read and write the files of indexes and transforms. Every error is one line that begins with the path as given."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import faiss

from ..learning.model_bytes import MAGIC
from ..storage.container import replacing
from ..storage.files import read_index
from ..transform import PRHTransform
from . import interrupts
from .vector_files import split_name

_LARGEST_TRANSFORM = 1 << 34  # more than any number of dimensions and layers takes


def check_output(path: str, inputs: Sequence[str]) -> None:
    """Refuse, before any work is done, a path that cannot be written to or is one of the inputs."""
    place = Path(path)
    with _naming(path, OSError):
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not place.exists() or place.is_file():
            tempfile.TemporaryFile(dir=Path(os.path.realpath(place)).parent).close()
        elif not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    for source in inputs:
        given = split_name(source)[0]
        if place.is_file() and given.exists() and place.samefile(given):
            raise ValueError(f"{path}: the output would replace an input")


@contextmanager
def written(path: str) -> Iterator[BinaryIO]:
    """
    Open a file that takes the place of the one at `path` once it is whole.

    An interrupt leaves the old file. Once the new one is on the disk, interrupts are ignored for good: from then on
    the command succeeds, and says so, because whoever is told otherwise would run it again.
    """
    with _naming(path, OSError), replacing(path) as file:
        yield file
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())
        interrupts.ignore()


def holds_transform(path: str) -> bool:
    """Whether a file begins as those of transforms do."""
    with _naming(path, OSError), open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_index(path: str, trusted: bool) -> Any:
    """Read any index."""
    if os.path.isfile(path) and holds_transform(path):  # from a pipe, the first bytes could not be read twice
        raise ValueError(f"{path}: a transform, not an index")
    with _naming(path, OSError, ValueError):
        return read_index(path, trusted=trusted)


def open_trained_index(path: str, trusted: bool) -> Any:
    """Read an index that vectors can be added to and searched for in."""
    index = open_index(path, trusted)
    if isinstance(index, faiss.IndexBinary):
        raise ValueError(f"{path}: an index of codes, not of vectors")
    if not index.is_trained:
        raise ValueError(f"{path}: an index that is not trained")
    return index


def open_transform(path: str) -> PRHTransform:
    """Read a transform."""
    if not holds_transform(path):
        raise ValueError(f"{path}: not a transform written by `faiss-prh train`")
    with _naming(path, OSError, ValueError, OverflowError), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > _LARGEST_TRANSFORM:
            raise ValueError("too large for a transform")
        return PRHTransform.from_bytes(file.read())


@contextmanager
def _naming(path: str, *kinds: type[Exception]) -> Iterator[None]:
    """Report errors of these kinds as one line that starts with the path as it was given."""
    try:
        yield
    except kinds as error:
        said = getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path or repr(path)}: {said}") from error
