import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import rotations, seeds

from faiss_prh import PRHTransform
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
    prh._set(rotation, mean)
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


def test_format_versions_are_kept():
    prh = PRHTransform(4, n_iso=2, n_pca=0, tilt=0.0, seed=5)
    prh.train([[4, 0, 0, 1], [-4, 0, 0, 1], [0, 2, 1, 1], [0, -2, -1, 1]])
    fields = struct.pack("<IIIQdI", 4, 2, 0, 5, 0.0, 2)  # d, n_iso, n_pca, seed, tilt, number of layers
    learned = (
        struct.pack("<2I", 2, 2)  # rotations of each layer
        + struct.pack("<4I", *(int(k) for layer in prh.rotation.layers for k in layer.i))
        + struct.pack("<4I", *(int(k) for layer in prh.rotation.layers for k in layer.j))
        + struct.pack("<4f", *(float(t) for layer in prh.rotation.layers for t in layer.theta))
        + struct.pack("<4f", 0, 0, 0, 1)  # mean
    )
    d_out_and_tune, kept = struct.pack("<II", 4, 0), struct.pack("<4I", 0, 1, 2, 3)
    described = prh.describe()
    variance = struct.pack("<dd", described.variance_kept, described.variance_spread)
    unknown = struct.pack("<dd", float("nan"), float("nan"))
    first = signed(b"FAISSPRH" + struct.pack("<HH", 1, 1) + fields + learned)
    second = b"FAISSPRH" + struct.pack("<HH", 2, 1) + fields + d_out_and_tune + learned + kept
    assert prh.to_bytes() == signed(second + variance)
    assert PRHTransform.from_bytes(first).to_bytes() == signed(second + unknown)


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


FIELD = {"version": (8, "<H"), "trained": (10, "<H"), "d": (12, "<I"), "n_iso": (16, "<I"), "n_pca": (20, "<I"),
         "seed": (24, "<Q"), "tilt": (32, "<d"), "n_layers": (40, "<I"), "d_out": (44, "<I")}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 3, "format version 3; this release reads versions 1 to 2"),
        ("trained", 2, "damaged"),
        ("trained", 0, "untrained"),
        ("d", 0, "damaged"),
        ("d", 19, "layer 0|too long"),
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
        ("d_out", 19, "too long"),
        ("d_out", 21, "too early"),
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
    sizes = _HEADER.size + 8
    i, j = sizes + 4 * n_layers, sizes + 4 * n_layers + 4 * n_rotations
    theta, mean = j + 4 * n_rotations, j + 8 * n_rotations
    first = prh.rotation.layers[0]
    assert_refused(sizes, "<I", 2**32 - 1, "too early")
    assert_refused(sizes, "<I", len(first.i) + 1, "damaged")
    assert_refused(i, "<I", 20, "from 0 to 19")
    assert_refused(i, "<I", 2**32 - 1, "from 0 to 19")
    assert_refused(j, "<I", 2**31, "from 0 to 19")
    assert_refused(i, "<I", int(first.i[1]), "more than one pair")
    assert_refused(j, "<I", int(first.i[0]), "more than one pair")
    assert_refused(theta, "<f", float("nan"), "finite")
    assert_refused(theta, "<f", float("inf"), "finite")
    assert_refused(mean, "<f", float("-inf"), "mean")
    kept = mean + 4 * 20
    assert_refused(kept, "<I", 20, "keeps dimensions")
    assert_refused(kept, "<I", 1, "keeps dimensions")
    assert_refused(kept + 4 * 20, "<d", -1.0, "variance")
    assert_refused(kept + 4 * 20 + 8, "<d", float("inf"), "variance")
    assert_refused(_HEADER.size + 4, "<I", 2, "tune = 2")


def test_other_types_are_refused():
    for other in ("text", 10**9, [1, 2]):
        with pytest.raises(TypeError, match="bytes are needed"):
            PRHTransform.from_bytes(other)
    assert PRHTransform.from_bytes(memoryview(trained().to_bytes())).is_trained
