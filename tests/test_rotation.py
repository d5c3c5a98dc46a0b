import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import rotations, seeds

from faiss_prh import PairwiseRotation
from faiss_prh.rotation import random_pairings


@given(rotations())
def test_orthogonal(rotation):
    dense = rotation.to_dense()
    np.testing.assert_allclose(dense.T @ dense, np.eye(rotation.d), atol=1e-12)


@given(rotations())
def test_inverse_undoes(rotation):
    np.testing.assert_allclose(rotation.inverse().to_dense() @ rotation.to_dense(), np.eye(rotation.d), atol=1e-12)


@given(rotations())
def test_sparse_layers_multiply_to_dense(rotation):
    product = np.eye(rotation.d)
    for matrix in rotation.to_sparse():
        product = matrix @ product
    np.testing.assert_allclose(product, rotation.to_dense(), atol=1e-12)


@given(st.integers(1, 40).map(lambda half: 2 * half), seeds)
def test_a_sparse_layer_of_even_d_has_2d_entries(d, seed):
    order = np.random.default_rng(seed).permutation(d)
    (matrix,) = PairwiseRotation(d, [(order[: d // 2], order[d // 2 :], np.full(d // 2, 0.3))]).to_sparse()
    assert matrix.nnz == 2 * d


def test_rotates_counterclockwise():
    rotation = PairwiseRotation(3, [([0], [2], [np.pi / 2])])
    np.testing.assert_allclose(rotation.to_dense() @ [1, 5, 0], [0, 5, 1], atol=1e-7)


@given(rotations())
def test_counts_pickles_and_compares(rotation):
    assert rotation.n_rotations == sum(len(layer.i) for layer in rotation.layers)
    again = pickle.loads(pickle.dumps(rotation))
    assert again == rotation
    assert hash(again) == hash(rotation)
    assert rotation != PairwiseRotation(rotation.d + 1, rotation.layers)
    assert rotation != "something else"


def test_cannot_be_changed():
    rotation = PairwiseRotation.random(8, n_layers=2, seed=0)
    with pytest.raises(AttributeError):
        rotation.layers = ()
    with pytest.raises(ValueError, match="read-only"):
        rotation.layers[0].theta[0] = 1


def test_equal_rotations_hash_alike():
    rotation = PairwiseRotation(2, [([0], [1], [0.0])])
    assert rotation == rotation.inverse()
    assert hash(rotation) == hash(rotation.inverse())


def test_the_number_of_layers_is_limited():
    assert len(PairwiseRotation.random(2, 1000, seed=0).layers) == 1000
    with pytest.raises(ValueError, match="at most 1000 layers, not 1001"):
        PairwiseRotation.random(2, 1001, seed=0)
    with pytest.raises(ValueError, match="negative"):
        PairwiseRotation.random(2, -1, seed=0)


def test_does_not_keep_the_callers_arrays():
    i, j, theta = np.array([0], "i4"), np.array([1], "i4"), np.array([1], "f4")
    rotation = PairwiseRotation(2, [(i, j, theta)])
    i[0], theta[0] = 1, 2
    assert rotation == PairwiseRotation(2, [([0], [1], [1.0])])


@pytest.mark.parametrize(
    ("d", "layer", "error", "message"),
    [
        (0, ([], [], []), ValueError, "d must be from 1"),
        (2**40, ([2**35], [1], [1.0]), ValueError, "d must be from 1"),
        (3.5, ([0], [3], [1.0]), TypeError, "d must be an integer"),
        (4, ([0], [1], [1j]), TypeError, "real numbers, not complex"),
        (4, ([0, 1], [2], [1.0, 1.0]), ValueError, "layer 0: .* one length"),
        (4, ([[0]], [[1]], [[1.0]]), ValueError, "layer 0: .* one length"),
        (4, ([0], [4], [1.0]), ValueError, "from 0 to 3, found 0 to 4"),
        (4, ([-1], [2], [1.0]), ValueError, "from 0 to 3, found -1 to 2"),
        (4, ([0, 1], [1, 2], [1.0, 1.0]), ValueError, "more than one pair"),
        (4, ([0], [0], [1.0]), ValueError, "more than one pair"),
        (4, ([0.0], [1.0], [1.0]), TypeError, "integers, not float64"),
        (4, ([0], [1], [np.nan]), ValueError, "finite"),
        (4, ([2**32], [1], [1.0]), ValueError, "from 0 to 3"),
    ],
)
def test_bad_layers(d, layer, error, message):
    with pytest.raises(error, match=message):
        PairwiseRotation(d, [layer])


@given(st.integers(1, 70), st.integers(0, 9), seeds)
def test_random_pairings_are_disjoint_and_complete(d, n_layers, seed):
    pairings = list(random_pairings(d, n_layers, np.random.default_rng(seed)))
    assert len(pairings) == n_layers
    for i, j in pairings:
        paired = np.concatenate([i, j])
        assert len(np.unique(paired)) == len(paired)
        assert len(paired) == d // 2 * 2


def test_random_needs_its_seed():
    first, same, other = (PairwiseRotation.random(20, 3, seed) for seed in (1, 1, 2))
    assert first == same
    assert first != other
