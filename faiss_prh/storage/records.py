"""
The inside of an index file: a tree of records.

A record is a length (uint32) and that many bytes of JSON: its type and some numbers. The arrays of its type follow, in
a fixed order, then the records of its parts. How long an array is follows from the numbers. `docs/format.md` has them
all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import faiss
import numpy as np

from .._common.types import AnyArray, Codes
from .container import ChunkReader, ChunkWriter, IndexFileError
from .limits import DEEPEST, KINDS, Flaw, check_fields

_LENGTH = struct.Struct("<I")
_LARGEST_RECORD = 1 << 12
_BLOCK_BYTES = 1 << 20
_MOST_BEYOND = 64 << 20
_ON_DISK = b"ilod"  # with which Faiss begins inverted lists in a file of their own

Fields = Mapping[str, Any]


class _Bounded:
    """What writing and reading limit alike."""

    def __init__(self) -> None:
        self._depth = self._beyond = 0

    def claim_beyond(self, size: int) -> None:
        """Refuse an index for which Faiss takes more than a little memory that no bytes of the file stand for."""
        self._beyond += size
        if self._beyond > _MOST_BEYOND:
            raise Flaw(f"it takes more than {_MOST_BEYOND >> 20} MiB of memory besides what it holds")


class RecordWriter(_Bounded):
    """
    Writes records.

    Parameters
    ----------
    out : ChunkWriter
    write : callable
        Writes the records of any index or transform, given this writer and the thing.
    """

    def __init__(self, out: ChunkWriter, write: Callable[[RecordWriter, Any], None]) -> None:
        super().__init__()
        self._out, self._write = out, write

    def write(self, thing: Any) -> None:
        """Write the records of an index or a transform."""
        if self._depth > DEEPEST:
            raise Flaw(f"it is inside more than {DEEPEST} others")
        self._depth += 1
        self._write(self, thing)
        self._depth -= 1

    def record(self, kind: str, **fields: Any) -> None:
        """Write the beginning of a record."""
        check_fields(kind, fields)
        data = json.dumps({"type": kind, **fields}).encode()
        self._out.write(_LENGTH.pack(len(data)) + data)

    def array(self, values: AnyArray, dtype: str) -> None:
        """Write an array, or a part of one."""
        array = np.ascontiguousarray(values, dtype)
        if array.size:
            data = array.reshape(-1).view(np.uint8).data
            for first in range(0, len(data), _BLOCK_BYTES):
                self._out.write(data[first : first + _BLOCK_BYTES])

    def faiss_bytes(self, write: Callable[[Any, Any], None], thing: Any) -> None:
        """Write what Faiss makes of a thing, which says itself where it ends."""

        def callback(data: bytes) -> None:
            if data == _ON_DISK:
                raise Flaw("its inverted lists are in a file of their own")
            self._out.write(data)

        try:
            write(thing, faiss.PyCallbackIOWriter(callback))
        except RuntimeError as error:
            raise Flaw(f"Faiss: {error}") from None


class RecordReader(_Bounded):
    """
    Reads the records that a `RecordWriter` wrote, and trusts none of them.

    Parameters
    ----------
    source : ChunkReader
    readers : mapping
        For each type of record, what makes an object of it, given this reader and the fields.
    trusted : bool
        Whether to give Faiss its own bytes, which are not checked.
    """

    def __init__(
        self, source: ChunkReader, readers: Mapping[str, Callable[[RecordReader, str, Fields], Any]], trusted: bool
    ) -> None:
        super().__init__()
        self._source, self._readers, self.trusted = source, readers, trusted

    def read(self, expected: Collection[str]) -> Any:
        """Return the index or transform whose records come next; its type must be one of those expected."""
        (length,) = _LENGTH.unpack(self._source.read(_LENGTH.size))
        if length > _LARGEST_RECORD or self._depth > DEEPEST:
            raise Flaw("a record is too large, or too deep")
        fields = json.loads(self._source.read(length))
        if not isinstance(fields, dict):
            raise Flaw("a record without a type")
        kind = fields.pop("type", None)
        if not isinstance(kind, str) or kind not in KINDS or kind not in expected:
            raise Flaw(f"{kind!r} where {' or '.join(sorted(expected))} should be")
        check_fields(kind, fields)
        self._depth += 1
        thing = self._readers[kind](self, kind, fields)
        self._depth -= 1
        return thing

    def array(self, dtype: str, count: int) -> AnyArray:
        """Return the next array, of so many values."""
        size = count * np.dtype(dtype).itemsize
        self.claim(size)
        values: AnyArray = np.frombuffer(self._source.read(size), dtype).astype(np.dtype(dtype).newbyteorder("="))
        return values

    def rows(self, count: int, row_bytes: int) -> Iterator[Codes]:
        """Yield the next rows of bytes, some at a time."""
        self.claim(count * row_bytes)
        step = max(1, _BLOCK_BYTES // row_bytes)
        for first in range(0, count, step):
            n = min(step, count - first)
            yield np.frombuffer(self._source.read(n * row_bytes), np.uint8).reshape(n, row_bytes)

    def claim(self, size: int) -> None:
        """Refuse a claim of more bytes than the file still has, before memory is made for it."""
        left = self._source.left()
        if left is not None and size > left:
            raise Flaw(f"it claims {size} bytes where {left} are left")

    def faiss_bytes(self, read: Callable[[Any], Any], name: str) -> Any:
        """Return what Faiss makes of its own bytes."""
        if not self.trusted:
            raise IndexFileError(
                f"this file holds Faiss's own bytes of an {name}, which are not checked: if they were forged, Faiss "
                "could crash. If you trust the file, read it with trusted=True (on the command line, --trusted; if "
                "faiss.read_index is reading it, faiss_prh.install(trusted=True))"
            )
        return read(faiss.PyCallbackIOReader(self._source.read))
