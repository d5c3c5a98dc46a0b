"""
What the records of a file may say.

Writing checks the same as reading, so that whatever is written can be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..index.grammar import METRICS, MOST_LISTS
from ..index.parameters import LARGEST_MARGIN
from ..index.reranking import LARGEST_FACTOR
from ..rotation import MAX_DIMENSIONS

MOST_NEIGHBOURS = 1 << 12
"""Most neighbours of a vertex on one level of a graph."""
MOST_CANDIDATES = 1 << 16
"""Most candidates that the search of a graph keeps. Its time grows with their square."""
MOST_LOOKUPS = 1 << 20
"""Most lookups in a hash table for one query."""
MOST_TRANSFORMS = 1000
MOST_ROWS = 1 << 48
DEEPEST = 10
"""How many indexes may be nested."""

Check = Callable[[Any], bool]


class Flaw(ValueError):
    """What keeps an index from being written, or a file from being read."""


def _whole(least: int, most: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _number(least: float, most: float) -> Check:
    return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier() and value.isascii()


_DIMENSION, _COUNT, _SINGLE = _whole(1, MAX_DIMENSIONS), _whole(0, MOST_ROWS), _number(-3e38, 3e38)
_FIELDS: Mapping[str, Check] = {
    "M": _DIMENSION,
    "b": _whole(1, 64),
    "class": _name,
    "d": _DIMENSION,
    "d_in": _DIMENSION,
    "d_out": _DIMENSION,
    "direct_map": _whole(0, 2),
    "do_pca": _flag,
    "efConstruction": _whole(1, MOST_CANDIDATES),
    "efSearch": _whole(1, MOST_CANDIDATES),
    "eigen_power": _SINGLE,
    "entry_point": _whole(-1, MOST_ROWS),
    "epsilon": _SINGLE,
    "has_scale": _flag,
    "have_bias": _flag,
    "is_orthonormal": _flag,
    "is_trained": _flag,
    "k_factor": _number(1, LARGEST_FACTOR),
    "least": _SINGLE,
    "low": _number(0, 3e38),
    "margin": _number(0, LARGEST_MARGIN),
    "max_codes": _whole(0, (1 << 63) - 1),
    "max_level": _whole(-1, 100),
    "metric": lambda value: _whole(0, 1000)(value) and value in METRICS,
    "metric_arg": _SINGLE,
    "n_bytes": _whole(0, 1 << 34),
    "n_levels": _whole(1, 100),
    "n_ranges": _whole(0, 2 * MAX_DIMENSIONS),
    "n_transforms": _whole(1, MOST_TRANSFORMS),
    "nflip": _whole(0, 64),
    "nhash": _DIMENSION,
    "nlist": _whole(1, MOST_LISTS),
    "norm": _number(0, 1e6),
    "nprobe": _whole(1, MOST_LISTS),
    "ntotal": _COUNT,
    "own_id_map": _flag,
    "qtype": _whole(0, 1000),
    "random_rotation": _flag,
    "rangestat": _whole(0, 3),
    "rangestat_arg": _SINGLE,
    "reach": _number(0, 1),
    "seed": _whole(0, (1 << 32) - 1),
    "step": _number(0, 3e38),
    "use_heap": _flag,
    "width": _number(0, 3e38),
}
_LINEAR = ("d_in", "d_out", "have_bias", "is_orthonormal", "is_trained")
_RERANKED = ("n_transforms", "k_factor", "own_id_map")
_GRAPH = ("n_levels", "max_level", "entry_point", "efConstruction", "efSearch")
_SIGNS = ("metric", "nlist", "nprobe", "max_codes", "margin", "direct_map", "has_scale", "low", "step", "reach")
KINDS: Mapping[str, tuple[str, ...]] = {
    "IndexBinaryPreTransform": ("n_transforms",),
    "IndexBinaryRefine": _RERANKED,
    "IndexBinaryAsymmetric": (*_RERANKED, "metric", "has_scale", "low", "step", "reach", "least", "width"),
    "IndexIVFSigns": ("n_transforms", *_SIGNS),
    "IndexIVFSignsRefine": (*_RERANKED, *_SIGNS),
    "IndexBinaryFlat": ("d", "ntotal"),
    "IndexBinaryIVF": ("d", "nlist", "nprobe", "max_codes", "use_heap", "is_trained", "direct_map"),
    "IndexBinaryHNSW": ("d", "ntotal", *_GRAPH),
    "IndexBinaryMultiHash": ("d", "ntotal", "nhash", "b", "nflip"),
    "IndexBinaryIDMap": ("ntotal",),
    "IndexBinaryIDMap2": ("ntotal",),
    "IndexFlat": ("d", "ntotal", "metric", "metric_arg"),
    "IndexFlatL2": ("d", "ntotal", "metric", "metric_arg"),
    "IndexFlatIP": ("d", "ntotal", "metric", "metric_arg"),
    "IndexHNSWFlat": ("d", "ntotal", "metric", *_GRAPH),
    "IndexScalarQuantizer": (
        *("d", "ntotal", "metric", "metric_arg", "is_trained", "qtype", "rangestat", "rangestat_arg", "n_ranges"),
    ),
    "IndexPreTransform": ("n_transforms",),
    "IndexIDMap": ("ntotal",),
    "IndexIDMap2": ("ntotal",),
    "IndexRefine": ("k_factor",),
    "PRHTransform": ("n_bytes",),
    "LinearTransform": _LINEAR,
    "RandomRotationMatrix": _LINEAR,
    "PCAMatrix": (*_LINEAR, "eigen_power", "epsilon", "random_rotation"),
    "OPQMatrix": (*_LINEAR, "M"),
    "ITQTransform": ("d_in", "d_out", "is_trained", "do_pca"),
    "CenteringTransform": ("d_in", "is_trained"),
    "NormalizationTransform": ("d_in", "norm"),
    "RemapDimensionsTransform": ("d_in", "d_out"),
    "HadamardRotation": ("d_in", "seed"),
    "faiss.Index": ("class",),
    "faiss.IndexBinary": ("class",),
    "faiss.VectorTransform": ("class",),
}
"""The fields of each kind of record."""


def check_fields(kind: str, fields: Mapping[str, Any]) -> None:
    """Raise a Flaw unless a record has exactly the fields of its kind, with valid values."""
    if set(fields) != set(KINDS[kind]):
        raise Flaw(f"{kind} with the fields {', '.join(sorted(fields))} instead of {', '.join(sorted(KINDS[kind]))}")
    for name, value in fields.items():
        if not _FIELDS[name](value):
            raise Flaw(f"{kind} with {name} = {value!r}")


def check_probes(fields: Mapping[str, Any]) -> None:
    """Raise a Flaw for an IVF that searches more lists than it has: Faiss 1.8 would read beyond its arrays."""
    if fields["nprobe"] > fields["nlist"]:
        raise Flaw(f"{fields['nprobe']} of {fields['nlist']} lists to be searched")


def check_lookups(d: int, nhash: int, b: int, nflip: int) -> None:
    """Raise a Flaw for hash tables of more bits than a code has, or that take too long to look up."""
    if nhash * b > d:
        raise Flaw(f"{nhash} hashes of {b} bits, but codes of {d}")
    if nflip > b:  # Faiss would search for ever
        raise Flaw(f"hashes of {b} bits with nflip = {nflip}, which is more")
    if sum(math.comb(b, n) for n in range(nflip + 1)) > MOST_LOOKUPS:
        raise Flaw(f"hashes of {b} bits with nflip = {nflip}: more than {MOST_LOOKUPS} lookups")
