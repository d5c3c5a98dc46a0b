"""Transforms as stock Faiss has them, with a dense matrix, and beside each what runs when Python calls it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import faiss
import numpy as np

from .._common.arrays import first_unusable_row, packed_signs
from .._common.types import AnyArray, Codes, Floats, Ids, Indices
from . import training
from .rows import cosines

_CACHED = 1 << 16
"""Values of vectors that stay in a cache while layers are applied to them."""

_OUTPUTS = 128
"""Rows of a dense matrix that are made at a time."""


class Rotation(NamedTuple):
    """What a transform does: subtract the mean, apply layers, keep some dimensions, multiply with the tail if any."""

    n: int
    layers: list[tuple[Indices, Indices, AnyArray, AnyArray]]  # pairs, cosines, sines
    mean: Floats
    kept: Indices
    tail: Floats | None

    @classmethod
    def of(
        cls, n: int, ends: Ids, i: Indices, j: Indices, theta: Floats, mean: Floats, kept: Indices,
        tail: Floats | None = None,
    ) -> Rotation:  # fmt: skip
        """Return the rotation of what `_native.transforms.set_rotation` takes."""
        cosine, sine = cosines(theta)
        layers = [
            (i[begin:end], j[begin:end], cosine[begin:end, None], sine[begin:end, None])
            for begin, end in itertools.pairwise([0, *ends.tolist()])
        ]
        return cls(n, layers, mean, kept, tail)

    def turned(self, rows: AnyArray, back: bool = False) -> AnyArray:
        """Apply the layers to rows, one for each dimension, in place, or undo them; and return the rows."""
        for i, j, cosine, sine in reversed(self.layers) if back else self.layers:
            u, w = rows[j if back else i], rows[i if back else j]  # turned back is turned with the two exchanged
            first = cosine * u
            first -= sine * w
            u *= sine
            w *= cosine
            w += u
            rows[j if back else i], rows[i if back else j] = first, w
        return rows

    def in_single_precision(self) -> Rotation:
        """Return the same with cosines and sines as floats."""
        return self._replace(layers=[(i, j, c.astype(np.float32), s.astype(np.float32)) for i, j, c, s in self.layers])

    def dense(self) -> tuple[Floats, Floats]:
        """Return the matrix, and what it makes of the mean."""
        d_in, d_out = len(self.mean), len(self.kept if self.tail is None else self.tail)
        matrix, of_mean = np.empty((d_out, d_in), np.float32), np.empty(d_out, np.float32)
        for first in range(0, d_out, _OUTPUTS):  # a row of the matrix is what one output goes back to
            part = slice(first, min(first + _OUTPUTS, d_out))
            rows, n = np.zeros((self.n, part.stop - first)), np.arange(part.stop - first)
            if self.tail is None:
                rows[self.kept[part], n] = 1
            else:
                rows[self.kept] = self.tail[part].T
            outputs = self.turned(rows, back=True)[:d_in].T
            matrix[part], of_mean[part] = outputs, outputs @ self.mean.astype(np.float64)
        return matrix, of_mean


class Rotating:
    """What runs when Python calls a transform; `_native.transforms` has the same in native code."""

    _rotation: Rotation

    def __init__(self, d_in: int, d_out: int) -> None: ...

    def set(self, *what: Any) -> None:
        """Become a rotation: what `set_rotation` takes."""
        self._rotation = Rotation.of(*what).in_single_precision()

    def encode(self, x: Floats, codes: Codes, norms: Floats | None) -> int | None:
        """Write codes, and norms."""
        bad = first_unusable_row(x)
        for part, y in self._outputs(x[:bad]):
            codes[part] = packed_signs(y)
            if norms is not None:
                norms[part] = np.sqrt(np.square(y, dtype=np.float64).sum(axis=1))
        return bad

    def apply(self, x: Floats, y: Floats) -> int | None:
        """Write the transform of `x` to `y`."""
        for part, outputs in self._outputs(x):
            y[part] = outputs
        return first_unusable_row(x)

    def _outputs(self, x: Floats) -> Any:
        """Yield what comes out for some vectors after the other, and which they are."""
        rotation = self._rotation
        d, step = len(rotation.mean), max(1, _CACHED // rotation.n)
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(x), step):
                part = slice(first, min(first + step, len(x)))
                rows = np.zeros((rotation.n, len(x[part])), np.float32)
                rows[:d] = (x[part] - rotation.mean).T
                kept = np.ascontiguousarray(rotation.turned(rows)[rotation.kept].T)
                # Not by BLAS, whose rounding depends on how many vectors there are.
                yield part, kept if rotation.tail is None else np.einsum("vk,ok->vo", kept, rotation.tail)

    def reverse(self, y: Floats, x: Floats) -> int | None:
        """Write to `x` what the transform takes to `y`."""
        rotation = self._rotation
        step, back = max(1, _CACHED // rotation.n), None if rotation.tail is None else rotation.tail.T.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(y), step):
                part = slice(first, first + step)
                rows = np.zeros((rotation.n, len(y[part])), np.float32)
                rows[rotation.kept] = (y[part] if back is None else np.einsum("vo,ko->vk", y[part], back)).T
                x[part] = rotation.turned(rows, back=True)[: len(rotation.mean)].T + rotation.mean
        return first_unusable_row(y)


class _Kind(Protocol):
    def __call__(self, d_in: int, d_out: int) -> Any: ...


class Stock:
    """
    A linear transform of Faiss's own, and what runs beside it.

    Where its matrix would be too large, it has none, and Faiss says so when it is to run.
    """

    def __init__(self, d_in: int, d_out: int, is_linear: bool, rotating: Any, train: Callable[..., None]) -> None:
        self.proxy = faiss.LinearTransform(d_in, d_out, True)
        self.proxy.is_trained = False
        self.is_linear, self.rotating, self.train = is_linear, rotating, train
        self._what: tuple[Any, ...] = ()

    def set(self, *what: Any) -> None:
        """Become a rotation."""
        self.rotating.set(*what)
        self._what = what
        if self.is_linear:
            rotation = Rotation.of(*what)
            matrix, of_mean = rotation.dense()
            self.proxy.have_bias = bool(rotation.mean.any())
            faiss.copy_array_to_vector(matrix.ravel(), self.proxy.A)
            faiss.copy_array_to_vector(-of_mean if self.proxy.have_bias else of_mean[:0], self.proxy.b)
        self.proxy.is_orthonormal = self.is_linear  # else Faiss would use a matrix that is not there to go back
        self.proxy.is_trained = True

    def does_as(self, other: Stock) -> bool:
        """Whether another one does the same."""
        if not (self.proxy.is_trained and other.proxy.is_trained):
            return bool(self.proxy.is_trained == other.proxy.is_trained)
        return all(map(np.array_equal, self._what, other._what))

    def is_twin(self, other: Any) -> bool:
        """Whether Faiss has written this one and read it again."""
        if not (self.is_linear and self.proxy.is_trained and other.is_trained):
            return False
        norm = float(np.linalg.norm(self._what[5]))  # the mean's
        return _are_close(self.proxy.A, other.A, 1) and _are_close(self.proxy.b, other.b, norm)


def _are_close(some: Any, others: Any, scale: float) -> bool:
    a, b = faiss.vector_to_array(some), faiss.vector_to_array(others)
    return a.shape == b.shape and bool((np.abs(a - b) <= 1e-5 * scale).all())


class Transforms:
    """
    The functions of `_native.transforms`, with stock transforms.

    Parameters
    ----------
    rotating : type
        What runs beside them: `Rotating`, here or in `_native.transforms`.
    """

    def __init__(self, rotating: _Kind) -> None:
        self._rotating = rotating
        training.install()

    @staticmethod
    def train_callback(train: Callable[[int, Floats], None]) -> Callable[[int, Floats], None]:
        """Return what is called when Faiss wants a transform to be trained."""
        return train

    def new_transform(self, d_in: int, d_out: int, is_linear: bool, train: Any) -> tuple[Any, Any, Stock]:
        """Return a new transform: Faiss's proxy, which owns it, what has its fields, and what is to be passed here."""
        stock = Stock(d_in, d_out, is_linear, self._rotating(d_in, d_out), train)
        training.register(stock)
        return stock.proxy, stock.proxy, stock

    @staticmethod
    def set_rotation(transform: Stock, *what: Any) -> None:
        """Make a transform rotate."""
        transform.set(*what)

    @staticmethod
    def check_identical(transform: Stock, _: Any, other: Any) -> None:
        """Raise a RuntimeError unless another transform does the same."""
        stock, linear = training.ours(other), faiss.downcast_VectorTransform(other)
        if stock is None and not isinstance(linear, faiss.LinearTransform):
            raise RuntimeError("PRHTransform: the other transform is not a PRHTransform")
        is_alike = (other.d_in, other.d_out) == (transform.proxy.d_in, transform.proxy.d_out)
        if not is_alike or not (transform.is_twin(linear) if stock is None else transform.does_as(stock)):
            raise RuntimeError("PRHTransform: the other transform holds another rotation")

    @staticmethod
    def encode(transform: Stock, x: Floats, codes: Codes, norms: Floats | None = None) -> int | None:
        """Write the codes of `x`, and norms. Return the first row not finite or too large, or None."""
        row: int | None = transform.rotating.encode(x, codes, norms)
        return row

    @staticmethod
    def apply(transform: Stock, x: Floats, y: Floats) -> int | None:
        """Write the transform of `x` to `y`. Return the first row not finite or too large, or None."""
        row: int | None = transform.rotating.apply(x, y)
        return row

    @staticmethod
    def reverse(transform: Stock, y: Floats, x: Floats) -> int | None:
        """Write to `x` what the transform takes to `y`. Return the first row not finite or too large, or None."""
        row: int | None = transform.rotating.reverse(y, x)
        return row
