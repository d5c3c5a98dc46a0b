"""Learning angles together: values, products of soft signs and all slopes, against NumPy and finite differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from faiss_prh import PairwiseRotation, _backend
from faiss_prh.learning import joint_angles
from faiss_prh.learning.neighbours import away_from_zero
from faiss_prh.learning.tiles import SoftSigns, tiled, untiled

SOFTNESS = 0.4
shapes = st.tuples(st.sampled_from([1, 2, 3, 15, 16, 17, 33, 64, 100, 130]), st.sampled_from([1, 2, 15, 16, 17, 70]))


def drawn(shape, k, seed):
    n, m = shape
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, m)).astype(np.float32), rng.integers(0, m, (m, k)).astype(np.int32), rng


def products_of(rows, partners):
    signs = np.tanh(rows.T.astype(np.float64) / SOFTNESS)
    return np.einsum("mb,mkb->mk", signs, signs[partners])


def slopes_of(rows, partners, weights, mean_weight):
    """As a plain sum over pairs."""
    signs = np.tanh(rows.T.astype(np.float64) / SOFTNESS)
    slopes = np.einsum("mk,mkb->mb", weights, signs[partners])
    np.add.at(slopes, partners, weights[:, :, None] * signs[:, None])
    return (slopes * (1 - signs**2) / SOFTNESS).T + np.sign(rows) * mean_weight / rows.size


@given(shape=shapes, seed=seeds)
def test_tiles_hold_what_the_rows_do(shape, seed):
    rows, _, _ = drawn(shape, 1, seed)
    np.testing.assert_array_equal(untiled(tiled(rows), shape[1]), rows)
    assert tiled(rows).sum(dtype=np.float64) == pytest.approx(rows.sum(dtype=np.float64))  # the rest is zero


@given(shape=shapes, k=st.integers(1, 9), seed=seeds)
def test_products_and_slopes_of_soft_signs(shape, k, seed):
    rows, partners, rng = drawn(shape, k, seed)
    rows[rng.random(rows.shape) < 0.1] *= 1e4
    rows[rng.random(rows.shape) < 0.1] = 0
    weights = rng.normal(size=partners.shape)
    signs, y = SoftSigns(len(rows), partners, SOFTNESS), tiled(rows)
    products, magnitude = signs.products(y)
    np.testing.assert_allclose(products, products_of(rows, partners), atol=1e-4)
    np.testing.assert_allclose(magnitude, np.abs(rows).mean(dtype=np.float64), rtol=1e-6)
    slopes = untiled(signs.slopes(y, weights, 3.0), shape[1])
    expected = slopes_of(rows, partners, weights, 3.0)
    np.testing.assert_allclose(slopes, expected, atol=1e-4 * np.abs(expected).max())


@given(shape=shapes, seed=seeds)
def test_slopes_of_angles_are_differences(shape, seed):
    n, m = shape
    if n == 1:
        return
    rows, _, rng = drawn(shape, 1, seed)
    layers = [tuple(layer) for layer in PairwiseRotation.random(n, 3, seed).layers]
    i, j, theta = (np.concatenate(parts) for parts in zip(*layers, strict=True))
    weights = rng.normal(size=rows.shape).astype(np.float32)
    y, g = np.empty_like(tiled(rows)), tiled(weights)
    _backend.kernels.tiles_turn(tiled(rows), i, j, theta, y)
    np.testing.assert_allclose(untiled(y, m), PairwiseRotation(n, layers).to_dense() @ rows, atol=1e-5)
    slopes = _backend.kernels.tiles_slopes(y, g, i, j, theta)
    np.testing.assert_allclose(untiled(y, m), rows, atol=1e-5)  # back where they were

    def value(layers):
        return np.vdot(weights.astype(np.float64), PairwiseRotation(n, layers).to_dense() @ rows)

    step, at = np.float32(2**-6), 0
    for number, (first, second, angles) in enumerate(layers):
        for pair in range(0, len(angles), 7):
            both = []
            for sign in (1, -1):
                turned = angles.copy()
                turned[pair] += sign * step
                both.append(value([*layers[:number], (first, second, turned), *layers[number + 1 :]]))
            # The value is a sine of the angle: its difference is known exactly.
            np.testing.assert_allclose(slopes[at + pair], (both[0] - both[1]) / (2 * np.sin(step)), atol=1e-2)
        at += len(angles)


def test_levels_and_threads_give_the_same_bits(thread_count):
    rows, partners, rng = drawn((100, 3001), 6, 0)
    layers = [tuple(layer) for layer in PairwiseRotation.random(100, 5, 0).layers]
    i, j, theta = (np.concatenate(parts) for parts in zip(*layers, strict=True))
    weights, before, seen = rng.normal(size=partners.shape), _backend.active_simd_level(), set()
    for level in _backend.simd_levels():
        for threads in (1, 5):
            thread_count(threads)
            try:
                _backend.use_simd_level(level)
                signs, y = SoftSigns(100, partners, SOFTNESS), np.empty_like(tiled(rows))
                _backend.kernels.tiles_turn(tiled(rows), i, j, theta, y)
                products, magnitude = signs.products(y)
                slopes = signs.slopes(y, weights, 1.0)
                seen.add((products.tobytes(), magnitude, slopes.tobytes()))
                seen.add(_backend.kernels.tiles_outer(slopes, y).tobytes())
                seen.add(_backend.kernels.tiles_slopes(y, slopes, i, j, theta).tobytes())
                _backend.kernels.tiles_multiply(np.ascontiguousarray(rows[:, :100]), tiled(rows), y)
                seen.add(y.tobytes())
                seen.add((_backend.kernels.tiles_signs(y, 0.5, slopes), slopes.tobytes()))
            finally:
                _backend.use_simd_level(before)
    assert len(seen) == 5


def test_slopes_by_way_of_a_matrix(monkeypatch):
    """The matrix that layers are, where it is smaller than the sample, gives the same angles but for rounding."""
    rows, _, _ = drawn((20, 900), 1, 0)
    layers = [tuple(layer) for layer in PairwiseRotation.random(20, 8, 0).layers]
    learned = []
    for products in (0, 8):
        monkeypatch.setattr(joint_angles, "_ROTATION_PRODUCTS", products)
        ascended = joint_angles.ascend(
            layers, tiled(rows * np.arange(20, dtype=np.float32)[:, None]), away_from_zero, 3
        )
        learned.append(np.concatenate([theta for _, _, theta in ascended]))
    np.testing.assert_allclose(*learned, atol=1e-4)
    assert np.abs(learned[0] - np.concatenate([theta for _, _, theta in layers])).max() > 0.01
