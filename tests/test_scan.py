"""
Searches between changes: native code reads Faiss's memory, so that an address kept from an earlier call would crash.

.ci/sanitize runs this file under the address sanitizer, which sees a stale address even where nothing crashes.
"""

import faiss
import numpy as np
import pytest

import faiss_prh

D = 40
DESCRIPTIONS = [
    "PRH,BFlat,RFlat",
    "PRH,BFlat,RAsym",
    "PRH,BIVF16,RFlat",
    "PRH,BIVF16,RAsym",
    "PRH,BHNSW8,RFlat",
    "PRH,IVF16,Signs",
    "PRH,IVF16,Signs,RFlat",
]
N_CHANGES = 12
XQ = np.random.default_rng(0).normal(size=(40, D)).astype(np.float32)


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)  # several build a graph in the order in which they come; check_scan.cpp searches with several


def vectors(rng, n):
    return rng.normal(size=(n, D)).astype(np.float32)


class Changes:
    """Random changes of an index, first those that go through it, then those behind its back."""

    def __init__(self, description):
        self.rng = np.random.default_rng(1)
        xt = vectors(self.rng, 700)
        self.index, self.other = (faiss_prh.index_factory(D, description) for _ in range(2))
        for index in (self.index, self.other):
            index.train(xt)
        self.is_ivf = isinstance(self.index.index, faiss.IndexBinaryIVF)
        self.is_hnsw = isinstance(self.index.index, faiss.IndexBinaryHNSW)
        self.has_signs = "Signs" in description
        if self.is_ivf:
            self.index.index.nprobe = 5

    def n(self):
        return int(self.rng.integers(1, 300))

    def add(self):
        self.index.add(vectors(self.rng, self.n()))

    def remove(self):
        if not self.is_hnsw:
            self.index.remove_ids(np.flatnonzero(self.rng.random(self.index.ntotal) < 0.4))

    def merge(self):
        if self.is_hnsw:
            return
        self.other.add(vectors(self.rng, self.n()))
        self.index.merge_from(self.other)

    def reset(self):
        self.index.reset()

    def add_codes(self):
        if not self.has_signs:  # its binary index has no centroids
            codes = self.rng.integers(0, 256, (self.n(), self.index.index.code_size), np.uint8)
            self.index.index.add(codes)

    def add_to_a_list(self):
        if not self.is_ivf:
            return
        lists, n = self.index.index.invlists, self.n()
        ids = self.rng.choice([-1, 0, 5, 2**40, np.iinfo(np.int64).max], n)
        codes = self.rng.integers(0, 256, (n, lists.code_size), np.uint8)
        lists.add_entries(int(self.rng.integers(lists.nlist)), n, faiss.swig_ptr(ids), faiss.swig_ptr(codes))

    def replace_lists(self):
        if self.is_ivf:
            ivf = self.index.index
            lists = faiss.ArrayInvertedLists(ivf.nlist, ivf.code_size)
            if self.rng.random() < 0.5:
                ivf.invlists.copy_subset_to(lists, faiss.InvertedLists.SUBSET_TYPE_ID_MOD, 2, 1)
            lists.this.disown()
            ivf.replace_invlists(lists, True)

    def reset_codes(self):
        self.index.index.reset()

    def reset_store(self):
        if hasattr(self.index, "refine_index"):
            self.index.refine_index.reset()

    def add_to_the_store(self):
        if hasattr(self.index, "refine_index"):
            self.index.refine_index.add(vectors(self.rng, self.n()))

    THROUGH_IT = (add, add, remove, merge, reset)
    BEHIND_IT = (add_codes, add_to_a_list, replace_lists, reset_codes, reset_store, add_to_the_store)

    def one_of(self, changes):
        changes[self.rng.integers(len(changes))](self)


def searched(index):
    found = [*index.search(XQ, 7), *index.search_and_return_codes(XQ, 7)]
    if isinstance(index, faiss_prh.IndexIVFSigns):
        found.extend(index.range_search(XQ, 60))
    return found


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_searches_between_changes_change_nothing(description):
    """Of two indexes with the same changes, only one is searched before the end."""
    one, other = Changes(description), Changes(description)
    for _ in range(N_CHANGES):
        for changes in (one, other):
            changes.one_of(Changes.THROUGH_IT)
        searched(one.index)
    for changes in (one, other):
        changes.add()
    for found, expected in zip(searched(one.index), searched(other.index), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_changes_behind_its_back_are_refused_or_survived(description):
    changes = Changes(description)
    for _ in range(N_CHANGES):
        changes.reset()
        changes.add()
        searched(changes.index)
        for _ in range(3):
            changes.one_of(Changes.BEHIND_IT)
            try:
                found = searched(changes.index)
            except (ValueError, RuntimeError):  # what is beside the codes does not fit them any more
                continue
            assert found[0].shape == found[1].shape == (len(XQ), 7)
            if hasattr(changes.index, "refine_index"):
                assert found[1].max() < changes.index.refine_index.ntotal


def filled(description):
    index = faiss_prh.index_factory(D, description)
    index.train(vectors(np.random.default_rng(2), 700))
    index.add(XQ)
    return index


def test_what_a_filter_raises_is_raised():
    index = filled("PRH,IVF16,Signs")

    def fail(_):
        raise KeyError("boom")

    params = faiss.SearchParametersIVF(nprobe=4, sel=faiss.PyCallbackIDSelector(fail))
    with pytest.raises(KeyError, match="boom"):
        index.search(XQ[:2], 3, params=params)


@pytest.mark.parametrize("description", ["PRH,IVF16,Signs", "PRH,BFlat,RFlat", "PRH,BIVF16,RAsym"])
def test_parts_that_do_not_fit_are_refused(description):
    index = filled(description)
    index.chain[0] = faiss_prh.PRHTransform.random(D, 8 * D)
    with pytest.raises(ValueError, match="do not fit codes of"):
        index.search(XQ[:2], 3)


@pytest.mark.parametrize("store", ["RFlat", "Refine(SQ8)"])
@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,IVF16,Signs"])
def test_transforms_that_do_not_fit_the_store_are_refused(description, store):
    index = filled(f"{description},{store}")
    index.chain[0] = faiss_prh.PRHTransform.random(D // 2, D)
    with pytest.raises(ValueError, match="do not fit stored vectors of 40"):
        index.search(XQ[:2, : D // 2], 3)


def replace_quantizer(index):
    """Return the quantizer that was there, to be freed."""
    old, new = faiss.downcast_IndexBinary(index.index.quantizer), faiss.IndexBinaryFlat(D)
    new.add(np.random.default_rng(3).integers(0, 256, (16, D // 8), np.uint8))
    index.index.quantizer = new
    new.this.disown()
    old.this.own(True)
    return old


def replace_index(index):
    """Put other codes in an IDMap, and return what holds those that were there."""
    new = faiss.IndexBinaryFlat(D)
    new.add(np.random.default_rng(3).integers(0, 256, (len(XQ), D // 8), np.uint8))
    index.index.index = new
    old, index.index.referenced_objects = index.index.referenced_objects, [new]
    return old


@pytest.mark.parametrize(
    ("description", "replace"), [("PRH,BIVF16,RFlat", replace_quantizer), ("IDMap,PRH,BFlat,RFlat", replace_index)]
)
def test_parts_that_were_replaced_are_not_searched(description, replace):
    searched_before, new = (faiss_prh.index_factory(D, description) for _ in range(2))
    for index in (searched_before, new):
        index.train(vectors(np.random.default_rng(2), 700))
        if description.startswith("IDMap"):
            index.add_with_ids(XQ, np.arange(len(XQ)))
        else:
            index.add(XQ)
    before = searched_before.search(XQ, 3)[1]
    replaced = [replace(index) for index in (searched_before, new)]
    found = searched_before.search(XQ, 3)[1]
    np.testing.assert_array_equal(found, new.search(XQ, 3)[1])
    assert not np.array_equal(found, before)
    replaced.clear()
    np.testing.assert_array_equal(searched_before.search(XQ, 3)[1], found)


def test_a_quantizer_cannot_be_replaced():
    with pytest.raises(AttributeError):
        filled("PRH,IVF16,Signs").quantizer = faiss.IndexFlatL2(3)


def test_nprobe_of_any_index_with_lists():
    for description in ("PRH,BIVF16,RFlat", "IDMap,PRH,BIVF16", "PRH,IVF16,Signs"):
        index = faiss_prh.index_factory(D, description)
        index.nprobe = 5
        assert (index.nprobe, faiss.downcast_IndexBinary(getattr(index.index, "index", index.index)).nprobe) == (5, 5)
    with pytest.raises(AttributeError, match="no lists"):
        faiss_prh.index_factory(D, "PRH,BFlat").nprobe = 3


@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,BIVF4", "PRH,BHNSW8"])
def test_a_transform_that_does_not_fit_is_refused(description):
    x = np.random.default_rng(0).normal(size=(200, 32)).astype(np.float32)
    index = faiss_prh.index_factory(32, description)
    index.train(x)
    index.add(x)
    index.chain[0] = faiss_prh.PRHTransform.random(32, 16)
    with pytest.raises(ValueError, match="queries of 2 bytes do not fit an index of 4"):
        index.search(x[:3], 1)
