"""
Read vectors from .npy, .npz, .fvecs, .bvecs and .hdf5 files, mapped into memory where the format allows.

The files may come from strangers: nothing is unpickled, and no memory is reserved for what a file only claims to hold.
"""

from __future__ import annotations

import math
import os
import re
import stat
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._common.arrays import first_unusable_row, unusable
from .._common.types import AnyArray
from .extras import optional_module

Array = AnyArray

SUFFIXES = (".npy", ".npz", ".fvecs", ".bvecs", ".hdf5", ".h5")
_NAMED = re.compile(r"(?P<path>.*\.(?:npz|hdf5|h5)):(?P<name>[^:]+)", re.IGNORECASE | re.DOTALL)
_COMPONENTS = {".fvecs": "<f4", ".bvecs": "u1"}
_MOST_EXPANSION = 1100  # deflate makes at most 1032 bytes of one
_CHECKED_ROWS = 1 << 20
_LOCAL_HEADER = 30


class VectorFileError(ValueError):
    """A file cannot be read, or holds something else. The message is one line that begins with its name."""


def read_vectors(source: str, *, d: int | None = None) -> Array:
    """
    Return the vectors in a file, as the rows of an array.

    Parameters
    ----------
    source : str
        Path of a .npy, .npz, .fvecs, .bvecs or .hdf5 file. If an .npz or .hdf5 file holds several arrays, the name of
        one follows after a colon: ``sift.hdf5:train``.
    d : int, optional
        Number of dimensions that the vectors must have.

    Returns
    -------
    ndarray
        Two-dimensional, of any real type; a memory map unless the file is compressed.

    Raises
    ------
    VectorFileError
        If there is no such file, or it holds no such vectors.

    Examples
    --------
    >>> import os, tempfile, numpy as np
    >>> from faiss_prh.cli.vector_files import read_vectors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npz")
    ...     np.savez(path, base=np.zeros((5, 3)), query=np.ones((2, 3)))
    ...     read_vectors(f"{path}:query", d=3)
    memmap([[1., 1., 1.],
            [1., 1., 1.]])
    """
    path, name = split_name(source)
    if name is None and path.suffix.lower() in (".npz", ".hdf5", ".h5"):
        names = array_names(path)
        if len(names) != 1:
            held = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
            raise VectorFileError(f"{source}: it holds {held or 'no arrays'}; name one, as in {path.name}:name")
        name = names[0]
    array = read_array(path, name)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        found = f"{array.dtype} of shape {array.shape}"
        raise VectorFileError(f"{source}: expected real numbers in two dimensions, not {found}")
    if d is not None and array.shape[1] != d:
        raise VectorFileError(f"{source}: expected {d} columns, not {array.shape[1]}")
    if not array.size:
        raise VectorFileError(f"{source}: no vectors in it")
    return array


def check_usable(source: str, vectors: Array, first: int = 0) -> None:
    """
    Raise a VectorFileError if a vector is not finite, or too large. The first row is vector `first` of its file.

    Examples
    --------
    >>> import numpy as np
    >>> check_usable("x.npy", np.array([[0, 1], [np.nan, 2]]), first=7)
    Traceback (most recent call last):
    faiss_prh.cli.vector_files.VectorFileError: x.npy: vector 8 has a non-finite value, or one too large for float32
    """
    bad = first_unusable_row(vectors)
    if bad is not None:
        raise VectorFileError(str(unusable(vectors[bad], f"{source}: vector {first + bad}")))


def split_name(source: str) -> tuple[Path, str | None]:
    """
    Return the path of a file and the name of an array in it, if one follows after a colon.

    Examples
    --------
    >>> split_name("sift.hdf5:train")
    (PosixPath('sift.hdf5'), 'train')
    >>> split_name("a:b.npy")
    (PosixPath('a:b.npy'), None)
    """
    match = _NAMED.fullmatch(source)
    if match is None or os.path.exists(source):
        return Path(source), None
    return Path(match["path"]), match["name"]


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz or .hdf5 file."""
    with _naming(path):
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                return [name.removesuffix(".npy") for name in archive.namelist()]
        h5py = _h5py(path)
        with h5py.File(path, "r") as file:
            return [name for name, held in file.items() if isinstance(held, h5py.Dataset)]


def read_array(path: Path, name: str | None = None) -> Array:
    """
    Return an array of any type and shape from a file. An .npz or .hdf5 file needs the `name` of the array.

    Examples
    --------
    >>> import os, tempfile, numpy as np
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.npy")
    ...     np.save(path, np.arange(3))
    ...     read_array(path)
    memmap([0, 1, 2])
    """
    suffix = path.suffix.lower()
    with _naming(path):
        if suffix == ".npy":
            mapped: Array = np.lib.format.open_memmap(path, mode="r")  # np.load would also open an archive
            return mapped
        if suffix in _COMPONENTS:
            return _read_vecs(path, _COMPONENTS[suffix])
        if suffix == ".npz":
            return _read_npz(path, name or "")
        return _read_hdf5(path, name or "")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Refuse other files than those known here, and turn whatever a reader raises into a VectorFileError."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise VectorFileError(f"{path}: expected a {', '.join(SUFFIXES[:-2])} or .hdf5 file")
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a pipe would wait for a writer
            raise VectorFileError(f"{path}: not a regular file")
        with path.open("rb"):
            pass
        with warnings.catch_warnings():  # about invalid or old headers
            warnings.simplefilter("ignore")
            yield
    except VectorFileError:
        raise
    except MemoryError as error:
        raise VectorFileError(f"{path}: not enough memory to read it") from error
    except Exception as error:
        reason = getattr(error, "strerror", None) or f"damaged, or no {path.suffix} file of numbers"
        raise VectorFileError(f"{path}: {reason}") from error


def _read_vecs(path: Path, component: str) -> Array:
    """Map a file of rows, each preceded by its length. Faiss's own readers check only the first length."""
    d = int(np.fromfile(path, "<i4", 1)[0])
    rows = np.memmap(path, [("d", "<i4"), ("values", component, (d,))], mode="r")
    for first in range(0, len(rows), _CHECKED_ROWS):
        if (rows["d"][first : first + _CHECKED_ROWS] != d).any():
            raise VectorFileError(f"{path}: damaged: not all rows have length {d}")
    values: Array = rows["values"]
    return values


def _read_npz(path: Path, name: str) -> Array:
    with zipfile.ZipFile(path) as archive:
        members = set(archive.namelist())
        if not members & {name, f"{name}.npy"}:
            raise VectorFileError(f"{path}: no array called {name}")
        info = archive.getinfo(f"{name}.npy" if f"{name}.npy" in members else name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise VectorFileError(f"{path}: compressed by a method that NumPy does not use")
        with archive.open(info) as member:
            dtype, shape, order = _npy_header(member)
            start = member.tell()
            size = dtype.itemsize * math.prod(shape)
            if start + size != info.file_size:
                raise ValueError("an array of another size than its header says")
            if info.compress_type == zipfile.ZIP_STORED:
                return np.memmap(path, dtype, "r", _data_offset(path, info) + start, shape, order)
            _check_claim(path, size, min(info.compress_size, path.stat().st_size))
            flat = np.empty(math.prod(shape), dtype)
            content, filled = flat.view(np.uint8), 0
            while filled < size:
                part = np.frombuffer(member.read(1 << 20), np.uint8)
                if not len(part):
                    raise ValueError("an array that ends too early")
                content[filled : filled + len(part)] = part
                filled += len(part)
    return flat.reshape(shape, order=order)


def _npy_header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], Any]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("no array of numbers")
    return dtype, shape, "F" if is_fortran else "C"


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Return where the data of a member begins: after a header whose length only the header itself says."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
    return (
        info.header_offset
        + _LOCAL_HEADER
        + int.from_bytes(header[26:28], "little")
        + int.from_bytes(header[28:], "little")
    )


def _read_hdf5(path: Path, name: str) -> Array:
    h5py = _h5py(path)
    with h5py.File(path, "r") as file:
        dataset = file.get(name)
        if not isinstance(dataset, h5py.Dataset) or Path(dataset.file.filename) != path or dataset.external:
            raise VectorFileError(f"{path}: no array called {name}")
        offset = dataset.id.get_offset()
        is_as_in_memory = dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype))
        if offset is not None and is_as_in_memory and dataset.size:
            return np.memmap(path, dataset.dtype, "r", offset, dataset.shape)
        _check_claim(path, dataset.nbytes, dataset.id.get_storage_size())
        return np.asarray(dataset[()])


def _h5py(path: Path) -> Any:
    h5py = optional_module("h5py")
    if h5py is None:
        raise VectorFileError(f"{path}: h5py is needed to read it")
    return h5py


def _check_claim(path: Path, size: int, stored: int) -> None:
    """Refuse an array that is larger than its stored bytes can unpack to, or than the memory of this machine."""
    if size > _MOST_EXPANSION * stored:
        raise ValueError("more values than there can be")
    if size > memory_bytes():
        raise VectorFileError(f"{path}: {size} bytes when unpacked, more than this machine's memory")


def memory_bytes() -> int:
    """
    Return the size of this machine's memory.

    Examples
    --------
    >>> memory_bytes() > 1 << 20
    True
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
