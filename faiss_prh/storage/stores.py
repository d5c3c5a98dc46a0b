"""Stores of vectors for re-ranking as records: Flat and scalar quantizers, by their codes and trained values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

from .._common.types import Floats
from .limits import Flaw
from .records import Fields, RecordReader, RecordWriter

_FLAT = ("IndexFlat", "IndexFlatL2", "IndexFlatIP")
STORES = (*_FLAT, "IndexScalarQuantizer", "faiss.Index")

_RANGES: dict[int, Callable[[int], int]] = {
    getattr(faiss.ScalarQuantizer, f"QT_{name}"): ranges
    for name, ranges in {
        "8bit": lambda d: d,
        "6bit": lambda d: d,
        "4bit": lambda d: d,
        "8bit_uniform": lambda d: 1,
        "4bit_uniform": lambda d: 1,
        "8bit_direct": lambda d: 0,
        "8bit_direct_signed": lambda d: 0,
        "fp16": lambda d: 0,
        "bf16": lambda d: 0,
    }.items()
    if hasattr(faiss.ScalarQuantizer, f"QT_{name}")  # Faiss 1.8 does not have all
}
"""How many ranges, of two values each, each kind of scalar quantizer learns for d dimensions."""


def write_store(out: RecordWriter, store: Any) -> None:
    """Write the record of a store; as Faiss's own bytes if it is of another kind."""
    kind = type(store).__name__
    if kind in _FLAT:
        _write_flat(out, kind, store)
    elif kind == "IndexScalarQuantizer" and store.sq.qtype in _RANGES:
        _write_scalar_quantizer(out, store)
    else:
        out.record("faiss.Index", **{"class": kind})
        out.faiss_bytes(faiss.write_index, store)


def _write_flat(out: RecordWriter, kind: str, store: Any) -> None:
    metric, n = _metric(store), store.ntotal
    out.record(kind, d=store.d, ntotal=n, **metric)
    if n:
        out.array(faiss.rev_swig_ptr(store.codes.data(), n * store.code_size).view(np.float32), "<f4")


def _read_flat(source: RecordReader, kind: str, fields: Fields) -> Any:
    d, metric = fields["d"], fields["metric"]
    expected = {"IndexFlatL2": faiss.METRIC_L2, "IndexFlatIP": faiss.METRIC_INNER_PRODUCT}.get(kind, metric)
    if metric != expected:
        raise Flaw(f"{kind} with metric {metric}")
    store = faiss.IndexFlat(d, metric) if kind == "IndexFlat" else getattr(faiss, kind)(d)
    store.metric_arg = fields["metric_arg"]
    for block in source.rows(fields["ntotal"], 4 * d):
        store.add(block.view("<f4").astype(np.float32))
    return store


def _write_scalar_quantizer(out: RecordWriter, store: Any) -> None:
    sq, n = store.sq, store.ntotal
    ranges = faiss.vector_to_array(sq.trained)
    _check_ranges(sq.qtype, store.d, len(ranges), bool(store.is_trained or n))
    _check_finite(ranges)
    out.record(
        "IndexScalarQuantizer", d=store.d, ntotal=n, **_metric(store), is_trained=bool(store.is_trained),
        qtype=sq.qtype, rangestat=sq.rangestat, rangestat_arg=sq.rangestat_arg, n_ranges=len(ranges) // 2,
    )  # fmt: skip
    out.array(ranges, "<f4")
    if n:
        out.array(faiss.rev_swig_ptr(store.codes.data(), n * store.code_size), "u1")


def _read_scalar_quantizer(source: RecordReader, kind: str, fields: Fields) -> Any:
    d, n, qtype = fields["d"], fields["ntotal"], fields["qtype"]
    _check_ranges(qtype, d, 2 * fields["n_ranges"], fields["is_trained"] or n > 0)
    store = faiss.IndexScalarQuantizer(d, qtype, fields["metric"])
    store.metric_arg, store.is_trained = fields["metric_arg"], fields["is_trained"]
    store.sq.rangestat, store.sq.rangestat_arg = fields["rangestat"], fields["rangestat_arg"]
    ranges = source.array("<f4", 2 * fields["n_ranges"])
    _check_finite(ranges)
    faiss.copy_array_to_vector(ranges, store.sq.trained)
    if n:
        faiss.copy_array_to_vector(source.array("u1", n * store.code_size), store.codes)
        store.ntotal = n
    return store


def _check_ranges(qtype: int, d: int, n_values: int, is_used: bool) -> None:
    if qtype not in _RANGES:
        raise Flaw(f"a scalar quantizer of kind {qtype}, which Faiss {faiss.__version__} does not have")
    expected = 2 * _RANGES[qtype](d) if is_used else 0
    if n_values != expected:
        raise Flaw(f"a scalar quantizer with {n_values} limits of ranges instead of {expected}")


def _check_finite(ranges: Floats) -> None:
    if not np.isfinite(ranges).all():
        raise Flaw("ranges of a scalar quantizer that are not finite")


def _metric(store: Any) -> dict[str, Any]:
    return {"metric": store.metric_type, "metric_arg": store.metric_arg}


STORE_READERS: dict[str, Callable[[RecordReader, str, Fields], Any]] = {
    **dict.fromkeys(_FLAT, _read_flat),
    "IndexScalarQuantizer": _read_scalar_quantizer,
}
