"""The grammar of factory strings: read once, into what they name."""

from __future__ import annotations

import re
from typing import NamedTuple

import faiss

METRICS = frozenset(getattr(faiss, name) for name in dir(faiss) if name.startswith("METRIC_"))
MOST_LISTS = 1 << 24
"""Most inverted lists of an index: Faiss makes room for all of them at once."""
_PRH = re.compile(r"PRH.*|SRR\d*")
_FAISS_TRANSFORM = re.compile(r"PCAW?R?\d+|L2[nN]orm|RR\d*|HR\d*|ITQ\d*|OPQ\d+(_\d+)?|Pad\d+")
_LISTS = re.compile(r"(?<![A-Z])B?IVF(\d+)([kM]?)")
_PRODUCTS_OF_LISTS = re.compile(r"IMI(\d+)x(\d+)")
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20}
_ID_MAPS = ("IDMap", "IDMap2")
_LONGEST = 1000
"""The longest string that is read: Faiss's regular expressions take stack space for each letter."""


class Described(NamedTuple):
    """What a factory string names, each part as it is written; empty if there is none."""

    id_map: str  # "IDMap" or "IDMap2"
    transforms: tuple[str, ...]
    core: str
    rerank: str  # "RFlat", "RAsym" or "Refine(…)"

    @property
    def is_binary(self) -> bool:
        """Whether the index is one of codes."""
        return self.core.startswith("B")

    @property
    def lists_of_signs(self) -> str:
        """How the lists of an index of residuals' signs are written; empty for any other index."""
        lists, comma, name = self.core.rpartition(",")
        return lists if comma and name == "Signs" else ""

    @property
    def has_prh(self) -> bool:
        """Whether PRH is among the transforms."""
        return any(map(is_prh, self.transforms))


def parsed(description: str) -> Described:
    """
    Return what a factory string names.

    Examples
    --------
    >>> parsed("IDMap,PCA64,PRH(3,2),IVF1000(IVF20,SQ4),Flat,Refine(SQ8)")
    Described(id_map='IDMap', transforms=('PCA64', 'PRH(3,2)'), core='IVF1000(IVF20,SQ4),Flat', rerank='Refine(SQ8)')
    """
    parts = _split(description)
    list_counts(description)
    id_map = _taken(parts, 0, _ID_MAPS)
    rerank = _taken(parts, -1, ("RFlat", "RAsym"), prefix="Refine(")
    id_map = id_map or _taken(parts, -1, _ID_MAPS)
    is_transform = [bool(is_prh(part) or _FAISS_TRANSFORM.fullmatch(part)) for part in parts]
    n_transforms = [*is_transform, False].index(False)
    transforms, core = parts[:n_transforms], parts[n_transforms:]
    if not core:
        raise ValueError(f"{description!r} names no index after its transforms")
    return Described(id_map, tuple(transforms), ",".join(core), rerank)


def is_prh(part: str) -> bool:
    """Whether a part of a string means a PRHTransform: a learned one (PRH) or a random one (SRR)."""
    return bool(_PRH.fullmatch(part))


def list_counts(description: str) -> list[int]:
    """
    Return the numbers of inverted lists in a string, or raise an error if one cannot be.

    Examples
    --------
    >>> list_counts("PRH,IVF4k(IVF64,Flat),Flat")
    [4096, 64]
    """
    counts = [int(number) * _UNITS[unit] for number, unit in _LISTS.findall(description)]
    counts += [1 << min(64, int(parts) * int(bits)) for parts, bits in _PRODUCTS_OF_LISTS.findall(description)]
    for count in counts:
        if count < 1:
            raise ValueError(f"{description!r}: an IVF without lists; it must have at least 1")
        if count > MOST_LISTS:  # for which Faiss would make room at once
            raise ValueError(f"{description!r}: {count} lists are more than {MOST_LISTS}")
    return counts


def _split(description: str) -> list[str]:
    """Split a string at the commas that are not in parentheses."""
    if not isinstance(description, str):
        raise TypeError(f"a factory string is needed, not {type(description).__name__}")
    if len(description) > _LONGEST:
        raise ValueError(f"a factory string of {len(description)} letters; at most {_LONGEST} are read")
    if not (description.isascii() and description.isprintable()):
        raise ValueError(f"{description!r}: a factory string has only ASCII letters, digits and marks")
    parts, depth = [""], 0
    for letter in description:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise ValueError(f"{description!r}: parentheses that do not match")
    if not all(parts):
        raise ValueError(f"{description!r}: an empty part")
    return parts


def _taken(parts: list[str], position: int, names: tuple[str, ...], prefix: str | None = None) -> str:
    """Remove and return the part at an end if it is one of `names` or starts with `prefix`; else ''."""
    if len(parts) > 1 and (parts[position] in names or (prefix and parts[position].startswith(prefix))):
        return parts.pop(position)
    return ""
