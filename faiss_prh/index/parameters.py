"""Search parameters: taken out of those around them, and refused where an index does not follow them."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import faiss

from .._common.numbers import as_float
from .binary_ops import selector_of_rows, without_id_map

MARGIN = 0.1
"""
What is added, as a share of the product of two norms, to the estimates that choose which codes are looked at closely.

Without it, recall is up to .006 less; with twice as much, at most .002 more. The figures are in docs/performance.md.
"""
LARGEST_MARGIN = 1e9
_FOLLOWED = {
    faiss.SearchParameters: ("sel",),
    faiss.SearchParametersIVF: ("sel", "nprobe", "max_codes", "quantizer_params"),
    faiss.SearchParametersHNSW: ("sel", "efSearch", "check_relative_distance", "bounded_queue"),
}
"""The fields of parameters that are followed."""
_TAKEN: dict[type, tuple[type, ...]] = {
    faiss.IndexBinaryFlat: (faiss.SearchParameters,),
    faiss.IndexBinaryIVF: (faiss.SearchParameters, faiss.SearchParametersIVF),
    faiss.IndexBinaryHNSW: (faiss.SearchParameters, faiss.SearchParametersHNSW),
    faiss.IndexBinaryHash: (),
    faiss.IndexBinaryMultiHash: (),
    faiss.IndexHNSWFlat: (faiss.SearchParameters, faiss.SearchParametersHNSW),
}
"""What parameters each kind of index takes; any other kind takes plain ones."""


class SearchParametersIVFSigns(faiss.SearchParametersIVF):  # type: ignore[misc]
    """
    Search parameters of an `IndexIVFSigns`: those of an IVF, and a margin.

    Parameters
    ----------
    margin : float, optional
        By default, that of the index.
    **fields
        nprobe, sel, max_codes and quantizer_params.

    Examples
    --------
    >>> from faiss_prh import SearchParametersIVFSigns
    >>> SearchParametersIVFSigns(margin=0.2, nprobe=16).nprobe
    16
    """

    def __init__(self, *, margin: float | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self.margin = None if margin is None else as_margin(margin)


def of_binary_index(params: Any) -> Any:
    """
    Return what SearchParametersPreTransform, one inside the other, have for the index behind the transforms.

    Examples
    --------
    >>> import faiss
    >>> inner = faiss.SearchParametersIVF(nprobe=3)
    >>> of_binary_index(faiss.SearchParametersPreTransform(index_params=inner)) is inner
    True
    """
    if params is None:  # a single query must not wait for what follows
        return None
    while isinstance(params, faiss.SearchParametersPreTransform):
        _check_no_filter(params, "index_params")
        params = inner_params(params, "index_params")
    if isinstance(params, faiss.IndexRefineSearchParameters):
        raise TypeError("IndexRefineSearchParameters must be the outermost parameters, of an index that re-ranks")
    return params


def of_reranking(params: Any) -> tuple[float | None, Any]:
    """Return the k_factor, or None if the index's own holds, and the parameters of the binary index."""
    if not isinstance(params, faiss.IndexRefineSearchParameters):
        return None, of_binary_index(params)
    _check_no_filter(params, "base_index_params")
    return params.k_factor, of_binary_index(inner_params(params, "base_index_params"))


def _check_no_filter(params: Any, inside: str) -> None:
    if params.sel is not None:
        raise ValueError(f"Faiss ignores the sel of {type(params).__name__}: it belongs in its {inside}")


def inner_params(params: Any, name: str) -> Any:
    """Return the parameters that are a field of others as what they are: Faiss shows plain SearchParameters."""
    shown = getattr(params, name)
    if shown is None:
        return None
    kept = [*getattr(params, "_sp_field_refs", {}).values(), *getattr(params, "referenced_objects", ())]
    for one in kept:
        if isinstance(one, faiss.SearchParameters) and int(one.this) == int(shown.this):
            return one
    kind = type(params).__name__
    raise TypeError(f"Faiss {faiss.__version__} does not say what was assigned to {name}: write {kind}({name}=…)")


def checked(index: Any, params: Any, follows_margin: bool = False) -> Any:
    """Return parameters, or raise an error if an index does not follow all that they say."""
    if params is None:
        return None
    if not isinstance(params, faiss.SearchParameters):
        raise TypeError(f"params must be faiss.SearchParameters, not {type(params).__name__}")
    rows_index, _ = without_id_map(index)
    if isinstance(rows_index, (faiss.IndexBinaryShards, faiss.IndexBinaryReplicas)):
        for number in range(rows_index.count()):
            checked(rows_index.at(number), params)
        return params
    kind: Any = type(params)
    taken = _TAKEN.get(type(rows_index), (faiss.SearchParameters,))
    if kind is SearchParametersIVFSigns and follows_margin:
        kind = faiss.SearchParametersIVF
    if kind not in taken:
        names = " or ".join(one.__name__ for one in taken) or "none"
        raise TypeError(f"{type(rows_index).__name__} does not take {kind.__name__}: it takes {names}")
    for name, default in _not_followed(kind).items():
        if getattr(params, name) != default:
            raise ValueError(f"{type(rows_index).__name__} does not follow {name} of {kind.__name__}")
    return params


def of_rows(params: Any, id_map: Any) -> Any:
    """Return search parameters with their filter of ids as one of rows."""
    if id_map is None or not is_filtered(params):
        return params
    kind = type(params)
    fields = {name: getattr(params, name) for name in _FOLLOWED[kind] if hasattr(params, name)}
    if fields.get("quantizer_params") is not None:
        fields["quantizer_params"] = inner_params(params, "quantizer_params")
    return kind(**{**fields, "sel": selector_of_rows(id_map, params.sel)})


def is_filtered(params: Any) -> bool:
    """Whether parameters have a filter."""
    return params is not None and params.sel is not None


@functools.cache
def _not_followed(kind: Any) -> dict[str, Any]:
    """Return the fields of parameters that no binary index reads, with their defaults."""
    fields = [name for name, member in inspect.getmembers(kind) if isinstance(member, property)]
    return {name: getattr(kind(), name) for name in fields if name not in (*_FOLLOWED[kind], "thisown")}


def as_margin(value: Any) -> float:
    """Return a margin, or raise an error."""
    return as_float(value, "margin", 0, LARGEST_MARGIN)
