"""Rotations in front of lists of signs are learned from residuals, where there are enough of them."""

import faiss
import numpy as np
import pytest

from faiss_prh import PRHTransform, index_factory

D, NLIST = 32, 8
HALF = D // 2


def vectors(n=2000, seed=0):
    """Clusters that differ in the first half of the dimensions, and are wide in the second."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D)) * np.repeat([0.1, 1], HALF)
    x[:, :HALF] += rng.choice([-20, 20], size=(NLIST, HALF))[rng.integers(NLIST, size=n)]
    return x.astype(np.float32)


def trained(description, x, metric=faiss.METRIC_L2):
    index = index_factory(D, description, metric)
    index.train(x)
    return index


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
@pytest.mark.parametrize("before", ["", "RR,", "L2norm,"])
def test_the_rotation_is_that_of_residuals(before, metric):
    x = vectors()
    index = trained(f"{before}PRH,IVF{NLIST},Signs", x, metric)
    for transform in index.chain[:-1]:
        x = transform.apply(x)
    lists = faiss.IndexIVFFlat(faiss.IndexFlat(D, metric), D, NLIST, metric)
    lists.cp.spherical = metric == faiss.METRIC_INNER_PRODUCT
    lists.train(x)
    centroids = lists.quantizer.reconstruct_n(0, NLIST)
    _, nearest = lists.quantizer.search(x, 1)
    expected = PRHTransform(D, center=index.chain[-1].parameters.center)
    expected.train(x - centroids[nearest[:, 0]])
    assert index.chain[-1].rotation == expected.rotation
    np.testing.assert_allclose(index.quantizer.reconstruct_n(0, NLIST), expected.apply(centroids), atol=1e-4)


def test_residuals_are_isotropic():
    x = vectors()
    index = index_factory(D, f"PRH,IVF{NLIST},Signs")
    index.chain[0] = PRHTransform(D, n_pca=0, tune=False)
    index.train(x)
    z = index.chain[0].apply(x)
    _, nearest = index.quantizer.search(z, 1)
    residuals = z - index.quantizer.reconstruct_n(0, NLIST)[nearest[:, 0]]
    np.testing.assert_allclose(residuals.var(axis=0), residuals.var(axis=0).mean(), rtol=0.02)


@pytest.mark.parametrize(
    "make",
    [
        lambda index, whole: index.chain.__setitem__(0, whole),
        lambda index, whole: index.quantizer.add(whole.apply(vectors(NLIST, seed=1))),
    ],
    ids=["a trained rotation", "given centroids"],
)
def test_what_is_there_decides(make):
    x = vectors()
    whole = PRHTransform(D)
    whole.train(x)
    index = index_factory(D, f"PRH,IVF{NLIST},Signs")
    make(index, whole)
    index.train(x)
    assert index.chain[0].rotation == whole.rotation


@pytest.mark.parametrize("description", [f"PRH,IVF{NLIST * 32},Signs", f"PRH16,IVF{NLIST},Signs"])
def test_few_vectors_for_each_list_and_few_bits_are_learned_from_whole_vectors(description):
    x = vectors()
    index = trained(description, x)
    whole = PRHTransform(D, index.chain[0].d_out)
    whole.train(x)
    assert index.chain[0].rotation == whole.rotation
