"""
A transform as bytes: versioned, checksummed, and not trusted when read.

Little-endian: the header, the number of rotations of each layer (uint32), then for all rotations i (uint32), j
(uint32) and θ (float32), then the mean (d_in × float32), the dimensions kept (d_out × uint32), and the share and the
spread of their variance (float64), then the CRC-32 of all that. An untrained transform ends after the header, but for
the CRC-32. Version 1 had no d_out, no tune, no dimensions kept and no variance.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from .._common.types import Vectors
from ..rotation import MAX_DIMENSIONS, MAX_LAYERS, PairwiseRotation
from .model import Model
from .parameters import Parameters

_MAGIC = b"FAISSPRH"
_VERSION = 2
# magic, version, trained, d_in, n_iso, n_pca, seed, tilt, number of layers; then, since version 2, d_out and tune
_HEADER = struct.Struct("<8sHHIIIQdI")
_SINCE_2 = struct.Struct("<II")
_VARIANCE = struct.Struct("<dd")
_CHECKSUM = struct.Struct("<I")


def dumps(d_in: int, d_out: int, parameters: Parameters, learned: Model | None) -> bytes:
    """Return a transform as bytes."""
    p = parameters
    layers = learned[0].layers if learned else ()
    parts = [_HEADER.pack(_MAGIC, _VERSION, bool(learned), d_in, p.n_iso, p.n_pca, p.seed, p.tilt, len(layers))]
    parts.append(_SINCE_2.pack(d_out, p.tune))
    if learned:
        parts.append(np.array([len(layer.theta) for layer in layers], dtype="<u4").tobytes())
        for part, dtype in enumerate(("<u4", "<u4", "<f4")):
            parts += [layer[part].astype(dtype).tobytes() for layer in layers]
        parts += [learned.mean.astype("<f4").tobytes(), learned.kept.astype("<u4").tobytes()]
        parts.append(_VARIANCE.pack(learned.variance_kept, learned.variance_spread))
    content = b"".join(parts)
    return content + _CHECKSUM.pack(zlib.crc32(content))


def loads(data: bytes) -> tuple[int, int, Parameters, Model | None]:
    """Return what `dumps` was given. Anything else than its bytes is a ValueError."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"bytes are needed, not {type(data).__name__}")
    data = bytes(data)
    if len(data) < _HEADER.size + _CHECKSUM.size or not data.startswith(_MAGIC):
        raise ValueError("these bytes are not a PRHTransform")
    _, version, trained, d, n_iso, n_pca, seed, tilt, n_layers = _HEADER.unpack_from(data)
    if version not in (1, _VERSION):
        raise ValueError(f"a PRHTransform of format version {version}; this release reads versions 1 to {_VERSION}")
    content, (checksum,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    if zlib.crc32(content) != checksum:
        raise ValueError("a damaged PRHTransform: its checksum does not match")
    # A checksum is no proof of good intentions, so everything is checked as if it were missing.
    if trained not in (0, 1) or not 1 <= d <= MAX_DIMENSIONS or n_layers > MAX_LAYERS:
        raise ValueError(f"a damaged PRHTransform: d = {d}, trained = {trained}, {n_layers} layers")
    reader = _Reader(content, _HEADER.size)
    d_out, tune = (d, 0) if version == 1 else reader.take("<u4", 2).tolist()
    if not 1 <= d_out <= MAX_DIMENSIONS or tune not in (0, 1):
        raise ValueError(f"a damaged PRHTransform: d_out = {d_out}, tune = {tune}")
    parameters = Parameters(n_iso, n_pca, tilt, seed, bool(tune))
    if not trained:
        if n_layers:
            raise ValueError("a damaged PRHTransform: an untrained one with layers")
        reader.finish()
        return d, d_out, parameters, None

    sizes = reader.take("<u4", n_layers).astype(np.int64)
    total, ends = int(sizes.sum()), np.cumsum(sizes)[:-1]
    i, j, theta = (np.split(reader.take(dtype, total), ends) for dtype in ("<u4", "<u4", "<f4"))
    mean = reader.take("<f4", d).astype(np.float32)
    n = max(d, d_out)
    kept = np.arange(d, dtype="<u4") if version == 1 else reader.take("<u4", d_out)
    variance = [float("nan")] * 2 if version == 1 else reader.take("<f8", 2).tolist()
    reader.finish()
    if not np.isfinite(mean).all():
        raise ValueError("a damaged PRHTransform: a mean that is not finite")
    if any(share < 0 or share == float("inf") for share in variance):
        raise ValueError(f"a damaged PRHTransform: a variance of {variance}")
    if kept.max() >= n or len(np.unique(kept)) < len(kept):
        raise ValueError("a damaged PRHTransform: it keeps dimensions that do not exist, or twice")
    layers = zip(i, j, theta, strict=True) if n_layers else ()
    return d, d_out, parameters, Model(PairwiseRotation(n, layers), mean, kept.astype(np.int32), *variance)


class _Reader:
    """Takes arrays from bytes, never more than there are."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def take(self, dtype: str, count: int) -> Vectors:
        if count * np.dtype(dtype).itemsize > len(self._data) - self._offset:
            raise ValueError("a damaged PRHTransform: it ends too early")
        array = np.frombuffer(self._data, dtype, count, self._offset)
        self._offset += array.nbytes
        return array

    def finish(self) -> None:
        if self._offset != len(self._data):
            raise ValueError("a damaged PRHTransform: it goes on too long")
