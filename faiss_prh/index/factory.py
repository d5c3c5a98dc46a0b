"""index_factory: Faiss's factory strings, with PRH among the transforms and binary indexes behind them."""

from __future__ import annotations

import re
from typing import Any

import faiss

from .._common.numbers import bytes_of
from ..rotation import checked_dimension
from ..transform import PRHTransform
from .asymmetric import IndexBinaryAsymmetric
from .composites import behind
from .limits import METRICS, MOST_LISTS
from .pretransform import IndexBinaryPreTransform
from .refine import IndexBinaryRefine

_FAISS_TRANSFORM = re.compile(r"PCAW?R?\d+|L2[nN]orm|RR\d*|HR\d*|ITQ\d*|OPQ\d+(_\d+)?|Pad\d+")
_PRH = re.compile(r"PRH(?P<bits>\d+)?(\((?P<n_iso>\d+)(,(?P<n_pca>\d+)(,(?P<tilt>\d*\.?\d+))?)?\))?", re.ASCII)
_REDUCTION = re.compile(r"(?:PCAW?R?|ITQ)(\d+)")
_BINARY = re.compile(
    r"BFlat|BIVF(?P<nlist>\d+[kM]?)(_HNSW(?P<coarse_links>\d*))?|BHNSW(?P<links>\d*)"
    r"|BHash((?P<tables>\d+)x)?(?P<hash_bits>\d+)"
)
_BINARY_FORMS = "BFlat, BIVF<lists>, BIVF<lists>_HNSW<links>, BHNSW<links>, BHash<bits>, BHash<tables>x<bits>"
_FLOAT_LISTS = re.compile(r"(?<![A-Z])IVF(?P<nlist>\d+[kM]?)")
_UNITS = {"k": 1 << 10, "M": 1 << 20}
_LONGEST = 1000
"""Of a string: the regular expressions by which Faiss reads it take room on the stack for each letter."""


def index_factory(d: int, description: str, metric: int = faiss.METRIC_L2) -> Any:
    """
    Make an index from a string: Faiss's own, and PRH as one more transform.

    ``[IDMap,] transforms… , PRH[bits][(n_iso[,n_pca[,tilt]])] , index [,IDMap] [,RFlat|,Refine(…)|,RAsym]``, or IDMap2.

    Parameters
    ----------
    d : int
        Dimension of the vectors.
    description : str
        A binary index (``BFlat``, ``BIVF1024``, …) behind transforms gives an `IndexBinaryPreTransform`, a float index
        behind PRH a ``faiss.IndexPreTransform``. What has neither is left to Faiss. ``PRH64`` makes 64 bits; numbers in
        parentheses ask for the paper's PRH, which is not tuned. At the end, ``RFlat`` and
        ``Refine(…)`` rank the results again by a store of the vectors (`IndexBinaryRefine`), ``RAsym`` by the codes
        and one byte a vector (`IndexBinaryAsymmetric`).
    metric : int, optional
        Of a float index, and of a store. A binary index alone knows only Hamming distances.

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
    parts = _split(description)
    id_map = _take(parts, 0, ("IDMap", "IDMap2"))
    rerank = _take(parts, -1, ("RFlat", "RAsym"), prefix="Refine(")
    id_map = id_map or _take(parts, -1, ("IDMap", "IDMap2"))
    n_transforms = 0
    while n_transforms < len(parts) and (
        _is_prh(parts[n_transforms]) or _FAISS_TRANSFORM.fullmatch(parts[n_transforms])
    ):
        n_transforms += 1
    transforms, index = parts[:n_transforms], parts[n_transforms:]
    if not index:
        raise ValueError(f"{description!r} names no index after its transforms")
    is_binary = index[0].startswith("B")
    if not is_binary and not any(_is_prh(part) for part in transforms):
        return _faiss_factory(d, description, metric)
    if is_binary and not transforms:
        if rerank:
            raise ValueError(f"{rerank!r} after a binary index needs transforms before it: vectors are not bits")
        return _wrapped(_binary_index(d, index), id_map, faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2)

    chain: list[Any] = []
    for part in transforms:
        d_in = chain[-1].d_out if chain else d
        chain.append(_prh(d_in, part) if _is_prh(part) else _faiss_transform(d_in, part))
    if is_binary:
        inner = _binary_index(8 * bytes_of(chain[-1].d_out), index)
        inner = _wrapped(inner, id_map, faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2)
        if rerank == "RAsym":
            if metric != faiss.METRIC_L2:
                raise ValueError("'RAsym' estimates Euclidean distances: the metric must be METRIC_L2")
            return IndexBinaryAsymmetric(chain, inner)
        if rerank:
            return _reranked(chain, inner, _store(d, rerank, metric))
        return IndexBinaryPreTransform(chain, inner)
    if rerank == "RAsym":
        raise ValueError("'RAsym' ranks the results of a binary index (BFlat, BIVF<lists>, …)")

    made = behind(chain, _faiss_factory(chain[-1].d_out, ",".join(index), metric))
    if rerank:
        made = faiss.IndexRefineFlat(made) if rerank == "RFlat" else faiss.IndexRefine(made, _store(d, rerank, metric))
    return _wrapped(made, id_map, faiss.IndexIDMap, faiss.IndexIDMap2)  # outside: IndexRefine takes no ids


def _split(description: str) -> list[str]:
    """Split at the commas that are not in parentheses."""
    if not isinstance(description, str):
        raise TypeError(f"a factory string is needed, not {type(description).__name__}")
    if len(description) > _LONGEST:
        raise ValueError(f"a factory string of {len(description)} letters; at most {_LONGEST} are read")
    if not (description.isascii() and description.isprintable()):
        raise ValueError(f"{description!r}: a factory string has only ASCII letters, digits and marks")
    parts = re.findall(r"(?:[^,()]|\([^()]*\))+", description)
    if not parts or ",".join(parts) != description:
        raise ValueError(f"{description!r}: an empty part, or parentheses that do not match")
    return parts


def _take(parts: list[str], position: int, names: tuple[str, ...], prefix: str | None = None) -> str:
    """Remove and return the part at an end if it is one of `names` or starts with `prefix`; else ''."""
    if len(parts) > 1 and (parts[position] in names or (prefix and parts[position].startswith(prefix))):
        return parts.pop(position)
    return ""


def _is_prh(part: str) -> bool:
    return part.startswith("PRH")


def _prh(d: int, part: str) -> PRHTransform:
    match = _PRH.fullmatch(part)
    if not match:
        raise ValueError(
            f"{part!r}: PRH is written PRH or PRH<bits>, then (n_iso), (n_iso,n_pca) or (n_iso,n_pca,tilt)"
        )
    given: dict[str, Any] = {name: int(match[name]) for name in ("n_iso", "n_pca") if match[name]}
    return PRHTransform(d, int(match["bits"] or d), tilt=float(match["tilt"] or 0), **given)


def _faiss_transform(d: int, part: str) -> Any:
    """Return the transform that Faiss makes of a part of a string."""
    reduction = _REDUCTION.fullmatch(part)
    if reduction and not 1 <= int(reduction[1]) <= d:
        raise ValueError(f"{part!r} after {d} dimensions: it can keep 1 to {d} of them")
    owner = _faiss_factory(d, f"{part},Flat", faiss.METRIC_L2)
    transform = faiss.downcast_VectorTransform(owner.chain.at(0))
    transform.owner = owner  # which deletes it in the end
    return transform


def _store(d: int, rerank: str, metric: int) -> Any:
    """Return the index that `RFlat` or `Refine(…)` ranks by."""
    if rerank in ("RFlat", "Refine(Flat)"):
        # Faiss reads these back as they are, but an IndexFlat(d, METRIC_L2) as an IndexFlatL2: no two to be merged.
        makers = {faiss.METRIC_L2: faiss.IndexFlatL2, faiss.METRIC_INNER_PRODUCT: faiss.IndexFlatIP}
        return makers[metric](d) if metric in makers else faiss.IndexFlat(d, metric)
    if not rerank.endswith(")"):
        raise ValueError(f"{rerank!r}: re-ranking is written RFlat, RAsym or Refine(<index>), such as Refine(SQ8)")
    return _faiss_factory(d, rerank[len("Refine(") : -1], metric)


def _reranked(chain: list[Any], index: Any, store: Any) -> IndexBinaryRefine:
    try:
        return IndexBinaryRefine(chain, index, store)
    except TypeError as error:
        raise ValueError(f"Refine(…) after a binary index: {error}") from None


def _binary_index(bits: int, parts: list[str]) -> Any:
    match = _BINARY.fullmatch(",".join(parts))
    if not match:
        raise ValueError(f"{','.join(parts)!r} is no binary index; there are {_BINARY_FORMS}")
    text = match[0]
    _check_sizes(match, bits)
    if match["nlist"]:
        text = text.replace(match["nlist"], str(_list_count(match)), 1)
    try:
        return faiss.index_binary_factory(bits, text)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"{text!r} with {bits} bits: {error}") from None


def _list_count(match: re.Match[str]) -> int:
    """Return the number of lists in a string."""
    nlist = int(match["nlist"].rstrip("kM")) * _UNITS.get(match["nlist"][-1], 1)
    if nlist > MOST_LISTS:  # for which Faiss would make room at once
        raise ValueError(f"{match.string!r}: {nlist} lists are more than {MOST_LISTS}")
    return nlist


def _check_sizes(match: re.Match[str], bits: int) -> None:
    """Refuse numbers that Faiss takes and then crashes or finds nothing with."""
    for name, least, most in (
        ("nlist", 1, None), ("coarse_links", 2, 1000), ("links", 2, 1000), ("tables", 1, bits), ("hash_bits", 1, bits),
    ):  # fmt: skip
        value = int((match[name] or str(least)).rstrip("kM"))
        if value < least or (most is not None and value > most):
            upper = "" if most is None else f" and at most {most}"
            raise ValueError(f"{match[0]!r}: {value} must be at least {least}{upper}")
    if match["tables"] and int(match["tables"]) * int(match["hash_bits"]) > bits:
        raise ValueError(f"{match[0]!r}: more than the {bits} bits of a code")


def _faiss_factory(d: int, description: str, metric: int) -> Any:
    if re.search(r"PQ0+(?!\d)", description):  # by which Faiss 1.8 divides
        raise ValueError(f"{description!r}: no parts for a product quantizer")
    for match in _FLOAT_LISTS.finditer(description):
        _list_count(match)
    try:
        return faiss.index_factory(d, description, metric)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"{description!r} with {d} dimensions: {error}") from None


def _wrapped(index: Any, id_map: str, plain: Any, two_way: Any) -> Any:
    return {"": lambda: index, "IDMap": lambda: plain(index), "IDMap2": lambda: two_way(index)}[id_map]()
