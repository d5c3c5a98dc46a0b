"""index_factory: Faiss's factory strings, with PRH among the transforms and binary indexes behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import faiss

from .._common.numbers import bytes_of
from ..rotation import checked_dimension
from ..transform import PRHTransform
from .asymmetric import IndexBinaryAsymmetric
from .composites import behind, taken_apart
from .grammar import METRICS, is_prh, list_counts, parsed
from .pretransform import IndexBinaryPreTransform
from .refine import IndexBinaryRefine
from .signs import IndexIVFSigns
from .signs_refine import IndexIVFSignsRefine

_RANDOM = re.compile(r"SRR(\d+)?", re.ASCII)
_PRH = re.compile(r"PRH(?P<bits>\d+)?(\((?P<n_iso>\d+)(,(?P<n_pca>\d+)(,(?P<tilt>\d*\.?\d+))?)?\))?", re.ASCII)
_REDUCTION = re.compile(r"(?:PCAW?R?|ITQ)(\d+)")
_BINARY = re.compile(
    r"BFlat|BIVF(?P<nlist>\d+[kM]?)(_HNSW(?P<coarse_links>\d*))?|BHNSW(?P<links>\d*)"
    r"|BHash((?P<tables>\d+)x)?(?P<hash_bits>\d+)"
)
_LISTS_OF_SIGNS = re.compile(r"IVF\d+[kM]?(?P<graph>_HNSW(?P<coarse_links>\d*))?")
_BINARY_FORMS = "BFlat, BIVF<lists>, BIVF<lists>_HNSW<links>, BHNSW<links>, BHash<bits>, BHash<tables>x<bits>"


def index_factory(d: int, description: str, metric: int = faiss.METRIC_L2) -> Any:
    """
    Make an index from a string: the language of Faiss's strings, with PRH as one more transform.

    ``[IDMap,] transforms… , PRH[bits][(n_iso[,n_pca[,tilt]])] , index [,IDMap] [,RFlat|,Refine(…)|,RAsym]``, or IDMap2.

    Parameters
    ----------
    d : int
        Dimension of the vectors.
    description : str
        A binary index (``BFlat``, ``BIVF1024``, …) behind transforms makes an `IndexBinaryPreTransform`, and a float
        index behind PRH a ``faiss.IndexPreTransform``. Any other string is passed to Faiss as it is. ``PRH64`` makes
        64 bits; numbers in parentheses ask for the paper's PRH, which is not tuned. ``SRR`` or ``SRR64`` is a sparse
        random rotation (`PRHTransform.random`), which needs no training. At the end of the string,
        ``RFlat`` and ``Refine(…)`` re-rank the results by a store of the vectors (`IndexBinaryRefine`), and ``RAsym``
        re-ranks them by the codes and one more byte per vector (`IndexBinaryAsymmetric`). ``IVF256,Signs`` makes
        inverted lists of the signs of residuals (`IndexIVFSigns`), which ``RFlat`` and ``Refine(…)`` re-rank as well.
    metric : int, optional
        The metric of a float index, or by which a binary one is re-ranked: METRIC_L2 or METRIC_INNER_PRODUCT, and
        with ``L2norm`` in front of ``RAsym`` cosines. Without re-ranking, Hamming distances stand in for METRIC_L2. In
        front of a float index with METRIC_INNER_PRODUCT, PRH does not subtract the mean (``center=False``).

    Examples
    --------
    >>> from faiss_prh import index_factory
    >>> index_factory(768, "PRH,BIVF1024").index.nlist
    1024
    >>> type(index_factory(128, "PCA64,PRH,PQ16")).__name__
    'IndexPreTransform'
    """
    if isinstance(metric, bool) or not isinstance(metric, int):
        raise TypeError(f"metric must be one of faiss.METRIC_…, not {metric!r}")
    if metric not in METRICS:
        raise ValueError(f"metric must be one of faiss.METRIC_…, not {metric}")
    d = checked_dimension(d)
    described = parsed(description)
    if not (described.is_binary or described.has_prh or described.lists_of_signs):
        return _faiss_factory(d, description, metric)
    if described.is_binary and not described.rerank and metric != faiss.METRIC_L2:
        raise ValueError(
            f"{description!r} ranks by the Hamming distances of codes, which stand in for Euclidean distances: with "
            "another metric than METRIC_L2, rank the results again with ',RFlat' or ',RAsym' at the end"
        )
    if not described.transforms:
        if described.lists_of_signs:
            raise ValueError(f"{description!r}: 'Signs' needs transforms before it, as in 'PRH,IVF256,Signs'")
        if described.rerank:
            raise ValueError(
                f"{described.rerank!r} after a binary index needs transforms before it: vectors are not bits"
            )
        return _with_id_map(_binary_index(d, described.core), described.id_map)
    chain: list[Any] = []
    center = described.is_binary or metric != faiss.METRIC_INNER_PRODUCT  # float indexes compute them about zero
    for part in described.transforms:
        d_in = chain[-1].d_out if chain else d
        chain.append(_prh(d_in, part, center) if is_prh(part) else _faiss_transform(d_in, part))
    if described.is_binary:
        inside = _with_id_map(_binary_index(8 * bytes_of(chain[-1].d_out), described.core), described.id_map)
        return _behind_transforms(chain, inside, described.rerank, metric)
    if described.lists_of_signs:
        return _lists_of_signs(chain, described.lists_of_signs, described.rerank, metric)
    if described.rerank == "RAsym":
        raise ValueError("'RAsym' ranks the results of a binary index (BFlat, BIVF<lists>, …)")
    index = behind(chain, _faiss_factory(chain[-1].d_out, described.core, metric))
    if described.rerank == "RFlat":
        index = faiss.IndexRefineFlat(index)
    elif described.rerank:
        index = faiss.IndexRefine(index, _store(d, described.rerank, metric))
    return _with_id_map(index, described.id_map)  # outside: IndexRefine takes no ids


def _behind_transforms(chain: list[Any], index: Any, rerank: str, metric: int) -> IndexBinaryPreTransform:
    if not rerank:
        return IndexBinaryPreTransform(chain, index)
    if rerank == "RAsym":
        return IndexBinaryAsymmetric(chain, index, metric=metric)
    try:
        return IndexBinaryRefine(chain, index, _store(chain[0].d_in, rerank, metric))
    except TypeError as error:
        raise ValueError(f"Refine(…) after a binary index: {error}") from None


def _lists_of_signs(chain: list[Any], lists: str, rerank: str, metric: int) -> IndexIVFSigns:
    # An IDMap in the string changes nothing: the lists keep ids.
    match = _LISTS_OF_SIGNS.fullmatch(lists)
    if not match:
        raise ValueError(f"{lists + ',Signs'!r}: the lists are written IVF<lists> or IVF<lists>_HNSW<links>")
    if rerank == "RAsym":
        raise ValueError("'RAsym' ranks the results of a binary index; 'Signs' ranks that way by itself")
    _check_links(match, "coarse_links")
    # Faiss 1.8 knows no units: 4096 lists, not 4k.
    owner = _faiss_factory(chain[-1].d_out, f"IVF{list_counts(lists)[0]}{match['graph'] or ''},Flat", metric)
    quantizer, nlist = faiss.downcast_index(owner.quantizer), owner.nlist
    quantizer.referenced_objects = [owner]  # which deletes it in the end
    if not rerank:
        return IndexIVFSigns(chain, quantizer, nlist, metric)
    try:
        return IndexIVFSignsRefine(chain, quantizer, nlist, _store(chain[0].d_in, rerank, metric))
    except TypeError as error:
        raise ValueError(f"Refine(…) after 'Signs': {error}") from None


def _prh(d: int, part: str, center: bool) -> PRHTransform:
    random = _RANDOM.fullmatch(part)
    if random:
        return PRHTransform.random(d, int(random[1] or d))
    match = _PRH.fullmatch(part)
    if not match:
        raise ValueError(
            f"{part!r}: PRH is written PRH or PRH<bits>, then (n_iso), (n_iso,n_pca) or (n_iso,n_pca,tilt)"
        )
    given: dict[str, Any] = {name: int(match[name]) for name in ("n_iso", "n_pca") if match[name]}
    return PRHTransform(d, int(match["bits"] or d), tilt=float(match["tilt"] or 0), center=center, **given)


def _faiss_transform(d: int, part: str) -> Any:
    """Return the transform that Faiss makes of a part of a string."""
    reduction = _REDUCTION.fullmatch(part)
    if reduction and not 1 <= int(reduction[1]) <= d:
        raise ValueError(f"{part!r} after {d} dimensions: it can keep 1 to {d} of them")
    owner = _faiss_factory(d, f"{part},Flat", faiss.METRIC_L2)
    composite = taken_apart(owner)
    assert composite is not None
    (transform,) = composite.transforms
    transform.owner = owner  # which deletes it in the end
    return transform


def _store(d: int, rerank: str, metric: int) -> Any:
    """Return the index that `RFlat` or `Refine(…)` ranks by."""
    if rerank == "RFlat":
        return faiss.IndexFlat(d, metric)
    if not rerank.endswith(")"):
        raise ValueError(f"{rerank!r}: re-ranking is written RFlat, RAsym or Refine(<index>), such as Refine(SQ8)")
    return _faiss_factory(d, rerank[len("Refine(") : -1], metric)


def _binary_index(bits: int, core: str) -> Any:
    match = _BINARY.fullmatch(core)
    if not match:
        raise ValueError(f"{core!r} is no binary index; there are {_BINARY_FORMS}")
    _check_sizes(match, bits)
    text = core.replace(match["nlist"], str(list_counts(core)[0]), 1) if match["nlist"] else core
    try:
        return faiss.index_binary_factory(bits, text)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"{core!r} with {bits} bits: {error}") from None


def _check_sizes(match: re.Match[str], bits: int) -> None:
    """Refuse numbers that Faiss takes and then crashes or finds nothing with."""
    _check_links(match, "coarse_links", "links")
    _check_numbers(match, ("tables", "hash_bits"), 1, bits)
    if match["tables"] and int(match["tables"]) * int(match["hash_bits"]) > bits:
        raise ValueError(f"{match[0]!r}: more than the {bits} bits of a code")


def _check_links(match: re.Match[str], *names: str) -> None:
    _check_numbers(match, names, 2, 1000)


def _check_numbers(match: re.Match[str], names: Iterable[str], least: int, most: int) -> None:
    for name in names:
        if match[name] and not least <= int(match[name]) <= most:
            raise ValueError(f"{match[0]!r}: {match[name]} must be at least {least} and at most {most}")


def _faiss_factory(d: int, description: str, metric: int) -> Any:
    if re.search(r"PQ0+(?!\d)", description):  # by which Faiss 1.8 divides
        raise ValueError(f"{description!r}: no parts for a product quantizer")
    try:
        return faiss.index_factory(d, description, metric)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"{description!r} with {d} dimensions: {error}") from None


def _with_id_map(index: Any, id_map: str) -> Any:
    if not id_map:
        return index
    kind = "IndexBinary" if isinstance(index, faiss.IndexBinary) else "Index"
    return getattr(faiss, f"{kind}{id_map}")(index)
