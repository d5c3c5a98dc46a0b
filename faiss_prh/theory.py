"""
The paper's closed forms for a two-dimensional Gaussian.

A centred Gaussian is described by the variances `lambda1` and `lambda2` along its principal axes, and by the angle
`theta` from the first dimension to the axis of `lambda1`. Arguments are broadcast against each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def covariance(lambda1: ArrayLike, lambda2: ArrayLike, theta: ArrayLike) -> tuple[Array, Array, Array]:
    """
    Return the entries (s11, s22, s12) of the covariance matrix.

    Parameters
    ----------
    lambda1, lambda2 : array_like
        Eigenvalues of the covariance matrix, in either order: finite and not negative.
    theta : array_like
        Angle from the first dimension to the axis of `lambda1`, in radians.

    Returns
    -------
    tuple of ndarray
        Variance of the first dimension, variance of the second, and their covariance.

    Examples
    --------
    >>> import numpy as np
    >>> [round(float(s), 6) for s in covariance(2, 1, np.pi / 4)]
    [1.5, 1.5, 0.5]
    """
    lambda1, lambda2 = _checked("lambda1", lambda1), _checked("lambda2", lambda2)
    theta = _checked("theta", theta, least=-np.inf)
    cosine, sine = np.cos(theta), np.sin(theta)
    # The paper's mean ± half the difference times cos 2θ, written so that small variances do not cancel.
    s11 = lambda1 * cosine**2 + lambda2 * sine**2
    s22 = lambda1 * sine**2 + lambda2 * cosine**2
    return s11, s22, (lambda1 - lambda2) * (sine * cosine)


def quantisation_error(variances: ArrayLike) -> Array:
    """
    Return the expected squared distance between a centred Gaussian vector and the vector of its signs (±1).

    It does not depend on covariances. Among variances with the same sum, equal ones make it smallest.

    Parameters
    ----------
    variances : array_like
        Variances of the dimensions, any number of them, along the last axis: finite and not negative.

    Returns
    -------
    ndarray
        n + Σ s - 2 √(2/π) Σ √s, summed over the last axis.

    Examples
    --------
    >>> quantisation_error([[4, 0], [3, 1], [2, 2]]).round(3).tolist()
    [2.808, 1.64, 1.486]
    """
    s = _checked("variances", variances)
    if s.ndim == 0:
        raise ValueError("variances must have at least one axis, that of the dimensions")
    error: Array = np.sum(1 + s - 2 * np.sqrt(2 / np.pi) * np.sqrt(s), axis=-1)
    return error


def pair_quantisation_error(lambda1: ArrayLike, lambda2: ArrayLike, theta: ArrayLike) -> Array:
    """
    Return the quantisation error of two dimensions, as a function of the angle.

    Parameters
    ----------
    lambda1, lambda2, theta : array_like
        See `covariance`.

    Returns
    -------
    ndarray
        Expected squared distance to the sign vector: smallest at θ = π/4, largest at θ = 0.

    Examples
    --------
    >>> import numpy as np
    >>> pair_quantisation_error(2, 1, [0, np.pi / 8, np.pi / 4]).round(3).tolist()
    [1.147, 1.119, 1.091]
    """
    s11, s22, _ = covariance(lambda1, lambda2, theta)
    return quantisation_error(np.stack([s11, s22], axis=-1))


def orthant_probabilities(lambda1: ArrayLike, lambda2: ArrayLike, theta: ArrayLike) -> tuple[Array, Array]:
    """
    Return the probabilities of the codes (1, 1) and (-1, 1). The opposite codes have the same ones.

    The paper's arctangent is valid for θ between 0 and π/2, this form for every angle. A dimension that is always 0
    has no sign. It is treated as a fair coin, which is the limit of small variances.

    Parameters
    ----------
    lambda1, lambda2, theta : array_like
        See `covariance`.

    Returns
    -------
    tuple of ndarray
        (p_same, p_different), which add up to 1/2.

    Examples
    --------
    >>> import numpy as np
    >>> [p.round(3).tolist() for p in orthant_probabilities([2, 1, 1], [1, 1, 0], np.pi / 4)]
    [[0.304, 0.25, 0.5], [0.196, 0.25, 0.0]]
    """
    s12 = covariance(lambda1, lambda2, theta)[2]
    # The root of the determinant, s11 s22 - s12²: the arctangents are those of arccos(±correlation).
    root = np.sqrt(lambda1, dtype=np.float64) * np.sqrt(lambda2, dtype=np.float64)
    root = np.where((root == 0) & (s12 == 0), 1, root)
    return np.arctan2(root, -s12) / (2 * np.pi), np.arctan2(root, s12) / (2 * np.pi)


def code_entropy(lambda1: ArrayLike, lambda2: ArrayLike, theta: ArrayLike) -> Array:
    """
    Return the entropy of the two-bit code, in bits. The paper uses natural logarithms, which give nats.

    Parameters
    ----------
    lambda1, lambda2, theta : array_like
        See `covariance`.

    Returns
    -------
    ndarray
        Entropy from 1 to 2 bits. Like the quantisation error, it is smallest at θ = π/4 and largest at θ = 0.

    Examples
    --------
    >>> import numpy as np
    >>> code_entropy(2, 1, [0, np.pi / 8, np.pi / 4]).round(3).tolist()
    [2.0, 1.982, 1.966]
    """
    p = np.stack(orthant_probabilities(lambda1, lambda2, theta))
    entropy: Array = -2 * np.sum(p * np.log2(np.where(p > 0, p, 1)), axis=0)  # 0 log 0 = 0
    return entropy


def _checked(name: str, value: ArrayLike, least: float = 0) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, not {array.dtype}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, found {array[~np.isfinite(array)][0]}")
    if (array < least).any():
        raise ValueError(f"{name} must not be negative, found {array.min()}")
    return array
