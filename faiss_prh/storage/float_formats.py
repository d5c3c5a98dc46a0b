"""Faiss's formats of float indexes: Flat, SQ, PQ, LSH, IVF and HNSW of the first three, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import faiss
import numpy as np

from .._common.numbers import bytes_of
from ..index.limits import METRICS
from .claims import UnknownError, Walk, Wish
from .formats import (
    Header,
    Kinds,
    check_code_size,
    check_values,
    codes,
    fields,
    graph,
    ids_of,
    inverted_file,
    lists,
    refuse,
    same,
    skip,
    transform,
    values,
    vector,
)

_FLAT, _SQ, _PQ = frozenset({b"IxF2", b"IxFI", b"IxFl"}), frozenset({b"IxSQ"}), frozenset({b"IxPq"})
_ROWS = _FLAT | {b"IHNf"}
"""What surely finds rows: other indexes may have any ids, and an IVF would take those for lists."""
_USUAL_METRICS = frozenset({faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT})
_OF_ANY_METRIC = frozenset({b"IxFl", b"IxPT", b"IxMp", b"IxM2", b"IxRF"})
_MOST_PQ_BITS = 8
"""With more, tables that Faiss makes while it reads are much larger than the file."""
_PQ_SEARCH_TYPES = 6


class _Scalars(NamedTuple):
    """Of a kind of scalar quantizer: the bits of a value, and the ranges that it learns, for all and each dimension."""

    bits: int
    shared: int
    each: int


_SCALARS = {
    getattr(faiss.ScalarQuantizer, name): scalars
    for name, scalars in {
        "QT_8bit": _Scalars(8, 0, 1),
        "QT_6bit": _Scalars(6, 0, 1),
        "QT_4bit": _Scalars(4, 0, 1),
        "QT_8bit_uniform": _Scalars(8, 1, 0),
        "QT_4bit_uniform": _Scalars(4, 1, 0),
        "QT_8bit_direct": _Scalars(8, 0, 0),
        "QT_8bit_direct_signed": _Scalars(8, 0, 0),
        "QT_fp16": _Scalars(16, 0, 0),
        "QT_bf16": _Scalars(16, 0, 0),
    }.items()
    if hasattr(faiss.ScalarQuantizer, name)  # Faiss 1.8 has not all
}


def float_index(expected: Kinds | None = None) -> Generator[Wish, bytes, Header]:
    """Walk over a float index, perhaps one of certain kinds."""
    kind = yield Wish(4, True)
    if kind not in (expected or _WALKS):
        raise UnknownError(kind)
    d, ntotal, _, _, trained, metric = yield from fields("iqqqBi")
    if metric not in METRICS:
        refuse(f"metric {metric}")
    if metric not in _USUAL_METRICS:
        if kind not in _OF_ANY_METRIC:
            raise UnknownError(f"{kind!r} with metric {metric}")
        check_values(np.array((yield from fields("f"))))
    header = Header(d, ntotal, bool(trained), metric).checked()
    yield from _WALKS[kind](header)
    return header


def _flat(header: Header) -> Walk:
    if not header.trained:  # there is nothing to train
        refuse("a flat index that takes no vectors")
    yield from codes(header, 4 * header.d, unit=4)


def _check_trained(header: Header) -> None:
    """Leave out what Faiss ends the process with if it is searched before it is trained."""
    if not header.trained:
        raise UnknownError("of a quantizer without training, in lists or a graph,")


def _scalar_quantizer(header: Header) -> Generator[Wish, bytes, int]:
    """Walk over a scalar quantizer, and return the size of its codes."""
    kind, _, _, d, _ = yield from fields("iifQQ")
    if kind not in _SCALARS:
        raise UnknownError(f"of scalar quantizer {kind}")
    scalars = _SCALARS[kind]
    limits = yield from values("<f4")
    check_values(limits)
    expected = 2 * (scalars.shared + d * scalars.each) if header.trained or header.ntotal else 0
    if d != header.d or len(limits) != expected:
        refuse(f"a scalar quantizer of {d} dimensions with {len(limits)} limits, for {header.d} dimensions")
    return bytes_of(scalars.bits * header.d)


def _product_quantizer(header: Header) -> Generator[Wish, bytes, int]:
    """Walk over a product quantizer, and return the size of its codes."""
    d, parts, bits = yield from fields("QQQ")
    if d != header.d or parts == 0 or d % parts or bits == 0:
        refuse(f"a product quantizer of {parts} parts of {d} dimensions, with {bits} bits")
    if bits > _MOST_PQ_BITS:
        raise UnknownError(f"of product quantizer with {bits} bits")
    centroids = yield from values("<f4", expected=d << bits)
    check_values(centroids)
    if len(centroids) != d << bits:
        refuse("a product quantizer without its centroids")
    return bytes_of(parts * bits)


def _scalar_quantized(header: Header) -> Walk:
    code_size = yield from _scalar_quantizer(header)
    yield from codes(header, code_size)


def _product_quantized(header: Header) -> Walk:
    code_size = yield from _product_quantizer(header)
    yield from codes(header, code_size)
    search_type, _, _ = yield from fields("iBi")
    if not 0 <= search_type < _PQ_SEARCH_TYPES:
        refuse(f"search type {search_type}")


def _lsh(header: Header) -> Walk:
    bits, _, trains_thresholds = yield from fields("iBB")
    if bits < 1:
        refuse(f"an LSH of {bits} bits")
    if (yield from vector(4)) != (bits if trains_thresholds and (header.trained or header.ntotal) else 0):
        refuse("an LSH without its thresholds")
    (code_size,) = yield from fields("i")
    check_code_size(code_size, bytes_of(bits))
    yield from transform()
    yield from codes(header, code_size)


def _ivf(header: Header) -> Walk:
    ivf = yield from inverted_file(header, float_index(_ROWS))
    yield from lists(ivf, header, 4 * header.d)


def _scalar_quantized_ivf(header: Header) -> Walk:
    _check_trained(header)
    ivf = yield from inverted_file(header, float_index(_ROWS))
    expected = yield from _scalar_quantizer(header)
    code_size, _ = yield from fields("QB")
    check_code_size(code_size, expected)
    yield from lists(ivf, header, code_size)


def _product_quantized_ivf(header: Header) -> Walk:
    ivf = yield from inverted_file(header, float_index(_ROWS))
    _, code_size = yield from fields("BQ")
    check_code_size(code_size, (yield from _product_quantizer(header)))
    yield from lists(ivf, header, code_size)


def _hnsw_of(storage: Kinds) -> Callable[[Header], Walk]:
    def walk(header: Header) -> Walk:
        yield from graph()
        inside = yield from float_index(storage)
        same(header, inside)
        if header.metric != inside.metric:
            refuse(f"vectors of metric {inside.metric} instead of {header.metric}")
        _check_trained(inside)

    return walk


def _pre_transform(header: Header) -> Walk:
    (count,) = yield from fields("i")
    for _ in range(count):
        yield from transform()
    yield from float_index()


def _id_map(header: Header) -> Walk:
    same(header, (yield from float_index()))
    yield from ids_of(header)


def _refine(header: Header) -> Walk:
    same(header, (yield from float_index()))
    same(header, (yield from float_index()))
    yield from skip(4)


_WALKS: dict[bytes, Callable[[Header], Walk]] = {
    b"IxF2": _flat,
    b"IxFI": _flat,
    b"IxFl": _flat,
    b"IxSQ": _scalar_quantized,
    b"IxPq": _product_quantized,
    b"IxHe": _lsh,
    b"IwFl": _ivf,
    b"IwSq": _scalar_quantized_ivf,
    b"IwPQ": _product_quantized_ivf,
    b"IHNf": _hnsw_of(_FLAT),
    b"IHNs": _hnsw_of(_SQ),
    b"IHNp": _hnsw_of(_PQ),
    b"IxPT": _pre_transform,
    b"IxMp": _id_map,
    b"IxM2": _id_map,
    b"IxRF": _refine,
}
