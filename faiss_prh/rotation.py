"""PairwiseRotation: an orthogonal transform as layers of disjoint 2-D rotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._common.numbers import as_int
from ._common.types import Doubles, Floats, Indices

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


MAX_DIMENSIONS = 1 << 20
MAX_LAYERS = 1000


class Layer(NamedTuple):
    """Rotations of disjoint pairs: dimensions ``i[k]`` and ``j[k]`` are rotated by ``theta[k]``."""

    i: Indices
    j: Indices
    theta: Floats


class PairwiseRotation:
    """
    An orthogonal transform of `d` dimensions made of layers of disjoint 2-D rotations.

    A rotation by θ of the pair (i, j) takes the values (x, y) to (x cos θ - y sin θ, x sin θ + y cos θ).
    The layers are applied in order. Instances never change.

    Parameters
    ----------
    d : int
        Number of dimensions, at least 1.
    layers : iterable of (i, j, theta)
        For each layer, the dimensions of its pairs and their angles, as three sequences of equal length. No
        dimension may occur twice in a layer. Angles are kept in single precision.

    Examples
    --------
    >>> import numpy as np
    >>> from faiss_prh import PairwiseRotation
    >>> rotation = PairwiseRotation(3, [([0], [1], [np.pi / 2])])
    >>> (rotation.to_dense() @ [1, 2, 5]).round().tolist()
    [-2.0, 1.0, 5.0]
    """

    __slots__ = ("_d", "_layers")
    _d: int
    _layers: tuple[Layer, ...]

    def __init__(self, d: int, layers: Iterable[tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]]) -> None:
        d = checked_dimension(d)
        object.__setattr__(self, "_d", d)
        object.__setattr__(self, "_layers", tuple(_checked(d, n, layer) for n, layer in enumerate(layers)))
        if len(self._layers) > MAX_LAYERS:
            raise ValueError(f"at most {MAX_LAYERS} layers, not {len(self._layers)}")

    @classmethod
    def random(cls, d: int, n_layers: int, seed: int) -> PairwiseRotation:
        """
        Return a rotation of random pairs by random angles: the paper's sparse random rotation (SRR).

        Parameters
        ----------
        d : int
            Number of dimensions.
        n_layers : int
            Number of layers.
        seed : int
            Seed of the random pairs and angles.

        Examples
        --------
        >>> from faiss_prh import PairwiseRotation
        >>> PairwiseRotation.random(8, n_layers=3, seed=0).n_rotations
        12
        """
        if n_layers < 0:
            raise ValueError(f"n_layers must not be negative, not {n_layers}")
        rng = np.random.default_rng(seed)
        return cls(d, [(i, j, rng.uniform(-np.pi, np.pi, len(i))) for i, j in random_pairings(d, n_layers, rng)])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a PairwiseRotation cannot be changed")

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self._d

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers in the order in which they are applied; their arrays are read-only."""
        return self._layers

    @property
    def n_rotations(self) -> int:
        """Number of 2-D rotations in all layers."""
        return sum(len(layer.theta) for layer in self._layers)

    def inverse(self) -> PairwiseRotation:
        """
        Return the rotation that undoes this one.

        Examples
        --------
        >>> import numpy as np
        >>> from faiss_prh import PairwiseRotation
        >>> rotation = PairwiseRotation.random(5, n_layers=3, seed=0)
        >>> np.allclose(rotation.inverse().to_dense() @ rotation.to_dense(), np.eye(5))
        True
        """
        return PairwiseRotation(self._d, [(i, j, -theta) for i, j, theta in reversed(self._layers)])

    def to_dense(self) -> Doubles:
        """
        Return the matrix R of the whole transform, of shape (d, d), so that y = R x.

        Examples
        --------
        >>> from faiss_prh import PairwiseRotation
        >>> PairwiseRotation.random(4, n_layers=2, seed=0).to_dense().shape
        (4, 4)
        """
        dense = np.eye(self._d)
        for layer in self._layers:
            rotate_rows(dense, *layer)
        return dense

    def to_sparse(self) -> list[csr_matrix]:
        """
        Return one sparse matrix of shape (d, d) per layer. Their product, last layer first, is the transform.

        Examples
        --------
        >>> from faiss_prh import PairwiseRotation
        >>> [layer.nnz for layer in PairwiseRotation.random(6, n_layers=2, seed=0).to_sparse()]
        [12, 12]
        """
        from scipy.sparse import csr_matrix

        matrices = []
        for i, j, theta in self._layers:
            cosine, sine = _cosine_sine(theta)
            alone = np.setdiff1d(np.arange(self._d), np.concatenate([i, j]))
            rows = np.concatenate([i, i, j, j, alone])
            columns = np.concatenate([i, j, i, j, alone])
            values = np.concatenate([cosine, -sine, sine, cosine, np.ones(len(alone))])
            matrices.append(csr_matrix((values, (rows, columns)), shape=(self._d, self._d)))
        return matrices

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairwiseRotation):
            return NotImplemented
        return (
            self._d == other._d
            and len(self._layers) == len(other._layers)
            and all(
                np.array_equal(a, b)
                for mine, others in zip(self._layers, other._layers, strict=True)
                for a, b in zip(mine, others, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash((self._d, *(part.tobytes() for layer in self._layers for part in layer)))

    def __reduce__(self) -> tuple[Any, ...]:
        return PairwiseRotation, (self._d, self._layers)

    def __repr__(self) -> str:
        return f"<PairwiseRotation: d={self._d}, {len(self._layers)} layers, {self.n_rotations} rotations>"


def rotate_rows(
    matrix: Doubles,
    i: Indices,
    j: Indices,
    theta: Floats,
) -> None:
    """Rotate the disjoint pairs of rows `i` and `j` of a matrix by `theta`, in place."""
    cosine, sine = _cosine_sine(theta)
    upper, lower = matrix[i], matrix[j]
    matrix[i] = cosine[:, None] * upper - sine[:, None] * lower
    matrix[j] = sine[:, None] * upper + cosine[:, None] * lower


def random_pairings(d: int, n_layers: int, rng: np.random.Generator) -> Iterator[tuple[Indices, Indices]]:
    """
    Yield `n_layers` random pairings (i, j) of `d` dimensions. If `d` is odd, each layer leaves one dimension alone.

    Every four layers pair the 16 corners of the same random cubes along their four directions, so that the native
    code can apply them without leaving the first-level cache. Measured, this is as good as pairings drawn
    independently. (If `d` is not a multiple of 16, the rest of the last cube is paired in order.)
    """
    depth = max(1, min(4, int(d).bit_length() - 1))
    order = np.empty(0, dtype=np.int32)
    for layer in range(n_layers):
        if layer % depth == 0:
            order = rng.permutation(d).astype(np.int32)
        corner = np.arange(d)
        opposite = corner ^ (1 << layer % depth)
        first = corner[(corner < opposite) & (opposite < d)]
        left = corner[opposite >= d]
        left = left[: len(left) // 2 * 2]
        yield order[np.append(first, left[::2])], order[np.append(opposite[first], left[1::2])]


def checked_dimension(d: int, name: str = "d") -> int:
    """Return `d` as an int, or raise an error if a rotation cannot have that many dimensions."""
    return as_int(d, name, 1, MAX_DIMENSIONS)


def _checked(d: int, number: int, layer: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]) -> Layer:
    i, j, theta = (np.asarray(part) for part in layer)
    where = f"layer {number}"
    if not (i.ndim == j.ndim == theta.ndim == 1 and len(i) == len(j) == len(theta)):
        raise ValueError(
            f"{where}: i, j and theta must be sequences of one length, not {i.shape}, {j.shape}, {theta.shape}"
        )
    both = np.concatenate([i, j])
    if len(both) and both.dtype.kind not in "iu":
        raise TypeError(f"{where}: dimensions must be integers, not {both.dtype}")
    if len(both) and (both.min() < 0 or both.max() >= d):
        raise ValueError(f"{where}: dimensions must be from 0 to {d - 1}, found {both.min()} to {both.max()}")
    if len(both) and np.bincount(both).max() > 1:
        raise ValueError(f"{where}: a dimension is in more than one pair")
    if len(theta) and theta.dtype.kind not in "fiu":
        raise TypeError(f"{where}: angles must be real numbers, not {theta.dtype}")
    theta = theta.astype(np.float32)
    if not np.isfinite(theta).all():
        raise ValueError(f"{where}: angles must be finite")
    theta += np.float32(0)  # turns -0 into 0: equal angles must have equal hashes
    checked = Layer(i.astype(np.int32), j.astype(np.int32), theta)
    for part in checked:
        part.flags.writeable = False
    return checked


def _cosine_sine(theta: Floats) -> tuple[Doubles, Doubles]:
    exact = theta.astype(np.float64)
    return np.cos(exact), np.sin(exact)
