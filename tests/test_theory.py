"""The closed forms against integration, against sampling, and what the paper concludes from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad
from scipy.stats import norm

from faiss_prh.learning.layers import isotropic_angle, rotated_variances
from faiss_prh.theory import (
    code_entropy,
    covariance,
    orthant_probabilities,
    pair_quantisation_error,
    quantisation_error,
)

GAUSSIANS = [(2.0, 1.0, 0.0), (2.0, 1.0, 0.3), (5.0, 0.1, 0.9), (1.0, 3.0, -2.0), (0.7, 0.7, 1.0)]
OF_THREE = [covariance, pair_quantisation_error, orthant_probabilities, code_entropy]

steady = settings(deadline=None, derandomize=True)
positive = st.floats(1e-3, 1e3)
variance = st.floats(0, 1e6)
angle = st.floats(-10, 10)


def matrix(lambda1: float, lambda2: float, theta: float) -> np.ndarray:
    s11, s22, s12 = covariance(lambda1, lambda2, theta)
    return np.array([[s11, s12], [s12, s22]])


@steady
@given(positive, positive, angle)
def test_covariance_is_that_of_the_turned_axes(lambda1, lambda2, theta):
    axes = np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
    expected = axes @ np.diag([lambda1, lambda2]) @ axes.T
    np.testing.assert_allclose(matrix(lambda1, lambda2, theta), expected, rtol=0, atol=1e-14 * (lambda1 + lambda2))


@steady
@given(positive, positive, angle)
def test_covariance_is_the_papers_equation(lambda1, lambda2, theta):
    mean, half = (lambda1 + lambda2) / 2, (lambda1 - lambda2) / 2
    expected = mean + half * np.cos(2 * theta), mean - half * np.cos(2 * theta), half * np.sin(2 * theta)
    np.testing.assert_allclose(covariance(lambda1, lambda2, theta), expected, rtol=0, atol=1e-14 * mean)


@pytest.mark.parametrize("gaussian", GAUSSIANS)
def test_orthant_probabilities_against_integration(gaussian):
    sigma = matrix(*gaussian)
    rho = sigma[0, 1] / np.sqrt(sigma[0, 0] * sigma[1, 1])
    slope = rho / np.sqrt(1 - rho**2)
    same, _ = quad(lambda x: norm.pdf(x) * norm.cdf(slope * x), 0, np.inf, epsabs=1e-12)
    different, _ = quad(lambda x: norm.pdf(x) * norm.cdf(slope * x), -np.inf, 0, epsabs=1e-12)
    np.testing.assert_allclose(orthant_probabilities(*gaussian), [same, different], rtol=0, atol=1e-9)


@pytest.mark.parametrize("gaussian", GAUSSIANS[1:3])
def test_error_and_probabilities_against_the_integral_over_the_quadrants(gaussian):
    sigma = matrix(*gaussian)
    (q11, q12), (_, q22) = np.linalg.inv(sigma)
    scale = 1 / (2 * np.pi * np.sqrt(np.linalg.det(sigma)))
    far1, far2 = 8 * np.sqrt(np.diag(sigma))

    def over_quadrant(sign, f):
        def integrand(y, x):
            return f(x, y) * scale * np.exp(-(q11 * x * x + 2 * sign * q12 * x * y + q22 * y * y) / 2)

        return dblquad(integrand, 0, far1, 0, far2, epsabs=1e-8, epsrel=1e-8)[0]

    p = [over_quadrant(sign, lambda x, y: 1) for sign in (1, -1)]
    error = 2 * sum(over_quadrant(sign, lambda x, y: (x - 1) ** 2 + (y - 1) ** 2) for sign in (1, -1))
    np.testing.assert_allclose(orthant_probabilities(*gaussian), p, rtol=0, atol=1e-7)
    np.testing.assert_allclose(pair_quantisation_error(*gaussian), error, rtol=0, atol=1e-6)


def test_quantisation_error_against_integration_in_many_dimensions():
    deviations = np.array([0.01, 0.3, 1.0, 1.7, 20.0])
    one_by_one = [
        2 * quad(lambda z, s=s: (s * z - 1) ** 2 * norm.pdf(z), 0, np.inf, epsrel=1e-10)[0] for s in deviations
    ]
    np.testing.assert_allclose(quantisation_error(deviations**2), sum(one_by_one), rtol=1e-9)


@pytest.mark.parametrize("gaussian", [*GAUSSIANS, (2.0, 0.0, 0.4)])
def test_against_a_sample(gaussian):
    lambda1, lambda2, theta = gaussian
    n = 200_000
    z = np.random.default_rng(0).normal(size=(n, 2)) * np.sqrt([lambda1, lambda2])
    x = z @ np.array([[np.cos(theta), np.sin(theta)], [-np.sin(theta), np.cos(theta)]])
    signs = np.where(x >= 0, 1, -1)

    errors = np.square(x - signs).sum(axis=1)
    assert abs(errors.mean() - pair_quantisation_error(*gaussian)) < 5 * errors.std() / np.sqrt(n)

    codes = np.array([[1, 1], [-1, 1], [1, -1], [-1, -1]])
    counts = (signs[:, None] == codes).all(axis=2).sum(axis=0)
    p_same, p_different = orthant_probabilities(*gaussian)
    frequencies = np.array([p_same, p_different, p_different, p_same])
    # Where a probability is 0 so is the tolerance: the code must not occur.
    assert (abs(counts / n - frequencies) <= 5 * np.sqrt(frequencies * (1 - frequencies) / n)).all()

    seen = counts[counts > 0] / n
    assert abs(-(seen * np.log2(seen)).sum() - code_entropy(*gaussian)) < 0.01


@steady
@given(positive, positive, angle)
def test_orthant_probabilities_are_the_classical_arcsine(lambda1, lambda2, theta):
    (s11, s12), (_, s22) = matrix(lambda1, lambda2, theta)
    rho = np.clip(s12 / np.sqrt(s11 * s22), -1, 1)
    p_same, p_different = orthant_probabilities(lambda1, lambda2, theta)
    # The arcsine, unlike the arctangent, loses half of the digits at ±1.
    np.testing.assert_allclose(p_same, 1 / 4 + np.arcsin(rho) / (2 * np.pi), rtol=0, atol=1e-7)
    np.testing.assert_allclose(p_different, 1 / 4 - np.arcsin(rho) / (2 * np.pi), rtol=0, atol=1e-7)


@steady
@given(positive, positive, st.floats(0.01, np.pi / 2 - 0.01))
def test_orthant_probabilities_are_the_papers_where_it_holds(one, other, theta):
    lambda1, lambda2 = max(one, other) * 1.001, min(one, other)
    gamma = np.sqrt(lambda1 / lambda2) - np.sqrt(lambda2 / lambda1)
    p = np.arctan(2 / (gamma * np.sin(2 * theta))) / (2 * np.pi)
    np.testing.assert_allclose(orthant_probabilities(lambda1, lambda2, theta), [0.5 - p, p], rtol=0, atol=1e-12)


@steady
@given(positive, positive, angle)
def test_probabilities_are_positive_and_add_up(lambda1, lambda2, theta):
    p_same, p_different = orthant_probabilities(lambda1, lambda2, theta)
    assert p_same > 0
    assert p_different > 0
    assert 2 * (p_same + p_different) == pytest.approx(1, abs=1e-15)
    assert 1 <= code_entropy(lambda1, lambda2, theta) + 1e-14 <= 2 + 2e-14


def test_a_small_probability_keeps_its_digits():
    _, p_different = orthant_probabilities(1, 1e-60, np.pi / 4)
    assert p_different == pytest.approx(1e-30 / np.pi, rel=1e-12)


@steady
@given(positive, positive, angle)
def test_symmetries(lambda1, lambda2, theta):
    for f in (pair_quantisation_error, code_entropy):
        here = f(lambda1, lambda2, theta)
        assert f(lambda1, lambda2, -theta) == pytest.approx(here, rel=1e-12)
        assert f(lambda1, lambda2, theta + np.pi) == pytest.approx(here, rel=1e-11)
        assert f(lambda2, lambda1, theta + np.pi / 2) == pytest.approx(here, rel=1e-11)
    p_same, p_different = orthant_probabilities(lambda1, lambda2, theta)
    mirrored = orthant_probabilities(lambda1, lambda2, -theta)
    np.testing.assert_allclose(mirrored, (p_different, p_same), rtol=1e-12)


@steady
@given(positive, st.floats(1.05, 1e4))
def test_the_trade_off(lambda2, ratio):
    theta = np.linspace(0, np.pi / 2, 41)
    for f in (pair_quantisation_error, code_entropy):
        values = f(ratio * lambda2, lambda2, theta)
        assert (np.diff(values[:21]) < 0).all()  # from the greatest at 0 down to the least at π/4
        assert (np.diff(values[20:]) > 0).all()
    assert code_entropy(ratio * lambda2, lambda2, 0) == pytest.approx(2, abs=1e-15)


@steady
@given(positive, angle)
def test_there_is_no_trade_off_in_a_circle(lambda1, theta):
    assert pair_quantisation_error(lambda1, lambda1, theta) == pytest.approx(quantisation_error([lambda1] * 2))
    assert orthant_probabilities(lambda1, lambda1, theta) == (0.25, 0.25)
    assert code_entropy(lambda1, lambda1, theta) == 2


@steady
@given(variance, variance, st.floats(-1, 1), angle)
def test_no_rotation_has_a_smaller_error_than_the_isotropic(a, b, correlation, theta):
    a, b = np.array([a]), np.array([b])
    c = correlation * np.sqrt(a) * np.sqrt(b)

    def error_after(angles):
        return quantisation_error(np.stack(rotated_variances(a, b, c, angles), axis=-1))[0]

    isotropic, rounding = error_after(isotropic_angle(a, b, c)), 1e-14 * (1 + a[0] + b[0])
    assert isotropic <= quantisation_error([a[0], b[0]]) + rounding
    assert isotropic <= error_after(np.array([theta])) + rounding


@pytest.mark.parametrize("theta", [0.1, np.pi / 4, 1.5, np.pi + 0.1])
def test_a_line_has_one_bit(theta):
    assert orthant_probabilities(3, 0, theta) == (0.5, 0)
    assert orthant_probabilities(3, 0, -theta) == (0, 0.5)
    assert code_entropy(3, 0, theta) == 1


@pytest.mark.parametrize("eigenvalues", [(3, 0), (0, 3), (0, 0)])
def test_a_dimension_without_variance_is_a_fair_coin(eigenvalues):
    assert orthant_probabilities(*eigenvalues, 0) == (0.25, 0.25)
    assert code_entropy(*eigenvalues, 0) == 2


def test_a_point_is_one_unit_from_its_sign_in_each_dimension():
    assert pair_quantisation_error(0, 0, 1) == 2
    assert quantisation_error(np.zeros((3, 7))).tolist() == [7, 7, 7]


@pytest.mark.parametrize("f", OF_THREE)
def test_arguments_broadcast_in_double_precision(f):
    lambda1, lambda2, theta = np.float32([[2], [3]]), [1, 0, 2], np.float32(0.3)
    result = np.asarray(f(lambda1, lambda2, theta))
    assert result.shape[-2:] == (2, 3)
    assert result.dtype == np.float64
    for i, j in np.ndindex(2, 3):
        alone = f(float(lambda1[i, 0]), lambda2[j], float(theta))
        np.testing.assert_allclose(result[..., i, j], alone, rtol=1e-15)


def test_quantisation_error_keeps_the_leading_axes():
    variances = np.arange(24).reshape(2, 3, 4)
    assert quantisation_error(variances).shape == (2, 3)
    np.testing.assert_array_equal(quantisation_error(variances)[1, 2], quantisation_error(variances[1, 2]))


@pytest.mark.parametrize("f", OF_THREE)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1, 0), r"lambda1 must not be negative, found -1\.0"),
        ((1, [2, -0.5], 0), r"lambda2 must not be negative, found -0\.5"),
        ((np.inf, 1, 0), "lambda1 must be finite, found inf"),
        ((1, [1, np.nan], 0), "lambda2 must be finite, found nan"),
        ((2, 1, -np.inf), "theta must be finite, found -inf"),
    ],
)
def test_bad_arguments(f, arguments, message):
    with pytest.raises(ValueError, match=message):
        f(*arguments)


@pytest.mark.parametrize(
    ("variances", "message"),
    [
        ([1, -2], r"variances must not be negative, found -2\.0"),
        ([1, np.nan], "variances must be finite, found nan"),
        ([np.inf, 1], "variances must be finite, found inf"),
        (1.0, "variances must have at least one axis"),
    ],
)
def test_bad_variances(variances, message):
    with pytest.raises(ValueError, match=message):
        quantisation_error(variances)


@pytest.mark.parametrize("value", ["one", 1j, None])
def test_what_is_not_a_real_number(value):
    with pytest.raises(TypeError, match="lambda1 must hold real numbers"):
        code_entropy(value, 1, 0)
    with pytest.raises(TypeError, match="variances must hold real numbers"):
        quantisation_error([value])
