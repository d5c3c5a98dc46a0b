"""The same results whatever the threads, the cuts into batches, the SIMD level and the release."""

import hashlib
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from formula import formula_vectors

from faiss_prh import PairwiseRotation, PRHTransform, _backend, read_index, serialize_index
from faiss_prh.learning.model import Model

GOLDEN = Path(__file__).with_name("golden")
ROUNDING = 1e-5  # of a vector's norm: nearer to zero, SIMD levels may disagree on a sign


def from_golden(version):
    return PRHTransform.from_bytes((GOLDEN / f"transform-v{version}.bytes").read_bytes())


def nearness_to_zero(transform, x):
    """Return how large the values are, in units of their vector's norm."""
    return np.abs(transform.apply(x)) / np.linalg.norm(x - transform.mean, axis=1, keepdims=True)


def bits(codes, d_out):
    return np.unpackbits(codes, axis=1, bitorder="little")[:, :d_out]


LEARNED_AND_ENCODED = """
import hashlib, sys
import numpy as np
from faiss_prh import PRHTransform
from formula import formula_vectors
paper = dict(tune=False)
sizes = [(100, 100, {}), (100, 100, paper), (100, 130, {}), (100, 40, {}), (784, 256, {}), (100, 12, {})]
for d, d_out, options in sizes:
    x = formula_vectors(1500, d) * np.linspace(1, 3, d, dtype=np.float32)
    prh = PRHTransform(d, d_out, **options)
    prh.train(x)
    print(hashlib.sha256(prh.to_bytes()).hexdigest(), hashlib.sha256(prh.encode(x)).hexdigest())
x = formula_vectors(250, 6000)
few = PRHTransform(6000, 200)
few.train(x)
assert few.describe().tail == 5242
print(hashlib.sha256(few.to_bytes()).hexdigest(), hashlib.sha256(few.encode(x)).hexdigest())
"""


@pytest.mark.slow
def test_threads_of_openmp_and_blas_change_neither_rotation_nor_codes():
    printed = set()
    for openmp, blas in [(1, 1), (4, 1), (1, 4), (3, 2)]:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(openmp),
            "OPENBLAS_NUM_THREADS": str(blas),
            "PYTHONPATH": os.pathsep.join([str(GOLDEN.parent), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", LEARNED_AND_ENCODED], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1


@pytest.mark.parametrize(("d", "d_out"), [(48, 24), (48, 33), (300, 240)])
def test_fewer_bits_learned_twice_are_the_same(d, d_out, thread_count):
    learned = set()
    for threads in (1, 3):
        thread_count(threads)
        prh = PRHTransform(d, d_out)
        prh.train(formula_vectors(600, d))
        learned.add(prh.to_bytes())
    assert len(learned) == 1


@pytest.mark.parametrize(("d", "d_out"), [(48, 33), (48, 48), (48, 60), (300, 240)])
def test_every_simd_level_learns_the_same(d, d_out):
    before, learned = _backend.active_simd_level(), set()
    for level in _backend.simd_levels():
        _backend.use_simd_level(level)
        try:
            prh = PRHTransform(d, d_out)
            prh.train(formula_vectors(600, d))
            learned.add(prh.to_bytes())
        finally:
            _backend.use_simd_level(before)
    assert len(learned) == 1


@pytest.mark.parametrize("version", ["4", "4-tail"])
def test_every_cut_into_two_gives_the_same_codes(version, simd_level, thread_count):
    transform = from_golden(version)
    x = formula_vectors(50, transform.d_in)
    whole = transform.encode(x)
    thread_count(3)
    for cut in range(51):
        np.testing.assert_array_equal(np.concatenate([transform.encode(x[:cut]), transform.encode(x[cut:])]), whole)


def disagreements(transform, x):
    """Return where SIMD levels give different bits."""
    before, codes = _backend.active_simd_level(), []
    try:
        for level in _backend.simd_levels():
            _backend.use_simd_level(level)
            codes.append(bits(transform.encode(x), transform.d_out))
    finally:
        _backend.use_simd_level(before)
    return codes[0] != codes[-1]


@pytest.mark.skipif(len(_backend.simd_levels()) < 2, reason="this CPU has one SIMD level")
@pytest.mark.parametrize("d", [100, 128, 784])
def test_simd_levels_disagree_on_few_signs_and_only_next_to_zero(d):
    rng = np.random.default_rng(d)
    transform = PRHTransform(d)
    mean = rng.normal(size=d).astype(np.float32)
    transform._set(Model(PairwiseRotation.random(d, 10, seed=d), mean, np.arange(d, dtype=np.int32)))
    x = rng.normal(size=(4_000_000 // d, d)).astype(np.float32)
    assert disagreements(transform, x).sum() <= 4  # 3 of 120 million were seen

    y = transform.apply(x[:1000])
    y[:, ::10] = 0
    almost_zero = transform.reverse_transform(y)
    differ = disagreements(transform, almost_zero)
    assert 0 < differ.sum() <= differ.size // 20
    assert nearness_to_zero(transform, almost_zero)[differ].max() < ROUNDING


@pytest.mark.parametrize("version", ["4", "4-tail"])
def test_golden_transforms_give_the_codes_they_gave(version, simd_level):
    transform = from_golden(version)
    x = formula_vectors(100, transform.d_in, start=500)
    assert nearness_to_zero(transform, x).min() > ROUNDING  # so that no machine may differ
    np.testing.assert_array_equal(transform.encode(x), np.load(GOLDEN / f"transform-v{version}.npy"))


def test_golden_transforms_are_of_the_versions_they_say():
    for name in ("4", "4-tail"):
        data = (GOLDEN / f"transform-v{name}.bytes").read_bytes()
        assert struct.unpack_from("<8sH", data) == (b"FAISSPRH", 4)


def test_the_current_format_is_written_as_it_was():
    for name in ("4", "4-tail"):
        data = (GOLDEN / f"transform-v{name}.bytes").read_bytes()
        assert PRHTransform.from_bytes(data).to_bytes() == data
    data = (GOLDEN / "v2-transform-v4.prh").read_bytes()
    assert serialize_index(read_index(GOLDEN / "v2-transform-v4.prh")) == data


def test_the_golden_index_holds_the_codes_that_are_made_now():
    index = read_index(GOLDEN / "v2-transform-v4.prh")
    codes = index.encode(formula_vectors(100, 40, start=500))
    np.testing.assert_array_equal(np.stack([index.index.reconstruct(row) for row in range(100)]), codes)


def test_the_vectors_of_the_golden_files_are_what_they_were():
    digest = hashlib.sha256(formula_vectors(100, 40, start=500).astype("<f4").tobytes()).hexdigest()
    assert digest == "1af8e1e6f925ac2a7139f88a797317d7717065f412e98a4584d95d10bc4802b7"
