"""Binary indexes as records: taken apart into arrays, and made anew by Faiss's own constructors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import faiss

from .._common.types import Codes
from ..index.binary_ops import has_all_rows, storage_of, without_id_map
from ..index.composites import with_ids
from .graphs import Graph, give_search_fields, search_fields
from .limits import Flaw, check_lookups, check_probes
from .lists import Lists, check_centroids, list_sizes, write_lists
from .records import Fields, RecordReader, RecordWriter

_QUANTIZERS = ("IndexBinaryFlat", "IndexBinaryHNSW")
_TABLE_BYTES = 256
"""About what a hash table takes in memory, besides its vectors."""
_WITHOUT_IDS = (*_QUANTIZERS, "IndexBinaryIVF", "IndexBinaryMultiHash")
BINARY_INDEXES = (*_WITHOUT_IDS, "IndexBinaryIDMap", "IndexBinaryIDMap2", "faiss.IndexBinary")


def write_binary(out: RecordWriter, index: Any) -> None:
    """Write the records of a binary index; as Faiss's own bytes if it cannot be taken apart."""
    index = faiss.downcast_IndexBinary(index)
    kind = type(index).__name__
    if _can_be_taken_apart(index):
        _WRITERS[kind](out, index)
    else:
        out.record("faiss.IndexBinary", **{"class": kind})
        out.faiss_bytes(faiss.write_index_binary, index)


def _can_be_taken_apart(index: Any) -> bool:
    """Whether there are records for an index: a plain Hash, for one, does not give its codes back."""
    rows_index, _ = without_id_map(index)
    if type(rows_index).__name__ not in _WITHOUT_IDS:
        return False
    if isinstance(rows_index, faiss.IndexBinaryIVF):
        return type(faiss.downcast_IndexBinary(rows_index.quantizer)).__name__ in _QUANTIZERS
    return storage_of(rows_index) is not None


def _write_flat(out: RecordWriter, index: Any) -> None:
    out.record("IndexBinaryFlat", d=index.d, ntotal=index.ntotal)
    _write_codes(out, index, index.ntotal)


def _read_flat(source: RecordReader, kind: str, fields: Fields) -> Any:
    index = faiss.IndexBinaryFlat(_bits(fields))
    _add(index, source.rows(fields["ntotal"], index.code_size))
    return index


def _write_ivf(out: RecordWriter, index: Any) -> None:
    sizes = list_sizes(index)
    check_centroids(index.nlist, index.quantizer, bool(index.is_trained or any(sizes)))
    out.record(
        "IndexBinaryIVF", d=index.d, nlist=index.nlist, nprobe=min(index.nprobe, index.nlist),
        max_codes=index.max_codes, use_heap=bool(index.use_heap), is_trained=bool(index.is_trained),
        direct_map=index.direct_map.type,
    )  # fmt: skip
    out.write(index.quantizer)
    write_lists(out, index, sizes)


def _read_ivf(source: RecordReader, kind: str, fields: Fields) -> Any:
    d, nlist = _bits(fields), fields["nlist"]
    check_probes(fields)
    quantizer = source.read(_QUANTIZERS)
    if quantizer.d != d:
        raise Flaw(f"centroids of {quantizer.d} bits for codes of {d}")
    lists = Lists.read(source, nlist, d // 8)
    check_centroids(nlist, quantizer, fields["is_trained"] or len(lists.ids) > 0)
    index = faiss.IndexBinaryIVF(quantizer, d, nlist)
    index.own_fields = True
    quantizer.this.disown()
    for name in ("nprobe", "max_codes", "use_heap", "is_trained"):
        setattr(index, name, fields[name])
    lists.fill(source, index, fields["direct_map"])
    return index


def _write_hnsw(out: RecordWriter, index: Any) -> None:
    graph = Graph.of(index.hnsw, index.ntotal)
    out.record("IndexBinaryHNSW", d=index.d, ntotal=index.ntotal, **graph.fields(), **search_fields(index.hnsw))
    graph.write(out)
    _write_codes(out, storage_of(index), index.ntotal)


def _read_hnsw(source: RecordReader, kind: str, fields: Fields) -> Any:
    graph = Graph.read(source, fields)
    index = faiss.IndexBinaryHNSW(_bits(fields), graph.links)
    graph.give(index.hnsw)
    give_search_fields(index.hnsw, fields)
    _add(storage_of(index), source.rows(fields["ntotal"], index.code_size))
    index.ntotal = fields["ntotal"]
    return index


def _write_multi_hash(out: RecordWriter, index: Any) -> None:
    check_lookups(index.d, index.nhash, index.b, index.nflip)
    out.claim_beyond(_TABLE_BYTES * index.nhash)
    out.record("IndexBinaryMultiHash", d=index.d, ntotal=index.ntotal, nhash=index.nhash, b=index.b, nflip=index.nflip)
    _write_codes(out, storage_of(index), index.ntotal)


def _read_multi_hash(source: RecordReader, kind: str, fields: Fields) -> Any:
    d, nhash, b, nflip = _bits(fields), fields["nhash"], fields["b"], fields["nflip"]
    check_lookups(d, nhash, b, nflip)
    source.claim_beyond(_TABLE_BYTES * nhash)
    index = faiss.IndexBinaryMultiHash(d, nhash, b)
    index.nflip = nflip
    _add(index, source.rows(fields["ntotal"], index.code_size))
    return index


def _write_id_map(out: RecordWriter, index: Any) -> None:
    ids = faiss.vector_to_array(index.id_map)
    _check_rows(faiss.downcast_IndexBinary(index.index), len(ids))
    out.record(type(index).__name__, ntotal=len(ids))
    out.array(ids, "<i8")
    out.write(index.index)


def _read_id_map(source: RecordReader, kind: str, fields: Fields) -> Any:
    ids = source.array("<i8", fields["ntotal"])
    inside = source.read(_WITHOUT_IDS)
    _check_rows(inside, len(ids))
    index = with_ids(kind, inside, ids)
    index.own_fields = True
    inside.this.disown()
    return index


def _check_rows(inside: Any, n: int) -> None:
    if inside.ntotal != n or not has_all_rows(inside):
        raise Flaw(f"{n} ids for an {type(inside).__name__} that does not have just the rows 0 to {n - 1}")


def _bits(fields: Fields) -> int:
    d: int = fields["d"]
    if d % 8:
        raise Flaw(f"codes of {d} bits, which is no multiple of 8")
    return d


def _write_codes(out: RecordWriter, flat: Any, n: int) -> None:
    if n:
        out.array(faiss.rev_swig_ptr(flat.xb.data(), n * flat.code_size), "u1")


def _add(index: Any, blocks: Iterable[Codes]) -> None:
    for block in blocks:
        index.add(block)


_WRITERS: dict[str, Callable[[RecordWriter, Any], None]] = {
    "IndexBinaryFlat": _write_flat,
    "IndexBinaryIVF": _write_ivf,
    "IndexBinaryHNSW": _write_hnsw,
    "IndexBinaryMultiHash": _write_multi_hash,
    "IndexBinaryIDMap": _write_id_map,
    "IndexBinaryIDMap2": _write_id_map,
}
BINARY_READERS: dict[str, Callable[[RecordReader, str, Fields], Any]] = {
    "IndexBinaryFlat": _read_flat,
    "IndexBinaryIVF": _read_ivf,
    "IndexBinaryHNSW": _read_hnsw,
    "IndexBinaryMultiHash": _read_multi_hash,
    "IndexBinaryIDMap": _read_id_map,
    "IndexBinaryIDMap2": _read_id_map,
    "faiss.IndexBinary": lambda source, kind, fields: source.faiss_bytes(faiss.read_index_binary, fields["class"]),
}
