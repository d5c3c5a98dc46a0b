"""The factory string that makes an index like a given one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import faiss
import numpy as np
from faiss.contrib.factory_tools import reverse_index_factory

from ..learning.parameters import layers_for
from ..transform import PRHTransform
from .asymmetric import IndexBinaryAsymmetric
from .parts_of import nested, transforms_of
from .refine import IndexBinaryRefine
from .reranking import ReRanked
from .signs import IndexIVFSigns


def factory_string(index: Any) -> str:
    """
    Return a string from which `index_factory` makes an index like this one.

    What no such string makes is named by its class.

    Examples
    --------
    >>> from faiss_prh import index_factory
    >>> factory_string(index_factory(64, "IDMap,PCA32,PRH16,BIVF4,RFlat"))
    'IDMap,PCA32,PRH16,BIVF4,RFlat'
    """
    parts = [_transform(transform) for transform in transforms_of(index)]
    innermost = index
    before, after = [], []
    has_own_id_map = isinstance(index, ReRanked) and index._has_own_id_map  # which no string asked for
    for part in nested(index):
        innermost = part
        if isinstance(part, (faiss.IndexIDMap, faiss.IndexBinaryIDMap)) and not has_own_id_map:
            before.append(type(part).__name__.removeprefix("Index").removeprefix("Binary"))
        elif isinstance(part, (faiss.IndexRefine, IndexBinaryRefine)):
            store = _float(faiss.downcast_index(part.refine_index))
            after.append("RFlat" if store == "Flat" else f"Refine({store})")
        elif isinstance(part, IndexBinaryAsymmetric):
            after.append("RAsym")
    if isinstance(innermost, IndexIVFSigns):
        core = f"{_lists(innermost)},Signs"
    else:
        core = _binary_string(innermost) if isinstance(innermost, faiss.IndexBinary) else _float(innermost)
    return ",".join([*before, *parts, core, *after])


def _lists(index: IndexIVFSigns) -> str:
    is_graph = isinstance(index.quantizer, faiss.IndexHNSW)
    return f"IVF{index.nlist}" + (f"_HNSW{index.quantizer.hnsw.nb_neighbors(1)}" if is_graph else "")


def _transform(transform: Any) -> str:
    name, d_out = type(transform).__name__, transform.d_out
    if isinstance(transform, PRHTransform):
        p, size = transform.parameters, "" if d_out == transform.d_in else str(d_out)
        if _is_random(transform):
            return f"SRR{size}"
        is_default = p == replace(PRHTransform(transform.d_in, d_out).parameters, seed=p.seed, center=p.center)
        return f"PRH{size}" if is_default else f"PRH{size}({p.n_iso},{p.n_pca},{p.tilt:g})"
    if name == "PCAMatrix":
        return f"PCA{'W' if transform.eigen_power else ''}{'R' if transform.random_rotation else ''}{d_out}"
    if name == "OPQMatrix":
        return f"OPQ{transform.M}_{d_out}"
    if name == "NormalizationTransform":
        return "L2norm"
    if name == "HadamardRotation":  # a number after it is its seed
        return "HR" if transform.seed == faiss.HadamardRotation(1).seed else f"HR{transform.seed}"
    if name == "RemapDimensionsTransform" and _is_padding(transform):
        return f"Pad{d_out}"
    short = {"ITQTransform": "ITQ", "RandomRotationMatrix": "RR"}
    return f"{short.get(name, name)}{d_out}"


def _is_random(transform: PRHTransform) -> bool:
    """Whether a PRHTransform is what `PRHTransform.random` makes."""
    if transform.rotation is None or len(transform.rotation.layers) != layers_for(transform.rotation.d):
        return False
    return (
        transform.rotation
        == PRHTransform.random(transform.d_in, transform.d_out, seed=transform.parameters.seed).rotation
    )


def _is_padding(transform: Any) -> bool:
    """Whether a RemapDimensionsTransform keeps the dimensions in their places, with zeros behind them."""
    places = np.arange(transform.d_out)
    return np.array_equal(faiss.vector_to_array(transform.map), np.where(places < transform.d_in, places, -1))


def _float(index: Any) -> str:
    try:
        return str(reverse_index_factory(index))
    except (NotImplementedError, KeyError):
        return type(index).__name__


def _binary_string(index: Any) -> str:
    if isinstance(index, faiss.IndexBinaryFlat):
        return "BFlat"
    if isinstance(index, faiss.IndexBinaryHNSW):
        return f"BHNSW{index.hnsw.nb_neighbors(1)}"
    if isinstance(index, faiss.IndexBinaryIVF):
        quantizer = faiss.downcast_IndexBinary(index.quantizer)
        graph = isinstance(quantizer, faiss.IndexBinaryHNSW)
        return f"BIVF{index.nlist}" + (f"_HNSW{quantizer.hnsw.nb_neighbors(1)}" if graph else "")
    if isinstance(index, faiss.IndexBinaryMultiHash):
        return f"BHash{index.nhash}x{index.b}"
    if isinstance(index, faiss.IndexBinaryHash):
        return f"BHash{index.b}"
    return type(index).__name__
