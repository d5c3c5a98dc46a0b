"""
The outside of an index file: a stream of checksummed chunks, and a file that is replaced whole or not at all.

Little-endian. After the magic and the version come chunks: the number of their bytes (uint32), a CRC-32 of all that
stands before and of the chunk, the bytes. A chunk of no bytes ends the stream. Nothing of a chunk is used before its
checksum was compared. Pipes serve as well as files, but only a file says before its end how long it is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..learning import model_bytes

MAGIC = b"PRHINDEX"
_VERSION = 2
_HEADER = struct.Struct("<8sH")
_CHUNK = struct.Struct("<II")
_CHUNK_BYTES = 1 << 20
_LARGEST_CHUNK = 1 << 24


class IndexFileError(ValueError):
    """A file that cannot be read as an index; the message says all there is to say."""


class ChunkWriter:
    """Writes bytes as chunks to a file object. `finish` writes the last ones."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = bytearray()
        header = _HEADER.pack(MAGIC, _VERSION)
        self._checksum = zlib.crc32(header)
        _write_all(file, header)

    def write(self, data: bytes | memoryview) -> None:
        """Write some bytes."""
        self._buffer += data
        while len(self._buffer) >= _CHUNK_BYTES:
            self._write_chunk(bytes(self._buffer[:_CHUNK_BYTES]))
            del self._buffer[:_CHUNK_BYTES]

    def finish(self) -> None:
        """Write what is left, and the end."""
        if self._buffer:
            self._write_chunk(bytes(self._buffer))
        self._write_chunk(b"")

    def _write_chunk(self, data: bytes) -> None:
        self._checksum = zlib.crc32(data, self._checksum)
        _write_all(self._file, _CHUNK.pack(len(data), self._checksum))
        _write_all(self._file, data)


class ChunkReader:
    """Reads back what a `ChunkWriter` wrote. Anything else is a ValueError."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        header = _read_up_to(file, _HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(MAGIC):
            raise IndexFileError(f"this is not an index file of faiss-prh{_hint(header)}")
        _, version = _HEADER.unpack(header)
        if version != _VERSION:
            raise IndexFileError(f"an index file of format version {version}; this release reads version {_VERSION}")
        self._checksum = zlib.crc32(header)
        self._chunk = memoryview(b"")
        self._end = _end_of(file)

    def left(self) -> int | None:
        """Return how many bytes there can still be, or None if this is a pipe."""
        return None if self._end is None else len(self._chunk) + max(0, self._end - self._file.tell())

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        parts = []
        while size > 0:
            if not self._chunk:
                self._chunk = memoryview(self._read_chunk())
                if not self._chunk:
                    raise IndexFileError("a damaged index file: it ends too early")
            parts.append(self._chunk[:size])
            self._chunk = self._chunk[len(parts[-1]) :]
            size -= len(parts[-1])
        return b"".join(parts)

    def finish(self) -> None:
        """Check that this is the end."""
        if self._chunk or self._read_chunk():
            raise IndexFileError("a damaged index file: it goes on too long")

    def _read_chunk(self) -> bytes:
        frame = _read_up_to(self._file, _CHUNK.size)
        if len(frame) < _CHUNK.size:
            raise IndexFileError("a truncated index file")
        size, checksum = _CHUNK.unpack(frame)
        if size > _LARGEST_CHUNK:
            raise IndexFileError("a damaged index file: a chunk is too large")
        data = _read_up_to(self._file, size)
        if len(data) < size:
            raise IndexFileError("a truncated index file")
        self._checksum = zlib.crc32(data, self._checksum)
        if self._checksum != checksum:
            raise IndexFileError("a damaged index file: a checksum does not match")
        return data


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of the one at `path` once it is written and on the disk."""
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():  # a device or a pipe is written to, not replaced
        with place.open("wb") as file:
            yield file
        return
    name = os.fsdecode(os.fsencode(place.name)[:100])
    temporary = place.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if place.exists():
                shutil.copymode(place, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):  # a name that its user has never seen
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _hint(header: bytes) -> str:
    """Return what else a file may be."""
    if header.startswith(model_bytes.MAGIC):
        return ": it is a PRHTransform, for PRHTransform.from_bytes"
    if header[:2] == b"IB":
        return ": it looks like one of Faiss's own, for faiss.read_index_binary"
    if header[:1] == b"I" and header[:4].isalnum():
        return ": it looks like one of Faiss's own, for faiss.read_index"
    return ""


def _end_of(file: BinaryIO) -> int | None:
    try:
        place = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(place)
    except (AttributeError, OSError, ValueError):  # a pipe, or what is like one
        return None
    return end


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = file.write(rest)
        if written == 0:
            raise OSError("the file object takes no more bytes")
        # Some objects return nothing, and take all.
        rest = rest[len(rest) if written is None else written :]


def _read_up_to(file: BinaryIO, size: int) -> bytes:
    """Read until there are `size` bytes or no more."""
    parts = []
    while size > 0:
        part = file.read(size)
        if not part:
            break
        if len(part) > size:
            raise ValueError(f"the file object gives {len(part)} bytes when asked for {size}")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
