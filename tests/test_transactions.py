"""Training, merging and removing change everything that they should, or nothing."""

import contextlib
import os
import signal
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
from test_faults import LIMITED, run

import faiss_prh
from faiss_prh import (
    IndexBinaryPreTransform,
    IndexBinaryRefine,
    IndexIVFSigns,
    PRHTransform,
    clone_index,
    deserialize_index,
    index_factory,
)
from faiss_prh import serialize_index as as_bytes
from faiss_prh.index import binary_ops, signs
from faiss_prh.learning.train import sample_of

D = 32
RNG = np.random.default_rng(0)
X = (RNG.normal(size=(600, D)) * np.linspace(3, 1, D)).astype(np.float32)
OTHERS = (RNG.normal(size=(600, D)) * np.linspace(1, 9, D) + 4).astype(np.float32)
FEW = OTHERS[:40]
LARGEST = 2**63 - 1


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)


def filled(description):
    index = index_factory(D, description)
    index.train(X)
    if "IDMap" in description:
        index.add_with_ids(X, np.arange(len(X)))
    else:
        index.add(X)
    return index


# Training


def quantizer_of(index):
    if hasattr(index, "quantizer"):
        return index.quantizer
    binary = index.index
    while hasattr(binary, "index"):
        binary = faiss.downcast_IndexBinary(binary.index)
    return binary.quantizer if hasattr(binary, "quantizer") else None


def assert_untrained(index):
    assert not index.is_trained
    assert any(not transform.is_trained for transform in index.chain)
    quantizer = quantizer_of(index)
    assert quantizer is None or (quantizer.ntotal == 0 and not index.index.is_trained)
    with pytest.raises(RuntimeError, match="not trained"):
        index.encode(X)
    with pytest.raises(RuntimeError, match="not trained"):
        index.add(X)


FAILING = ["PRH,BIVF64", "PRH16,BIVF64", "PCA16,PRH,BIVF64", "ITQ16,BIVF64", "PCAR16,BIVF64", "RR,BIVF64",
           "L2norm,PRH,BIVF64_HNSW8", "IDMap2,PRH,BIVF64", "PRH,BIVF64,RFlat", "PRH,BIVF64,RAsym",
           "PRH,BFlat,Refine(PQ4np)", "PRH,BIVF8,Refine(PQ4np)", "IDMap,ITQ16,BIVF8,Refine(PQ4np)",
           "PRH,IVF64,Signs", "PCA16,PRH,IVF64_HNSW8,Signs", "PRH,IVF64,Signs,RFlat", "PRH,IVF8,Signs,Refine(PQ4np)",
           "PRH,IVF8_HNSW8,Signs,Refine(PQ4np)"]  # fmt: skip


@pytest.mark.parametrize("description", FAILING)
def test_a_failed_training_leaves_nothing(description):
    index, new = index_factory(D, description), index_factory(D, description)
    untrained = as_bytes(index)
    with pytest.raises(RuntimeError):
        index.train(FEW)
    assert_untrained(index)
    assert as_bytes(index) == untrained
    if "ITQ" not in description:  # Faiss does not read an untrained one
        copy = clone_index(index)
        assert_untrained(copy)
        copy.train(X)
        new.train(X)
        np.testing.assert_array_equal(copy.encode(X), new.encode(X))
    index.train(X)
    new.train(X)
    assert as_bytes(index) == as_bytes(new)


def test_what_a_failed_training_learned_is_forgotten():
    index = index_factory(D, "PRH,BIVF64")
    (prh,) = index.chain
    untrained = prh.to_bytes()
    with pytest.raises(RuntimeError):
        index.train(FEW)
    assert prh.rotation is None
    assert prh.mean is None
    assert prh.to_bytes() == untrained
    for call in (prh.encode, prh.apply, prh.reverse_transform):
        with pytest.raises(RuntimeError, match="not trained"):
            call(X)


@pytest.mark.parametrize(
    "make",
    [
        lambda: faiss.ITQTransform(D, 16, True),
        lambda: faiss.ITQTransform(D, D, False),
        lambda: faiss.PCAMatrix(D, 16),
        lambda: faiss.OPQMatrix(D, 1, 16),
        lambda: faiss.RandomRotationMatrix(D, 16),
        lambda: faiss.CenteringTransform(D),
        lambda: PRHTransform(D, 16),
    ],
)
def test_transforms_learn_anew_after_a_failure(make):
    """Faiss adds to means that are there, and begins with a matrix that is there."""

    def index_of(transform):
        if isinstance(transform, faiss.OPQMatrix):
            transform.niter = transform.niter_pq = transform.niter_pq_0 = 1
        quantizer = faiss.IndexBinaryFlat(transform.d_out)
        return IndexBinaryPreTransform(transform, faiss.IndexBinaryIVF(quantizer, transform.d_out, 400))

    failed, new = index_of(make()), index_of(make())
    with pytest.raises(RuntimeError, match="training points"):
        failed.train(OTHERS[:300])
    failed.train(X)
    new.train(X)
    np.testing.assert_array_equal(failed.chain[0].apply(X), new.chain[0].apply(X))


def test_what_was_trained_before_stays():
    prh = PRHTransform(D)
    prh.train(X)
    rotation = prh.rotation
    index = IndexBinaryPreTransform(prh, faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(D), D, 64))
    with pytest.raises(RuntimeError):
        index.train(FEW)
    assert prh.rotation is rotation
    store = faiss.IndexPQ(D, 4, 8)
    centroids = faiss.IndexBinaryFlat(D)
    centroids.add(prh.encode(X[:3]))
    index = IndexBinaryRefine(prh, faiss.IndexBinaryIVF(centroids, D, 8), store)
    with pytest.raises(RuntimeError):
        index.train(FEW)
    np.testing.assert_array_equal(centroids.reconstruct_n(0, centroids.ntotal), prh.encode(X[:3]))


def test_a_quantizer_with_some_centroids_stays():
    """Faiss's training would add to them."""
    quantizer = faiss.IndexFlatL2(D)
    quantizer.add(X[:3])
    index = IndexIVFSigns(PRHTransform(D), quantizer, 8)
    with pytest.raises(ValueError, match="3 centroids for 8 lists"):
        index.train(X)
    assert quantizer.ntotal == 3
    assert not index.chain[0].is_trained
    quantizer.add(X[3:8])
    index.train(X)
    np.testing.assert_array_equal(quantizer.reconstruct_n(0, 8), X[:8])


def test_a_graph_of_centroids_is_drawn_anew_after_a_failure():
    failed, new = (index_factory(D, "PRH(1),IVF32_HNSW2,Signs,Refine(PQ4np)") for _ in range(2))
    with pytest.raises(RuntimeError):
        failed.train(X[:200])  # enough for the lists, but not for the store
    failed.train(X)
    new.train(X)
    assert as_bytes(failed) == as_bytes(new)


def test_a_failed_training_of_shards():
    shards = faiss.IndexBinaryShards(D)
    parts = [faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(D), D, lists) for lists in (8, 64)]
    for part in parts:
        shards.add_shard(part)
    index = IndexBinaryPreTransform(PRHTransform(D), shards)
    with pytest.raises(RuntimeError):
        index.train(FEW)
    assert not any(part.is_trained or part.quantizer.ntotal for part in parts)
    assert not shards.is_trained


@pytest.mark.parametrize("description", ["PRH,BIVF8,RAsym", "PRH,IVF8,Signs", "PRH,IVF8_HNSW4,Signs,RFlat"])
def test_a_scale_that_cannot_be_learned(description, monkeypatch):
    index = index_factory(D, description)
    with monkeypatch.context() as patched:
        patched.setattr(faiss_prh.index.asymmetric.Scales, "of", None)
        patched.setattr(faiss_prh.index.residuals.ResidualScale, "of", None)
        with pytest.raises(TypeError):
            index.train(X)
    assert_untrained(index)
    index.train(X)
    assert index.is_trained


@pytest.mark.parametrize("description", ["PRH,BFlat", "PCA16,PRH,BIVF8", "PRH,BIVF8,RFlat", "PRH16,BFlat,RAsym",
                                         "ITQ16,BFlat,Refine(SQ8)", "PRH,IVF8,Signs",
                                         "PCA16,PRH,IVF8_HNSW8,Signs,Refine(SQ8)"])  # fmt: skip
def test_batches_train_as_an_array(description):
    by_array, by_batches = index_factory(D, description), index_factory(D, description)
    by_array.train(X)
    by_batches.train(X[first : first + 70] for first in range(0, len(X), 70))
    assert as_bytes(by_batches) == as_bytes(by_array)


@pytest.mark.parametrize("description", ["PRH,BIVF8,RAsym", "PRH,IVF8,Signs"])
def test_more_batches_than_memory(description):
    def batches():
        return (X + number for number in range(5))

    index, same = index_factory(D, description), index_factory(D, description)
    index.train(batches(), max_train_bytes=200 * 4 * D)
    same.train(sample_of(batches(), D, 200 * 4 * D, index.chain[0].parameters.seed))
    assert index.chain[0].rotation == same.chain[0].rotation
    with pytest.raises(ValueError, match="max_train_bytes must be at least"):
        index.train(X, max_train_bytes=3)
    with pytest.raises(ValueError, match="at least one vector"):
        index.train(iter(()))
    with pytest.raises(ValueError, match="batch 1 has a non-finite"):
        index.train([X, np.full((2, D), np.nan)])


# Merging

KINDS = ["PRH,BFlat", "PRH,BIVF4", "IDMap,PRH,BFlat", "IDMap2,PRH,BIVF4", "PRH,BFlat,RFlat", "PRH,BIVF4,RFlat",
         "IDMap2,PRH,BIVF4,RFlat", "PRH,BIVF4,RAsym", "IDMap,PRH,BFlat,RAsym", "PRH,BIVF4,Refine(SQ8)",
         "PRH,IVF4,Signs", "PRH,IVF4_HNSW8,Signs", "PRH,IVF4,Signs,RFlat", "PRH,IVF4,Signs,Refine(SQ8)"]  # fmt: skip
WITH_IDS = [kind for kind in KINDS if "BFlat" not in kind or "IDMap" in kind]


def pair(description):
    """Two indexes trained alike, with vectors under the ids 0, 1, … and 10, 11, …"""
    first = index_factory(D, description)
    first.train(X)
    second = clone_index(first)
    second.chain = first.chain
    for index, x, offset in ((first, X[:100], 0), (second, X[100:150], 10)):
        if description in WITH_IDS:
            index.add_with_ids(x, np.arange(len(x)) + offset)
        else:
            index.add(x)
    return first, second


def assert_unchanged(indexes, before):
    assert [as_bytes(index) for index in indexes] == before


@pytest.mark.parametrize("description", KINDS)
@pytest.mark.parametrize("add_id", [-1, 2**63, 2**70, 1.5, "7", True, None])
def test_numbers_that_cannot_be_added_to_ids(description, add_id):
    indexes = pair(description)
    before = [as_bytes(index) for index in indexes]
    with pytest.raises((ValueError, TypeError), match="add_id must be"):
        indexes[0].merge_from(indexes[1], add_id)
    assert_unchanged(indexes, before)


@pytest.mark.parametrize("description", WITH_IDS)
def test_ids_that_would_be_too_large(description):
    first, second = pair(description)
    before = [as_bytes(index) for index in (first, second)]
    largest = 10 + 49
    with pytest.raises(ValueError, match=f"id {largest} beyond"):
        first.merge_from(second, LARGEST - largest + 1)
    assert_unchanged((first, second), before)
    first.merge_from(second, np.int64(LARGEST - largest))
    if quantizer_of(first):
        faiss.downcast_IndexBinary(first.index.index if "IDMap" in description else first.index).nprobe = 4
    assert LARGEST in first.search(X[149:150], 3)[1]


@pytest.mark.parametrize("description", KINDS)
def test_merging_that_fails_on_the_way(description, monkeypatch):
    first, second = pair(description)
    before = [as_bytes(index) for index in (first, second)]

    def fail(*_):
        raise MemoryError("std::bad_alloc")

    places = [(faiss_prh.index.binary_ops, "_set_ids"), (faiss_prh.index.binary_ops, "_append_lists")]
    if hasattr(first, "_beside"):
        places.append((type(first), "_merge_beside"))
        if isinstance(first, IndexBinaryRefine):
            places.append((type(first._beside), "merge_from"))
    failed = 0
    for place, name in places:
        with monkeypatch.context() as patched:
            patched.setattr(place, name, fail)
            mine, others = clone_index(first), clone_index(second)
            others.chain = mine.chain
            try:
                mine.merge_from(others, 200)
            except MemoryError:
                failed += 1
                patched.undo()
                assert_unchanged((mine, others), before)
    assert failed or description == "PRH,BFlat"
    first.merge_from(second, 200)
    assert (first.ntotal, second.ntotal) == (150, 0)


def test_an_ivf_that_runs_out_of_memory_at_some_list(monkeypatch):
    first, second = pair("IDMap2,PRH,BIVF4,RFlat")
    before = [as_bytes(index) for index in (first, second)]
    right, calls = faiss.InvertedLists.add_entries, []

    def add_entries(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise MemoryError("std::bad_alloc")
        return right(*arguments)

    lists = type(faiss.downcast_IndexBinary(first.index.index).invlists)
    with monkeypatch.context() as patched:
        patched.setattr(lists, "add_entries", add_entries)
        with pytest.raises(MemoryError):
            first.merge_from(second)
    assert len(calls) == 3
    assert_unchanged((first, second), before)


@pytest.mark.parametrize("lists", ["BIVF4", "BIVF4,RFlat", "BIVF4,RAsym", "IVF4,Signs", "IVF4,Signs,RFlat"])
def test_a_direct_map_is_refused_before_anything_changes(lists):
    first = index_factory(D, f"PRH,{lists}")
    first.train(X)
    second = clone_index(first)
    second.chain = first.chain
    first.add(X[:100])
    second.add(X[100:150])
    second.index.make_direct_map()
    before = [as_bytes(index) for index in (first, second)]
    with pytest.raises(ValueError, match="direct map"):
        first.merge_from(second, 100)
    assert_unchanged((first, second), before)


@pytest.mark.parametrize("description", ["PRH,BHNSW8", "PRH,BHash8", "PRH,BHash2x8", "PRH,BHNSW8,RFlat",
                                         "PRH,BHash8,RFlat", "PRH,BHash2x8,RAsym"])  # fmt: skip
def test_kinds_that_are_not_merged(description):
    first = index_factory(D, description)
    first.train(X)
    second = clone_index(first)
    second.chain = first.chain
    first.add(X)
    second.add(X)
    with pytest.raises(RuntimeError, match="vectors cannot be moved from one IndexBinary"):
        first.merge_from(second)
    assert (first.ntotal, second.ntotal) == (len(X), len(X))
    assert first.search(X[:1], 1)[1] == 0


# Removing


@pytest.mark.parametrize("lists", ["BIVF4,RFlat", "BIVF4,RAsym", "IVF4,Signs,RFlat"])
def test_a_failed_removal_changes_nothing(lists):
    index = index_factory(D, f"PRH,{lists}")
    index.train(X)
    index.add(X)
    index.index.make_direct_map()
    before = as_bytes(index)
    with pytest.raises(RuntimeError, match="direct map"):
        index.remove_ids([3])
    assert as_bytes(index) == before
    np.testing.assert_array_equal(index.reconstruct_code(3), index.encode(X[3:4])[0])


class Interrupting:
    """Stands for a function that is interrupted when it has been called so many times."""

    def __init__(self, function, after):
        self.function, self.after = function, after

    def __call__(self, *arguments):
        self.after -= 1
        if self.after == 0:
            signal.raise_signal(signal.SIGINT)
        return self.function(*arguments)


@pytest.mark.parametrize(
    "description",
    ["IDMap,PRH,BIVF16", "PRH,BIVF16,RFlat", "IDMap2,PRH,BFlat,RAsym", "PRH,BFlat,RFlat", "PRH,IVF16,Signs,RFlat"],
)
@pytest.mark.parametrize("after", range(1, 40, 3))
def test_an_interrupted_removal_is_whole(description, after, monkeypatch):
    index = filled(description)
    for name in ("ids_in_list", "selected", "_set_ids", "ids_of_rows"):
        monkeypatch.setattr(binary_ops, name, Interrupting(getattr(binary_ops, name), after))
    with contextlib.suppress(KeyboardInterrupt):
        index.remove_ids(np.arange(0, len(X), 2))
    monkeypatch.undo()
    assert index.ntotal == len(X) // 2
    again = deserialize_index(as_bytes(index))
    for one in (index, again):
        if "IDMap" in description:
            assert one.search(X[1:30:2], 1)[1].ravel().tolist() == list(range(1, 30, 2))
        else:
            np.testing.assert_allclose(one.search(X[1::2], 1)[0], 0, atol=1e-3)


@pytest.mark.parametrize("description", ["PRH,BIVF4,RFlat", "PRH,IVF4,Signs,RFlat"])
def test_an_interrupt_when_all_was_added_leaves_it_whole(description, monkeypatch):
    index = index_factory(D, description)
    index.train(X)
    add = binary_ops.add

    def added_and_interrupted(*arguments):
        add(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(binary_ops, "add", added_and_interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.add_with_ids(X, np.arange(len(X)) + 7)
    monkeypatch.undo()
    assert index.ntotal == len(X)
    index.check_rows()
    assert index.search(X[:1], 1)[1] == 7


SIGNS = ["PRH,IVF8,Signs", "PRH,IVF8_HNSW4,Signs", "PRH,IVF8,Signs,RFlat", "PRH,IVF8,Signs,Refine(SQ8)"]


@pytest.mark.parametrize("description", SIGNS)
@pytest.mark.parametrize("name", ["clustered", "centroids_of"])
def test_an_interrupted_training_of_lists_of_signs(description, name, monkeypatch):
    index, new = index_factory(D, description), index_factory(D, description)
    untrained, function = as_bytes(index), getattr(signs, name)

    def done_and_interrupted(*arguments):
        function(*arguments)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(signs, name, done_and_interrupted)
        index.train(X)
    assert_untrained(index)
    assert as_bytes(index) == untrained
    for one in (index, new):
        one.train(X)
    assert as_bytes(index) == as_bytes(new)


@pytest.mark.parametrize("description", SIGNS)
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("n", [0, 7, 199])
def test_an_add_to_lists_of_signs_that_ends_on_the_way(description, with_ids, n, monkeypatch):
    index = filled(description)
    before, add_core = as_bytes(index), faiss.IndexBinaryIVF.add_core

    def some_added(ivf, count, codes, ids, lists):
        add_core(ivf, n, codes, ids, lists)
        raise KeyboardInterrupt

    monkeypatch.setattr(faiss.IndexBinaryIVF, "add_core", some_added)
    with pytest.raises(KeyboardInterrupt):
        index.add_with_ids(X[:200], np.arange(200) + 5000) if with_ids else index.add(X[:200])
    monkeypatch.undo()
    assert as_bytes(index) == before
    index.add(X[:200])
    assert index.ntotal == len(X) + 200
    assert clone_index(index).ntotal == index.ntotal


@pytest.mark.parametrize("description", SIGNS)
def test_ids_that_lists_of_signs_do_not_take(description):
    index = filled(description)
    before = as_bytes(index)
    for ids, error, message in (
        ([LARGEST + 1], ValueError, "below"), ([-1], ValueError, "negative"), ([1.5], TypeError, "integers"),
        ([1, 2], ValueError, "ids"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            index.add_with_ids(X[:1], ids)
    assert as_bytes(index) == before
    index.add_with_ids(X[:1], [LARGEST])
    index.nprobe = 8
    assert LARGEST in clone_index(index).search(X[:1], 5)[1]
    assert index.remove_ids([LARGEST]) == 1


@pytest.mark.parametrize("refine", ["RFlat", "RAsym", "Refine(SQ8)"])
def test_parts_changed_behind_its_back_are_noticed(refine):
    index = index_factory(D, f"PRH,BFlat,{refine}")
    index.train(X)
    index.add(X[:10])
    index.index.add(index.encode(X))
    for use in (as_bytes, lambda index: index.search(X[:1], 3)):
        with pytest.raises(ValueError, match="610 vectors, but what ranks its results again has 10"):
            use(index)


def test_indexes_that_share_a_store_are_not_merged():
    store = faiss.IndexFlatL2(D)
    first = IndexBinaryRefine(PRHTransform.random(D), faiss.IndexBinaryFlat(D), store)
    second = IndexBinaryRefine(PRHTransform.random(D), faiss.IndexBinaryFlat(D), store)
    with pytest.raises(ValueError, match="shares its store"):
        first.merge_from(second)


def test_removal_from_a_hash_changes_nothing():
    index = index_factory(D, "PRH,BHash8,RFlat")
    index.train(X)
    index.add(X)
    with pytest.raises(RuntimeError, match="cannot be removed from IndexBinaryHash"):
        index.remove_ids([3])
    assert not index._has_own_id_map
    assert index.search(X[:1], 1)[1] == 0


@pytest.mark.parametrize("kind", ["BFlat", "BIVF4"])
def test_ids_are_gone_after_a_reset(kind):
    """An IDMap2 of stock Faiss gives codes that are not there any more."""
    index = index_factory(D, f"IDMap2,PRH,{kind}")
    index.train(X)
    index.add_with_ids(X, np.arange(len(X)))
    index.reset()
    with pytest.raises(ValueError, match="no vector has the id 5"):
        index.reconstruct_code(5)


# Radii


@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,BIVF4", "IDMap2,PRH,BFlat", "PRH,BHash4", "PRH,BFlat,RFlat"])
def test_any_radius(description):
    index = filled(description)
    if quantizer_of(index):
        index.index.nprobe = 4
    limits, distances, found = index.range_search(X[:5], 0)
    assert limits.tolist() == [0] * 6
    assert len(distances) == len(found) == 0
    for radius, same in [(20.0, 20), (19.5, 20), (np.float32(20), 20), (np.int8(20), 20), (1e-9, 1), (2**31, D + 1),
                         (10**400, D + 1), (np.inf, D + 1)]:  # fmt: skip
        for mine, theirs in zip(index.range_search(X[:5], radius), index.range_search(X[:5], same), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    if "BHash" not in description:
        assert index.range_search(X[:5], 2**31)[0][-1] == 5 * len(X)
    for bad in (-1, -0.5, np.nan, -np.inf):
        with pytest.raises(ValueError, match="radius must be at least 0"):
            index.range_search(X[:5], bad)
    for bad in ("20", None, True, 1j, [20]):
        with pytest.raises(TypeError, match="radius must be a number"):
            index.range_search(X[:5], bad)


# Locks


@pytest.mark.parametrize(
    "description",
    ["PRH,BFlat", "PRH,BIVF4", "IDMap2,PRH,BIVF4", "PRH,BIVF4,RFlat", "PRH,BFlat,RAsym", "PRH,IVF4,Signs",
     "PRH,IVF4,Signs,RFlat"],
)  # fmt: skip
def test_a_copy_made_under_the_lock_is_whole(description):
    index = index_factory(D, description)
    index.train(X)
    stop = threading.Event()

    def change():
        number = 0
        while not stop.is_set():
            if "IDMap" in description:
                index.add_with_ids(X[:50], np.arange(50) + 50 * number)
            else:
                index.add(X[:50])
            number += 1
            if number % 9 == 0:
                index.reset()

    with ThreadPoolExecutor(2) as pool:
        changing = [pool.submit(change) for _ in range(2)]
        try:
            for _ in range(100):
                with index._lock:
                    n = index.ntotal
                    copy = clone_index(index)
                assert copy.ntotal == n
                assert n % 50 == 0
                assert (copy.search(X[:3], 1)[1] >= 0).any() == (n > 0)
        finally:
            stop.set()
    for future in changing:
        future.result()


def test_two_threads_merge_crosswise():
    first, second = pair("PRH,BIVF4")
    n = first.ntotal + second.ntotal
    barrier = threading.Barrier(2)

    def merge(here, there):
        barrier.wait()
        for _ in range(200):
            here.merge_from(there)

    threads = [
        threading.Thread(target=merge, args=indexes, daemon=True) for indexes in ((first, second), (second, first))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "each waits for the other"
    assert first.ntotal + second.ntotal == n


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="/proc tells how much memory is mapped")
@pytest.mark.parametrize(
    "description",
    ["PRH(2),BFlat", "PRH(2),BIVF16", "IDMap2,PRH(2),BIVF16", "PRH(2),BIVF16,RFlat", "IDMap,PRH(2),BFlat,RAsym",
     "PRH(2),IVF16,Signs", "IDMap,PRH(2),IVF16,Signs,RFlat"],
)  # fmt: skip
def test_memory_that_runs_out_in_merging(description):
    program = textwrap.dedent(LIMITED) + textwrap.dedent("""
        x = np.random.default_rng(0).normal(size=(100_000, 64)).astype("float32")
        here = faiss_prh.index_factory(64, sys.argv[1])
        here.train(x[:1000])
        there = faiss_prh.clone_index(here)
        there.chain = here.chain
        for index, vectors, first in ((here, x[:1000], 0), (there, x, 1000)):
            if "IDMap" in sys.argv[1]:
                index.add_with_ids(vectors, np.arange(first, first + len(vectors)))
            else:
                index.add(vectors)
        before = [faiss_prh.serialize_index(index) for index in (here, there)]
        failed = 0
        for extra in [kib << 10 for kib in (1, 300, *range(700, 7000, 300), *range(7000, 90_000, 4000))]:
            limit(extra)
            try:
                here.merge_from(there)
                limit(0)
                break
            except MemoryError:
                limit(0)
                failed += 1
                assert [faiss_prh.serialize_index(index) for index in (here, there)] == before, extra
        assert failed
        assert (here.ntotal, there.ntotal) == (101_000, 0)
        print("failed and unchanged")
    """)
    assert run(program, description, MALLOC_MMAP_THRESHOLD_="65536").strip().endswith("failed and unchanged")
