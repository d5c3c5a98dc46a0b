"""Transforms as records: PRH by its bytes, Faiss's by the arguments of their constructors and their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import faiss
import numpy as np

from ..transform import PRHTransform, as_prh
from .limits import KINDS, Flaw
from .records import Fields, RecordReader, RecordWriter


class _Kind(NamedTuple):
    """How a transform of Faiss's is made anew."""

    make: Callable[[Fields], Any]
    arrays: Callable[[Fields], dict[str, int]]
    """The names of its arrays, and their lengths once it is trained."""
    dtype: str = "<f4"
    beyond: Callable[[Fields], int] = lambda fields: 0
    """The bytes that Faiss takes for it besides the arrays."""


def _matrix(fields: Fields) -> dict[str, int]:
    return {"A": fields["d_in"] * fields["d_out"], "b": fields["d_out"] if fields["have_bias"] else 0}


_KINDS = {
    "LinearTransform": _Kind(lambda f: faiss.LinearTransform(f["d_in"], f["d_out"], f["have_bias"]), _matrix),
    "RandomRotationMatrix": _Kind(lambda f: faiss.RandomRotationMatrix(f["d_in"], f["d_out"]), _matrix),
    "PCAMatrix": _Kind(
        lambda f: faiss.PCAMatrix(f["d_in"], f["d_out"], f["eigen_power"], f["random_rotation"]), _matrix
    ),
    "OPQMatrix": _Kind(lambda f: faiss.OPQMatrix(f["d_in"], f["M"], f["d_out"]), _matrix),
    "ITQTransform": _Kind(
        lambda f: faiss.ITQTransform(f["d_in"], f["d_out"], f["do_pca"]),
        lambda f: {"mean": f["d_in"], "pca_then_itq.A": f["d_in"] * f["d_out"]},
    ),
    "CenteringTransform": _Kind(lambda f: faiss.CenteringTransform(f["d_in"]), lambda f: {"mean": f["d_in"]}),
    "NormalizationTransform": _Kind(lambda f: faiss.NormalizationTransform(f["d_in"], f["norm"]), lambda f: {}),
    "RemapDimensionsTransform": _Kind(
        lambda f: faiss.RemapDimensionsTransform(f["d_in"], f["d_out"], False), lambda f: {"map": f["d_out"]}, "<i4"
    ),
    "HadamardRotation": _Kind(
        lambda f: faiss.HadamardRotation(f["d_in"], f["seed"]),
        lambda f: {},
        beyond=lambda f: 3 * 4 * 2 * f["d_in"],  # three arrays of signs, as long as the next power of two
    ),
}
TRANSFORMS = (*_KINDS, "PRHTransform", "faiss.VectorTransform")


def write_transform(out: RecordWriter, transform: Any) -> None:
    """Write the record of a transform; as Faiss's own bytes if it is of another kind."""
    prh = as_prh(transform)
    if prh is not None:
        data = prh.to_bytes()
        out.record("PRHTransform", n_bytes=len(data))
        out.array(np.frombuffer(data, np.uint8), "u1")
        return
    transform = faiss.downcast_VectorTransform(transform)
    kind = type(transform).__name__
    if kind not in _KINDS:
        out.record("faiss.VectorTransform", **{"class": kind})
        out.faiss_bytes(faiss.write_VectorTransform, transform)
        return
    fields = {name: _plain(getattr(transform, name)) for name in KINDS[kind]}
    arrays = {name: faiss.vector_to_array(_inside(transform, name)) for name in _KINDS[kind].arrays(fields)}
    for name, length in _lengths(kind, fields).items():
        if len(arrays[name]) != length:
            raise Flaw(f"{kind}: {name} has {len(arrays[name])} values instead of {length}")
    _check_map(fields, arrays.get("map"))
    out.claim_beyond(_KINDS[kind].beyond(fields))
    out.record(kind, **fields)
    for array in arrays.values():
        out.array(array, _KINDS[kind].dtype)


def read_chain(source: RecordReader, fields: Fields) -> list[Any]:
    """Return the transforms that come next."""
    return [source.read(TRANSFORMS) for _ in range(fields["n_transforms"])]


def _read_transform(source: RecordReader, kind: str, fields: Fields) -> Any:
    if not hasattr(faiss, kind):
        raise Flaw(f"a {kind}, which Faiss {faiss.__version__} does not have")
    arrays = {name: source.array(_KINDS[kind].dtype, length) for name, length in _lengths(kind, fields).items()}
    _check_map(fields, arrays.get("map"))
    source.claim_beyond(_KINDS[kind].beyond(fields))
    transform = _KINDS[kind].make(fields)
    for name, array in arrays.items():
        faiss.copy_array_to_vector(array, _inside(transform, name))
    if kind == "ITQTransform":
        inside = transform.pca_then_itq
        inside.d_in, inside.d_out, inside.have_bias = fields["d_in"], fields["d_out"], False
        inside.is_trained = fields["is_trained"]
    for name in ("is_orthonormal", "have_bias", "epsilon", "is_trained"):
        if name in fields:
            setattr(transform, name, fields[name])
    return transform


def _lengths(kind: str, fields: Fields) -> dict[str, int]:
    """Return how long each array must be."""
    is_trained = fields.get("is_trained", True)
    return {name: length if is_trained else 0 for name, length in _KINDS[kind].arrays(fields).items()}


def _check_map(fields: Fields, places: Any) -> None:
    if places is not None and not ((places >= -1) & (places < fields["d_in"])).all():
        raise Flaw("a RemapDimensionsTransform of dimensions that do not exist")


def _inside(transform: Any, name: str) -> Any:
    for part in name.split("."):
        transform = getattr(transform, part)
    return transform


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _read_prh(source: RecordReader, kind: str, fields: Fields) -> PRHTransform:
    data = source.array("u1", fields["n_bytes"]).tobytes()
    # A dense matrix takes more memory than the file has bytes, which a stranger is not allowed.
    return PRHTransform.from_bytes(data) if source.trusted else PRHTransform.from_bytes(data, max_dense_bytes=0)


def _read_faiss(source: RecordReader, kind: str, fields: Fields) -> Any:
    owner = source.faiss_bytes(faiss.read_VectorTransform, fields["class"])
    transform = faiss.downcast_VectorTransform(owner)
    transform.owner = owner  # which deletes it in the end
    return transform


TRANSFORM_READERS: dict[str, Callable[[RecordReader, str, Fields], Any]] = {
    **dict.fromkeys(_KINDS, _read_transform),
    "PRHTransform": _read_prh,
    "faiss.VectorTransform": _read_faiss,
}
