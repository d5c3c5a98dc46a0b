"""Lists of residuals as records: the quantizer, what the bytes stand for, the lists, and what ranks them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

from .._common.arrays import LARGEST_NORM
from .._common.numbers import bytes_of
from .._common.types import Ids
from ..index.binary_ops import ids_in_list, without_id_map
from ..index.reranking import ReRanked
from ..index.residuals import LONGEST_RESIDUAL, ResidualScale, centroids_of
from ..index.signs import IndexIVFSigns
from ..index.signs_refine import IndexIVFSignsRefine
from .graphs import Graph, give_search_fields, search_fields
from .limits import Flaw, check_probes
from .lists import Lists, check_centroids, list_sizes, write_lists
from .records import Fields, RecordReader, RecordWriter
from .stores import STORES, write_store
from .transforms import read_chain

SIGNS = ("IndexIVFSigns", "IndexIVFSignsRefine")
_QUANTIZERS = (*STORES, "IndexHNSWFlat")


def write_signs(out: RecordWriter, index: IndexIVFSigns) -> None:
    """Write the records of lists of residuals, and of the store that ranks them again."""
    ivf, id_map = without_id_map(index._keyed)
    sizes, scale, has_scale = list_sizes(ivf), index._scale or ResidualScale(0.0, 0.0, 0.0), index._scale is not None
    _check(scale, has_scale, index.quantizer, sizes)
    for number in range(index.nlist):
        _check_ids(ids_in_list(ivf, number))
    fields: dict[str, Any] = {"n_transforms": len(index.chain)}
    if isinstance(index, IndexIVFSignsRefine):
        check_rows(index)
        _check_metric(index.refine_index, index.quantizer)
        fields |= {"k_factor": index.k_factor, "own_id_map": index._has_own_id_map}
    out.record(
        type(index).__name__, **fields, metric=int(index.quantizer.metric_type), nlist=index.nlist,
        nprobe=min(index.nprobe, index.nlist), max_codes=ivf.max_codes, margin=index.margin,
        direct_map=ivf.direct_map.type, has_scale=has_scale, **scale._asdict(),
    )  # fmt: skip
    for transform in index.chain:
        out.write(transform)
    _write_quantizer(out, index.quantizer)
    write_lists(out, ivf, sizes)
    if isinstance(index, IndexIVFSignsRefine):
        if id_map is not None:
            ids = faiss.vector_to_array(id_map.id_map)
            _check_ids(ids)
            out.array(ids, "<i8")
        write_store(out, index.refine_index)


def _read_signs(source: RecordReader, kind: str, fields: Fields) -> IndexIVFSigns:
    check_probes(fields)
    chain, quantizer = read_chain(source, fields), source.read(_QUANTIZERS)
    lists = Lists.read(source, fields["nlist"], bytes_of(chain[-1].d_out) + 1)
    scale = ResidualScale(*(fields[name] for name in ResidualScale._fields))
    _check(scale, fields["has_scale"], quantizer, lists.sizes)
    _check_ids(lists.ids)
    index = IndexIVFSigns(chain, quantizer, fields["nlist"], fields["metric"])
    index.nprobe, index.index.max_codes, index.margin = fields["nprobe"], fields["max_codes"], fields["margin"]
    if fields["has_scale"]:
        index._scale, index.index.is_trained = scale, True
    lists.fill(source, index.index, fields["direct_map"])
    if kind == "IndexIVFSigns":
        return index
    ids = source.array("<i8", len(lists.ids)) if fields["own_id_map"] else None
    if ids is not None:
        _check_ids(ids)
    store = source.read(STORES)
    _check_metric(store, quantizer)
    return IndexIVFSignsRefine._around(index, ids, store, fields["k_factor"])


def _check(scale: ResidualScale, has_scale: bool, quantizer: Any, sizes: list[int]) -> None:
    """Raise a Flaw unless lists have a scale and centroids, or are untrained and empty."""
    check_centroids(len(sizes), quantizer, has_scale)
    if any(sizes) and not has_scale:
        raise Flaw("vectors in lists that are not trained")
    if scale.low + 255 * scale.step > LONGEST_RESIDUAL:
        raise Flaw(f"{scale}, which stands for norms that cannot be")
    centroids = centroids_of(quantizer)
    for first in range(0, len(centroids), 1000):
        with np.errstate(invalid="ignore"):  # as of a signalling NaN
            norms = np.linalg.norm(centroids[first : first + 1000].astype(np.float64), axis=1)
        if not (norms <= 2 * LARGEST_NORM).all():
            raise Flaw("a centroid that is not finite, or too large")


def _check_ids(ids: Ids) -> None:
    if (ids < 0).any():
        raise Flaw(f"the id {ids.min()}, which is negative")


def _check_metric(store: Any, quantizer: Any) -> None:
    if store.metric_type != quantizer.metric_type:
        raise Flaw(f"lists of metric {quantizer.metric_type} with a store of metric {store.metric_type}")


def check_rows(index: ReRanked) -> None:
    """Raise a Flaw unless an index and what ranks its results again have the same rows."""
    try:
        index.check_rows()
    except ValueError as error:
        raise Flaw(str(error)) from None


def _write_quantizer(out: RecordWriter, quantizer: Any) -> None:
    if type(quantizer).__name__ != "IndexHNSWFlat":
        write_store(out, quantizer)
        return
    n, hnsw, flat = quantizer.ntotal, quantizer.hnsw, faiss.downcast_index(quantizer.storage)
    if flat.ntotal != n:
        raise Flaw(f"a graph of {n} centroids, of which {flat.ntotal} are there")
    graph = Graph.of(hnsw, n)
    fields = {"d": quantizer.d, "ntotal": n, "metric": int(quantizer.metric_type)}
    out.record("IndexHNSWFlat", **fields, **graph.fields(), **search_fields(hnsw))
    graph.write(out)
    if n:
        out.array(faiss.rev_swig_ptr(flat.codes.data(), n * flat.code_size).view(np.float32), "<f4")


def _read_hnsw(source: RecordReader, kind: str, fields: Fields) -> Any:
    d, n, graph = fields["d"], fields["ntotal"], Graph.read(source, fields)
    index = faiss.IndexHNSWFlat(d, graph.links, fields["metric"])
    graph.give(index.hnsw)
    give_search_fields(index.hnsw, fields)
    flat = faiss.downcast_index(index.storage)
    for block in source.rows(n, 4 * d):
        flat.add(block.view("<f4").astype(np.float32))
    index.ntotal = n
    return index


SIGNS_READERS: dict[str, Callable[[RecordReader, str, Fields], Any]] = {
    **dict.fromkeys(SIGNS, _read_signs),
    "IndexHNSWFlat": _read_hnsw,
}
