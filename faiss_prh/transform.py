"""PRHTransform: a learned rotation that Faiss runs like its own transforms."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import faiss
import numpy as np
import numpy.typing as npt

from ._backend import kernels, transforms
from ._common.arrays import as_vectors, first_unusable_row, float32_blocks, unusable
from ._common.locks import ForkSafeLock
from ._common.numbers import as_int, bytes_of
from ._common.types import AnyArray, Codes, Doubles, Floats, Indices, Vectors
from .learning import model_bytes
from .learning.model import Description, Model
from .learning.parameters import Parameters, layers_for
from .learning.progress import printing, telling
from .learning.train import Gathered, learn_from_array, sample_of
from .rotation import PairwiseRotation, checked_dimension

if TYPE_CHECKING:
    from ._native.transforms import TransformFields

Output = TypeVar("Output", Floats, Codes)

_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), axis=1, bitorder="little")[:, 0]
_TUNED = 2048
"""Most dimensions for which tuning at full dimension was worth its time."""
_DENSE_BYTES = 64 << 20
"""The size of the dense matrix up to which a transform keeps one: that of 4096 dimensions."""


class PRHTransform(faiss.VectorTransform):  # type: ignore[misc]
    """
    A rotation learned as layers of disjoint 2-D rotations (Pairwise Rotation Hashing), for Faiss.

    It is a ``faiss.VectorTransform``: ``faiss.IndexPreTransform(prh, index)`` runs it in C++, and calls it back to
    train. The signs of its outputs are binary codes (`encode`) for Faiss's binary indexes.

    Up to a size, Faiss also takes it for a ``faiss.LinearTransform``: beside the rotations it keeps the matrix and the
    bias that they amount to. So ``faiss.write_index``, ``faiss.clone_index`` and pickle work on indexes with it inside.
    What they make is dense and needs no faiss-prh. It finds the same but for rounding; but what it reconstructs from
    fewer outputs than inputs lacks the mean of what was dropped, and if it was untrained it cannot be trained.
    `faiss_prh.write_index` and `faiss_prh.clone_index` keep the rotations.

    Parameters
    ----------
    d : int
        Dimension of the vectors.
    d_out : int, optional
        Number of outputs, and of bits; by default `d`. With fewer, rotations between kept and dropped dimensions bring
        most of the variance into the kept ones. With `tune`, a dense matrix takes their place where it takes no longer,
        up to d · d_out = 65536; and up to 512 bits of more than 4096 dimensions one follows the rotations. With more
        bits than dimensions, the transform is a frame whose columns are orthonormal.
    n_iso : int, optional
        Number of layers that pair large with small variances and make them equal. The default, ⌈log2 d_out⌉, makes all
        variances equal if d_out is a power of two, and nearly equal otherwise.
    n_pca : int, optional
        Number of layers, after those, of random pairs that are rotated to their principal axes. Default 4, or
        ⌈log2 d_out⌉ for fewer bits than dimensions. More bits than dimensions have layers of random angles instead.
    tilt : float, optional
        How far the `n_iso` layers are rotated towards the principal axes, from 0 to 1.
    seed : int, optional
        Seed of the random pairs, and of the choice of neighbours.
    tune : bool, optional
        Whether the angles of the `n_iso` and `n_pca` layers are then optimised together, so that near neighbours among
        the training vectors (at least 200, at most 8000 of them) get similar signs. Where there is a dense matrix,
        these are random layers instead, as many as are good for it. One vector in eight is kept aside to judge by:
        where it does not help, little time is spent, and the angles stay. It makes encoding no slower. By default it is
        done for fewer bits than dimensions, and up to 2048 dimensions, unless `n_iso`, `n_pca` or `tilt` is given: that
        asks for the paper's PRH. It is not available for more bits than dimensions.
    center : bool, optional
        Whether the mean of the training vectors is subtracted first. Without it, a transform that keeps all dimensions
        preserves inner products as well as distances; signs are better balanced with it.
    max_dense_bytes : int, optional
        The size of the matrix, 4 · d · d_out bytes, up to which it is kept for Faiss. Beyond it, this is a plain
        ``faiss.VectorTransform``, which Faiss can neither write nor clone. Files do not hold it.

    Attributes
    ----------
    d_in, d_out : int
        Dimension of the vectors, and number of bits.
    is_trained : bool
        Whether there is a rotation to apply. Setting it to False forgets what was learned.
    parameters : Parameters
        What `train` learns.
    rotation : PairwiseRotation or None
        What was learned.
    mean : ndarray of float32 or None
        What is subtracted before the rotation.
    kept : ndarray of int32 or None
        Which dimensions of the rotation come out, or go into the tail.
    tail : ndarray of float32, shape (d_out, len(kept)), or None
        The dense matrix that what is kept is multiplied with, if there is one.
    verbose : bool
        Whether `train` prints how far it is, if it takes more than a second.

    Notes
    -----
    The page ``docs/bits.md`` has the measurements that the defaults follow from.

    Without native code (`show_config` tells), Faiss multiplies with the matrix: beyond `max_dense_bytes` it cannot run
    the transform, but Python and the indexes of this package can.

    Examples
    --------
    >>> import faiss, numpy as np
    >>> from faiss_prh import PRHTransform
    >>> x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    >>> prh = PRHTransform(64)
    >>> prh.train(x)
    >>> prh.encode(x).shape
    (1000, 8)
    >>> index = faiss.IndexPreTransform(prh, faiss.IndexLSH(64, 64, False, False))
    >>> index.add(x)
    >>> D, I = index.search(x[:3], 1)
    >>> I.ravel()
    array([0, 1, 2])
    """

    parameters: Parameters
    verbose = False
    _fields: TransformFields
    _handle: Any
    _model: Model | None
    _gathered: Gathered | None

    def __init__(
        self,
        d: int,
        d_out: int | None = None,
        *,
        n_iso: int | None = None,
        n_pca: int | None = None,
        tilt: float = 0.0,
        seed: int = 1234,
        tune: bool | None = None,
        center: bool = True,
        max_dense_bytes: int = _DENSE_BYTES,
    ) -> None:
        d = checked_dimension(d)
        d_out = d if d_out is None else checked_dimension(d_out, "d_out")
        if d_out > d and (tune or n_pca):
            name = "tune" if tune else "n_pca"
            raise ValueError(f"{name} needs at most as many bits as dimensions, not {d_out} of {d}")
        if tune is None:
            tune = n_iso is None and n_pca is None and not tilt and (d_out < d or d_out == d <= _TUNED)
        self.parameters = Parameters(
            layers_for(d_out) if n_iso is None else n_iso,
            (layers_for(d_out) if d_out < d else 4 if d_out == d else 0) if n_pca is None else n_pca,
            tilt,
            seed,
            tune,
            center,
        )
        self._max_dense_bytes = as_int(max_dense_bytes, "max_dense_bytes", 0)
        self._model = None
        self._gathered = None
        is_linear = 4 * d * d_out <= self._max_dense_bytes
        # Adopting the proxy's pointer makes this object the transform's owner, in Faiss's own bookkeeping.
        proxy, self._fields, self._handle = transforms.new_transform(d, d_out, is_linear, _train_callback)
        self.this = proxy.this
        _transforms[int(self.this)] = self

    @classmethod
    def random(cls, d: int, d_out: int | None = None, *, seed: int = 1234) -> PRHTransform:
        """
        Return a transform that needs no training: layers of random pairs and angles, no centring.

        Parameters
        ----------
        d, d_out : int
            As in the constructor. There are ⌈log2 max(d, d_out)⌉ layers.
        seed : int, optional
            Seed of the pairs and angles.

        Examples
        --------
        >>> from faiss_prh import PRHTransform
        >>> PRHTransform.random(100, seed=7).is_trained
        True
        """
        transform = cls(d, d_out, seed=seed)
        n = max(transform.d_in, transform.d_out)
        rotation, mean = PairwiseRotation.random(n, layers_for(n), seed), np.zeros(d, dtype=np.float32)
        transform._set(Model(rotation, mean, np.arange(transform.d_out, dtype=np.int32)))
        return transform

    @property
    def d_in(self) -> int:
        """Dimension of the vectors."""
        return self._fields.d_in

    @property
    def d_out(self) -> int:
        """Number of outputs, and of bits."""
        return self._fields.d_out

    @property
    def is_trained(self) -> bool:
        """Whether there is a rotation to apply. Setting it to False forgets what was learned."""
        return self._fields.is_trained

    @is_trained.setter
    def is_trained(self, value: bool) -> None:
        if value:
            self._trained()
            return
        with _publishing:
            self._fields.is_trained = False
            self._model = None

    @property
    def max_dense_bytes(self) -> int:
        """The size of the dense matrix up to which it is kept for Faiss."""
        return self._max_dense_bytes

    @property
    def rotation(self) -> PairwiseRotation | None:
        """What was learned."""
        model = self._known()
        return model.rotation if model else None

    @property
    def mean(self) -> Floats | None:
        """What is subtracted before the rotation."""
        model = self._known()
        return model.mean if model else None

    @property
    def kept(self) -> Indices | None:
        """Which dimensions of the rotation come out, or go into the tail."""
        model = self._known()
        return model.kept if model else None

    @property
    def tail(self) -> Floats | None:
        """The matrix that what is kept is multiplied with, if there is one."""
        model = self._known()
        return model.tail if model else None

    def to_dense(self) -> Doubles:
        """
        Return the matrix (d_out, d_in) of the transform.

        Its rows are orthonormal, or its columns if d_out is more than d_in.

        Examples
        --------
        >>> import numpy as np
        >>> from faiss_prh import PRHTransform
        >>> prh = PRHTransform(20, 8)
        >>> prh.train(np.random.default_rng(0).normal(size=(100, 20)))
        >>> bool(np.allclose(prh.to_dense() @ prh.to_dense().T, np.eye(8), atol=1e-6))
        True
        """
        learned = self._trained()
        dense: Doubles = learned.rotation.to_dense()[learned.kept, : self.d_in]
        if learned.tail is None:
            return dense
        return kernels.column_products(learned.tail.T.astype(np.float64, order="C"), dense)

    def train(self, x: npt.ArrayLike | Iterable[npt.ArrayLike], *, max_train_bytes: int = 1 << 30) -> None:
        """
        Learn the rotation from a sample, replacing what was learned before.

        Parameters
        ----------
        x : array of shape (m, d), or iterable of such arrays
            Any real dtype and layout; also a memory map. One vector is enough to call it, but use thousands.
        max_train_bytes : int, optional
            If the vectors take more than this in single precision, learn from a uniform sample of this size.

        Examples
        --------
        >>> import numpy as np
        >>> from faiss_prh import PRHTransform
        >>> rng = np.random.default_rng(0)
        >>> prh = PRHTransform(16)
        >>> prh.train((rng.normal(size=(1000, 16)) for _ in range(20)), max_train_bytes=1 << 20)
        >>> prh.is_trained
        True
        """
        vectors = sample_of(x, self.d_in, max_train_bytes, self.parameters.seed)
        with telling(printing()) if self.verbose else nullcontext():
            self._set(learn_from_array(vectors, self.d_out, self.parameters))

    def partial_train(self, x: npt.ArrayLike) -> None:
        """
        Add vectors to those that `finish_training` will learn from: their exact moments, and a small sample.

        This works for up to 4096 dimensions. The transform itself does not change until `finish_training`. Pickling
        includes what was gathered, for `merge` in another process; `to_bytes` and files do not. After an error or an
        interrupt, nothing of `x` has been added.

        Parameters
        ----------
        x : array of shape (m, d)

        Examples
        --------
        >>> import numpy as np
        >>> from faiss_prh import PRHTransform
        >>> x = np.random.default_rng(0).normal(size=(1000, 32))
        >>> here, there, at_once = (PRHTransform(32, 16) for _ in range(3))
        >>> here.partial_train(x[:300])
        >>> there.partial_train(x[300:])
        >>> here.merge(there)
        >>> here.finish_training()
        >>> at_once.train(x)
        >>> here.rotation == at_once.rotation
        True
        """
        self._gather(Gathered(self.d_in, self.d_out, self.parameters, x))

    def merge(self, other: PRHTransform) -> None:
        """
        Add what another transform, with the same parameters, has gathered with `partial_train`.

        Parameters
        ----------
        other : PRHTransform
        """
        if not isinstance(other, PRHTransform):
            raise TypeError(f"a PRHTransform is needed, not {type(other).__name__}")
        if other is self:
            raise ValueError("a transform cannot be merged into itself: its vectors would count twice")
        if other._gathered is None:
            raise ValueError("the other PRHTransform has gathered nothing: call its partial_train(x) first")
        self._gather(other._gathered)

    def finish_training(self) -> None:
        """Learn the rotation from what `partial_train` and `merge` have gathered, and forget that."""
        gathered = self._gathered
        if gathered is None:
            raise RuntimeError("there is nothing to learn from: call partial_train(x) first")
        self._set(gathered.learn())
        with _publishing:
            if self._gathered is gathered:  # or what another thread has added meanwhile would be lost
                self._gathered = None

    def _gather(self, more: Gathered) -> None:
        if more.purpose != (self.d_in, self.d_out, self.parameters):
            raise ValueError(f"what was gathered for {more.purpose} cannot be merged into {self!r}")
        with _publishing:  # or two threads could each add to what there was before
            self._gathered = more if self._gathered is None else self._gathered.merged(more)

    def describe(self) -> Description:
        """
        Return what was learned and what it costs: variance kept, rotations, multiplications, bytes.

        Examples
        --------
        >>> import numpy as np
        >>> from faiss_prh import PRHTransform
        >>> prh = PRHTransform(100, 32)
        >>> prh.train(np.random.default_rng(0).normal(size=(1000, 100)) * np.arange(100))
        >>> described = prh.describe()
        >>> round(described.variance_kept, 1), described.dense_multiplications
        (0.7, 3200)
        """
        return Description.of(self._trained(), len(self.to_bytes()))

    def apply(self, x: npt.ArrayLike) -> Floats:
        """
        Centre and rotate vectors.

        Parameters
        ----------
        x : array of shape (n, d)

        Returns
        -------
        ndarray of float32, shape (n, d_out)
        """
        vectors = self._checked(x)
        return self._run(
            transforms.apply, vectors, np.empty((len(vectors), self.d_out), dtype=np.float32), passes_nan=True
        )

    apply_py = apply

    def reverse_transform(self, x: npt.ArrayLike) -> Floats:
        """
        Undo `apply`: rotate back and add the mean. What was dropped does not come back.

        Parameters
        ----------
        x : array of shape (n, d_out)

        Returns
        -------
        ndarray of float32, shape (n, d)
        """
        vectors = self._checked(x, reverse=True)
        return self._run(
            transforms.reverse, vectors, np.empty((len(vectors), self.d_in), dtype=np.float32), passes_nan=True
        )

    def encode(
        self,
        x: npt.ArrayLike,
        *,
        out: Codes | None = None,
        bitorder: Literal["little", "big"] = "little",
    ) -> Codes:
        """
        Return the sign bits of the transformed vectors, 1 for values ≥ 0, as Faiss's binary indexes take them.

        The same as ``np.packbits(prh.apply(x) >= 0, axis=1, bitorder=bitorder)``, in one native pass.

        Parameters
        ----------
        x : array of shape (n, d)
            Finite values. With a memory map here and as `out`, no more than a block is in memory.
        out : ndarray of uint8, shape (n, ⌈d_out / 8⌉), optional
            Where to write the codes; a new array by default. If a vector is not finite, those before it may be written.
        bitorder : {"little", "big"}, optional
            Whether the first bit of a byte is its lowest, as Faiss has it, or its highest, as SQL's bit strings do.

        Returns
        -------
        ndarray of uint8, shape (n, ⌈d_out / 8⌉)

        Examples
        --------
        >>> from faiss_prh import PRHTransform
        >>> PRHTransform.random(12, seed=0).encode([[0.0] * 12])
        array([[255,  15]], dtype=uint8)
        """
        vectors = self._checked(x)
        if bitorder not in ("little", "big"):
            raise ValueError(f'bitorder must be "little" or "big", not {bitorder!r}')
        if out is None:
            out = self._new_codes(vectors)
        else:
            self._check_out(out, vectors)
        return self._run(transforms.encode if bitorder == "little" else _encode_big, vectors, out)

    def _check_out(self, out: Any, vectors: Vectors) -> None:
        shape = len(vectors), bytes_of(self.d_out)
        if not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.shape != shape:
            found = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise ValueError(f"out must be an array of uint8 {shape}, not {found}")
        if not (out.flags.writeable and out.flags.c_contiguous) or isinstance(out, np.ma.MaskedArray):
            raise ValueError("out must be writeable and contiguous, and not masked")
        if np.may_share_memory(vectors, out):
            raise ValueError("out must not share memory with x")

    def _new_codes(self, vectors: Vectors) -> Codes:
        return np.empty((len(vectors), bytes_of(self.d_out)), np.uint8)

    def _encode(self, vectors: Vectors) -> Codes:
        """Return the codes of vectors that were checked already."""
        return self._run(transforms.encode, vectors, self._new_codes(vectors))

    def _encode_with_norms(self, x: npt.ArrayLike) -> tuple[Codes, Floats]:
        """Return the codes of vectors, and the norms of what comes out, in one native pass."""
        vectors = self._checked(x)
        norms = np.empty(len(vectors), dtype=np.float32)
        return self._run(transforms.encode, vectors, self._new_codes(vectors), norms), norms

    def check_identical(self, other: Any) -> None:
        """
        Raise a RuntimeError unless another transform does the same: one with this rotation, or a dense copy of it.

        Parameters
        ----------
        other : faiss.VectorTransform
        """
        transforms.check_identical(self._handle, self, other)

    def to_bytes(self) -> bytes:
        """
        Return the transform as bytes, for `from_bytes`. Pickling and copying go through the same bytes.

        Examples
        --------
        >>> from faiss_prh import PRHTransform
        >>> prh = PRHTransform.random(16)
        >>> PRHTransform.from_bytes(prh.to_bytes()).rotation == prh.rotation
        True
        """
        return model_bytes.dumps(self.d_in, self.d_out, self.parameters, self._known())

    @classmethod
    def from_bytes(cls, data: bytes, max_dense_bytes: int = _DENSE_BYTES) -> PRHTransform:
        """
        Return the transform that `to_bytes` wrote. Bytes that it did not write are a ValueError.

        `max_dense_bytes` is that of the constructor.
        """
        d_in, d_out, parameters, model = model_bytes.loads(data)
        transform = cls(d_in, d_out, max_dense_bytes=max_dense_bytes)
        transform.parameters = parameters
        if model:
            try:
                transform._set(model)
            except RuntimeError as error:
                raise ValueError(f"a damaged PRHTransform: {error}") from None
        return transform

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(), self.max_dense_bytes), (self._gathered,)

    def __setstate__(self, state: tuple[Gathered | None]) -> None:
        (self._gathered,) = state

    def __repr__(self) -> str:
        p = self.parameters
        state = "trained" if self.is_trained else "untrained"
        size = f"{self.d_in}" if self.d_in == self.d_out else f"{self.d_in}, {self.d_out}"
        layers = f"n_iso={p.n_iso}, n_pca={p.n_pca}, tilt={p.tilt:g}"
        return f"<PRHTransform({size}, {layers}, seed={p.seed}, tune={p.tune}, center={p.center}), {state}>"

    def _set(self, model: Model) -> None:
        """Become what was learned."""
        rotation, mean, kept = model[:3]
        i, j, theta = (
            np.concatenate([np.empty(0, dtype), *(layer[part] for layer in rotation.layers)])
            for part, dtype in enumerate(("i4", "i4", "f4"))
        )
        ends = np.cumsum([len(layer.theta) for layer in rotation.layers], dtype=np.int64)
        for array in (mean, kept) if model.tail is None else (mean, kept, model.tail):
            array.flags.writeable = False
        with _publishing:  # or two threads could leave one's rotation here and the other's in native code
            transforms.set_rotation(self._handle, rotation.d, ends, i, j, theta, mean, kept, model.tail)
            self._model = model

    def _trained(self) -> Model:
        model = self._known()
        if model is None:
            raise RuntimeError("this PRHTransform is not trained: call train(x) first")
        return model

    def _known(self) -> Model | None:
        """Return what was learned, if it still counts."""
        return self._model if self._fields.is_trained else None

    def _checked(self, x: npt.ArrayLike, reverse: bool = False) -> Vectors:
        learned = self._trained()
        return as_vectors(x, learned.d_out if reverse else len(learned.mean), "vectors")

    def _run(
        self, native: Callable[..., int | None], x: AnyArray, out: Output, *more: AnyArray, passes_nan: bool = False
    ) -> Output:
        """Write what native code makes of `x` to `out`, and more arrays, a block at a time."""
        first, handle, written = 0, self._handle, (out, *more)
        for block in float32_blocks(x):
            end = first + len(block)
            # A single query must not wait for slices.
            parts = written if len(block) == len(x) else [array[first:end] for array in written]
            bad = native(handle, block, *parts)
            if bad is not None and passes_nan:
                bad = first_unusable_row(np.nan_to_num(block, posinf=0, neginf=0))
            if bad is not None:
                raise unusable(block[bad], f"vector {first + bad}")
            first = end
        return out


def _encode_big(transform: Any, x: Floats, codes: Codes) -> int | None:
    bad = transforms.encode(transform, x, codes)
    written = codes[:bad]
    np.take(_REVERSED, written, out=written)
    return bad


_publishing = ForkSafeLock()
"""Held while what was learned is replaced."""

# By address, for Faiss's C++ to find the object that learns.
_transforms: weakref.WeakValueDictionary[int, PRHTransform] = weakref.WeakValueDictionary()


def as_prh(transform: Any) -> PRHTransform | None:
    """Return the PRHTransform that a plain proxy from Faiss stands for, or None."""
    return _transforms.get(int(transform.this))


def _train(address: int, x: Floats) -> None:
    """Train for Faiss."""
    transform = _transforms.get(address)
    if transform is None:
        raise RuntimeError("cannot train: the Python object of this PRHTransform no longer exists")
    transform.train(x)


_train_callback = transforms.train_callback(_train)
