"""to_faiss: the same index made of stock Faiss parts only, for machines without this package."""

from __future__ import annotations

import io
from typing import Any

import faiss
import numpy as np

from .._common.types import Codes
from ..index import binary_ops
from ..index.composites import behind, put_together, refined, taken_apart, with_ids
from ..index.pretransform import IndexBinaryPreTransform
from ..index.refine import IndexBinaryRefine
from ..transform import PRHTransform, as_prh


def to_faiss(index: Any) -> Any:
    """
    Return an index, or a transform, as stock Faiss has it, with a dense ``faiss.LinearTransform`` for each PRH.

    What comes back is a copy that ``faiss.write_index`` saves. It finds what the original finds, but for rounding: a
    query's bit may differ where a value is almost zero. A binary index comes back as a float one with the same codes
    and Hamming distances as floats: ``BFlat`` as IndexLSH, ``BIVF`` as IndexIVFSpectralHash, whose quantizer is
    searched exhaustively. The other binary indexes have no counterpart: save ``index.index`` with
    ``faiss.write_index_binary`` and the transforms with ``faiss.write_VectorTransform(to_faiss(prh), …)``.

    Parameters
    ----------
    index : IndexBinaryPreTransform, IndexBinaryRefine, faiss.Index or PRHTransform

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import index_factory, to_faiss
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> index = index_factory(64, "PRH,BFlat")
    >>> index.train(x)
    >>> index.add(x)
    >>> stock = faiss.deserialize_index(faiss.serialize_index(to_faiss(index)))
    >>> stock.search(x[:2], 1)[1].ravel()
    array([0, 1])
    """
    if isinstance(index, faiss.VectorTransform):
        return _transform(index)
    if isinstance(index, IndexBinaryPreTransform):
        return _from_binary(index)
    if isinstance(index, faiss.Index):
        return _from_float(index)
    raise TypeError(f"an index or a transform is needed, not {type(index).__name__}")


def _transform(transform: Any) -> Any:
    prh = as_prh(transform)
    if prh is not None:
        if not prh.is_trained:
            raise RuntimeError("this PRHTransform is not trained: call train(x) first")
        transform = PRHTransform.from_bytes(prh.to_bytes(), max_dense_bytes=4 * prh.d_in * prh.d_out)
    return _copied(transform, faiss.write_VectorTransform, faiss.read_VectorTransform)


def _from_float(index: Any) -> Any:
    composite = taken_apart(index)
    if composite is None:
        return _copied(index, faiss.write_index, faiss.read_index)
    return put_together(
        composite._replace(
            inside=_from_float(composite.inside),
            transforms=[_transform(transform) for transform in composite.transforms],
            store=None if composite.store is None else _from_float(composite.store),
        )
    )


def _from_binary(index: IndexBinaryPreTransform) -> Any:
    if type(index) not in (IndexBinaryPreTransform, IndexBinaryRefine):
        raise ValueError(f"Faiss has no counterpart of {type(index).__name__}")
    rows_index, id_map = binary_ops.without_id_map(index._keyed)
    bits = index.chain[-1].d_out
    if isinstance(rows_index, faiss.IndexBinaryFlat):
        inside = _hamming(bits, rows_index.reconstruct_n(0, rows_index.ntotal))
    elif isinstance(rows_index, faiss.IndexBinaryIVF):
        inside = _hamming_lists(bits, rows_index)
    else:
        raise ValueError(f"Faiss has no counterpart of {type(rows_index).__name__} for vectors of floats")
    stock = behind(list(map(_transform, index.chain)), inside)
    if isinstance(index, IndexBinaryRefine):
        stock = refined(stock, _from_float(index.refine_index), index.k_factor)
    if id_map is not None:  # outside: the ids of an IndexRefine are the rows of its store
        kind = type(id_map).__name__.replace("Binary", "")
        stock = with_ids(kind, stock, faiss.vector_to_array(id_map.id_map))
    return stock


def _hamming(bits: int, codes: Codes) -> Any:
    lsh = faiss.IndexLSH(bits, bits, False, False)
    faiss.copy_array_to_vector(codes.ravel(), lsh.codes)
    lsh.ntotal = len(codes)
    return lsh


def _hamming_lists(bits: int, ivf: Any) -> Any:
    """
    Return a float index with the same lists and the same Hamming distances.

    IndexIVFSpectralHash sets a bit where the floor of value / (period / 2) is odd. Of a vector of length 1, with
    period 4, these are the negative values: the binary index's codes with all bits turned.
    """
    centroids = faiss.downcast_IndexBinary(ivf.quantizer)
    flat = binary_ops.storage_of(centroids)
    if flat is None:
        raise ValueError(f"Faiss has no counterpart of a {type(centroids).__name__} as quantizer")
    quantizer = _hamming(bits, flat.reconstruct_n(0, flat.ntotal))
    stock = faiss.IndexIVFSpectralHash(quantizer, bits, ivf.nlist, bits, 4.0)
    unit_length = faiss.NormalizationTransform(bits, 2.0)
    stock.replace_vt(unit_length, True)
    unit_length.this.disown()
    stock.is_trained, stock.nprobe = ivf.is_trained, ivf.nprobe
    used = np.packbits(np.ones(bits, dtype=np.uint8), bitorder="little")
    for number in range(ivf.nlist):
        size = ivf.invlists.list_size(number)
        if size:
            codes = faiss.rev_swig_ptr(ivf.invlists.get_codes(number), size * ivf.code_size).reshape(size, -1)
            turned = codes ^ used
            stock.invlists.add_entries(number, size, ivf.invlists.get_ids(number), faiss.swig_ptr(turned))
    stock.ntotal = ivf.ntotal
    return stock


def _copied(thing: Any, write: Any, read: Any) -> Any:
    file = io.BytesIO()
    write(thing, faiss.PyCallbackIOWriter(file.write))
    file.seek(0)
    return read(faiss.PyCallbackIOReader(file.read))
