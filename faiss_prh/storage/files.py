"""Indexes as one file: the transforms, the codes, and what ranks them again."""

from __future__ import annotations

import copyreg
import io
import os
from contextlib import nullcontext
from typing import Any, BinaryIO

from ..index.asymmetric import IndexBinaryAsymmetric
from ..index.pretransform import IndexBinaryPreTransform
from ..index.refine import IndexBinaryRefine
from ..index.signs import IndexIVFSigns
from ..index.signs_refine import IndexIVFSignsRefine
from .container import ChunkReader, ChunkWriter, IndexFileError, replacing
from .limits import Flaw
from .records import RecordReader, RecordWriter
from .tree import INDEXES, READERS, write_thing

Destination = str | os.PathLike[str] | BinaryIO


def write_index(index: Any, destination: Destination) -> None:
    """
    Write an index to a file: any of this package, or a Faiss index with a PRHTransform in it.

    Parameters
    ----------
    index : IndexBinaryPreTransform, faiss.Index or faiss.IndexBinary
    destination : path or binary file object
        A file is written beside the path first, synced and renamed: whatever happens, the path has the old file or
        the new one.

    Examples
    --------
    >>> import os, tempfile, numpy as np
    >>> from faiss_prh import index_factory, read_index, write_index
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> index = index_factory(64, "PRH,BFlat")
    >>> index.train(x)
    >>> index.add(x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_index(index, os.path.join(folder, "i.prh"))
    ...     read_index(os.path.join(folder, "i.prh")).ntotal
    1000
    """
    if isinstance(destination, (str, os.PathLike)):
        with replacing(destination) as file:
            write_index(index, file)
        return
    if not hasattr(destination, "write"):
        raise TypeError(f"a path or a binary file object is needed, not {type(destination).__name__}")
    writer = ChunkWriter(destination)
    try:
        # So that no other thread changes it meanwhile. Faiss's own indexes have no such lock.
        with index._lock if isinstance(index, IndexBinaryPreTransform) else nullcontext():
            RecordWriter(writer, write_thing).write(index)
    except Flaw as flaw:
        raise ValueError(f"this {type(index).__name__} cannot be written: {flaw}") from None
    writer.finish()


def read_index(source: Destination, *, trusted: bool = False) -> Any:
    """
    Read the index that `write_index` wrote.

    Parameters
    ----------
    source : path or binary file object
        A file that is truncated, damaged or something else is a ValueError. A file object is left behind the index.
    trusted : bool
        Whether to let Faiss read its own bytes, which a float index in the file is made of. They are not checked: a
        forged file could crash the process (`docs/trust.md`).

    Examples
    --------
    >>> import io
    >>> from faiss_prh import index_factory, read_index, write_index
    >>> file = io.BytesIO()
    >>> write_index(index_factory(64, "PRH,BIVF16,RAsym"), file)
    >>> position = file.seek(0)
    >>> read_index(file).index.nlist
    16
    """
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            index = read_index(file, trusted=trusted)
            if file.read(1):
                raise IndexFileError("a damaged index file: it goes on too long")
            return index
    if not hasattr(source, "read"):
        raise TypeError(f"a path or a binary file object is needed, not {type(source).__name__}")
    reader = ChunkReader(source)
    try:
        index = RecordReader(reader, READERS, trusted).read(INDEXES)
    except IndexFileError:
        raise
    except (ValueError, TypeError, RuntimeError, RecursionError) as error:
        raise IndexFileError(f"a damaged index file: {error}") from error
    reader.finish()
    return index


def serialize_index(index: Any) -> bytes:
    """
    Return what `write_index` writes as bytes, for `deserialize_index`. Pickling and copying go through them.

    Examples
    --------
    >>> from faiss_prh import index_factory, serialize_index
    >>> serialize_index(index_factory(64, "PRH,BFlat"))[:8]
    b'PRHINDEX'
    """
    file = io.BytesIO()
    write_index(index, file)
    return file.getvalue()


def deserialize_index(data: bytes, *, trusted: bool = False) -> Any:
    """
    Return the index that `serialize_index` made bytes of. Other bytes are a ValueError.

    `trusted` is that of `read_index`.

    Examples
    --------
    >>> from faiss_prh import deserialize_index, index_factory, serialize_index
    >>> deserialize_index(serialize_index(index_factory(64, "PRH,BFlat"))).d
    64
    """
    file = io.BytesIO(data)
    index = read_index(file, trusted=trusted)
    if file.read(1):
        raise ValueError("a damaged index file: it goes on too long")
    return index


def clone_index(index: Any) -> Any:
    """
    Return a copy of an index, any that `write_index` writes.

    Examples
    --------
    >>> from faiss_prh import clone_index, index_factory
    >>> clone_index(index_factory(64, "PRH,LSH")).d
    64
    """
    return deserialize_index(serialize_index(index), trusted=True)


def _reduce(index: IndexBinaryPreTransform) -> tuple[Any, ...]:
    return _unpickled, (serialize_index(index),)


def _unpickled(data: bytes) -> Any:
    return deserialize_index(data, trusted=True)  # whoever does not trust a pickle must not load it


_OURS = (IndexBinaryPreTransform, IndexBinaryRefine, IndexBinaryAsymmetric, IndexIVFSigns, IndexIVFSignsRefine)
for _class in _OURS:
    copyreg.pickle(_class, _reduce)
