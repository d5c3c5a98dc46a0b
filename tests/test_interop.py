"""PRHTransform inside stock Faiss: what Faiss's C++ does with it, against the same steps made by hand."""

import copy
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest

from faiss_prh import PRHTransform

D = 40  # no power of two
K = 5

needs_rabitq = pytest.mark.skipif(not hasattr(faiss, "IndexRaBitQ"), reason="this Faiss has no IndexRaBitQ")
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")

LSH = pytest.param(lambda: faiss.IndexLSH(D, D, False, False), id="LSH")
FLAT = pytest.param(lambda: faiss.IndexFlatL2(D), id="Flat")
IVF_FLAT = pytest.param(lambda: faiss.IndexIVFFlat(faiss.IndexFlatL2(D), D, 8), id="IVFFlat")
PQ = pytest.param(lambda: faiss.IndexPQ(D, 8, 4), id="PQ")
RABITQ = pytest.param(lambda: faiss.index_factory(D, "RaBitQ"), id="RaBitQ", marks=needs_rabitq)
IVF_RABITQ = pytest.param(lambda: faiss.index_factory(D, "IVF8,RaBitQ"), id="IVFRaBitQ", marks=needs_rabitq)


def correlated(n, d, seed):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d)) * np.exp(rng.normal(size=d))
    return (rng.normal(size=(n, d)) @ mixing + 3).astype(np.float32)


@pytest.fixture(scope="module")
def xb():
    return correlated(1000, D, seed=0)


@pytest.fixture(scope="module")
def xq(xb):
    return xb[:25] + np.random.default_rng(1).normal(size=(25, D)).astype(np.float32)


@pytest.fixture
def prh(xb):
    return trained(xb)


@pytest.fixture
def flat(prh, xb):
    """An index of xb that returns exact distances."""
    index = faiss.IndexPreTransform(prh, faiss.IndexFlatL2(D))
    index.add(xb)
    return index


def trained(x, **parameters):
    transform = PRHTransform(x.shape[1], **parameters)
    transform.train(x)
    return transform


def by_numpy(transform, x):
    return ((x - transform.mean) @ transform.rotation.to_dense().T).astype(np.float32)


def with_nan(x):
    broken = x.copy()
    broken[7, 3] = np.nan
    return broken


def assert_same_results(found, expected, xb):
    np.testing.assert_array_equal(found[1], expected[1])
    # Faiss may compute ‖x‖² + ‖y‖² - 2xy: what is rounded is as large as these, however small the distance.
    norms = np.square(xb, dtype=np.float64).sum(axis=1)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6 * norms.max())


def assert_finds_itself(index, x):
    assert index.search(x, 1)[1].ravel().tolist() == list(range(len(x)))


def given_to_cpp(transform, sub):
    """An index that owns its parts, as one from a file does; Python keeps hold of neither."""
    index = faiss.IndexPreTransform(transform, sub)
    index.own_fields = True
    transform.this.disown()
    sub.this.disown()
    index.referenced_objects = []
    return index


# The transform as Faiss sees it


def test_is_a_vector_transform():
    transform = PRHTransform(D)
    assert isinstance(transform, faiss.VectorTransform)
    assert (transform.d_in, transform.d_out, transform.is_trained) == (D, D, False)


def test_faiss_sees_the_training(prh, flat, xb):
    seen = flat.chain.at(0)
    assert type(seen) is faiss.VectorTransform
    assert (seen.d_in, seen.d_out, seen.is_trained) == (D, D, True)
    np.testing.assert_allclose(seen.apply(xb), prh.apply(xb), atol=1e-4)
    np.testing.assert_allclose(seen.apply(xb), by_numpy(prh, xb), atol=1e-4)
    np.testing.assert_allclose(seen.reverse_transform(seen.apply(xb)), xb, atol=1e-4)


def test_retraining_replaces(prh, xb, flat):
    other = correlated(500, D, seed=2)
    before = prh.apply(xb)
    prh.train(other)
    fresh = trained(other)
    assert prh.rotation == fresh.rotation
    np.testing.assert_allclose(flat.chain.at(0).apply(xb), fresh.apply(xb), atol=1e-4)
    assert not np.allclose(prh.apply(xb), before)


# Indexes behind it


@pytest.mark.parametrize("new_sub", [LSH, FLAT, IVF_FLAT, PQ, RABITQ, IVF_RABITQ])
def test_index_behind_prh_gives_what_it_gives_on_transformed_vectors(new_sub, prh, xb, xq):
    index = faiss.IndexPreTransform(prh, new_sub())
    by_hand = new_sub()
    apply = index.chain.at(0).apply  # as Faiss does: product quantizers make much of what is rounded otherwise
    index.train(xb)
    by_hand.train(apply(xb))
    index.add(xb)
    by_hand.add(apply(xb))
    assert index.ntotal == len(xb)
    assert_same_results(index.search(xq, K), by_hand.search(apply(xq), K), xb)


def test_distances_are_those_of_the_vectors_themselves(flat, xb, xq):
    stock = faiss.IndexFlatL2(D)
    stock.add(xb)
    distances, ids = flat.search(xq, K)
    expected_distances, expected_ids = stock.search(xq, K)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-3)


def test_lsh_distances_are_the_hamming_distances_of_the_codes(prh, xb, xq):
    index = faiss.IndexPreTransform(prh, faiss.IndexLSH(D, D, False, False))
    index.add(xb)
    binary = faiss.IndexBinaryFlat(D)
    binary.add(prh.encode(xb))
    np.testing.assert_array_equal(index.search(xq, K)[0], binary.search(prh.encode(xq), K)[0])


def test_chain_of_pca_and_prh_trains_as_a_whole():
    x = correlated(1000, 48, seed=3)
    pca, transform = faiss.PCAMatrix(48, 32), PRHTransform(32)
    index = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(32))
    index.prepend_transform(pca)
    assert (index.d, index.is_trained) == (48, False)
    index.train(x)
    index.add(x)

    reduced = pca.apply(x)
    assert transform.rotation == trained(reduced).rotation
    stock = faiss.IndexFlatL2(32)
    stock.add(by_numpy(transform, reduced))
    distances, ids = index.search(x[:25] + 1, K)
    expected_distances, expected_ids = stock.search(by_numpy(transform, pca.apply(x[:25] + 1)), K)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-3)


@pytest.mark.parametrize("new_sub", [FLAT, PQ])
def test_reconstruction_goes_back_through_the_transform(new_sub, prh, xb):
    index = faiss.IndexPreTransform(prh, new_sub())
    index.train(xb)
    index.add(xb)
    inside = faiss.downcast_index(index.index).reconstruct_n(0, len(xb))
    expected = inside @ prh.rotation.to_dense() + prh.mean
    np.testing.assert_allclose(index.reconstruct(3), expected[3], atol=1e-4)
    np.testing.assert_allclose(index.reconstruct_n(10, 50), expected[10:60], atol=1e-4)
    _, ids, found = index.search_and_reconstruct(xb[:20], K)
    np.testing.assert_allclose(found, expected[ids], atol=1e-4)


def test_spectral_hash_takes_prh_where_itq_sat(xb, xq):
    nlist, period = 4, 10.0
    index = faiss.IndexIVFSpectralHash(faiss.IndexFlatL2(D), D, nlist, D, period)
    index.replace_vt(faiss.ITQTransform(D, D, False))
    transform = PRHTransform(D)
    index.replace_vt(transform)
    index.train(xb)
    index.add(xb)
    assert transform.rotation == trained(xb).rotation

    def bits(x):
        return np.floor(transform.apply(x) * (2 / np.float32(period))).astype(int) & 1

    index.nprobe = nlist
    distances, ids = index.search(xq, K)
    hamming = (bits(xq)[:, None] != bits(xb)).sum(axis=2)
    np.testing.assert_array_equal(distances, np.sort(hamming, axis=1)[:, :K])
    np.testing.assert_array_equal(np.take_along_axis(hamming, ids, axis=1), distances)


# Merging


@pytest.mark.parametrize("new_sub", [FLAT, IVF_FLAT])
@pytest.mark.parametrize("twin", [copy.copy, lambda prh: PRHTransform.from_bytes(prh.to_bytes())])
def test_indexes_with_the_same_rotation_merge(new_sub, twin, prh, xb, xq):
    sub = new_sub()
    sub.train(prh.apply(xb))
    first = faiss.IndexPreTransform(prh, sub)
    second = faiss.IndexPreTransform(twin(prh), faiss.clone_index(sub))
    whole = faiss.IndexPreTransform(prh, faiss.clone_index(sub))
    first.add(xb[:600])
    second.add(xb[600:])
    whole.add(xb)
    # IVF lists keep their ids when merged, so the second part's are moved behind the first's.
    first.merge_from(second, 600 if isinstance(sub, faiss.IndexIVF) else 0)
    assert (first.ntotal, second.index.ntotal) == (1000, 0)
    assert_same_results(first.search(xq, K), whole.search(xq, K), xb)


OTHER_TRANSFORMS = [
    pytest.param(lambda xb: trained(xb[:500]), id="another rotation"),
    pytest.param(lambda xb: PRHTransform.random(D), id="random"),
    pytest.param(lambda xb: PRHTransform(D), id="untrained"),
    pytest.param(lambda xb: faiss.RandomRotationMatrix(D, D), id="RandomRotationMatrix"),
]


@pytest.mark.parametrize("new_other", OTHER_TRANSFORMS)
def test_indexes_with_different_transforms_do_not_merge(new_other, flat, xb, xq):
    transform = new_other(xb)
    other = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(D))
    other.index.add(xb[:10])
    other.ntotal = 10
    before = flat.search(xq, K)
    with pytest.raises(RuntimeError, match=r"PRHTransform: the other|LinearTransform::check_identical"):
        flat.merge_from(other)
    with pytest.raises(RuntimeError):
        other.merge_from(flat)
    assert (flat.ntotal, flat.index.ntotal, other.ntotal, other.index.ntotal) == (1000, 1000, 10, 10)
    assert_same_results(flat.search(xq, K), before, xb)


@pytest.mark.parametrize("new_other", OTHER_TRANSFORMS)
def test_check_identical_tells_transforms_apart(new_other, prh, xb):
    other = new_other(xb)
    with pytest.raises(RuntimeError, match=r"PRHTransform: the other|LinearTransform::check_identical"):
        prh.check_identical(other)
    with pytest.raises(RuntimeError):
        other.check_identical(prh)


def test_check_identical_accepts_equals(prh, xb):
    prh.check_identical(prh)
    prh.check_identical(copy.deepcopy(prh))
    prh.check_identical(trained(xb))
    PRHTransform(D).check_identical(PRHTransform(D))


def test_check_identical_compares_dimensions_means_and_angles(xb):
    different = pytest.raises(RuntimeError, match="another rotation")
    with different:
        PRHTransform(D).check_identical(PRHTransform(D + 1))

    centred, moved = (trained(x, n_iso=0, n_pca=0) for x in (xb, xb + 1))
    assert centred.rotation == moved.rotation
    with different:
        centred.check_identical(moved)

    # Whole numbers and their negatives: the means are zero to the last bit.
    whole = np.round(xb)
    all_of_it, half_of_it = (trained(np.concatenate([x, -x]), n_iso=0, n_pca=1) for x in (whole, whole[:500]))
    assert not (all_of_it.mean.any() or half_of_it.mean.any())
    np.testing.assert_array_equal(all_of_it.rotation.layers[0].i, half_of_it.rotation.layers[0].i)
    with different:
        all_of_it.check_identical(half_of_it)


# Training from C++


def test_training_through_an_index_is_training(prh, xb, xq):
    transform = PRHTransform(D)
    index = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(D))
    assert not index.is_trained
    index.train(xb)
    assert (index.is_trained, transform.is_trained) == (True, True)
    assert transform.rotation == prh.rotation
    np.testing.assert_array_equal(transform.mean, prh.mean)
    index.add(xb)
    stock = faiss.IndexFlatL2(D)
    stock.add(prh.apply(xb))
    assert_same_results(index.search(xq, K), stock.search(prh.apply(xq), K), xb)


def test_index_does_not_train_a_trained_transform_again(prh, xb):
    rotation = prh.rotation
    faiss.IndexPreTransform(prh, faiss.IndexPQ(D, 8, 4)).train(xb[:700])
    assert prh.rotation is rotation


def test_training_error_passes_through_cpp_and_changes_nothing(xb):
    transform = PRHTransform(D)
    index = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(D))
    with pytest.raises(ValueError) as direct:
        transform.train(with_nan(xb))
    with pytest.raises(RuntimeError) as through_faiss:
        index.train(with_nan(xb))
    assert f"ValueError: {direct.value}" in str(through_faiss.value)
    assert (index.is_trained, transform.is_trained, transform.rotation) == (False, False, None)
    index.train(xb)
    assert index.is_trained
    assert transform.rotation == trained(xb).rotation


def test_faiss_refuses_vectors_too_large_to_compute_with(prh, xb, flat):
    """What is not finite is passed on, as by Faiss's own transforms."""
    n = flat.ntotal
    for large in (1e36, 3e38, 2e18):
        x = with_nan(xb)
        x[20, 5] = large
        with pytest.raises(RuntimeError, match="vector 20 is too large"):
            flat.add(x)
        with pytest.raises(RuntimeError, match="vector 20 is too large"):
            flat.search(x, 3)
    assert flat.ntotal == n
    assert np.isnan(flat.chain.at(0).apply(with_nan(xb))[7]).any()


def test_failed_retraining_keeps_the_rotation(prh, xb, flat):
    before = prh.apply(xb)
    with pytest.raises(RuntimeError, match="ValueError: training vector 7"):
        flat.chain.at(0).train(with_nan(xb))
    assert prh.is_trained
    np.testing.assert_array_equal(prh.apply(xb), before)


def test_training_on_no_vectors_is_an_error():
    index = faiss.IndexPreTransform(PRHTransform(D), faiss.IndexFlatL2(D))
    with pytest.raises(RuntimeError, match="at least one vector"):
        index.train(np.empty((0, D), np.float32))


def test_training_without_the_python_object_is_an_error(xb):
    index = given_to_cpp(PRHTransform(D), faiss.IndexFlatL2(D))
    gc.collect()
    with pytest.raises(RuntimeError, match="Python object of this PRHTransform no longer exists"):
        index.train(xb)
    assert not index.chain.at(0).is_trained


def test_untrained_use_is_an_error(xb):
    index = faiss.IndexPreTransform(PRHTransform(D), faiss.IndexFlatL2(D))
    for use in (index.add, lambda x: index.search(x, K)):
        with pytest.raises(RuntimeError, match="is_trained"):
            use(xb)
    seen = index.chain.at(0)
    index.is_trained = True  # takes Faiss's own check away
    for use in (index.add, lambda x: index.search(x, K), seen.apply, seen.reverse_transform):
        with pytest.raises(RuntimeError, match=r"not trained|not implemented"):
            use(xb)
    assert index.ntotal == 0


# Lifetimes


def test_index_keeps_its_parts_alive(xb):
    def new_index():
        transform, sub = PRHTransform(D), faiss.IndexFlatL2(D)
        return faiss.IndexPreTransform(transform, sub)

    index = new_index()
    gc.collect()
    index.train(xb)
    index.add(xb)
    assert_finds_itself(index, xb)


def test_transform_taken_from_a_chain_works_without_its_name(xb):
    transform = trained(xb)
    index = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(D))
    expected = transform.apply(xb)
    del transform
    gc.collect()
    seen = index.chain.at(0)
    np.testing.assert_allclose(seen.apply(xb), expected, atol=1e-4)
    seen.train(xb[:500])
    np.testing.assert_allclose(seen.apply(xb), trained(xb[:500]).apply(xb), atol=1e-4)


def test_cpp_may_own_the_transform(xb):
    for _ in range(50):
        index = given_to_cpp(trained(xb[:100]), faiss.IndexFlatL2(D))
        index.add(xb[:100])
        assert_finds_itself(index, xb[:100])
        del index
    gc.collect()
    trained(xb).apply(xb)


def test_spectral_hash_may_own_the_transform(xb):
    index = faiss.IndexIVFSpectralHash(faiss.IndexFlatL2(D), D, 1, D, 1e6)
    index.replace_vt(trained(xb), True)
    gc.collect()
    index.train(xb)
    index.add(xb)
    assert not index.search(xb, 1)[0].any()
    index.replace_vt(trained(xb), True)  # deletes the first


def test_thousands_of_transforms_leave_faiss_intact(xb):
    # Each gives back a reference to SWIG's type table; one too many and Faiss makes no proxies any more.
    for _ in range(3000):
        PRHTransform(5)
    gc.collect()
    index = faiss.IndexPreTransform(faiss.RandomRotationMatrix(D, D), faiss.IndexFlatL2(D))
    assert type(index.chain.at(0)) is faiss.VectorTransform
    assert type(faiss.downcast_VectorTransform(index.chain.at(0))) is faiss.RandomRotationMatrix
    assert type(faiss.downcast_index(index.index)) is faiss.IndexFlatL2
    assert type(PRHTransform(5)) is PRHTransform
    index.train(xb)
    index.add(xb)
    assert_finds_itself(index, xb)


# Threads


def test_many_threads_search_one_index(flat, xb, xq):
    expected_distances, expected_ids = flat.search(xq, K)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: flat.search(xq, K), range(64)))
    for distances, ids in results:
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_array_equal(distances, expected_distances)


def retrain_while_encoding(retrained, encoding, xb):
    """Codes that threads got of xb while `retrained` learned two samples in turn, xb last."""
    with ThreadPoolExecutor(4) as pool:
        codes = [pool.submit(encoding.encode, xb) for _ in range(200)]
        for sample in [xb[:500], xb] * 10:
            retrained.train(sample)
        return [future.result() for future in codes]


def test_encoding_while_another_transform_trains(prh, xb):
    expected = prh.encode(xb)
    other = PRHTransform(D)
    for codes in retrain_while_encoding(other, prh, xb):
        np.testing.assert_array_equal(codes, expected)
    assert other.rotation == prh.rotation


def test_encoding_while_the_transform_itself_retrains(prh, xb):
    possible = {trained(sample).encode(xb).tobytes() for sample in (xb[:500], xb)}
    assert len(possible) == 2
    assert {codes.tobytes() for codes in retrain_while_encoding(prh, prh, xb)} <= possible


def test_results_do_not_depend_on_the_number_of_threads(prh, thread_count):
    x = correlated(30011, D, seed=4)
    results = []
    for n_threads in (1, 2, 7):
        thread_count(n_threads)
        results.append((trained(x).rotation, prh.apply(x), prh.encode(x), prh.reverse_transform(x)))
    for rotation, *arrays in results[1:]:
        assert rotation == results[0][0]
        for array, expected in zip(arrays, results[0][1:], strict=True):
            np.testing.assert_array_equal(array, expected)


def threads_started_during(call, rounds):
    """Threads seen to start while `call` ran repeatedly: until one was seen, or for so many rounds."""
    before = set(os.listdir("/proc/self/task"))
    started = set()
    finished = threading.Event()

    def watch():
        known = before | {str(threading.get_native_id())}
        while not finished.is_set():
            started.update(set(os.listdir("/proc/self/task")) - known)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        while rounds > 0 and not started:
            call()
            rounds -= 1
    finally:
        finished.set()
        watcher.join()
    return started


@needs_proc
@pytest.mark.parametrize("caller", ["Python", "Faiss"])
def test_threads_are_as_many_as_faiss_allows(caller, prh, flat, thread_count):
    x = np.zeros((100_000, D), np.float32)
    apply = prh.apply if caller == "Python" else flat.chain.at(0).apply
    thread_count(4)
    assert threads_started_during(lambda: apply(x), rounds=2000)  # that such threads are seen at all
    thread_count(1)
    assert not threads_started_during(lambda: apply(x), rounds=20)


@pytest.mark.parametrize("error", [KeyboardInterrupt("now"), ValueError("bad \udc80"), MemoryError("x" * 5000)])
def test_whatever_training_raises_reaches_faiss_as_its_own_error(error):
    class Failing(PRHTransform):
        def train(self, x):
            raise error

    index = faiss.IndexPreTransform(Failing(8), faiss.IndexFlatL2(8))
    with pytest.raises(RuntimeError, match=type(error).__name__):
        index.train(np.zeros((3, 8), dtype=np.float32))
    assert not index.is_trained
