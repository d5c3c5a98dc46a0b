import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import rotations, seeds

from faiss_prh import PairwiseRotation, PRHTransform
from faiss_prh.learning.model import Model
from faiss_prh.learning.model_bytes import _HEADER


def trained(d=20):
    prh = PRHTransform(d, n_iso=3, n_pca=2, tilt=0.25, seed=9)
    prh.train(np.random.default_rng(0).normal(size=(50, d)))
    return prh


def signed(content):
    return content + struct.pack("<I", zlib.crc32(content))


def forged(data, offset, fmt, *values):
    """Write values into the bytes and make the checksum right again."""
    content = bytearray(data[:-4])
    struct.pack_into(fmt, content, offset, *values)
    return signed(bytes(content))


@given(rotations(), seeds)
def test_round_trip(rotation, seed):
    prh = PRHTransform(rotation.d, n_iso=1, n_pca=0, tilt=0.5, seed=seed)
    mean = np.random.default_rng(seed).normal(size=rotation.d).astype(np.float32)
    prh._set(Model(rotation, mean, np.arange(rotation.d, dtype=np.int32)))
    again = PRHTransform.from_bytes(prh.to_bytes())
    assert again.parameters == prh.parameters
    assert again.rotation == rotation
    np.testing.assert_array_equal(again.mean, mean)
    assert again.to_bytes() == prh.to_bytes()


def test_untrained_round_trip():
    prh = PRHTransform(7, tilt=0.5)
    again = PRHTransform.from_bytes(prh.to_bytes())
    assert not again.is_trained
    assert (again.d_in, again.parameters) == (7, prh.parameters)


@pytest.mark.parametrize(("d", "dimension"), [(4, "B"), (256, "B"), (257, "H"), (65537, "I")])
def test_the_format_is_what_the_documentation_says(d, dimension):
    prh = PRHTransform(d, n_iso=2, n_pca=0, tilt=0.0, seed=5)
    layers = [([0, 1], [d - 1, 2], [0.5, 0.25]), ([3], [d - 2], [-1.0])] if d > 4 else [([0, 1], [3, 2], [0.5, 0.25])]
    mean = np.linspace(0, 1, d, dtype=np.float32)
    prh._set(Model(PairwiseRotation(d, layers), mean, np.arange(d, dtype=np.int32)[::-1].copy(), 0.75, 0.5))
    i, j, theta = ([value for layer in layers for value in layer[part]] for part in range(3))
    content = (
        struct.pack("<8sHHIIIIQdHII", b"FAISSPRH", 4, 1, d, d, 2, 0, 5, 0.0, 0, len(layers), 0)
        + struct.pack(f"<{len(layers)}I", *(len(layer[0]) for layer in layers))
        + struct.pack(f"<{len(i)}{dimension}", *i)
        + struct.pack(f"<{len(j)}{dimension}", *j)
        + struct.pack(f"<{len(theta)}f", *theta)
        + mean.astype("<f4").tobytes()
        + struct.pack(f"<{d}{dimension}", *reversed(range(d)))
        + struct.pack("<dd", 0.75, 0.5)
    )
    assert prh.to_bytes() == signed(content)
    assert PRHTransform.from_bytes(prh.to_bytes()).rotation == prh.rotation


def test_a_sparse_model_is_smaller_than_a_dense_one():
    for d, d_out in ((96, 32), (128, 64), (784, 256)):
        prh = PRHTransform(d, d_out, tune=False)
        prh.train(np.random.default_rng(0).normal(size=(200, d)) * np.linspace(1, 4, d))
        described = prh.describe()
        assert described.n_bytes < described.dense_bytes


def test_every_truncation_is_refused():
    data = trained().to_bytes()
    for length in range(len(data)):
        with pytest.raises(ValueError, match="PRHTransform"):
            PRHTransform.from_bytes(data[:length])


def test_every_flipped_bit_is_refused():
    data = trained(5).to_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            PRHTransform.from_bytes(bytes(damaged))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data):
    for candidate in (data, b"FAISSPRH" + data, signed(b"FAISSPRH" + data)):
        with pytest.raises(ValueError):
            PRHTransform.from_bytes(candidate)


FIELD = {
    "version": (8, "<H"), "trained": (10, "<H"), "d": (12, "<I"), "d_out": (16, "<I"), "n_iso": (20, "<I"),
    "n_pca": (24, "<I"), "seed": (28, "<Q"), "tilt": (36, "<d"), "tune": (44, "<B"),
    "uncentred": (45, "<B"), "n_layers": (46, "<I"), "tail": (50, "<I"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 3, "format version 3; this release reads version 4"),
        ("tune", 2, r"flags 1, \[2, 0\]"),
        ("uncentred", 2, r"flags 1, \[0, 2\]"),
        ("trained", 2, "damaged"),
        ("trained", 0, "untrained"),
        ("d", 0, "damaged"),
        ("d", 19, "damaged"),
        ("d", 21, "too early"),
        ("d", 2**32 - 1, "damaged"),
        ("n_iso", 2**31, "n_iso"),
        ("n_pca", 2**31, "n_pca"),
        ("seed", 2**63, "seed"),
        ("tilt", float("nan"), "tilt"),
        ("tilt", 7.0, "tilt"),
        ("n_layers", 2**32 - 1, "damaged"),
        ("n_layers", 99, "too early"),
        ("n_layers", 4, "damaged"),
        ("n_layers", 6, "damaged"),
        ("d_out", 0, "damaged"),
        ("d_out", 2**31, "damaged"),
        ("d_out", 19, "damaged"),
        ("d_out", 21, "too early"),
        ("tail", 2**32 - 1, "a tail from"),
        ("tail", 19, "a tail from 19 of 20 dimensions to 20"),
        ("tail", 20, "too early"),
    ],
)
def test_hostile_headers_with_a_right_checksum(field, value, message):
    offset, fmt = FIELD[field]
    with pytest.raises(ValueError, match=message):
        PRHTransform.from_bytes(forged(trained().to_bytes(), offset, fmt, value))


def assert_refused(offset, fmt, value, message):
    with pytest.raises(ValueError, match=message):
        PRHTransform.from_bytes(forged(trained().to_bytes(), offset, fmt, value))


def test_hostile_contents_with_a_right_checksum():
    prh = trained()
    n_layers, n_rotations = len(prh.rotation.layers), prh.rotation.n_rotations
    sizes = _HEADER.size
    i, j = sizes + 4 * n_layers, sizes + 4 * n_layers + n_rotations
    theta, mean = j + n_rotations, j + 5 * n_rotations
    first = prh.rotation.layers[0]
    assert_refused(sizes, "<I", 2**32 - 1, "too early")
    assert_refused(sizes, "<I", len(first.i) + 1, "damaged")
    assert_refused(i, "B", 20, "from 0 to 19")
    assert_refused(j, "B", 255, "from 0 to 19")
    assert_refused(i, "B", int(first.i[1]), "more than one pair")
    assert_refused(j, "B", int(first.i[0]), "more than one pair")
    assert_refused(theta, "<f", float("nan"), "finite")
    assert_refused(theta, "<f", float("inf"), "finite")
    assert_refused(mean, "<f", float("-inf"), "mean")
    assert_refused(mean, "<f", 1e30, "mean")
    kept = mean + 4 * 20
    assert_refused(kept, "B", 20, "keeps dimensions")
    assert_refused(kept, "B", 1, "keeps dimensions")
    assert_refused(kept + 20, "<d", -1.0, "variance")
    assert_refused(kept + 20 + 8, "<d", float("inf"), "variance")


def with_tail():
    """Return a transform with rotations and a tail."""
    prh = PRHTransform(20, 3)
    tail = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 3)))[0].T.astype(np.float32, order="C")
    kept = np.arange(7, dtype=np.int32)
    prh._set(Model(PairwiseRotation.random(20, 2, seed=1), np.ones(20, dtype=np.float32), kept, 0.5, 0.5, tail))
    return prh


def test_a_tail_round_trip():
    prh = with_tail()
    data = prh.to_bytes()
    again = PRHTransform.from_bytes(data)
    np.testing.assert_array_equal(again.tail, prh.tail)
    assert again.to_bytes() == data
    assert data[-4 * (3 * 7 + 1) : -4] == prh.tail.tobytes()  # what the documentation says
    x = np.random.default_rng(2).normal(size=(30, 20)).astype(np.float32)
    np.testing.assert_array_equal(again.encode(x), prh.encode(x))
    again.check_identical(prh)
    with pytest.raises(RuntimeError, match="another rotation"):
        turned = with_tail()._model._replace(tail=-prh.tail)
        again._set(turned)
        again.check_identical(prh)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.9, 1.1, -1e30])
@pytest.mark.parametrize("place", [0, 8, 20])
def test_hostile_tails(value, place):
    data = with_tail().to_bytes()
    with pytest.raises(ValueError, match="rows of its tail are not orthonormal"):
        PRHTransform.from_bytes(forged(data, len(data) - 4 - 4 * (21 - place), "<f", value))


@pytest.mark.parametrize(
    ("width", "message"), [(0, "damaged"), (2, "a tail from 2"), (6, "damaged"), (8, "damaged"), (21, "a tail from 21")]
)
def test_hostile_widths_of_a_tail(width, message):
    with pytest.raises(ValueError, match=message):
        PRHTransform.from_bytes(forged(with_tail().to_bytes(), *FIELD["tail"], width))


def test_an_untrained_transform_has_no_tail():
    with pytest.raises(ValueError, match="untrained"):
        PRHTransform.from_bytes(forged(PRHTransform(20, 3).to_bytes(), *FIELD["tail"], 7))


def test_other_types_are_refused():
    for other in ("text", 10**9, [1, 2]):
        with pytest.raises(TypeError, match="bytes are needed"):
            PRHTransform.from_bytes(other)
    assert PRHTransform.from_bytes(memoryview(trained().to_bytes())).is_trained
