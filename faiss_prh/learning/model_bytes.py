"""
A transform as bytes: versioned, checksummed, and not trusted when read. `docs/format.md` has the layout.

The number of a dimension takes one byte if there are at most 256 dimensions, two up to 65536, else four.
"""

from __future__ import annotations

import math
import struct
import zlib

import numpy as np

from .._common.arrays import first_unusable_row
from .._common.types import AnyArray, Floats
from ..rotation import MAX_DIMENSIONS, MAX_LAYERS, PairwiseRotation
from .model import Model
from .parameters import Parameters

MAGIC = b"FAISSPRH"
VERSION = 4
# magic, version, trained, d_in, d_out, n_iso, n_pca, seed, tilt, tune, not centred, number of layers, width of the tail
_HEADER = struct.Struct("<8sHHIIIIQdBBII")
_CHECKSUM = struct.Struct("<I")
_ROUNDING = 1e-4


def dumps(d_in: int, d_out: int, parameters: Parameters, model: Model | None) -> bytes:
    """Return a transform as bytes."""
    p, layers = parameters, model.rotation.layers if model else ()
    sizes, flags = (d_in, d_out, p.n_iso, p.n_pca), (p.tune, not p.center)
    width = 0 if model is None or model.tail is None else len(model.kept)
    parts = [_HEADER.pack(MAGIC, VERSION, bool(model), *sizes, p.seed, p.tilt, *flags, len(layers), width)]
    if model:
        dimension = _dimension_dtype(model.rotation.d)
        arrays = [np.array([len(layer.theta) for layer in layers], "<u4")]
        for part, dtype in enumerate((dimension, dimension, "<f4")):
            arrays += [layer[part].astype(dtype) for layer in layers]
        arrays += [model.mean.astype("<f4"), model.kept.astype(dimension)]
        arrays.append(np.array([model.variance_kept, model.variance_spread], "<f8"))
        if model.tail is not None:
            arrays.append(model.tail.astype("<f4"))
        parts += [array.tobytes() for array in arrays]
    content = b"".join(parts)
    return content + _CHECKSUM.pack(zlib.crc32(content))


def loads(data: bytes) -> tuple[int, int, Parameters, Model | None]:
    """Return what `dumps` was given. Bytes that it did not make are a ValueError."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"bytes are needed, not {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 2:
        raise ValueError("these bytes are not a PRHTransform")
    (version,) = struct.unpack_from("<H", data, len(MAGIC))
    if version != VERSION:
        raise ValueError(f"a PRHTransform of format version {version}; this release reads version {VERSION}")
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise ValueError("a damaged PRHTransform: it ends too early")
    content, (checksum,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    if zlib.crc32(content) != checksum:
        raise ValueError("a damaged PRHTransform: its checksum does not match")
    # A checksum is no proof of good intentions: everything is checked as if there were none.
    _, _, trained, d_in, d_out, n_iso, n_pca, seed, tilt, *flags, n_layers, width = _HEADER.unpack_from(content)
    is_possible = 1 <= d_in <= MAX_DIMENSIONS and 1 <= d_out <= MAX_DIMENSIONS and n_layers <= MAX_LAYERS
    if width and not d_out <= width <= d_in:
        raise ValueError(f"a damaged PRHTransform: a tail from {width} of {d_in} dimensions to {d_out}")
    if not is_possible or not {trained, *flags} <= {0, 1}:
        raise ValueError(
            f"a damaged PRHTransform: from {d_in} to {d_out} dimensions, {n_layers} layers, flags {trained}, {flags}"
        )
    tune, is_uncentred = map(bool, flags)
    parameters = Parameters(n_iso, n_pca, tilt, seed, tune, not is_uncentred)
    reader = _Reader(content, _HEADER.size)
    model = _read_model(reader, d_in, d_out, n_layers, width) if trained else None
    if not trained and (n_layers or width):
        raise ValueError("a damaged PRHTransform: an untrained one with layers or a tail")
    reader.finish()
    return d_in, d_out, parameters, model


def _read_model(reader: _Reader, d_in: int, d_out: int, n_layers: int, width: int) -> Model:
    n = max(d_in, d_out)
    dimension = _dimension_dtype(n)
    sizes = reader.take("<u4", n_layers).astype(np.int64)
    total, ends = int(sizes.sum()), np.cumsum(sizes)[:-1]
    i, j, theta = (np.split(reader.take(dtype, total), ends) for dtype in (dimension, dimension, "<f4"))
    mean = reader.take("<f4", d_in).astype(np.float32)
    kept = reader.take(dimension, width or d_out).astype(np.int32)
    variance_kept, variance_spread = reader.take("<f8", 2).tolist()
    tail = reader.take("<f4", d_out * width).reshape(d_out, width).astype(np.float32) if width else None
    if first_unusable_row(mean[None]) is not None:
        raise ValueError("a damaged PRHTransform: a mean that is not finite, or too large")
    if any(share < 0 or share == math.inf for share in (variance_kept, variance_spread)):
        raise ValueError(f"a damaged PRHTransform: a variance of {variance_kept}, {variance_spread}")
    if kept.max() >= n or len(np.unique(kept)) < len(kept):
        raise ValueError("a damaged PRHTransform: it keeps dimensions that it does not have, or one twice")
    if tail is not None and not _is_orthonormal(tail):
        raise ValueError("a damaged PRHTransform: the rows of its tail are not orthonormal")
    try:
        rotation = PairwiseRotation(n, zip(i, j, theta, strict=True) if n_layers else ())
    except (ValueError, TypeError) as error:
        raise ValueError(f"a damaged PRHTransform: {error}") from None
    return Model(rotation, mean, kept, variance_kept, variance_spread, tail)


def _is_orthonormal(rows: Floats) -> bool:
    """Return whether rows are orthonormal but for rounding. So no output can be larger than what came in."""
    if not (np.abs(rows) <= 2).all():  # nor if any is not a number
        return False
    products = rows.astype(np.float64) @ rows.T.astype(np.float64)
    return bool(np.abs(products - np.eye(len(rows))).max() <= _ROUNDING)


def _dimension_dtype(n: int) -> str:
    return "<u1" if n <= 1 << 8 else "<u2" if n <= 1 << 16 else "<u4"


class _Reader:
    """Takes arrays from bytes, never more than there are."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def take(self, dtype: str, count: int) -> AnyArray:
        if count * np.dtype(dtype).itemsize > len(self._data) - self._offset:
            raise ValueError("a damaged PRHTransform: it ends too early")
        array: AnyArray = np.frombuffer(self._data, dtype, count, self._offset)
        self._offset += array.nbytes
        return array

    def finish(self) -> None:
        if self._offset != len(self._data):
            raise ValueError("a damaged PRHTransform: it goes on too long")
