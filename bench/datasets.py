"""Vectors to measure on: files the user names, or data made on the spot."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from faiss.contrib.datasets import SyntheticDataset
from faiss.contrib.vecs_io import bvecs_mmap, fvecs_mmap

PARTS = ("train", "base", "query")


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
        """Return a smaller one."""
        return Dataset(self.name, self.train[:n_train], self.base[:n_base], self.query[:n_query])

    def neighbours(self, k: int) -> np.ndarray:
        """Return the true nearest neighbours of the queries."""
        return faiss.knn(self.query, self.base, k)[1]


def synthetic(d: int, n_train: int, n_base: int, n_query: int, seed: int = 1338) -> Dataset:
    """Vectors on a curved surface of few dimensions, as embeddings are: Faiss's own synthetic set."""
    made = SyntheticDataset(d, n_train, n_base, n_query, seed=seed)
    return Dataset(f"synthetic {d}", made.get_train(), made.get_database(), made.get_queries())


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
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    found = [dataset for file in files for dataset in _from_one_file(file)]
    found += _from_triples(files)
    if not found:
        raise SystemExit(f"{path}: no data set (.npz, .hdf5, or *_learn, *_base and *_query .fvecs, .bvecs, .npy)")
    return found


def _from_one_file(file: Path) -> list[Dataset]:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            if all(part in arrays for part in PARTS):
                return [_dataset(file.stem, *(arrays[part] for part in PARTS))]
    if file.suffix in (".hdf5", ".h5"):
        import h5py  # an extra, for those who have such files

        with h5py.File(file) as arrays:
            base = arrays["train"][:]
            return [_dataset(file.stem, base[:: max(1, len(base) // 100_000)], base, arrays["test"][:])]
    return []


_READERS: dict[str, Callable[[str], np.ndarray]] = {
    ".fvecs": fvecs_mmap,
    ".bvecs": bvecs_mmap,
    ".npy": lambda name: np.load(name, mmap_mode="r"),
}


def _from_triples(files: list[Path]) -> list[Dataset]:
    by_name = {file.name: file for file in files if file.suffix in _READERS}
    found = []
    for name, base in by_name.items():
        if not base.stem.endswith("_base"):
            continue
        stem = base.stem.removesuffix("_base")
        learn = by_name.get(f"{stem}_learn{base.suffix}") or by_name.get(f"{stem}_train{base.suffix}")
        query = by_name.get(f"{stem}_query{base.suffix}")
        if learn and query:
            read = _READERS[base.suffix]
            found.append(_dataset(stem, *(read(str(part)) for part in (learn, by_name[name], query))))
    return found


def _dataset(name: str, *parts: np.ndarray) -> Dataset:
    return Dataset(name, *(np.ascontiguousarray(part, dtype=np.float32) for part in parts))
