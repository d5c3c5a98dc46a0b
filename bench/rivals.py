"""Indexes to compare, made from factory strings; what this Faiss or faiss-prh has not is left out, with a note."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import faiss
import numpy as np

import faiss_prh
from bench.blas import architecture
from bench.datasets import Dataset
from faiss_prh._backend import active_simd_level
from faiss_prh.cli.evaluation import stored_bytes
from faiss_prh.index.parts_of import nested, transforms_of

K = 10
OPQ_VECTORS = 10_000
LARGEST_GRAPH = 500_000
"""Vectors. Four graphs of a million take longer to build than all else that is measured of them."""
SIGNS = "Signs"
"""The index of sign codes of residuals, behind `PRH,IVF256`."""


@dataclass
class Filled:
    """An index with the base vectors of a data set in it."""

    name: str
    index: Any
    bytes_per_vector: float

    def set(self, **parameters: float) -> None:
        """Set parameters of the search, each where the index has it."""
        for name, value in parameters.items():
            setattr(part_with(self.index, name), name, value)

    def search(self, xq: np.ndarray, **parameters: float) -> np.ndarray:
        """Return the ids that a search with these parameters finds."""
        self.set(**parameters)
        return self.index.search(xq, K)[1]


class Shelf:
    """The indexes of a data set."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.truth = dataset.neighbours(K)
        self._kept: dict[str, Filled | None] = {}

    def get(self, description: str) -> Filled | None:
        """Return what `make` makes, once for each string: it is kept."""
        if description not in self._kept:
            self._kept[description] = self.make(description)
        return self._kept[description]

    def those_of(self, descriptions: list[str]) -> list[Filled]:
        """Return, and keep, the indexes that can be made."""
        return [found for found in map(self.get, descriptions) if found is not None]

    @cached_property
    def prh(self) -> faiss_prh.PRHTransform:
        """PRH as every binary index would learn it."""
        prh = faiss_prh.PRHTransform(self.dataset.d)
        prh.train(self.dataset.train)
        return prh

    @cached_property
    def opq(self) -> np.ndarray:
        """
        The rotation of OPQ for fast scans of codes of 1 bit a dimension.

        Learned for parts of 4 bits: Faiss's strings let OPQ learn for 8, with sixteen times as many centroids.
        """
        d = self.dataset.d
        opq, quantizer = faiss.OPQMatrix(d, d // 4), faiss.ProductQuantizer(d, d // 4, 4)
        opq.pq, opq.max_train_points = quantizer, OPQ_VECTORS
        opq.train(self.dataset.train)
        return faiss.vector_to_array(opq.A)

    def make(self, description: str) -> Filled | None:
        """Return an index with all base vectors; None, and print a note, if there is none or it would take too long."""
        if "HNSW" in description and len(self.dataset.base) > LARGEST_GRAPH:
            print(f"{description} is left out: a graph of more than {LARGEST_GRAPH} vectors takes long to build.")
            return None
        try:
            index = faiss_prh.index_factory(self.dataset.d, description)
        except ValueError:
            print(f"{description} is left out: this Faiss or faiss-prh has no such index.")
            return None
        if description.startswith("PRH,B"):
            index.chain[0] = self.prh
        for transform in transforms_of(index):
            if isinstance(transform, faiss.OPQMatrix):
                faiss.copy_array_to_vector(self.opq, transform.A)
                transform.is_trained = True
                transform.set_is_orthonormal()
        index.train(self.dataset.train)
        return with_base(description, index, self.dataset)


def machine() -> str:
    """Return a line about what the times depend on."""
    n = faiss.omp_get_max_threads()
    versions = f"Faiss {faiss.__version__} ({faiss.get_compile_options().strip()})"
    kernels = f", with OpenBLAS for {blas}" if (blas := architecture("faiss_cpu")) else ""
    return f"{n} thread{'' if n == 1 else 's'}. faiss-prh's SIMD level: {active_simd_level()}. {versions}{kernels}."


def named(d: int, n_lists: int) -> list[str]:
    """Return the strings of all indexes whose recall is drawn against their speed."""
    lists, parts = f"IVF{n_lists}", f"PQ{d // 4}x4fs"
    ours = [f"PRH,{core}{end}" for core in ("BFlat", f"B{lists}", "BHNSW16") for end in ("", ",RAsym", ",RFlat")]
    ours += [f"PRH,{lists},{SIGNS}", f"PRH,{lists},{SIGNS},RFlat", f"PRH{2 * d},{lists},{SIGNS}"]
    rabitq = [f"RR,{core}" for core in ("RaBitQ", "RaBitQfs")]
    rabitq += [f"RR,{lists},RaBitQ{kind}" for kind in ("", "fs", "2", "4", "fs,RFlat")]
    others = [parts, *(f"{opq}{lists},{parts}{end}" for opq in ("", f"OPQ{d // 4},") for end in ("", ",RFlat"))]
    others += [f"{lists},SQ4{end}" for end in ("", "fs", "fs,RFlat")]
    return [*ours, *rabitq, *others, "HNSW16"]


def with_base(name: str, index: Any, dataset: Dataset) -> Filled:
    """Fill a trained index."""
    empty = stored_bytes(index)
    if "IDMap" in name:
        index.add_with_ids(dataset.base, np.arange(len(dataset.base)))
    else:
        index.add(dataset.base)
    return Filled(name, index, (stored_bytes(index) - empty) / len(dataset.base))


def with_centroids_of(ours: Filled, description: str, dataset: Dataset) -> Filled | None:
    """Return a float IVF behind transforms whose lists have the centroids of ours, with all base vectors."""
    quantizer = faiss.downcast_index(part_with(ours.index, "quantizer").quantizer)
    centroids = quantizer.reconstruct_n(0, quantizer.ntotal)
    for transform in reversed(transforms_of(ours.index) or list(ours.index.chain)):
        centroids = transform.reverse_transform(centroids)
    try:
        index = faiss_prh.index_factory(dataset.d, description)
    except ValueError:
        return None  # which was said when it was asked for with centroids of its own
    for transform in transforms_of(index):
        transform.train(dataset.train)
        centroids = transform.apply(centroids)
    faiss.downcast_index(part_with(index, "quantizer").quantizer).add(centroids)
    index.train(dataset.train)  # a full quantizer is not trained again
    return with_base(f"{description}, our centroids", index, dataset)


def part_with(index: Any, attribute: str) -> Any:
    """Return the innermost part of an index that has an attribute."""
    return next(part for part in reversed(list(nested(index))) if hasattr(part, attribute))
