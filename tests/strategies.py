"""What hypothesis draws: samples with the troubles that real data have, and rotations of any shape."""

import numpy as np
from hypothesis import strategies as st

from faiss_prh import PairwiseRotation

seeds = st.integers(0, 2**32 - 1)


@st.composite
def samples(draw, d=None, max_d=40, min_m=1):
    """Correlated Gaussian vectors; some dimensions constant, some duplicates, some far from zero."""
    d = draw(st.integers(1, max_d)) if d is None else d
    m = draw(st.integers(min_m, 80))
    rng = np.random.default_rng(draw(seeds))
    sharpness = draw(st.sampled_from([0.0, 0.5, 2.0]))
    x = rng.normal(size=(m, d)) * np.exp(sharpness * rng.normal(size=d))
    if draw(st.booleans()):
        x = x @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    if draw(st.booleans()):
        x[:, rng.random(d) < 0.3] = draw(st.sampled_from([0.0, 1.0, -7.5]))
    if draw(st.booleans()):
        x[:, rng.integers(d)] = x[:, rng.integers(d)]
    if draw(st.booleans()):
        x += draw(st.sampled_from([1.0, 100.0]))
    return x.astype(np.float32)


@st.composite
def rotations(draw, max_d=70, max_layers=6):
    """Layers of some disjoint pairs in any order, angles all round the circle, the special ones often."""
    d = draw(st.integers(1, max_d))
    rng = np.random.default_rng(draw(seeds))
    layers = []
    for _ in range(draw(st.integers(0, max_layers))):
        n_pairs = draw(st.integers(0, d // 2))
        order = rng.permutation(d)
        theta = rng.uniform(-np.pi, np.pi, n_pairs)
        special = rng.random(n_pairs) < 0.3
        theta[special] = rng.choice([0, np.pi / 4, -np.pi / 4, np.pi / 2, np.pi, 7.0], special.sum())
        layers.append((order[:n_pairs], order[n_pairs : 2 * n_pairs], theta))
    return PairwiseRotation(d, layers)


def learned(prh):
    """Return what a transform has learned, but for the mean, which may differ by rounding."""
    return prh.rotation, prh.kept.tolist(), None if prh.tail is None else prh.tail.tolist()
