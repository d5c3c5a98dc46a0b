"""Few bits of very many dimensions: rotations, then a dense matrix within a budget."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import faiss_prh
from faiss_prh import PairwiseRotation, PRHTransform
from faiss_prh.learning import exact, tail
from faiss_prh.learning.model import Model
from faiss_prh.learning.moments import CovarianceMoments, SampleMoments


def low_rank(n, d, rank, seed=0):
    """Return vectors most of whose variance lies in a few directions, none of which is an axis."""
    rng = np.random.default_rng(seed)
    mixed = (rng.normal(size=(n, rank)) * np.linspace(3, 1, rank)) @ rng.normal(size=(rank, d)) / np.sqrt(rank)
    return (mixed + rng.normal(size=(n, d)) / 3 + 1).astype(np.float32)


def pca_share(x, count):
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    return values[:count].sum() / values.sum()


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30), st.integers(0, 99))
def test_exact_products(n, k, m, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-9, 9), rng.normal(size=(k, m))
    product = exact.exact_product(a, b)
    scale = np.abs(a).max(axis=1, keepdims=True) * np.abs(b).max(axis=0)
    assert (np.abs(product - a @ b) <= 1e-6 * k * scale).all()
    shuffled = rng.permutation(k)
    np.testing.assert_array_equal(exact.exact_product(a[:, shuffled], b[shuffled]), product)  # no order of adding up
    np.testing.assert_allclose(exact.exact_gram(b), b.T @ b, atol=1e-5 * k * np.abs(b).max(axis=0).max() ** 2)


@given(st.integers(1, 25), st.integers(0, 25), st.integers(0, 99))
def test_orthonormal_columns(n, rank, seed):
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(30, rank)) @ rng.normal(size=(rank, n))
    basis = exact.orthonormal(columns)
    np.testing.assert_allclose(basis.T @ basis, np.eye(n), atol=1e-8)
    projected = basis @ (basis.T @ columns)
    assert np.abs(projected - columns).max() <= 2e-3 * max(1e-9, np.abs(columns).max())


@pytest.mark.parametrize(("d", "m"), [(25600, 2), (12000, 300)])
def test_fewer_directions_than_bits_of_very_many_dimensions(d, m):
    x = np.zeros((m, d), np.float32)
    x[:, 7] = np.random.default_rng(0).normal(size=m)
    prh = PRHTransform(d, 8)
    prh.train(x)
    tail = prh.tail.astype(np.float64)
    np.testing.assert_allclose(tail @ tail.T, np.eye(8), atol=1e-5)
    assert PRHTransform.from_bytes(prh.to_bytes()).tail is not None


def test_principal_directions_keep_what_pca_keeps():
    x = low_rank(400, 60, 8)
    covariance = np.cov(x.T)
    basis = exact.principal(covariance, 8)
    kept = np.trace(basis.T @ covariance @ basis) / np.trace(covariance)
    assert kept > 0.999 * pca_share(x, 8)


@pytest.mark.parametrize(
    ("d", "d_out", "width"),
    [(25600, 256, 4096), (25600, 512, 2048), (25600, 513, 0), (25600, 30, 25600), (40000, 64, 16384), (4096, 256, 0),
     (5000, 4096, 0), (784, 64, 784), (784, 84, 0), (128, 127, 128), (128, 128, 0), (128, 200, 0), (4096, 16, 4096),
     (5000, 5000, 0), (5000, 9000, 0)],
)  # fmt: skip
def test_when_there_is_a_tail(d, d_out, width):
    assert tail.tail_width(d, d_out, tune=True) == width
    assert tail.tail_width(d, d_out, tune=False) == (width if d > 4096 else 0)


@pytest.mark.parametrize("d_out", [1, 7, 30, 58, 59])
def test_small_tails_keep_what_pca_keeps(d_out):
    x = low_rank(400, 60, 20)
    moments = CovarianceMoments(60)
    moments.update(x)
    layers, kept, matrix, outputs = tail.learn_tail(moments, d_out, 60, seed=0)
    assert (layers, kept.tolist()) == ([], list(range(60)))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(d_out), atol=1e-6)
    covariance = np.cov((x @ matrix.T).T, bias=True).reshape(d_out, d_out)
    np.testing.assert_allclose(outputs.matrix(), covariance, atol=1e-4 * covariance.max())
    assert np.trace(covariance) > 0.998 * pca_share(x, d_out) * x.var(axis=0).sum()


@pytest.mark.parametrize("width", [10, 40, 149, 150])
def test_learned_tails(width):
    x = low_rank(300, 150, 6)
    moments = SampleMoments(x)
    before = moments.variances().sum()
    layers, kept, matrix, outputs = tail.learn_tail(moments, 6, width, seed=0)
    assert matrix.shape == (6, width) == (6, len(np.unique(kept)))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(6), atol=1e-5)
    dense = matrix @ PairwiseRotation(150, layers).to_dense()[kept]
    y = (x - x.mean(axis=0)) @ dense.T
    np.testing.assert_allclose(outputs.variances(), y.var(axis=0), rtol=1e-3)
    share, random_share = y.var(axis=0).sum() / before, width / 150 * pca_share(x, 6)
    assert share > (0.99 * pca_share(x, 6) if width == 150 else min(1.2 * random_share, 0.9 * pca_share(x, 6)))


def test_what_is_merged_leaves_energy_where_it_is_kept():
    rng = np.random.default_rng(0)
    # Four dimensions each are one and the same, but for their sizes: they can be merged without any loss.
    signed = rng.uniform(0.5, 2, size=(200, 1)) * rng.choice([-1, 1], size=(200, 1))
    loadings = (np.repeat(rng.normal(size=(50, 5)), 4, axis=0) * signed).astype(np.float32)
    total = np.square(loadings).sum()
    layers, kept = tail.merged(loadings, 50, rng)
    for i, j, _ in layers:
        assert len(np.unique(np.concatenate([i, j]))) == 2 * len(i)
    assert np.square(loadings[kept]).sum() > 0.999 * total


def test_fewer_vectors_than_bits(monkeypatch):
    monkeypatch.setattr(tail, "MAX_COVARIANCE", 100)
    monkeypatch.setattr("faiss_prh.learning.moments.MAX_COVARIANCE", 100)
    monkeypatch.setattr(tail, "MOST_PRODUCTS", 20 * 90)
    x = low_rank(12, 120, 5)
    prh = PRHTransform(120, 20)
    prh.train(x)
    assert prh.describe().tail == 90
    assert "dense tail: 90 dimensions to 20" in str(prh.describe())
    assert prh.describe().variance_kept > 0.5
    np.testing.assert_allclose(prh.to_dense() @ prh.to_dense().T, np.eye(20), atol=1e-5)
    for same in (np.ones((1, 120)), np.ones((5, 120))):  # no variance at all
        prh.train(same)
        np.testing.assert_allclose(prh.to_dense() @ prh.to_dense().T, np.eye(20), atol=1e-5)


def with_tail(d, d_out, width, n_layers=3):
    rng = np.random.default_rng(d)
    prh = PRHTransform(d, d_out)
    matrix = np.linalg.qr(rng.normal(size=(width, d_out)))[0].T.astype(np.float32, order="C")
    kept = np.arange(d, dtype=np.int32) if n_layers == 0 else rng.permutation(d)[:width].astype(np.int32)
    mean = rng.normal(size=d).astype(np.float32)
    prh._set(Model(PairwiseRotation.random(d, n_layers, seed=1), mean, kept, tail=matrix))
    return prh


@pytest.mark.parametrize(
    ("d", "d_out", "width", "n_layers"),
    [
        (50, 3, 20, 3),
        (300, 37, 270, 3),
        (64, 16, 64, 3),
        (64, 16, 64, 0),
        (51, 3, 51, 0),
        (99, 98, 99, 0),
        (2, 1, 2, 0),
    ],
)
def test_a_tail_does_what_its_matrix_says(d, d_out, width, n_layers, simd_level, thread_count):
    prh = with_tail(d, d_out, width, n_layers)
    x = np.random.default_rng(2).normal(size=(200, d)).astype(np.float32)
    dense = prh.to_dense()
    np.testing.assert_allclose(dense, prh.tail.astype(float) @ prh.rotation.to_dense()[prh.kept], atol=1e-12)
    y = prh.apply(x)
    np.testing.assert_allclose(y, (x - prh.mean) @ dense.T, atol=1e-4)
    np.testing.assert_allclose(prh.reverse_transform(y), y @ dense + prh.mean, atol=1e-4)
    codes = prh.encode(x)
    np.testing.assert_array_equal(codes, np.packbits(y >= 0, axis=1, bitorder="little"))
    np.testing.assert_allclose(prh._encode_with_norms(x)[1], np.linalg.norm(y, axis=1), rtol=1e-5)
    thread_count(3)
    for cut in (1, 2, 7, 47, 48, 49, 97, 199):
        np.testing.assert_array_equal(np.concatenate([prh.encode(x[:cut]), prh.encode(x[cut:])]), codes)
        np.testing.assert_array_equal(np.concatenate([prh.apply(x[:cut]), prh.apply(x[cut:])]), y)


def test_stock_faiss_takes_a_tail_for_a_dense_transform():
    prh = with_tail(50, 8, 20)
    x = np.random.default_rng(2).normal(size=(100, 50)).astype(np.float32)
    index = faiss.IndexPreTransform(prh, faiss.IndexFlatL2(8))
    index.add(x)
    again = faiss.deserialize_index(faiss.serialize_index(index))
    np.testing.assert_allclose(again.chain.at(0).apply(x), prh.apply(x), atol=1e-5)
    prh.check_identical(faiss.downcast_VectorTransform(again.chain.at(0)))


@pytest.mark.parametrize(("width", "n_layers"), [(20, 3), (50, 0)])
def test_vectors_that_cannot_be_used(width, n_layers, simd_level):
    prh = with_tail(50, 8, width, n_layers)
    x = np.zeros((100, 50), dtype=np.float32)
    for value, message in [(np.nan, "vector 60 has a non-finite"), (1e30, "vector 60 is too large")]:
        x[60, 7] = value
        with pytest.raises(ValueError, match=message):
            prh.encode(x)
    y = np.zeros((100, 8), dtype=np.float32)
    y[99] = 1e30
    with pytest.raises(ValueError, match="vector 99 is too large"):
        prh.reverse_transform(y)


def test_an_index_with_a_tail_survives_its_file():
    x = low_rank(500, 96, 8)
    index = faiss_prh.IndexBinaryPreTransform(with_tail(96, 8, 40), faiss.IndexBinaryFlat(8))
    index.add(x)
    again = faiss_prh.deserialize_index(faiss_prh.serialize_index(index))
    np.testing.assert_array_equal(again.search(x[:9], 5)[1], index.search(x[:9], 5)[1])
    np.testing.assert_array_equal(again.chain[0].tail, index.chain[0].tail)
