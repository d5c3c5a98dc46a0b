"""An index in shards, one on each worker."""

from __future__ import annotations

import json
import secrets
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import faiss
import numpy as np
import numpy.typing as npt
from distributed import Client, Future, get_client
from distributed.worker_client import worker_client

from .._common.arrays import as_vectors
from .._common.numbers import as_int
from .._common.types import AnyArray, Ids
from ..index.factory import index_factory
from ..index.parts_of import nested
from ..storage.container import replacing
from ..storage.files import deserialize_index, read_index, serialize_index, write_index
from .arrays import in_rows, sample

_QUERY_BYTES = 4 << 20  # sent to the workers at a time
_MANIFEST, _FORMAT = "shards.json", 1


class ShardedIndex:
    """
    An index in shards, one on each worker, which are searched together.

    It is made by `build` or `load`. Ids are the rows of the array that it was built from.

    Attributes
    ----------
    d, ntotal : int
        Dimension of the vectors, and their number.
    """

    def __init__(self, client: Client, d: int, shards: Sequence[Future], sizes: Sequence[int]) -> None:
        self.d = d
        self.ntotal = int(sum(sizes))
        self._client, self._shards, self._sizes = client, list(shards), [int(size) for size in sizes]

    @classmethod
    def build(
        cls,
        description: str,
        x: da.Array,
        *,
        metric: int = faiss.METRIC_L2,
        n_shards: int | None = None,
        max_train_bytes: int = 1 << 30,
        client: Client | None = None,
    ) -> ShardedIndex:
        """
        Train one index on a sample, and fill a copy of it on each worker with that worker's part of the vectors.

        Parameters
        ----------
        description : str
            Factory string, as for `faiss_prh.index_factory`.
        x : dask.array.Array of shape (m, d)
            The vectors. A worker adds its part block by block, and so holds only one block at a time.
        metric : int, optional
            Metric, as for `faiss_prh.index_factory`.
        n_shards : int, optional
            Number of shards; one per worker by default.
        max_train_bytes : int, optional
            Memory for the sample.
        client : distributed.Client, optional
            The client of the cluster; the current one by default.

        Examples
        --------
        >>> import dask.array as da, numpy as np
        >>> from distributed import Client
        >>> from faiss_prh.dask import ShardedIndex
        >>> x = np.random.default_rng(0).normal(size=(1000, 32)).astype("float32")
        >>> with Client(processes=False, n_workers=2, dashboard_address=None) as client:
        ...     index = ShardedIndex.build("PRH,BFlat", da.from_array(x, chunks=(100, 32)))
        ...     D, I = index.search(x[:3], 1)
        >>> I.ravel()
        array([0, 1, 2])
        """
        client = client or get_client()
        x = in_rows(x)
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
        # There may be no worker just now: Dask starts another one if one has died.
        n_shards = max(1, len(workers)) if n_shards is None else as_int(n_shards, "n_shards", 1)
        index = index_factory(x.shape[1], description, metric)
        if isinstance(index, faiss.IndexBinary):
            raise ValueError(f"{description!r} takes codes, not vectors: put a transform in front, as in PRH,BFlat")
        index.train(sample(x, max_train_bytes))
        # Not scattered: scattered data is lost with the worker that holds it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about its size
            trained = client.submit(_same, serialize_index(index), pure=False)
        shards: list[Future] = []
        sizes: list[int] = []
        for number, part in enumerate(_parts(x, n_shards)):
            first, size = sum(sizes), part.shape[0]
            where = {"workers": [workers[number % len(workers)]], "allow_other_workers": True} if workers else {}
            shards.append(client.submit(_built, trained, first, _Recipe(part), pure=False, **where))
            sizes.append(size)
        built = cls(client, x.shape[1], shards, sizes)
        client.gather(client.map(_shape, shards, pure=False))  # an error shows here, and not in the first search
        return built

    def search(self, x: npt.ArrayLike, k: int, **settings: float) -> tuple[AnyArray, Ids]:
        """
        Return the distances and ids of the k nearest vectors of all shards.

        Parameters
        ----------
        x : array of shape (n, d)
            The queries.
        k : int
            Number of results per query.
        **settings : number
            Attributes to set for this search: of the index, such as ``k_factor``, or of the index behind its
            transforms, such as ``nprobe``.
        """
        vectors = as_vectors(x, self.d, "query vectors")
        k = as_int(k, "k", 1)
        step = max(1, _QUERY_BYTES // max(1, vectors.itemsize * self.d))
        found = [
            self._search(vectors[first : first + step], k, settings) for first in range(0, max(1, len(vectors)), step)
        ]
        results = [_merged_results(self._client.gather(parts), k) for parts in found]
        distances, ids = (np.concatenate(parts) for parts in zip(*results, strict=True))
        return distances, ids

    def _search(self, queries: AnyArray, k: int, settings: dict[str, float]) -> list[Future]:
        shared = self._client.submit(_same, queries, pure=False)
        return [self._client.submit(_searched, shard, shared, k, settings, pure=False) for shard in self._shards]

    def save(self, folder: str | Path) -> None:
        """
        Write the shards to a folder that all workers see, replacing those in it.

        Parameters
        ----------
        folder : path
            Created if it does not exist. Until all shards are written, `load` gives the old ones. After that their
            files are removed, and whoever has loaded them should load again.
        """
        folder = Path(folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        old = _read_manifest(folder / _MANIFEST) if (folder / _MANIFEST).exists() else None
        token = secrets.token_hex(8)
        self._client.gather(self._client.map(_written, self._shards, _names(folder, token, self._sizes), pure=False))
        manifest = {"format": _FORMAT, "d": self.d, "sizes": self._sizes, "token": token}
        with replacing(folder / _MANIFEST) as file:
            file.write(json.dumps(manifest).encode())
        # From now on a lost shard is read again from here, and not from files that are about to be removed.
        self._shards = _loaded(self._client, folder, (self.d, self._sizes, token), trusted=True)
        if old is not None:
            for name in _names(folder, old[2], old[1]):
                Path(name).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path, *, client: Client | None = None, trusted: bool = False) -> ShardedIndex:
        """
        Read the shards that `save` wrote, each on a worker.

        Parameters
        ----------
        folder : path
            A folder that all workers see.
        client : distributed.Client, optional
            The client of the cluster; the current one by default.
        trusted : bool, optional
            Whether to read what cannot be checked, as for `faiss_prh.read_index`.
        """
        client = client or get_client()
        folder = Path(folder).absolute()
        manifest = d, sizes, _ = _read_manifest(folder / _MANIFEST)
        return cls(client, d, _loaded(client, folder, manifest, trusted), sizes)


def _names(folder: Path, token: str, sizes: Sequence[int]) -> list[str]:
    return [str(folder / f"{token}-{number}.prh") for number in range(len(sizes))]


def _loaded(client: Client, folder: Path, manifest: tuple[int, list[int], str], trusted: bool) -> list[Future]:
    d, sizes, token = manifest
    firsts = np.cumsum([0, *sizes])[:-1].tolist()
    shards: list[Future] = client.map(_restored, _names(folder, token, sizes), firsts, trusted=trusted, pure=False)
    found = client.gather(client.map(_shape, shards, pure=False))
    if found != [(size, d) for size in sizes]:
        expected = f"{sizes} vectors of {d} dimensions"
        raise ValueError(f"{folder}: the shards are {found} (vectors, dimensions) instead of {expected}")
    return shards


class _Shard:
    """An index, and the row of its first vector. It travels between workers as bytes."""

    def __init__(self, index: Any, first: int) -> None:
        self.index, self.first = index, first
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (serialize_index(self.index), self.first)


def _unpacked(data: bytes, first: int) -> _Shard:
    return _Shard(deserialize_index(data, trusted=True), first)


class _Recipe:
    """A Dask array that travels to a worker as a graph of tasks, not as its values."""

    def __init__(self, x: da.Array) -> None:
        (self.x,) = dask.optimize(x)  # without the tasks that only other parts need


def _parts(x: da.Array, n: int) -> list[da.Array]:
    """Cut an array between its blocks into at most n parts with about equally many rows."""
    ends = np.cumsum(x.chunks[0])
    cuts = np.unique(np.searchsorted(ends, np.arange(1, n + 1) * ends[-1] / n) + 1)
    starts = np.concatenate([[0], cuts[:-1]])
    return [x.blocks[start:stop] for start, stop in zip(starts, cuts, strict=True)]


def _same(value: Any) -> Any:
    return value


def _built(trained: bytes, first: int, recipe: _Recipe) -> _Shard:
    index = deserialize_index(trained, trusted=True)
    row = first
    for number in range(recipe.x.numblocks[0]):
        with worker_client() as client:
            block = client.compute(recipe.x.blocks[number]).result()
        if _has_ids(index):
            index.add_with_ids(block, np.arange(row, row + len(block)))
        else:
            index.add(block)
        row += len(block)
    return _Shard(index, 0 if _has_ids(index) else first)


def _has_ids(index: Any) -> bool:
    return any(isinstance(part, (faiss.IndexIDMap, faiss.IndexBinaryIDMap)) for part in nested(index))


def _shape(shard: _Shard) -> tuple[int, int]:
    return int(shard.index.ntotal), int(shard.index.d)


def _searched(shard: _Shard, queries: AnyArray, k: int, settings: dict[str, float]) -> tuple[AnyArray, Ids, bool]:
    with shard.lock, _with_settings(shard.index, settings):  # another thread may search with other settings
        distances, ids = shard.index.search(queries, k)
    metric = shard.index.metric_type
    return distances, np.where(ids < 0, ids, ids + shard.first), faiss.is_similarity_metric(metric)


def _merged_results(found: Sequence[tuple[AnyArray, Ids, bool]], k: int) -> tuple[AnyArray, Ids]:
    """Return the k nearest of the results of all shards; of equally near ones, the first."""
    distances, ids = (np.concatenate([shard[part] for shard in found], axis=1) for part in (0, 1))
    worst = np.iinfo(distances.dtype).max if distances.dtype.kind == "i" else np.inf
    ranks = np.where(ids < 0, worst, -distances if found[0][2] else distances)
    order = np.argsort(ranks, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(ids, order, axis=1)


@contextmanager
def _with_settings(index: Any, settings: dict[str, float]) -> Iterator[None]:
    """Set attributes of an index, or of the index inside it that has them, and restore them in the end."""
    before = []
    try:
        for name, value in settings.items():
            holder = next((part for part in nested(index) if hasattr(part, name)), None)
            if holder is None:
                raise AttributeError(f"a {type(index).__name__} has no {name} to set")
            before.append((holder, name, getattr(holder, name)))
            setattr(holder, name, value)
        yield
    finally:
        for holder, name, value in reversed(before):
            setattr(holder, name, value)


def _written(shard: _Shard, name: str) -> None:
    write_index(shard.index, name)


def _restored(name: str, first: int, trusted: bool) -> _Shard:
    try:
        index = read_index(name, trusted=trusted)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return _Shard(index, 0 if _has_ids(index) else first)


def _read_manifest(path: Path) -> tuple[int, list[int], str]:
    try:
        manifest = json.loads(path.read_text())
        d, sizes, token = manifest["d"], manifest["sizes"], manifest["token"]
        whole = all(type(number) is int and number >= 0 for number in [d, *sizes])
        if manifest["format"] == _FORMAT and whole and len(sizes) and len(bytes.fromhex(token)) == 8:
            return d, sizes, token
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: a damaged list of shards") from error
    raise ValueError(f"{path}: a damaged list of shards, or one of another version")
