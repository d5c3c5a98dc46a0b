"""Files of indexes and transforms for the command line: whatever is wrong is one line with the name of the file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import faiss

from ..storage.container import replacing
from ..storage.files import read_index
from ..transform import PRHTransform
from .vector_files import split_name

_TRANSFORM = b"FAISSPRH"
_LARGEST_TRANSFORM = 1 << 34  # more than one of all the dimensions and layers that there can be


def check_output(path: str, inputs: Sequence[str]) -> None:
    """Refuse a path that cannot be written to, or that is one of the inputs, before any work is done."""
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"{path}: Is a directory")
    try:
        if not place.exists() or place.is_file():
            tempfile.TemporaryFile(dir=Path(os.path.realpath(place)).parent).close()
        elif not os.access(place, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    for source in inputs:
        given = split_name(source)[0]
        if place.is_file() and given.exists() and place.samefile(given):
            raise ValueError(f"{path}: the output would replace an input")


@contextmanager
def written(path: str) -> Iterator[BinaryIO]:
    """Open a file that replaces another when it is whole."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error


def holds_transform(path: str) -> bool:
    """Whether a file begins as those of transforms do."""
    with open(path, "rb") as file:
        return file.read(len(_TRANSFORM)) == _TRANSFORM


def open_index(path: str, trusted: bool) -> Any:
    """Read any index."""
    if os.path.isfile(path) and holds_transform(path):
        raise ValueError(f"{path}: a transform, not an index")
    try:
        return read_index(path, trusted=trusted)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def open_trained_index(path: str, trusted: bool) -> Any:
    """Read an index that vectors can be added to, and searched in."""
    index = open_index(path, trusted)
    if isinstance(index, faiss.IndexBinary):
        raise ValueError(f"{path}: an index of codes, not of vectors")
    if not index.is_trained:
        raise ValueError(f"{path}: an index that is not trained")
    return index


def open_transform(path: str) -> PRHTransform:
    """Read a transform."""
    if not holds_transform(path):
        raise ValueError(f"{path}: not a transform, as `faiss-prh train` writes it")
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_TRANSFORM:
                raise ValueError("too large for a transform")
            return PRHTransform.from_bytes(file.read())
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error
