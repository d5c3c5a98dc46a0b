"""Vectors to measure on: files the user names, or data made on the spot."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from faiss.contrib.datasets import SyntheticDataset

from bench.recall import NEIGHBOURS
from faiss_prh.cli.vector_files import VectorFileError, array_names, read_array

PARTS = ("train", "base", "query")
_ONE_ARRAY = (".fvecs", ".bvecs", ".npy")
HIGH_DIMENSION = 2000  # from here on, highdim's methods; below, sift's and reduction's


@dataclass
class Dataset:
    """Vectors to learn from, to search among, and to search for."""

    name: str
    train: np.ndarray
    base: np.ndarray
    query: np.ndarray

    @property
    def d(self) -> int:
        return self.base.shape[1]

    def first(self, n_train: int, n_base: int, n_query: int) -> "Dataset":
        """Return a data set of the first vectors only."""
        return Dataset(self.name, self.train[:n_train], self.base[:n_base], self.query[:n_query])

    def neighbours(self, k: int) -> np.ndarray:
        """Return the true nearest neighbours of the queries."""
        return faiss.knn(self.query, self.base, k)[1]


def synthetic(d: int, n_train: int, n_base: int, n_query: int, seed: int = 1338) -> Dataset:
    """Vectors on a curved surface of few dimensions, as embeddings are: Faiss's own synthetic set."""
    made = SyntheticDataset(d, n_train, n_base, n_query, seed=seed)
    return Dataset(f"synthetic {d}", made.get_train(), made.get_database(), made.get_queries())


def clustered(d: int, n_train: int, n_base: int, n_query: int, seed: int = 0) -> Dataset:
    """
    Clusters of different density, whose variances fall as 1 / k, as those of word vectors do, along no axis.

    Hard for sparse rotations: every principal direction is a mixture of all dimensions.
    """
    rng = np.random.default_rng(seed)
    deviations = np.arange(1, d + 1) ** -0.5
    n = n_train + n_base + n_query
    centres = rng.normal(size=(500, d)) * deviations
    x = centres[rng.integers(500, size=n)] + 0.7 * rng.normal(size=(n, d)) * deviations
    x *= np.exp(0.3 * rng.normal(size=(n, 1)))
    x = (x @ np.linalg.qr(rng.normal(size=(d, d)))[0]).astype(np.float32)
    return Dataset(f"clustered {d}", *np.split(x, [n_train, n_train + n_base]))


def words(d: int, n_train: int, n_base: int, n_query: int, seed: int = 0) -> Dataset:
    """
    Vectors as those of words are: a flat spectrum, heavy tails, and hubs.

    A word is one of a few thousand topics, some of which are frequent, and much that is its own. Words of short vectors
    are near many others, and so among the nearest neighbours of far too many: of GloVe's 100 dimensions, the spectrum,
    the skew of those counts and the distances of neighbours are much the same.
    """
    rng = np.random.default_rng(seed)
    n, n_topics = n_train + n_base + n_query, 2000
    topics = rng.normal(size=(n_topics, d))
    x = 0.8 * topics[(n_topics * rng.random(n) ** 2).astype(int)] + 0.77 * rng.standard_t(5, size=(n, d))
    x *= 1 + 1.8 * np.arange(1, d + 1) ** -0.5
    x *= np.exp(0.35 * rng.normal(size=(n, 1))) * (0.6 + 0.8 * rng.random((n, 1)))
    x = (x @ np.linalg.qr(rng.normal(size=(d, d)))[0]).astype(np.float32)
    return Dataset(f"words {d}", *np.split(x, [n_train, n_train + n_base]))


def vlad_like(n_words: int, n_train: int, n_base: int, n_query: int, seed: int = 0) -> Dataset:
    """
    VLAD vectors of made-up images: 128 dimensions for each visual word, signed square roots, length 1.

    An image shows some of a few hundred objects; each object has local features of its own, which vary from image to
    image. As in real VLAD, most of a vector is noise, many words are not seen, and variances are very unequal.
    """
    rng = np.random.default_rng(seed)
    words = rng.normal(size=(n_words, 128)).astype(np.float32)
    objects = words[rng.integers(n_words, size=(300, 40))] + 0.7 * rng.normal(size=(300, 40, 128)).astype(np.float32)
    scales = np.exp(0.7 * rng.normal(size=128)).astype(np.float32)
    search = faiss.IndexFlatL2(128)
    search.add(words)
    x = np.empty((n_train + n_base + n_query, n_words * 128), dtype=np.float32)
    for vector in x:
        features = objects[rng.integers(300, size=5)].reshape(-1, 128)
        features = features + (0.5 * scales * rng.normal(size=features.shape)).astype(np.float32)
        nearest = search.search(features, 1)[1][:, 0]
        image = np.zeros((n_words, 128), dtype=np.float32)
        np.add.at(image, nearest, features - words[nearest])
        image = np.sign(image) * np.sqrt(np.abs(image))
        vector[:] = image.ravel() / np.linalg.norm(image)
    return Dataset(f"VLAD-like {x.shape[1]}", *np.split(x, [n_train, n_train + n_base]))


def load(path: Path) -> list[Dataset]:
    """
    Read the data sets in a folder or file.

    .npz with train, base and query; .hdf5 of ann-benchmarks; and triples of files such as sift_learn.fvecs,
    sift_base.fvecs and sift_query.fvecs (also .bvecs, .npy).
    """
    if not path.exists():
        raise SystemExit(f"{path}: no such file or folder")
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from error
    found = [dataset for file in files for dataset in _from_one_file(file)]
    found += _from_triples(files)
    if not found:
        raise SystemExit(f"{path}: no data set (.npz, .hdf5, or *_learn, *_base and *_query .fvecs, .bvecs, .npy)")
    for name, count in Counter(dataset.name.lower() for dataset in found).items():
        if count > 1:
            raise SystemExit(f"{path}: {count} data sets are called {name}; expected different names")
    return found


def load_suitable(path: Path, wanted: str, is_suitable: Callable[[Dataset], bool]) -> list[Dataset]:
    """Read the data sets that an experiment can use; `wanted` says which, after "no data set"."""
    found = [dataset for dataset in load(path) if is_suitable(dataset)]
    if not found:
        raise SystemExit(f"{path}: no data set {wanted}")
    return found


@contextmanager
def _reading() -> Iterator[None]:
    """Exit with a line that says which file cannot be read, and why."""
    try:
        yield
    except VectorFileError as error:
        raise SystemExit(str(error)) from error


def _from_one_file(file: Path) -> list[Dataset]:
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return [_dataset(file.stem, *_parts(file, PARTS))]
    if suffix in (".hdf5", ".h5"):
        return [_from_hdf5(file)]
    return []


def _from_hdf5(file: Path) -> Dataset:
    base, query = _parts(file, ("train", "test"))
    import h5py  # by now known to be there

    with h5py.File(file) as arrays:
        is_angular = arrays.attrs.get("distance") == "angular"
    dataset = _dataset(file.stem, base, base, query)
    if is_angular:
        dataset.base, dataset.query = dataset.base.copy(), dataset.query.copy()  # of what the file is mapped to
        for part in (dataset.base, dataset.query):
            faiss.normalize_L2(part)
    dataset.train = dataset.base[:: max(1, len(dataset.base) // 100_000)].copy()
    return dataset


def _parts(file: Path, names: tuple[str, ...]) -> list[tuple[str, np.ndarray]]:
    """Return the parts of a file, each with its place for messages."""
    with _reading():
        missing = sorted(set(names) - set(array_names(file)), key=names.index)
        if missing:
            raise SystemExit(f"{file}: no {' and no '.join(missing)}; expected {', '.join(names)}")
        return [(f"{file}, {name}", read_array(file, name)) for name in names]


def _from_triples(files: list[Path]) -> list[Dataset]:
    by_name = {file.name.lower(): file for file in files if file.suffix.lower() in _ONE_ARRAY}
    found = []
    for base in files:
        stem, suffix = base.stem.lower().removesuffix("_base"), base.suffix.lower()
        if suffix not in _ONE_ARRAY or stem == base.stem.lower():
            continue
        learn = by_name.get(f"{stem}_learn{suffix}") or by_name.get(f"{stem}_train{suffix}")
        query = by_name.get(f"{stem}_query{suffix}")
        if learn is None or query is None:
            missing = "learn" if learn is None else "query"
            raise SystemExit(f"{base}: found without {stem}_{missing}{suffix}; expected a folder with all three")
        with _reading():
            parts = [
                (f"{file}, {part}", read_array(file)) for part, file in zip(PARTS, (learn, base, query), strict=True)
            ]
        found.append(_dataset(base.stem[: len(stem)], *parts))
    return found


def _dataset(name: str, *parts: tuple[str, np.ndarray]) -> Dataset:
    """Return train, base and query after checks; each comes with its place for messages."""
    arrays = [_vectors(*part, least) for part, least in zip(parts, (1, NEIGHBOURS, 1), strict=True)]
    d = arrays[1].shape[1]
    for (where, _), array in zip(parts, arrays, strict=True):
        if array.shape[1] != d:
            raise SystemExit(f"{where}: vectors of {array.shape[1]} dimensions; expected {d}, as in base")
    return Dataset(name, *arrays)


def _vectors(where: str, array: np.ndarray, least: int) -> np.ndarray:
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise SystemExit(f"{where}: {array.dtype} of shape {array.shape}; expected real numbers in two dimensions")
    if len(array) < least or not array.shape[1]:
        found = f"{len(array)} vectors of {array.shape[1]} dimensions"
        raise SystemExit(f"{where}: {found}; expected at least {least}, of at least 1 dimension")
    with np.errstate(over="ignore"):  # refused below
        vectors = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(vectors).all():
        raise SystemExit(f"{where}: NaN, infinite or too large for float32; expected finite numbers")
    return vectors
