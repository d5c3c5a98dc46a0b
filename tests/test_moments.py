import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import samples, seeds

from faiss_prh._common import arrays as _arrays
from faiss_prh.learning.moments import CovarianceMoments, SampleMoments, moments_of


def covariance_moments(x):
    moments = CovarianceMoments(x.shape[1])
    moments.update(x)
    return moments


def reference(x):
    x = x.astype(np.float64)
    return x.mean(axis=0), np.cov(x.T, bias=True).reshape(x.shape[1], x.shape[1])


def random_pairs(d, rng):
    order = rng.permutation(d).astype(np.int32)
    return order[: d // 2], order[d // 2 : d // 2 * 2]


@pytest.mark.parametrize("make", [SampleMoments, covariance_moments])
@given(x=samples(), seed=seeds)
def test_moments_before_and_after_a_rotation(make, x, seed):
    d = x.shape[1]
    rng = np.random.default_rng(seed)
    moments = make(x)
    mean, covariance = reference(x)
    tolerance = 1e-5 * (1 + np.abs(mean).max() * 1e-2 + np.trace(covariance))
    np.testing.assert_allclose(moments.mean, mean, atol=1e-6 * (1 + np.abs(mean).max()))
    for _ in range(3):
        np.testing.assert_allclose(moments.variances(), np.diagonal(covariance), atol=tolerance)
        i, j = random_pairs(d, rng)
        np.testing.assert_allclose(moments.covariances(i, j), covariance[i, j], atol=tolerance)
        theta = rng.uniform(-4, 4, len(i)).astype(np.float32)
        turn = np.eye(d)
        turn[i, i] = turn[j, j] = np.cos(theta)
        turn[i, j], turn[j, i] = -np.sin(theta), np.sin(theta)
        covariance = turn @ covariance @ turn.T
        moments.rotate(i, j, theta)


@given(samples(min_m=3), st.integers(1, 2))
def test_covariance_moments_come_in_parts(x, cut):
    parts = CovarianceMoments(x.shape[1])
    parts.update(x[:cut])
    parts.update(x[cut:])
    whole = covariance_moments(x)
    assert parts.count == whole.count == len(x)
    scale = 1 + np.abs(x).max() ** 2
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-12 * scale)
    np.testing.assert_allclose(parts.variances(), whole.variances(), atol=1e-12 * scale)


@pytest.mark.parametrize("make", [SampleMoments, covariance_moments])
def test_blocks_do_not_matter(make, monkeypatch):
    x = np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32) + 3
    whole = make(x).variances()
    monkeypatch.setattr(_arrays, "BLOCK_VALUES", 70)
    np.testing.assert_allclose(make(x).variances(), whole, rtol=1e-12)


def test_the_shape_decides():
    few, many, wide = np.ones((20, 10), np.float32), np.ones((11_000, 10), np.float32), np.ones((200_000, 129), np.int8)
    assert isinstance(moments_of(few, 10, tune=False), SampleMoments)
    assert isinstance(moments_of(few, 10, tune=True), CovarianceMoments)
    assert isinstance(moments_of(few, 9, tune=False), CovarianceMoments)
    assert isinstance(moments_of(few, 11, tune=False), SampleMoments)
    assert isinstance(moments_of(many, 10, tune=False), CovarianceMoments)
    assert isinstance(moments_of(wide, 129, tune=False), CovarianceMoments)
    assert isinstance(moments_of(np.ones((2, 1025), np.float32), 1025, tune=False), SampleMoments)
    assert isinstance(moments_of(np.ones((2, 1025), np.float32), 1024, tune=False), CovarianceMoments)


def test_levels_and_threads_agree(simd_level, thread_count):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3001, 130)).astype(np.float32)
    i, j = random_pairs(130, rng)
    theta = rng.uniform(-4, 4, len(i)).astype(np.float32)

    def turned(threads):
        thread_count(threads)
        moments = SampleMoments(x)
        moments.rotate(i, j, theta)
        return moments.variances(), moments.covariances(i, j)

    for one, many in zip(turned(1), turned(8), strict=True):
        np.testing.assert_array_equal(one, many)
    _, covariance = reference(x)
    np.testing.assert_allclose(turned(1)[0].sum(), np.trace(covariance), rtol=1e-6)
