"""Any sequence of operations against a model in NumPy that searches everything."""

import faiss
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import faiss_prh

D = 20
POOL = (np.random.default_rng(5).normal(size=(200, D)) * np.linspace(1, 3, D)).astype(np.float32)
QUERIES = POOL[:4] + np.float32(0.1)
MISSING = -1

batches = st.lists(st.integers(0, len(POOL) - 1), min_size=0, max_size=12)
some_ids = st.integers(0, 40)


def trained(description):
    index = faiss_prh.index_factory(D, description)
    index.train(POOL)
    return index


def probe_everything(index):
    rows_index = index.index
    while hasattr(rows_index, "index"):
        rows_index = faiss.downcast_IndexBinary(rows_index.index)
    if hasattr(rows_index, "nprobe"):
        rows_index.nprobe = rows_index.nlist
    if hasattr(index, "k_factor"):
        index.k_factor = 1000


def distances_to(index, which):
    """What a search must find as the distances of vectors, by the book."""
    x = POOL[which].reshape(-1, D)
    if isinstance(index, faiss_prh.IndexBinaryRefine):
        return ((QUERIES[:, None] - x) ** 2).sum(axis=2)
    (prh,) = index.chain
    z, z_query = prh.apply(x), prh.apply(QUERIES)
    if isinstance(index, faiss_prh.IndexBinaryAsymmetric):
        low, step, reach = index._scale
        norms = low * np.exp(step * np.clip(np.rint(np.log(np.linalg.norm(z, axis=1) / low) / step), 0, 255))
        products = z_query @ np.where(z >= 0, 1, -1).T
        return (z_query**2).sum(axis=1)[:, None] + norms**2 - 2 * reach * norms * products
    return ((z_query >= 0)[:, None] != (z >= 0)).sum(axis=2)


class Model(RuleBasedStateMachine):
    description = ""

    def __init__(self):
        super().__init__()
        self.index = trained(self.description)
        self.takes_ids = "IDMap" in self.description or "BIVF" in self.description
        self.takes_none = "IDMap" not in self.description
        self.ids, self.which = [], []

    @precondition(lambda self: self.takes_none)
    @rule(which=batches)
    def add(self, which):
        self.index.add(POOL[which].reshape(-1, D))
        self.ids += range(len(self.ids), len(self.ids) + len(which))
        self.which += which

    @precondition(lambda self: self.takes_ids)
    @rule(which=batches, first=some_ids)
    def add_with_ids(self, which, first):
        ids = [first + 3 * number for number in range(len(which))]
        self.index.add_with_ids(POOL[which].reshape(-1, D), ids)
        self.ids += ids
        self.which += which

    @rule(first=some_ids, count=st.integers(0, 10), as_range=st.booleans())
    def remove(self, first, count, as_range):
        removed = set(range(first, first + count))
        kept = [row for row, id_ in enumerate(self.ids) if id_ not in removed]
        selector = faiss.IDSelectorRange(first, first + count) if as_range else sorted(removed)
        if not as_range and not removed:
            selector = np.empty(0, dtype=np.int64)
        assert self.index.remove_ids(selector) == len(self.ids) - len(kept)
        self._keep(kept)

    def _keep(self, kept):
        self.which = [self.which[row] for row in kept]
        self.ids = [self.ids[row] for row in kept] if self.takes_ids else list(range(len(kept)))

    @rule(which=batches, add_id=st.integers(0, 50))
    def merge(self, which, add_id):
        other = faiss_prh.clone_index(self.index)
        other.reset()
        if self.takes_none:
            other.add(POOL[which].reshape(-1, D))
        else:
            other.add_with_ids(POOL[which].reshape(-1, D), np.arange(len(which)))
        self.index.merge_from(other, add_id)
        assert other.ntotal == 0
        first = add_id if self.takes_ids else len(self.ids)
        self.ids += range(first, first + len(which))
        self.which += which

    @rule()
    def save_and_load(self):
        self.index = faiss_prh.deserialize_index(faiss_prh.serialize_index(self.index))

    @rule()
    def fail(self):
        spoiled = POOL[:3].copy()
        spoiled[2, 5] = np.nan
        with pytest.raises(ValueError, match="vector 2 "):
            if self.takes_none:
                self.index.add(spoiled)
            else:
                self.index.add_with_ids(spoiled, [1, 2, 3])

    @rule()
    def reset(self):
        self.index.reset()
        self.ids, self.which = [], []

    @invariant()
    def finds_what_is_there(self):
        assert self.index.ntotal == len(self.ids)
        probe_everything(self.index)
        k = len(self.ids) + 2
        found_distances, found_ids = self.index.search(QUERIES, k)
        self._compare(found_distances, found_ids, np.arange(len(self.ids)))
        even = faiss.SearchParameters(sel=faiss.IDSelectorBatch(np.arange(0, 200, 2)))
        found_distances, found_ids = self.index.search(QUERIES, k, params=even)
        self._compare(found_distances, found_ids, np.flatnonzero(np.array(self.ids, dtype=int) % 2 == 0))

    def _compare(self, found_distances, found_ids, rows):
        expected = distances_to(self.index, np.array(self.which, dtype=int)[rows])
        ids = np.array(self.ids, dtype=int)[rows]
        assert (found_ids[:, len(rows) :] == MISSING).all()
        assert (np.diff(found_distances.astype(float), axis=1) >= 0).all()
        for query, mine in enumerate(expected):
            order = np.lexsort((ids, np.round(mine, 2)))
            theirs, their_ids = found_distances[query, : len(rows)], found_ids[query, : len(rows)]
            their_order = np.lexsort((their_ids, np.round(theirs, 2)))
            np.testing.assert_allclose(theirs[their_order], mine[order], rtol=1e-4, atol=2e-2)
            np.testing.assert_array_equal(np.sort(their_ids), np.sort(ids))


@pytest.mark.parametrize(
    "description",
    [
        "PRH(4,2),BFlat",
        "PRH(4,2),BIVF4",
        "IDMap2,PRH(4,2),BFlat",
        "IDMap,PRH(4,2),BIVF4",
        "PRH(4,2),BFlat,RFlat",
        "PRH(4,2),BFlat,RAsym",
        "PRH(4,2),BIVF4,RFlat",
        "PRH(4,2),BIVF4,RAsym",
        "IDMap2,PRH(4,2),BFlat,RAsym",
        "IDMap2,PRH(4,2),BIVF4,RFlat",
        "IDMap,PRH(4,2),BIVF4,RAsym",
    ],
)
def test_any_sequence_of_operations(description):
    machine = type("Machine", (Model,), {"description": description})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=12))
