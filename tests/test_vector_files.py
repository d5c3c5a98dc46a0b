"""Vector files: every format, what they may claim, and what strangers may put into them."""

import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faiss_prh.cli.vector_files import VectorFileError, read_vectors

X = np.random.default_rng(0).integers(0, 200, (20, 6))


def write_vecs(path, x, component):
    path.write_bytes(b"".join(struct.pack("<i", x.shape[1]) + row.astype(component).tobytes() for row in x))


def write_hdf5(path, **options):
    h5py = pytest.importorskip("h5py", reason="an extra")
    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=X.astype("f4"), **options)


WRITERS = {
    "x.npy": lambda path: np.save(path, X.astype("f4")),
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "big endian.NPY": lambda path: path.write_bytes(npy_bytes("(20, 6)", "'>f8'", X.astype(">f8").tobytes())),
    "x.npz": lambda path: np.savez(path, X.astype("f4")),
    "fortran.npz": lambda path: np.savez(path, np.asfortranarray(X)),
    "compressed.npz": lambda path: np.savez_compressed(path, np.asfortranarray(X)),
    "x.fvecs": lambda path: write_vecs(path, X, "<f4"),
    "x.bvecs": lambda path: write_vecs(path, X, "u1"),
    "x.hdf5": write_hdf5,
    "compressed.h5": lambda path: write_hdf5(path, compression="gzip", chunks=(7, 6)),
}


def npy_bytes(shape, descr="'<f4'", data=bytes(48)):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def refusal(source, **options):
    tracemalloc.start()
    try:
        with pytest.raises(VectorFileError) as error:
            read_vectors(str(source), **options)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_read_and_mapped_if_it_can_be(name, tmp_path):
    WRITERS[name](tmp_path / name)
    read = read_vectors(str(tmp_path / name), d=6)
    np.testing.assert_array_equal(read, X)
    assert isinstance(read, np.memmap) == ("compressed" not in name)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_one_array_of_several_is_named(save, tmp_path):
    path = tmp_path / "x.npz"
    save(path, first=X, second=X + 1)
    np.testing.assert_array_equal(read_vectors(f"{path}:second"), X + 1)
    assert refusal(path) == f"{path}: it holds first, second; name one, as in x.npz:name"
    assert refusal(f"{path}:third") == f"{path}: no array called third"


def test_arrays_of_hdf5_are_named(tmp_path):
    h5py = pytest.importorskip("h5py", reason="an extra")
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        file["train"], file["group/test"] = X, X + 1
        file["elsewhere"] = h5py.ExternalLink("other.hdf5", "train")
        file.create_dataset("claims", shape=(10**9, 1000), chunks=(1000, 1000), dtype="f4")
        file.create_dataset("claims too", shape=(10**9, 1000), dtype="f4")
    (tmp_path / "other.hdf5").write_bytes(path.read_bytes())
    np.testing.assert_array_equal(read_vectors(f"{path}:train"), X)
    np.testing.assert_array_equal(read_vectors(f"{path}:group/test"), X + 1)
    assert "name one" in refusal(path)
    for name in ("nothing", "group", "elsewhere"):
        assert refusal(f"{path}:{name}") == f"{path}: no array called {name}"
    for name in ("claims", "claims too"):
        assert "damaged" in refusal(f"{path}:{name}")


def test_a_file_may_have_a_colon_in_its_name(tmp_path):
    path = tmp_path / "a.npz:b.npy"
    np.save(path, X)
    np.testing.assert_array_equal(read_vectors(str(path)), X)


def test_an_archive_with_the_name_of_an_array(tmp_path):
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.savez(file, x=X)
    assert refusal(path) == f"{path}: damaged, or no .npy file of numbers"


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (X.astype(complex), "expected real numbers in two dimensions, not complex128 of shape (20, 6)"),
        (X[0], "expected real numbers in two dimensions, not int64 of shape (6,)"),
        (X[:0], "no vectors in it"),
        (X[:, :0], "no vectors in it"),
        (X[:, 1:], "expected 6 columns, not 5"),
    ],
)
def test_other_arrays_are_refused(x, reason, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, x)
    options = {"d": 6} if "columns" in reason else {}
    assert refusal(path, **options) == f"{path}: {reason}"


@pytest.mark.parametrize(
    "content",
    [
        npy_bytes("(1000000000000, 4)"),
        npy_bytes("(4611686018427387904, 4)"),
        npy_bytes("(99999999999999999999999, 4)"),
        npy_bytes("(-3, -4)"),
        npy_bytes("(3, 4)", "'|O'"),
        npy_bytes("(3, 4)" + "+(" * 50),
        npy_bytes("(3, 4)")[:-1],
        b"",
    ],
)
@pytest.mark.parametrize("method", ["npy", "stored", "deflated"])
def test_arrays_that_claim_too_much(content, method, tmp_path):
    path = tmp_path / ("x.npy" if method == "npy" else "x.npz")
    if method == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w", getattr(zipfile, f"ZIP_{method.upper()}")) as archive:
            archive.writestr("x.npy", content)
    assert refusal(path) == f"{path}: damaged, or no {path.suffix} file of numbers"


def test_an_archive_that_claims_too_much(tmp_path):
    path = tmp_path / "x.npz"
    claimed = 4_000_000_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(f"({claimed // 16}, 4)"))
    content = bytearray(path.read_bytes())
    entry = content.find(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", claimed + 128)  # header and array now agree
    path.write_bytes(content)
    assert refusal(path) == f"{path}: damaged, or no .npz file of numbers"


@pytest.mark.parametrize("d", [2**31 - 1, 7, -1, -4, -(2**31)])
@pytest.mark.parametrize("kind", ["fvecs", "bvecs"])
def test_rows_that_claim_another_length(kind, d, tmp_path):
    path = tmp_path / f"x.{kind}"
    path.write_bytes(struct.pack("<i", d) + bytes(40))
    assert refusal(path).startswith(f"{path}: damaged")


def test_what_is_no_file(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    assert refusal(tmp_path / "folder.npz") == f"{tmp_path}/folder.npz: Is a directory"
    assert refusal(tmp_path / "none.fvecs") == f"{tmp_path}/none.fvecs: No such file or directory"
    assert "expected a .npy, .npz, .fvecs, .bvecs or .hdf5 file" in refusal(tmp_path / "x.txt")
    os.mkfifo(tmp_path / "pipe.npy")
    assert refusal(tmp_path / "pipe.npy") == f"{tmp_path}/pipe.npy: not a regular file"


@pytest.mark.parametrize("name", [name for name in WRITERS if "h" not in name.split(".")[1]])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4), cut=st.integers(0, 9)
)
def test_damage_anywhere_is_refused_or_harmless(name, changes, cut, tmp_path):
    path = tmp_path / name
    WRITERS[name](path)
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    path.write_bytes(content[: len(content) - cut])
    try:
        read = read_vectors(str(path))
    except VectorFileError as error:
        assert str(error).startswith(str(path))
    else:
        assert read.nbytes <= len(content) + 8 * X.size
        np.asarray(read, dtype=float).sum()
