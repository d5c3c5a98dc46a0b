"""install: Faiss's own functions take the strings and indexes of this package, in programs that know only Faiss."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import faiss
import numpy as np

from .index.factory import index_factory
from .index.grammar import is_prh, parsed
from .index.parts_of import transforms_of
from .index.pretransform import IndexBinaryPreTransform
from .storage.container import MAGIC
from .storage.files import clone_index, deserialize_index, read_index, write_index
from .transform import PRHTransform

_stock: dict[tuple[Any, str], Callable[..., Any]] = {}
"""Faiss's own functions; they stay here when all is put back, for whoever still holds one of ours."""

_trusted = False


def install(*, trusted: bool = False) -> None:
    """
    Make Faiss's own functions know PRH, for programs that call only those.

    ``faiss.index_factory`` then takes the strings of `index_factory` that have PRH or a binary index behind transforms.
    ``faiss.write_index``, ``read_index``, ``serialize_index``, ``deserialize_index``, ``clone_index`` and pickle take
    what these strings make. All else is left to Faiss, and so are its errors.

    What Faiss can write, Faiss writes, for any program to read. What it cannot write becomes an index file of this
    package: binary indexes behind transforms, and float indexes with a PRHTransform that has no dense matrix.
    ``read_index`` tells these files by their first bytes, in a file, a ``VectorIOReader``, ``BufferedIOReader`` or
    ``PyCallbackIOReader``. They are written and read as a whole: Faiss's ``io_flags`` mean nothing for them.

    Call it before programs are imported that take functions out of Faiss (``from faiss import read_index``).

    Parameters
    ----------
    trusted : bool
        Whether to leave Faiss's own bytes inside index files of this package to Faiss, as in `read_index`. Pickles and
        clones are trusted anyway. Calling `install` again changes this.

    Examples
    --------
    >>> import faiss, faiss_prh
    >>> faiss_prh.install()
    >>> index = faiss.index_factory(64, "PRH,BFlat,RAsym")
    >>> faiss.deserialize_index(faiss.serialize_index(index)).index.ntotal
    0
    >>> faiss_prh.uninstall()
    """
    global _trusted
    _trusted = bool(trusted)
    for place, function in _REPLACEMENTS.items():
        if getattr(*place) is not function:
            _stock.setdefault(place, getattr(*place))  # later it may be someone else's that calls ours
            setattr(*place, function)


def uninstall() -> None:
    """
    Give Faiss its own functions back, after `install`.

    Examples
    --------
    >>> import faiss, faiss_prh
    >>> before = faiss.index_factory
    >>> faiss_prh.install()
    >>> faiss_prh.uninstall()
    >>> faiss.index_factory is before
    True
    """
    for place, function in _REPLACEMENTS.items():
        if getattr(*place) is function:
            setattr(*place, _stock[place])


def _index_factory(*args: Any) -> Any:
    is_ours = len(args) > 1 and isinstance(args[1], str) and _has_our_words(args[1])
    if is_ours and len(args) == 4 and args[3] is True:  # own_invlists, which is the default
        args = args[:3]
    return index_factory(*args) if is_ours else _stock[faiss, "index_factory"](*args)


def _has_our_words(description: str) -> bool:
    try:
        described = parsed(description)
    except ValueError:  # to be raised again by whose words these are
        return any(map(is_prh, description.split(",")))
    return described.has_prh or bool((described.is_binary or described.lists_of_signs) and described.transforms)


def _write_index(*args: Any) -> None:
    if len(args) < 2 or all(map(_can_be_written_by_faiss, _our_parts(args[0]))):
        _stock[faiss, "write_index"](*args)
    else:
        write_index(args[0], cast(BinaryIO, _Written(args[1]) if isinstance(args[1], faiss.IOWriter) else args[1]))


def _read_index(*args: Any) -> Any:
    source = args[0] if args else None
    if isinstance(source, (faiss.PyCallbackIOReader, faiss.BufferedIOReader)):
        start = _Read(source).read(len(MAGIC))
        source = _Read(source, start)
        if start != MAGIC:  # Faiss's readers cannot go back
            whole = faiss.PyCallbackIOReader(source.read)
            return _stock[faiss, "read_index"](whole, *args[1:])
    elif isinstance(source, faiss.VectorIOReader) and _rest_of(source, len(MAGIC)) == MAGIC:
        source = _Read(source)
    elif not (isinstance(source, (str, os.PathLike)) and _start_of(source, len(MAGIC)) == MAGIC):
        return _stock[faiss, "read_index"](*args)
    return read_index(cast(BinaryIO, source), trusted=_trusted)


def _clone_index(*args: Any) -> Any:
    is_ours = len(args) == 1 and bool(_our_parts(args[0]))
    return clone_index(*args) if is_ours else _stock[faiss, "clone_index"](*args)


def _setstate(self: Any, state: dict[str, bytes]) -> None:
    if not state["this"].startswith(MAGIC):
        _stock[faiss.Index, "__setstate__"](self, state)  # the same for all classes
        return
    index = deserialize_index(state["this"], trusted=True)
    # Faiss would take over no more than the pointer, and what it points to is alive as long as `referenced_objects` is.
    self.__dict__.update(index.__dict__)


# serialize_index, deserialize_index and __getstate__ find the first four by their names in the module. The classes are
# those of float indexes that an index file of this package may hold.
_REPLACEMENTS: dict[tuple[Any, str], Callable[..., Any]] = {
    (faiss, "index_factory"): _index_factory,
    (faiss, "write_index"): _write_index,
    (faiss, "read_index"): _read_index,
    (faiss, "clone_index"): _clone_index,
    (faiss.Index, "__setstate__"): _setstate,
    (faiss.IndexPreTransform, "__setstate__"): _setstate,
    (faiss.IndexIDMap, "__setstate__"): _setstate,
    (faiss.IndexIDMap2, "__setstate__"): _setstate,
    (faiss.IndexRefine, "__setstate__"): _setstate,
    (faiss.IndexRefineFlat, "__setstate__"): _setstate,
}


def _our_parts(index: Any) -> list[Any]:
    """Return what is this package's own in an index, or the index itself if it is."""
    if isinstance(index, IndexBinaryPreTransform):
        return [index]
    if not isinstance(index, faiss.Index):
        return []
    return [transform for transform in transforms_of(index) if isinstance(transform, PRHTransform)]


def _can_be_written_by_faiss(part: Any) -> bool:
    """Whether Faiss takes a part for one of its own, which a PRHTransform with a dense matrix is: a LinearTransform."""
    # Of an untrained one Faiss would make a LinearTransform that can never be trained.
    if not (isinstance(part, PRHTransform) and part.is_trained):
        return False
    known = faiss.downcast_VectorTransform(part)
    return isinstance(known, faiss.LinearTransform) and known.A.size() > 0


def _start_of(path: str | os.PathLike[str], size: int) -> bytes:
    """Return the first bytes of a file, or none: a pipe can be read only once, and errors are left to Faiss."""
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read(size)
    except (OSError, ValueError):
        pass
    return b""


def _rest_of(reader: Any, size: int) -> bytes:
    """Return the next bytes of a VectorIOReader, which stays where it is."""
    left = reader.data.size() - reader.rp
    if left < size:
        return b""
    data: bytes = faiss.rev_swig_ptr(reader.data.data(), reader.data.size())[reader.rp : reader.rp + size].tobytes()
    return data


class _Read:
    """What comes out of a reader of Faiss's, after some bytes that were read before, as a binary file object."""

    def __init__(self, reader: Any, start: bytes = b"") -> None:
        self._reader, self._start = reader, start

    def read(self, size: int) -> bytes:
        if self._start:
            data, self._start = self._start[:size], self._start[size:]
            return data
        buffer = np.empty(size, np.uint8)
        return buffer[: self._reader(faiss.swig_ptr(buffer), 1, size)].tobytes()


class _Written:
    """A binary file object that writes to a writer of Faiss's."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes) -> int:
        n: int = self._writer(faiss.swig_ptr(np.frombuffer(data, np.uint8)), 1, len(data))
        return n
