"""The benchmarks' own parts: data sets from files, and made-up ones."""

import numpy as np
import pytest
from faiss.contrib.vecs_io import fvecs_write

from bench import datasets

RNG = np.random.default_rng(0)
SIZES = {"train": 30, "base": 50, "query": 7}
PARTS = {name: RNG.integers(0, 200, (n, 12)).astype(np.float32) for name, n in SIZES.items()}


def assert_is_parts(dataset, name):
    assert dataset.name == name
    assert dataset.d == 12
    for part, expected in PARTS.items():
        found = getattr(dataset, part)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


def write_bvecs(path, x):
    rows = [np.int32(x.shape[1]).tobytes() + row.astype(np.uint8).tobytes() for row in x]
    path.write_bytes(b"".join(rows))


@pytest.mark.parametrize("kind", ["npz", "npy", "fvecs", "bvecs"])
def test_files(kind, tmp_path):
    if kind == "npz":
        np.savez(tmp_path / "some.npz", **{name: x.astype(np.float16) for name, x in PARTS.items()})
    for name, x in PARTS.items():
        path = tmp_path / f"some_{'learn' if name == 'train' else name}.{kind}"
        if kind == "npy":
            np.save(path, x)
        elif kind == "fvecs":
            fvecs_write(str(path), x)
        elif kind == "bvecs":
            write_bvecs(path, x)
    (tmp_path / "README.md").write_text("not data")
    (dataset,) = datasets.load(tmp_path)
    assert_is_parts(dataset, "some")


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py", reason="an extra")
    with h5py.File(tmp_path / "ann.hdf5", "w") as file:
        file["train"], file["test"] = PARTS["base"], PARTS["query"]
    (dataset,) = datasets.load(tmp_path / "ann.hdf5")
    np.testing.assert_array_equal(dataset.base, PARTS["base"])
    np.testing.assert_array_equal(dataset.query, PARTS["query"])
    assert dataset.train.shape[1] == 12


def test_no_data(tmp_path):
    with pytest.raises(SystemExit, match="no data set"):
        datasets.load(tmp_path)


def test_made_up_data():
    made = datasets.synthetic(16, 100, 200, 10).first(50, 60, 5)
    assert [len(part) for part in (made.train, made.base, made.query)] == [50, 60, 5]
    distances = ((made.query[:, None] - made.base) ** 2).sum(axis=2)
    np.testing.assert_array_equal(made.neighbours(3), np.argsort(distances, axis=1)[:, :3])
    vlad = datasets.vlad_like(4, 10, 20, 5)
    assert vlad.d == 4 * 128
    np.testing.assert_allclose(np.linalg.norm(vlad.base, axis=1), 1, atol=1e-5)
