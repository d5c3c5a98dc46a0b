"""Other numbers of bits than dimensions: reduction and expansion."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import samples, seeds

import faiss_prh
from faiss_prh import PRHTransform, learning
from faiss_prh.reduction import matching, mutual_best


@st.composite
def transforms(draw):
    x = draw(samples(max_d=40, min_m=2))
    d = x.shape[1]
    d_out = draw(st.integers(1, 60))
    prh = PRHTransform(d, d_out, n_pca=draw(st.integers(0, 3)), seed=draw(st.integers(0, 99)))
    prh.train(x)
    return prh, x


@given(transforms())
def test_rows_or_columns_are_orthonormal(drawn):
    prh, _ = drawn
    dense = prh.to_dense()
    assert dense.shape == (prh.d_out, prh.d_in)
    small = dense @ dense.T if prh.d_out <= prh.d_in else dense.T @ dense
    np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-6)


@given(transforms(), st.integers(0, 40), seeds)
def test_native_code_does_what_the_matrix_says(drawn, n, seed):
    prh, x = drawn
    scale = max(1.0, np.abs(x).max())
    batch = (np.random.default_rng(seed).normal(size=(n, prh.d_in)) * scale).astype(np.float32)
    expected = (batch - prh.mean) @ prh.to_dense().T
    y = prh.apply(batch)
    np.testing.assert_allclose(y, expected, atol=1e-4 * scale)
    np.testing.assert_array_equal(prh.encode(batch), np.packbits(y >= 0, axis=1, bitorder="little"))
    back = y @ prh.to_dense() + prh.mean
    np.testing.assert_allclose(prh.reverse_transform(y), back, atol=1e-4 * scale)
    if prh.d_out >= prh.d_in:
        np.testing.assert_allclose(prh.reverse_transform(y), batch, atol=1e-3 * scale)


@pytest.mark.parametrize(("d", "d_out"), [(100, 33), (33, 100), (784, 128), (300, 299), (64, 256)])
def test_every_simd_level_and_batch(d, d_out, simd_level):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(400, d)) @ rng.normal(size=(d, d)) / np.sqrt(d)).astype(np.float32)
    prh = PRHTransform(d, d_out)
    prh.train(x)
    expected = (x - prh.mean) @ prh.to_dense().T
    whole = prh.apply(x[:50])
    np.testing.assert_allclose(whole, expected[:50], atol=1e-4)
    for n in (1, 2, 3, 8, 9, 16, 17, 33):
        np.testing.assert_array_equal(prh.apply(x[:n]), whole[:n])
        np.testing.assert_array_equal(prh.encode(x[:n]), prh.encode(x[:50])[:n])


def correlated(d, rank, m, seed=0):
    rng = np.random.default_rng(seed)
    spectrum = np.exp(-np.arange(d) / rank)
    return (rng.normal(size=(m, d)) * spectrum @ np.linalg.qr(rng.normal(size=(d, d)))[0]).astype(np.float32)


@pytest.mark.parametrize(("d", "d_out"), [(64, 8), (200, 32), (300, 100)])
def test_most_of_the_variance_is_kept(d, d_out):
    x = correlated(d, d_out / 2, 3000)
    prh = PRHTransform(d, d_out)
    prh.train(x)
    best = np.linalg.eigvalsh(np.cov(x, rowvar=False))[::-1][:d_out].sum()
    assert prh.apply(x).var(axis=0).sum() > 0.85 * best


def test_what_is_kept_is_isotropic():
    x = correlated(128, 20, 3000)
    prh = PRHTransform(128, 32, n_pca=0)
    prh.train(x)
    variances = prh.apply(x).var(axis=0)
    np.testing.assert_allclose(variances, variances.mean(), rtol=1e-2)


def test_expansion_spreads_the_variance():
    x = correlated(32, 8, 2000)
    prh = PRHTransform(32, 128)
    prh.train(x)
    y = prh.apply(x)
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), np.linalg.norm(x - prh.mean, axis=1), rtol=1e-4)
    assert (y.var(axis=0) > 0).all()


def test_rotations_that_no_output_depends_on_cost_nothing():
    """Dropping them changes nothing: the rotation alone, all of it, gives the same values."""
    x = correlated(200, 20, 1000)
    prh = PRHTransform(200, 16)
    prh.train(x)
    whole = PRHTransform(200)
    whole._set(prh.rotation, prh.mean.copy())
    np.testing.assert_allclose(prh.apply(x), whole.apply(x)[:, prh.kept], atol=1e-5)


def test_in_indexes_and_files(tmp_path):
    x = correlated(96, 20, 3000)
    for description in ("PRH32,BFlat", "PRH32,BIVF16,RAsym", "PRH200,BFlat,RFlat", "PRH40(6,2),LSH", "PRH32,PQ8x4"):
        index = faiss_prh.index_factory(96, description)
        index.train(x)
        index.add(x)
        faiss_prh.write_index(index, tmp_path / "i")
        again = faiss_prh.read_index(tmp_path / "i")
        for mine, theirs in zip(again.search(x[:5], 3), index.search(x[:5], 3), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    stock = faiss_prh.to_faiss(index.chain.at(0))
    assert type(stock) is faiss.LinearTransform
    assert (stock.d_in, stock.d_out) == (96, 32)


def test_copies_keep_what_is_kept():
    prh = PRHTransform(50, 20)
    prh.train(correlated(50, 10, 500))
    again = PRHTransform.from_bytes(prh.to_bytes())
    assert (again.d_in, again.d_out, again.rotation) == (50, 20, prh.rotation)
    np.testing.assert_array_equal(again.kept, prh.kept)
    again.check_identical(prh)
    other = PRHTransform(50, 21)
    other.train(correlated(50, 10, 500))
    with pytest.raises(RuntimeError, match="another rotation"):
        other.check_identical(prh)


@given(st.integers(1, 30), st.integers(1, 30), seeds)
def test_mutual_best_is_a_matching(rows, columns, seed):
    gain = np.random.default_rng(seed).normal(size=(rows, columns))
    i, j = mutual_best(gain.copy())
    assert len(np.unique(i)) == len(i)
    assert len(np.unique(j)) == len(j)
    assert (gain[i, j] > 0).all()
    if (gain > 0).any():
        assert gain.max() in gain[i, j]


@given(st.integers(1, 40), seeds)
def test_matching_is_one(n, seed):
    gain = np.random.default_rng(seed).normal(size=(n, n)) ** 2
    gain += gain.T
    i, j = matching(gain.copy())
    both = np.concatenate([i, j])
    assert len(np.unique(both)) == len(both)


def test_so_many_layers_as_stay_in_single_precision(monkeypatch):
    monkeypatch.setattr(learning, "BUDGET", 1000.0)
    x = correlated(100, 30, 1000)
    prh = PRHTransform(100, 4)
    prh.train(x)
    np.testing.assert_allclose(prh.apply(x), (x - prh.mean) @ prh.to_dense().T, atol=1e-4)


def test_so_many_dimensions_cannot_be_reduced_yet():
    with pytest.raises(ValueError, match="put PCA in front"):
        PRHTransform(10_000, 100).train(np.ones((2, 10_000)))


@pytest.mark.parametrize("d_out", [0, -1, 2.5, True, 1 << 21])
def test_bad_numbers_of_bits(d_out):
    with pytest.raises((ValueError, TypeError), match="d_out"):
        PRHTransform(16, d_out)
