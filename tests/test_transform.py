import copy
import itertools
import pickle
import threading
import tracemalloc

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import rotations, samples, seeds

from faiss_prh import PairwiseRotation, PRHTransform, _backend
from faiss_prh._common import arrays as _arrays
from faiss_prh.learning.model import Model


def with_rotation(rotation, mean=None):
    prh = PRHTransform(rotation.d)
    mean = np.zeros(rotation.d, np.float32) if mean is None else mean
    prh._set(Model(rotation, mean, np.arange(rotation.d, dtype=np.int32)))
    return prh


def vectors(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def packed(y):
    return np.packbits(y >= 0, axis=1, bitorder="little")


@given(rotation=rotations(), n=st.integers(0, 40), seed=seeds)
def test_native_equals_dense_and_sparse(rotation, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, rotation.d)).astype(np.float32)
    mean = rng.normal(size=rotation.d).astype(np.float32)
    prh = with_rotation(rotation, mean)
    y = prh.apply(x)
    by_layers = (x.astype(np.float64) - mean).T
    for matrix in rotation.to_sparse():
        by_layers = matrix @ by_layers
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, by_layers.T, atol=2e-5)
    np.testing.assert_allclose(y, (x.astype(np.float64) - mean) @ rotation.to_dense().T, atol=2e-5)
    np.testing.assert_allclose(prh.reverse_transform(y), x, atol=2e-5)
    np.testing.assert_array_equal(prh.encode(x), packed(y))


@given(x=samples(), n_pca=st.integers(0, 5), tilt=st.sampled_from([0.0, 0.4]))
def test_training_centres_and_keeps_distances(x, n_pca, tilt):
    prh = PRHTransform(x.shape[1], n_pca=n_pca, tilt=tilt)
    prh.train(x)
    y = prh.apply(x).astype(np.float64)
    scale = 1 + np.abs(x).max()
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-4 * scale)
    centred = x.astype(np.float64) - prh.mean
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), np.linalg.norm(centred, axis=1), rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_array_equal(prh.encode(x), packed(prh.apply(x)))


@pytest.mark.parametrize("d", [1, 2, 7, 100, 128, 384, 1000])
def test_simd_levels_agree(d, simd_level):
    rotation = PairwiseRotation.random(d, n_layers=9, seed=d)
    x = vectors(53, d)
    _backend.use_simd_level(_backend.simd_levels()[0])
    plain = with_rotation(rotation).apply(x)
    _backend.use_simd_level(simd_level)
    prh = with_rotation(rotation)
    y = prh.apply(x)
    np.testing.assert_allclose(y, plain, atol=1e-5)
    np.testing.assert_array_equal(prh.encode(x), packed(y))


@pytest.mark.parametrize("d", [3, 100, 128, 520])
def test_threads_and_cuts_do_not_change_a_bit(d, simd_level, thread_count):
    prh = with_rotation(PairwiseRotation.random(d, n_layers=8, seed=d), vectors(1, d)[0])
    x = vectors(20_000 // d * 16 + 5, d)
    thread_count(1)
    whole = prh.apply(x)
    codes = prh.encode(x)
    thread_count(7)
    np.testing.assert_array_equal(prh.apply(x), whole)
    np.testing.assert_array_equal(prh.encode(x), codes)
    rng = np.random.default_rng(0)
    cuts = np.unique(np.concatenate([[0, 1, 2, 5, 13, 29, len(x)], rng.integers(0, len(x), 5)]))
    for first, last in itertools.pairwise(cuts):
        np.testing.assert_array_equal(prh.apply(x[first:last]), whole[first:last])
        np.testing.assert_array_equal(prh.encode(x[first:last]), codes[first:last])


def test_blocks_do_not_change_a_bit(monkeypatch):
    prh, x = PRHTransform.random(40), vectors(100, 40)
    y, codes = prh.apply(x), prh.encode(x)
    monkeypatch.setattr(_arrays, "BLOCK_VALUES", 300)
    np.testing.assert_array_equal(prh.apply(x), y)
    np.testing.assert_array_equal(prh.encode(x), codes)


def test_layers_do_not_change_with_threads(thread_count):
    x = vectors(3000, 200) * np.linspace(1, 3, 200, dtype=np.float32)
    learned = []
    for n in (1, 6):
        thread_count(n)
        prh = PRHTransform(200)
        prh.train(x)
        learned.append(prh.rotation)
    assert learned[0] == learned[1]


CONVERSIONS = {
    "float64": lambda x, tmp: x.astype(np.float64),
    "float16": lambda x, tmp: x.astype(np.float16),
    "int16": lambda x, tmp: x.astype(np.int16),
    "bytes": lambda x, tmp: x.astype(np.int8),
    "Fortran order": lambda x, tmp: np.asfortranarray(x),
    "strided": lambda x, tmp: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda x, tmp: np.ascontiguousarray(x[::-1])[::-1],
    "big-endian": lambda x, tmp: x.astype(">f4"),
    "read-only": lambda x, tmp: _read_only(x),
    "lists": lambda x, tmp: x.tolist(),
    "memory map": lambda x, tmp: _memory_map(x, tmp),
}


def _read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _memory_map(x, tmp):
    np.save(tmp / "x.npy", x)
    return np.load(tmp / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("name", CONVERSIONS)
def test_dtypes_and_layouts_give_the_same_answer(name, tmp_path):
    x = np.random.default_rng(0).integers(-90, 90, size=(67, 20)).astype(np.float32)
    converted = CONVERSIONS[name](x, tmp_path)
    expected, prh = PRHTransform(20), PRHTransform(20)
    expected.train(x)
    prh.train(converted)
    assert prh.rotation == expected.rotation
    np.testing.assert_array_equal(prh.encode(converted), expected.encode(x))
    np.testing.assert_array_equal(prh.apply(converted), expected.apply(x))


@pytest.mark.parametrize("d", [1, 8, 12])
def test_no_vectors_give_no_codes(d):
    prh, none = PRHTransform.random(d), np.empty((0, d))
    assert prh.encode(none).shape == (0, (d + 7) // 8)
    assert prh.apply(none).shape == prh.reverse_transform(none).shape == (0, d)


def test_zero_is_one_and_spare_bits_are_zero():
    prh = PRHTransform.random(12, seed=3)
    assert prh.encode(np.zeros((1, 12))).tolist() == [[255, 15]]
    assert prh.encode(np.full((1, 12), -0.0)).tolist() == [[255, 15]]


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17])
def test_values_too_small_to_scale_still_agree(n):
    x = np.random.default_rng(0).choice([0, 1e-45, -1e-45, 1e-38, -1e-38], (n, 32)).astype(np.float32)
    prh = PRHTransform.random(32)
    np.testing.assert_array_equal(prh.encode(x), packed(prh.apply(x)))


def test_training_again_replaces():
    first, second = vectors(500, 16), vectors(500, 16, seed=1) * np.arange(1, 17)
    prh, fresh = PRHTransform(16), PRHTransform(16)
    prh.train(first)
    before = prh.rotation
    prh.train(second)
    fresh.train(second)
    assert prh.rotation == fresh.rotation != before
    np.testing.assert_array_equal(prh.encode(first), fresh.encode(first))


def test_random_is_seeded_and_orthogonal():
    a, b, c = PRHTransform.random(50, seed=1), PRHTransform.random(50, seed=1), PRHTransform.random(50, seed=2)
    assert a.rotation == b.rotation != c.rotation
    assert a.is_trained
    x = vectors(9, 50)
    np.testing.assert_allclose(np.linalg.norm(a.apply(x), axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)


def test_default_parameters():
    parameters = PRHTransform(100).parameters
    assert (parameters.n_iso, parameters.n_pca, parameters.tilt) == (7, 4, 0.0)


@pytest.mark.parametrize("route", ["sample", "covariance"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_non_finite_training_vectors_are_named(route, bad):
    x = vectors(30 if route == "sample" else 11_000, 10).astype(np.float64)
    prh = PRHTransform(10)
    prh.train(x)
    before = prh.rotation
    x[17, 3] = x[21, 0] = bad
    with pytest.raises(ValueError, match="training vector 17 "):
        prh.train(x)
    assert prh.rotation is before


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40, 3000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e36, -2e18])
def test_non_finite_vectors_to_encode_are_named(n, bad, thread_count):
    thread_count(4)
    prh, x = PRHTransform.random(70), vectors(n, 70)
    x[n // 2, 69] = x[n - 1, 3] = bad
    with pytest.raises(ValueError, match=f"^vector {n // 2} "):
        prh.encode(x)


def test_a_bad_row_is_counted_over_blocks(monkeypatch):
    monkeypatch.setattr(_arrays, "BLOCK_VALUES", 40)
    x = vectors(50, 10)
    x[33, 1] = np.nan
    with pytest.raises(ValueError, match=r"^vector 33 "):
        PRHTransform.random(10).encode(x)
    with pytest.raises(ValueError, match="training vector 33 "):
        PRHTransform(10).train(x)


def test_apply_passes_nan_on_and_keeps_the_other_vectors_clean():
    prh, x = with_rotation(PairwiseRotation.random(33, n_layers=5, seed=0)), vectors(20, 33)
    clean = prh.apply(x)
    x[4, 7] = np.nan
    y = prh.apply(np.concatenate([x, x]))
    assert np.isnan(y[4]).any()
    others = np.delete(np.arange(20), 4)
    np.testing.assert_array_equal(y[others], clean[others])
    np.testing.assert_array_equal(y[20 + others], clean[others])


@pytest.mark.parametrize("method", ["train", "apply", "reverse_transform", "encode"])
@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((3, 9)), ValueError, r"10 columns, not 9 \(shape \(3, 9\)\)"),
        (np.zeros(10), ValueError, r"two dimensions, \(n, 10\), not shape \(10,\)"),
        (np.zeros((2, 2, 10)), ValueError, r"not shape \(2, 2, 10\)"),
        (np.zeros((2, 10), dtype=complex), TypeError, "real numbers, not complex"),
        ([["a"] * 10], TypeError, "real numbers, not <U1"),
        (None, TypeError, "real numbers, not object"),
    ],
)
def test_bad_vectors(method, x, error, message):
    prh = PRHTransform.random(10)
    before = prh.rotation
    with pytest.raises(error, match=message):
        getattr(prh, method)(x)
    assert prh.rotation is before


@pytest.mark.parametrize("method", ["apply", "reverse_transform", "encode"])
def test_untrained(method):
    with pytest.raises(RuntimeError, match="not trained"):
        getattr(PRHTransform(10), method)(np.zeros((1, 10)))


def test_training_on_nothing():
    prh = PRHTransform(10)
    with pytest.raises(ValueError, match="at least one vector"):
        prh.train(np.empty((0, 10)))
    assert not prh.is_trained


@pytest.mark.parametrize(
    ("d", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        ((1 << 20) + 1, ValueError),
        (2.0, TypeError),
        ("8", TypeError),
        (True, TypeError),
    ],
)
def test_bad_dimension(d, error):
    with pytest.raises(error, match="d must be"):
        PRHTransform(d)


def test_bad_parameters_are_refused_at_once():
    with pytest.raises(ValueError, match="tilt"):
        PRHTransform(8, tilt=2)
    with pytest.raises(TypeError):
        PRHTransform(8, 8, 7)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda prh: pickle.loads(pickle.dumps(prh))])
def test_copies(again):
    prh = PRHTransform(24, n_iso=3, n_pca=2, tilt=0.25, seed=9)
    untrained = again(prh)
    assert not untrained.is_trained
    prh.train(vectors(100, 24))
    same = again(prh)
    assert same.parameters == untrained.parameters == prh.parameters
    assert same.rotation == prh.rotation
    x = vectors(10, 24, seed=1)
    np.testing.assert_array_equal(same.apply(x), prh.apply(x))
    prh.train(x)
    assert same.rotation != prh.rotation


def test_what_was_learned_cannot_be_set():
    prh = PRHTransform.random(8)
    with pytest.raises(AttributeError):
        prh.rotation = PairwiseRotation.random(8, 1, seed=0)
    with pytest.raises(AttributeError):
        prh.mean = np.zeros(8)
    with pytest.raises(ValueError, match="read-only"):
        prh.mean[0] = 1


def test_threads_that_train_at_once_leave_one_result():
    samples = [vectors(40, 16, seed) * np.arange(1, 17) ** seed for seed in range(2)]
    for _ in range(100):
        prh = PRHTransform(16, n_iso=1, n_pca=0)
        threads = [threading.Thread(target=prh.train, args=(x,)) for x in samples]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        again = PRHTransform.from_bytes(prh.to_bytes())
        np.testing.assert_array_equal(prh.apply(samples[0]), again.apply(samples[0]))


@pytest.mark.parametrize("d", [2, 3, 5, 8])
@pytest.mark.parametrize("angle", [np.pi / 4 - 1e-3, -np.pi / 4, 3.0])
def test_the_most_layers_stay_exact(d, angle):
    rng = np.random.default_rng(d)
    layers = []
    for _ in range(100):
        order = rng.permutation(d) if d > 3 else np.arange(d)
        layers.append((order[: d // 2], order[d // 2 : d // 2 * 2], np.full(d // 2, angle)))
    rotation = PairwiseRotation(d, layers)
    x = vectors(33, d)
    y = with_rotation(rotation).apply(x)
    np.testing.assert_allclose(y, x @ rotation.to_dense().T, atol=1e-4)


@pytest.mark.parametrize("values", [3e38, 1e36, 2e18])
def test_vectors_too_large_to_compute_with(values):
    """Their distances, or already their rotation, would not fit single precision."""
    x = np.full((40, 4), values)
    x[::2] *= -1
    prh, random = PRHTransform(4), PRHTransform.random(4)
    for call in (prh.train, random.encode, random.apply, random.reverse_transform, prh.partial_train):
        with pytest.raises(ValueError, match=r"vector 0 is too large: its norm must be below 1\.6e\+18"):
            call(x)
    assert not prh.is_trained
    x[3] = np.nan
    with pytest.raises(ValueError, match="vector 0 is too large"):
        random.apply(x)


@pytest.mark.parametrize("n", [1, 5, 16, 40])
@pytest.mark.parametrize("d", [4, 70])
def test_the_largest_vectors_are_computed_with(d, n, simd_level):
    """Also where a tile of them together would not fit."""
    prh = PRHTransform.random(d)
    x = vectors(n, d)
    large = (x * (1.5e18 / np.linalg.norm(x, axis=1, keepdims=True))).astype(np.float32)
    y = prh.apply(large)
    np.testing.assert_allclose(np.linalg.norm(y.astype(np.float64), axis=1), 1.5e18, rtol=1e-5)
    np.testing.assert_array_equal(prh.encode(large), np.packbits(y >= 0, axis=1, bitorder="little"))
    prh.train(large)
    assert np.isfinite(prh.apply(large)).all()


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="masked"):
        PRHTransform.random(3).encode(np.ma.masked_array(np.zeros((2, 3)), mask=True))


def test_repr():
    assert (
        repr(PRHTransform(16))
        == "<PRHTransform(16, n_iso=4, n_pca=4, tilt=0, seed=1234, tune=True, center=True), untrained>"
    )


@pytest.mark.parametrize(("m", "d"), [(3000, 2000), (300_000, 32)])
def test_training_memory(m, d):
    x = vectors(m, d)
    prh = PRHTransform(d, tune=d < 1000)  # of so few vectors, the sample for tuning would be a large part
    tracemalloc.start()
    try:
        prh.train(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * x.nbytes  # 2.5 with the caller's matrix


def test_one_owner_of_trained():
    """What was learned counts for Python, native code, Faiss and bytes, or for none of them."""
    x = vectors(100, 8)
    prh = PRHTransform(8)
    prh.train(x)
    index = faiss.IndexPreTransform(prh, faiss.IndexFlatL2(8))
    for forget in (lambda: setattr(prh, "is_trained", False), lambda: setattr(index.chain.at(0), "is_trained", False)):
        prh.train(x)
        codes = prh.encode(x)
        forget()
        assert not prh.is_trained
        assert (prh.rotation, prh.mean, prh.kept) == (None, None, None)
        for use in (prh.encode, prh.apply, prh.reverse_transform, lambda _: prh.describe(), lambda _: prh.to_dense()):
            with pytest.raises(RuntimeError, match="not trained"):
                use(x)
        with pytest.raises(RuntimeError, match="not trained"):
            index.chain.at(0).apply(x)
        assert not PRHTransform.from_bytes(prh.to_bytes()).is_trained
        assert not copy.deepcopy(prh).is_trained
        prh.check_identical(PRHTransform(8))
        prh.train(x)
        np.testing.assert_array_equal(prh.encode(x), codes)
    prh.is_trained = True  # as it is
    with pytest.raises(RuntimeError, match="not trained"):
        PRHTransform(8).is_trained = True


def test_is_a_faiss_transform():
    prh = PRHTransform(6)
    assert isinstance(prh, faiss.VectorTransform)
    assert (prh.d_in, prh.d_out, prh.is_trained) == (6, 6, False)
