"""
A transform as bytes: versioned, checksummed, and not trusted when read.

Little-endian: the header, the number of rotations of each layer (uint32), then for all rotations i (uint32), j
(uint32) and θ (float32), then the mean (d × float32), then the CRC-32 of all that. An untrained transform ends after
the header, but for the CRC-32.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from .learning import Parameters
from .rotation import MAX_DIMENSIONS, MAX_LAYERS, PairwiseRotation

_MAGIC = b"FAISSPRH"
_VERSION = 1
# magic, version, trained, d, n_iso, n_pca, seed, tilt, number of layers
_HEADER = struct.Struct("<8sHHIIIQdI")
_CHECKSUM = struct.Struct("<I")

Learned = tuple[PairwiseRotation, npt.NDArray[np.float32]]
"""A rotation, and the mean that is subtracted before."""


def dumps(d: int, parameters: Parameters, learned: Learned | None) -> bytes:
    """Return a transform as bytes."""
    p = parameters
    layers = learned[0].layers if learned else ()
    parts = [_HEADER.pack(_MAGIC, _VERSION, bool(learned), d, p.n_iso, p.n_pca, p.seed, p.tilt, len(layers))]
    if learned:
        parts.append(np.array([len(layer.theta) for layer in layers], dtype="<u4").tobytes())
        for part, dtype in enumerate(("<u4", "<u4", "<f4")):
            parts += [layer[part].astype(dtype).tobytes() for layer in layers]
        parts.append(learned[1].astype("<f4").tobytes())
    content = b"".join(parts)
    return content + _CHECKSUM.pack(zlib.crc32(content))


def loads(data: bytes) -> tuple[int, Parameters, Learned | None]:
    """Return what `dumps` was given. Anything else than its bytes is a ValueError."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"bytes are needed, not {type(data).__name__}")
    data = bytes(data)
    if len(data) < _HEADER.size + _CHECKSUM.size or not data.startswith(_MAGIC):
        raise ValueError("these bytes are not a PRHTransform")
    _, version, trained, d, n_iso, n_pca, seed, tilt, n_layers = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"a PRHTransform of format version {version}; this release reads version {_VERSION}")
    content, (checksum,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    if zlib.crc32(content) != checksum:
        raise ValueError("a damaged PRHTransform: its checksum does not match")
    # A checksum is no proof of good intentions, so everything is checked as if it were missing.
    if trained not in (0, 1) or not 1 <= d <= MAX_DIMENSIONS or n_layers > MAX_LAYERS:
        raise ValueError(f"a damaged PRHTransform: d = {d}, trained = {trained}, {n_layers} layers")
    parameters = Parameters(n_iso, n_pca, tilt, seed)
    if not trained:
        if n_layers or len(content) != _HEADER.size:
            raise ValueError("a damaged PRHTransform: an untrained one with layers")
        return d, parameters, None

    reader = _Reader(content, _HEADER.size)
    sizes = reader.take("<u4", n_layers).astype(np.int64)
    total, ends = int(sizes.sum()), np.cumsum(sizes)[:-1]
    i, j, theta = (np.split(reader.take(dtype, total), ends) for dtype in ("<u4", "<u4", "<f4"))
    mean = reader.take("<f4", d).astype(np.float32)
    reader.finish()
    if not np.isfinite(mean).all():
        raise ValueError("a damaged PRHTransform: a mean that is not finite")
    layers = zip(i, j, theta, strict=True) if n_layers else ()
    return d, parameters, (PairwiseRotation(d, layers), mean)


class _Reader:
    """Takes arrays from bytes, never more than there are."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def take(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        if count * np.dtype(dtype).itemsize > len(self._data) - self._offset:
            raise ValueError("a damaged PRHTransform: it ends too early")
        array = np.frombuffer(self._data, dtype, count, self._offset)
        self._offset += array.nbytes
        return array

    def finish(self) -> None:
        if self._offset != len(self._data):
            raise ValueError("a damaged PRHTransform: it goes on too long")
