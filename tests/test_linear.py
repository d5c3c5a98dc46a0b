"""PRHTransform as Faiss's LinearTransform: what stock Faiss writes, clones and pickles, and finds again."""

import copy
import pickle

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import faiss_prh
from faiss_prh import PRHTransform
from faiss_prh.index.factory_string import factory_string
from faiss_prh.index.parts_of import transforms_of

D = 24
RNG = np.random.default_rng(0)
XT, XB, XQ = (RNG.normal(size=(n, D)).astype(np.float32) @ np.diag(np.arange(1, D + 1)) + 5 for n in (300, 400, 20))


def trained(d_out=D, **parameters):
    transform = PRHTransform(D, d_out, n_iso=3, **parameters)
    transform.train(XT)
    return transform


def filled(transform, sub=None):
    index = faiss.IndexPreTransform(transform, sub or faiss.IndexFlatL2(transform.d_out))
    index.add(XB)
    return index


def as_linear(transform):
    return faiss.downcast_VectorTransform(transform)


def read_back(index):
    return faiss.deserialize_index(faiss.serialize_index(index))


def twin_of(transform):
    """What Faiss reads of what it wrote of a transform."""
    index = read_back(filled(transform))
    twin = as_linear(index.chain.at(0))
    twin.owner = index
    return twin


def assert_finds_the_same(index, other):
    (D1, I1), (D2, I2) = index.search(XQ, 5), other.search(XQ, 5)
    np.testing.assert_array_equal(I1, I2)
    np.testing.assert_allclose(D1, D2, rtol=1e-3)


@given(d=st.integers(1, 40), d_out=st.integers(1, 60), center=st.booleans(), seed=st.integers(0, 9))
def test_the_matrix_and_the_bias_are_those_of_the_rotation(d, d_out, center, seed):
    x = np.random.default_rng(seed).normal(3, 2, size=(30, d)).astype(np.float32)
    transform = PRHTransform(d, d_out, n_iso=3, center=center)
    transform.train(x)
    linear = as_linear(transform)
    assert (linear.have_bias, linear.is_orthonormal, linear.is_trained) == (center, True, True)
    A, b = faiss.vector_to_array(linear.A).reshape(d_out, d), faiss.vector_to_array(linear.b)
    np.testing.assert_allclose(A, transform.to_dense(), atol=1e-6)
    np.testing.assert_allclose(x @ A.T + (b if center else 0), transform.apply(x), atol=1e-4)
    assert len(b) == (d_out if center else 0)


def test_training_again_replaces_the_matrix():
    transform = trained()
    before = faiss.vector_to_array(as_linear(transform).A)
    transform.train(XT[:, ::-1])
    after = faiss.vector_to_array(as_linear(transform).A)
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after.reshape(D, D), transform.to_dense(), atol=1e-6)


@pytest.mark.parametrize("d_out", [8, D, 40])
@pytest.mark.parametrize(
    "copied",
    [read_back, faiss.clone_index, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))],
    ids=["written", "cloned", "copied", "pickled"],
)
def test_what_faiss_copies_is_dense_and_finds_the_same(d_out, copied):
    index = filled(trained(d_out))
    other = copied(index)
    assert type(as_linear(other.chain.at(0))) is faiss.LinearTransform
    assert_finds_the_same(index, other)
    if d_out >= D:  # With fewer, the copy has lost the mean of what is dropped.
        np.testing.assert_allclose(other.reconstruct(7), index.reconstruct(7), atol=1e-3)


def test_the_sparse_kernel_runs_all_the_same():
    """The numbers are those of `apply` to the last bit, which a product with the matrix would not give."""
    transform = trained()
    np.testing.assert_array_equal(as_linear(transform).apply(XB), transform.apply(XB))


def test_beyond_the_limit_it_is_a_plain_transform():
    size = 4 * D * 8
    assert isinstance(as_linear(trained(8, max_dense_bytes=size)), faiss.LinearTransform)
    sparse = trained(8, max_dense_bytes=size - 1)
    assert type(as_linear(sparse)) is faiss.VectorTransform
    index = filled(sparse)
    for refused in (faiss.serialize_index, faiss.clone_index):
        with pytest.raises(RuntimeError):
            refused(index)
    assert_finds_the_same(index, filled(trained(8)))
    assert_finds_the_same(index, faiss_prh.clone_index(index))
    assert_finds_the_same(index, read_back(faiss_prh.to_faiss(index)))


def test_the_default_limit_is_the_matrix_of_4096_dimensions():
    assert isinstance(as_linear(PRHTransform(4096)), faiss.LinearTransform)
    assert type(as_linear(PRHTransform(4097))) is faiss.VectorTransform


@pytest.mark.parametrize("limit", [-1, 1.5, None])
def test_a_bad_limit_is_refused(limit):
    with pytest.raises((TypeError, ValueError), match="max_dense_bytes"):
        PRHTransform(8, max_dense_bytes=limit)


def test_the_limit_cannot_be_changed_later():
    with pytest.raises(AttributeError):
        PRHTransform(8).max_dense_bytes = 0


def test_copies_keep_the_limit():
    sparse = trained(max_dense_bytes=0)
    for other in (copy.copy(sparse), pickle.loads(pickle.dumps(sparse))):
        assert other.max_dense_bytes == 0
        assert type(as_linear(other)) is faiss.VectorTransform


def test_an_untrained_one_is_written_as_untrained():
    for transform in (PRHTransform(D), trained()):
        transform.is_trained = False
        index = read_back(faiss.IndexPreTransform(transform, faiss.IndexFlatL2(D)))
        assert not index.chain.at(0).is_trained
        with pytest.raises(RuntimeError):
            index.chain.at(0).apply(XB)


def test_files_of_strangers_get_no_matrix():
    """Its memory would be more than the file has bytes; nothing of a binary index needs it."""
    index = faiss_prh.index_factory(D, "PRH,BFlat")
    index.train(XT)
    data = faiss_prh.serialize_index(index)
    read, trusted = (faiss_prh.deserialize_index(data, trusted=trusted).chain[0] for trusted in (False, True))
    assert type(as_linear(read)) is faiss.VectorTransform
    assert type(as_linear(trusted)) is faiss.LinearTransform
    np.testing.assert_array_equal(read.apply(XB), index.chain[0].apply(XB))


# The dense twin


def test_an_index_merges_with_what_faiss_read_of_it():
    for turn in (1, -1):
        index = filled(trained())
        other = read_back(index)
        into, from_ = (index, other)[::turn]
        into.merge_from(from_)
        assert into.ntotal == 2 * len(XB)
        assert set(into.search(XB[:3], 2)[1].ravel()) == {0, 1, 2, 400, 401, 402}


@pytest.mark.parametrize("center", [False, True])
def test_the_twin_may_differ_by_rounding_only(center):
    transform = trained(center=center)
    twin = twin_of(transform)
    A = faiss.vector_to_array(twin.A)
    faiss.copy_array_to_vector(A + np.float32(1e-6), twin.A)
    transform.check_identical(twin)
    faiss.copy_array_to_vector(A + np.float32(1e-4), twin.A)
    with pytest.raises(RuntimeError, match="another rotation"):
        transform.check_identical(twin)


@pytest.mark.parametrize(
    "other",
    [
        trained(seed=7, tune=False, n_pca=2),
        trained(8),
        PRHTransform(D),
        faiss.LinearTransform(D, D, True),
        faiss.NormalizationTransform(D),
    ],
    ids=["seed", "bits", "untrained", "linear", "normalization"],
)
def test_others_are_told_apart(other):
    with pytest.raises(RuntimeError, match=r"another rotation|not a PRHTransform"):
        trained().check_identical(other)


def test_a_twin_without_the_mean_is_another():
    with pytest.raises(RuntimeError, match="another rotation"):
        trained().check_identical(twin_of(trained(center=False)))


def test_a_plain_one_has_no_twin():
    twin = twin_of(trained())
    with pytest.raises(RuntimeError, match="another rotation"):
        trained(max_dense_bytes=0).check_identical(twin)
    trained(max_dense_bytes=0).check_identical(trained())


# Without the mean


def test_inner_products_are_exact_without_centring():
    exact = faiss.IndexFlatIP(D)
    exact.add(XB)
    for description in ("PRH,Flat", "PRH,IVF4,Flat"):
        index = faiss_prh.index_factory(D, description, faiss.METRIC_INNER_PRODUCT)
        index.train(XT)
        index.add(XB)
        if "IVF" in description:
            faiss.extract_index_ivf(index).nprobe = 4
        distances, ids = index.search(XQ, 5)
        expected_distances, expected_ids = exact.search(XQ, 5)
        np.testing.assert_allclose(distances, expected_distances, rtol=1e-4)
        assert (ids == expected_ids).mean() > 0.99


def test_the_rotation_is_learned_about_the_mean_in_any_case():
    centred, plain = trained(), trained(center=False)
    assert plain.rotation == centred.rotation
    assert not plain.mean.any()
    assert centred.mean.any()
    assert not plain.parameters.center
    again = PRHTransform.from_bytes(plain.to_bytes())
    assert again.parameters == plain.parameters
    np.testing.assert_array_equal(again.apply(XB), plain.apply(XB))


def test_moments_gathered_in_parts_know_about_centring():
    parts, whole = PRHTransform(D, n_iso=3, center=False), trained(center=False)
    parts.partial_train(XT[:100])
    parts.partial_train(XT[100:])
    parts.finish_training()
    np.testing.assert_allclose(parts.to_dense(), whole.to_dense(), atol=1e-4)
    assert not parts.mean.any()


# Without training


@pytest.mark.parametrize(("description", "d_out"), [("SRR,BFlat", D), ("SRR16,BFlat", 16), ("SRR48,LSH", 48)])
def test_a_random_rotation_needs_no_training(description, d_out):
    index = faiss_prh.index_factory(D, description)
    index.add(XB)
    assert index.search(XB[:9], 1)[1].ravel().tolist() == list(range(9))
    assert factory_string(index) == description
    (transform,) = transforms_of(index)
    assert transform.d_out == d_out
    matrix = transform.to_dense()
    np.testing.assert_allclose(matrix @ matrix.T if d_out <= D else matrix.T @ matrix, np.eye(min(D, d_out)), atol=1e-6)


def test_a_learned_rotation_is_not_called_random():
    index = faiss_prh.index_factory(D, "PRH,BFlat")
    assert factory_string(index) == "PRH,BFlat"
    index.train(XT)
    assert factory_string(index) == "PRH,BFlat"
