import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import samples

from faiss_prh import Parameters, PRHTransform
from faiss_prh.learning.layers import (
    isotropic_angle,
    layers_for,
    learn,
    pca_angle,
    rotated_variances,
    tilted_angle,
)
from faiss_prh.learning.moments import CovarianceMoments, SampleMoments

MOMENTS = {"sample": SampleMoments, "covariance": lambda x: covariance_moments(x)}


def covariance_moments(x):
    moments = CovarianceMoments(x.shape[1])
    moments.update(x)
    return moments


def covariance(x):
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    return centred.T @ centred / len(x)


def learned(x, kind="sample", **parameters):
    defaults = {"n_iso": layers_for(x.shape[1]), "n_pca": 0, "tilt": 0.0, "seed": 0, "tune": False, "center": True}
    return learn(MOMENTS[kind](x), Parameters(**(defaults | parameters)))[0]


def after(x, rotation):
    dense = rotation.to_dense()
    return dense @ covariance(x) @ dense.T


variances = st.floats(0, 1e3)


@st.composite
def pairs(draw):
    a, b = draw(variances), draw(variances)
    c = draw(st.floats(-1, 1)) * np.sqrt(a * b)
    return np.array([a]), np.array([b]), np.array([c])


def rotate_pair(a, b, c, theta):
    cosine, sine = np.cos(theta[0]), np.sin(theta[0])
    r = np.array([[cosine, -sine], [sine, cosine]])
    return r @ np.array([[a[0], c[0]], [c[0], b[0]]]) @ r.T


@given(pairs())
def test_isotropic_angle_equalises(pair):
    turned = rotate_pair(*pair, isotropic_angle(*pair))
    np.testing.assert_allclose(turned[0, 0], turned[1, 1], atol=1e-9 * (1 + pair[0][0] + pair[1][0]))


@given(pairs())
def test_pca_angle_decorrelates_and_gives_the_first_the_larger_variance(pair):
    turned = rotate_pair(*pair, pca_angle(*pair))
    tolerance = 1e-9 * (1 + pair[0][0] + pair[1][0])
    np.testing.assert_allclose(turned[0, 1], 0, atol=tolerance)
    assert turned[0, 0] >= turned[1, 1] - tolerance


@given(pairs(), st.floats(-4, 4))
def test_rotated_variances_are_those_of_the_rotated_matrix(pair, theta):
    turned = rotate_pair(*pair, np.array([theta]))
    expected = np.array([turned[0, 0], turned[1, 1]])
    actual = np.concatenate(rotated_variances(*pair, np.array([theta])))
    np.testing.assert_allclose(actual, expected, atol=1e-9 * (1 + pair[0][0] + pair[1][0]))


@given(pairs(), st.floats(0, 1))
def test_tilting_moves_the_covariance_to_zero_and_the_variances_apart(pair, tilt):
    a, b, c = pair
    half_way = rotate_pair(*pair, tilted_angle(*pair, tilt))
    radius = np.hypot((a - b) / 2, c)[0]
    tolerance = 1e-9 * (1 + a[0] + b[0])
    np.testing.assert_allclose(abs(half_way[0, 1]), radius * np.cos(tilt * np.pi / 2), atol=tolerance)
    np.testing.assert_allclose(
        abs(half_way[0, 0] - half_way[1, 1]) / 2, radius * np.sin(tilt * np.pi / 2), atol=tolerance
    )


def test_a_circular_pair_is_left_alone():
    one, zero = np.array([1.0]), np.array([0.0])
    assert isotropic_angle(one, one, zero) == 0
    assert pca_angle(one, one, zero) == 0


@pytest.mark.parametrize("kind", MOMENTS)
@given(x=samples(), tilt=st.sampled_from([0.0, 0.3, 1.0]), n_pca=st.integers(0, 5))
def test_trace_is_preserved(kind, x, tilt, n_pca):
    rotation = learned(x, kind, tilt=tilt, n_pca=n_pca)
    before, trace = np.trace(covariance(x)), np.trace(after(x, rotation))
    np.testing.assert_allclose(trace, before, rtol=1e-6)


@pytest.mark.parametrize("kind", MOMENTS)
@given(x=st.sampled_from([2, 4, 8, 16, 32]).flatmap(lambda d: samples(d=d, min_m=2)))
def test_isotropic_for_powers_of_two(kind, x):
    turned = np.diagonal(after(x, learned(x, kind)))
    assert turned.max() <= (1 + 1e-4) * turned.min() + 1e-12


@given(samples())
def test_no_layer_moves_away_from_isotropy(x):
    d = x.shape[1]
    spreads, squares, errors = [], [], []
    for n_iso in range(layers_for(d) + 2):
        turned = np.maximum(np.diagonal(after(x, learned(x, n_iso=n_iso))), 0)
        spreads.append(np.ptp(turned))
        squares.append(np.sum(turned**2))
        errors.append(-np.sum(np.sqrt(turned)))  # the Gaussian quantisation error but for what is constant
    scale = 1 + np.trace(covariance(x))
    assert np.all(np.diff(spreads) <= 1e-5 * scale)
    assert np.all(np.diff(squares) <= 1e-5 * scale**2)
    # A square root turns a rounding error near zero into its square root.
    assert np.all(np.diff(errors) <= 1e-3 * np.sqrt(scale) * d)


@pytest.mark.parametrize("kind", MOMENTS)
@given(x=samples(min_m=2), n_pca=st.integers(1, 6))
def test_pair_covariances_vanish_after_a_pca_layer(kind, x, n_pca):
    rotation = learned(x, kind, n_pca=n_pca)
    turned = after(x, rotation)
    last = rotation.layers[-1]
    scale = np.trace(covariance(x)) + 1e-6
    assert np.all(np.abs(turned[last.i, last.j]) <= 1e-5 * scale)
    assert np.all(turned[last.i, last.i] >= turned[last.j, last.j] - 1e-5 * scale)


@given(
    d=st.integers(1, 48),
    m=st.integers(100, 200),
    seed=st.integers(0, 10_000),
    tilt=st.sampled_from([0.0, 0.5]),
    n_pca=st.integers(0, 4),
)
def test_both_moments_learn_the_same_rotation(d, m, seed, tilt, n_pca):
    # Data in general position: where exact arithmetic leaves a tie or a zero, rounding decides order and angle.
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(m, d)) * np.exp(rng.normal(size=d)) + 1).astype(np.float32)
    a, b = (learned(x, kind, tilt=tilt, n_pca=n_pca, n_iso=3) for kind in MOMENTS)
    np.testing.assert_allclose(a.to_dense(), b.to_dense(), atol=2e-4)


@given(samples(), st.integers(0, 5))
def test_learning_is_reproducible(x, n_pca):
    assert learned(x, n_pca=n_pca, seed=3) == learned(x, n_pca=n_pca, seed=3)


@given(samples())
def test_both_moments_make_ill_conditioned_samples_as_isotropic(x):
    spreads = [np.ptp(np.diagonal(after(x, learned(x, kind)))) for kind in MOMENTS]
    np.testing.assert_allclose(*spreads, atol=1e-4 * (1 + np.trace(covariance(x))))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("n_iso", -1, ValueError),
        ("n_iso", 101, ValueError),
        ("n_iso", 98, ValueError),
        ("n_iso", 2.0, TypeError),
        ("n_pca", True, TypeError),
        ("n_pca", "4", TypeError),
        ("tilt", -0.1, ValueError),
        ("tilt", 1.1, ValueError),
        ("tilt", float("nan"), ValueError),
        ("tilt", None, TypeError),
        ("seed", -1, ValueError),
        ("seed", 2**63, ValueError),
    ],
)
def test_bad_parameters(name, value, error):
    good = {"n_iso": 3, "n_pca": 3, "tilt": 0.0, "seed": 0, "tune": False, "center": True}
    with pytest.raises(error, match=name):
        Parameters(**(good | {name: value}))


@pytest.mark.parametrize(("d", "layers"), [(1, 0), (2, 1), (3, 2), (100, 7), (128, 7), (129, 8), (64000, 16)])
def test_layers_for(d, layers):
    assert layers_for(d) == layers


@pytest.mark.parametrize("d", [17, 33, 64])
def test_equal_gains_that_rounding_has_made_unequal(d):
    """Rotated covariances are symmetric but for rounding; no dimension may be in two pairs of a layer."""
    for bits in (8, 12, 16):
        PRHTransform(d, bits, tune=False).train(np.eye(d, dtype=np.float32))
