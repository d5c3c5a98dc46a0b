"""IndexBinaryPreTransform side by side with codes made by hand and stock binary indexes."""

import faiss
import numpy as np
import pytest
from faiss.contrib.inspect_tools import get_invlist

from faiss_prh import IndexBinaryPreTransform, PRHTransform

D = 100
BITS = 104


def vectors(n, seed):
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


XT, XB, XQ = vectors(500, 0), vectors(800, 1), vectors(9, 2)


def flat():
    return faiss.IndexBinaryFlat(BITS)


def ivf():
    index = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(BITS), BITS, 8)
    index.nprobe = 3
    return index


def hnsw():
    return faiss.IndexBinaryHNSW(BITS, 16)


KINDS = {
    "Flat": flat,
    "IVF": ivf,
    "HNSW": hnsw,
    "Hash": lambda: faiss.IndexBinaryHash(BITS, 6),
    "MultiHash": lambda: faiss.IndexBinaryMultiHash(BITS, 3, 6),
}


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)  # several build an HNSW graph in the order in which they come


def padded(y):
    return np.packbits(y >= 0, axis=1, bitorder="little")


@pytest.fixture(scope="module")
def prh():
    prh = PRHTransform(D)
    prh.train(XT)
    return prh


def made(prh, kind):
    index = IndexBinaryPreTransform(prh, KINDS[kind]())
    index.train(XT)
    return index


def stock(prh, kind):
    index = KINDS[kind]()
    index.train(prh.encode(XT))
    return index


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_search_is_that_of_the_stock_index(prh, kind):
    index, raw = made(prh, kind), stock(prh, kind)
    index.add(XB)
    raw.add(prh.encode(XB))
    assert (index.ntotal, index.d, index.is_trained) == (len(XB), D, True)
    assert_same(index.search(XQ, 7), raw.search(prh.encode(XQ), 7))
    assert_same((index.assign(XQ, 3),), (raw.search(prh.encode(XQ), 3)[1],))
    index.reset()
    assert index.ntotal == 0
    assert index.is_trained


@pytest.mark.parametrize("kind", ["Flat", "IVF", "Hash", "MultiHash"])
def test_range_search_is_that_of_the_stock_index(prh, kind):
    index, raw = made(prh, kind), stock(prh, kind)
    index.add(XB)
    raw.add(prh.encode(XB))
    assert_same(index.range_search(XQ, 40), raw.range_search(prh.encode(XQ), 40))


@pytest.mark.parametrize("wrap", [faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2])
@pytest.mark.parametrize("kind", ["Flat", "IVF", "HNSW"])
def test_ids(prh, kind, wrap):
    ids = np.arange(len(XB)) * 3 + 7
    index = IndexBinaryPreTransform(prh, wrap(KINDS[kind]()))
    index.train(XT)
    index.add_with_ids(XB, ids)
    _, found = made_and_filled(prh, kind).search(XQ, 5)
    np.testing.assert_array_equal(index.search(XQ, 5)[1], ids[found])


def made_and_filled(prh, kind):
    index = made(prh, kind)
    index.add(XB)
    return index


CHAINS = {
    "PCA, PRH": lambda: [faiss.PCAMatrix(D, 60), PRHTransform(60)],
    "L2norm, PRH": lambda: [faiss.NormalizationTransform(D, 2.0), PRHTransform(D)],
    "ITQ": lambda: [faiss.ITQTransform(D, 64, True)],
    "RR": lambda: faiss.RandomRotationMatrix(D, 61),
    "OPQ, PRH": lambda: [faiss.OPQMatrix(D, 4, 40), PRHTransform(40)],
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name):
    chain = CHAINS[name]()
    last = chain[-1] if isinstance(chain, list) else chain
    index = IndexBinaryPreTransform(chain, faiss.IndexBinaryFlat(-(-last.d_out // 8) * 8))
    assert not index.is_trained
    index.train(XT)
    index.add(XB)
    y_base, y_query = XB, XQ
    for transform in index.chain:
        y_base, y_query = transform.apply(y_base), transform.apply(y_query)
    raw = faiss.IndexBinaryFlat(index.index.d)
    raw.add(padded(y_base))
    assert_same(index.search(XQ, 10), raw.search(padded(y_query), 10))


def test_train_trains_only_what_is_untrained(prh):
    before = prh.rotation
    index = IndexBinaryPreTransform(prh, ivf())
    index.train(XT * np.arange(1, D + 1))
    assert prh.rotation is before
    assert index.is_trained


def brute_force(prh, selected):
    """Hamming distances to the base vectors, the others out of reach."""
    distances = np.unpackbits(prh.encode(XQ)[:, None] ^ prh.encode(XB)[None], axis=2).sum(axis=2).astype(np.int32)
    distances[:, ~selected] = np.iinfo(np.int32).max
    return distances


FILTERS = {
    "some": lambda: faiss.IDSelectorBatch(np.arange(0, 800, 7)),
    "none": lambda: faiss.IDSelectorRange(900, 1000),
    "most": lambda: faiss.IDSelectorNot(faiss.IDSelectorRange(100, 130)),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("kind", ["Flat", "IVF", "HNSW", "IDMap of IVF"])
def test_filters_are_exact(prh, kind, name):
    base = ivf() if kind == "IDMap of IVF" else KINDS[kind]()
    index = IndexBinaryPreTransform(prh, faiss.IndexBinaryIDMap(base) if kind == "IDMap of IVF" else base)
    index.train(XT)
    if kind == "IDMap of IVF":
        index.add_with_ids(XB, np.arange(len(XB)))
    else:
        index.add(XB)
    selector = FILTERS[name]()
    selected = np.array([selector.is_member(int(i)) for i in range(len(XB))])
    if kind == "HNSW":
        index.index.hnsw.efSearch = len(XB)
    params = {
        "Flat": lambda: faiss.SearchParameters(sel=selector),
        "HNSW": lambda: faiss.SearchParameters(sel=selector),
    }.get(kind, lambda: faiss.SearchParametersIVF(sel=selector, nprobe=8))()
    distances, found = index.search(XQ, 20, params=params)
    expected = np.sort(brute_force(prh, selected), axis=1)[:, :20]
    np.testing.assert_array_equal(distances, expected)
    assert distances.dtype == np.int32
    assert found.dtype == np.int64
    assert selected[found[found >= 0]].all()
    np.testing.assert_array_equal(found < 0, distances == np.iinfo(np.int32).max)


def test_filtered_ivf_probes_what_an_unfiltered_one_does(prh):
    index = made_and_filled(prh, "IVF")
    everything = faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 10**6))
    assert_same((index.search(XQ, 30)[0],), (index.search(XQ, 30, params=everything)[0],))
    limits, distances, found = index.range_search(XQ, 40)
    for mine, theirs in zip(index.range_search(XQ, 40, params=everything), (limits, distances, found), strict=True):
        assert mine.dtype == theirs.dtype
        assert len(mine) == len(theirs)
    empty_distances, _ = index.search(XQ[:0], 3, params=everything)
    assert empty_distances.shape == (0, 3)


def test_search_parameters_are_those_of_the_index(prh):
    ivf_index, hnsw_index, hash_index = (made_and_filled(prh, kind) for kind in ("IVF", "HNSW", "Hash"))
    by_params = ivf_index.search(XQ, 9, params=faiss.SearchParametersIVF(nprobe=7))
    ivf_index.index.nprobe = 7
    assert_same(by_params, ivf_index.search(XQ, 9))
    in_range = ivf_index.range_search(XQ, 42)
    ivf_index.index.nprobe = 2
    assert_same(ivf_index.range_search(XQ, 42, params=faiss.SearchParametersIVF(nprobe=7)), in_range)
    wide = faiss.SearchParametersHNSW(efSearch=300)
    try:
        by_params = hnsw_index.search(XQ, 9, params=wide)
    except RuntimeError as error:  # before Faiss 1.14
        assert "set them on the index" in str(error)
    else:
        hnsw_index.index.hnsw.efSearch = 300
        assert_same(by_params, hnsw_index.search(XQ, 9))
    before = hash_index.search(XQ, 9)[0].sum()
    hash_index.index.nflip = 3
    assert hash_index.search(XQ, 9)[0].sum() < before


@pytest.mark.parametrize("make", [faiss.IndexBinaryShards, faiss.IndexBinaryReplicas])
@pytest.mark.parametrize("kind", ["Flat", "IVF"])
def test_shards_and_replicas(prh, make, kind):
    parts = [stock(prh, kind) for _ in range(2)]
    several = make(BITS)
    for part in parts:
        (several.add_shard if make is faiss.IndexBinaryShards else several.add_replica)(part)
    index = IndexBinaryPreTransform(prh, several)
    assert index.is_trained
    index.add(XB)
    assert index.ntotal == len(XB)
    raw = stock(prh, kind)
    raw.add(prh.encode(XB))
    assert_same(index.search(XQ, 7)[:1], raw.search(prh.encode(XQ), 7)[:1])


def test_filters_that_cannot_be_are_an_error(prh):
    index = made_and_filled(prh, "Hash")
    with pytest.raises(TypeError, match="IndexBinaryHash does not take SearchParameters"):
        index.search(XQ, 3, params=faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 5)))


@pytest.mark.parametrize("kind", ["Flat", "IVF"])
def test_removal_and_reconstruction(prh, kind):
    index, raw = made_and_filled(prh, kind), stock(prh, kind)
    raw.add(prh.encode(XB))
    assert index.remove_ids(np.arange(0, 100)) == raw.remove_ids(np.arange(0, 100)) == 100
    assert index.remove_ids(faiss.IDSelectorRange(150, 160)) == raw.remove_ids(faiss.IDSelectorRange(150, 160)) == 10
    assert index.ntotal == raw.ntotal
    assert_same(index.search(XQ, 7), raw.search(prh.encode(XQ), 7))


def test_stored_codes(prh):
    index, codes = made_and_filled(prh, "Flat"), prh.encode(XB)
    np.testing.assert_array_equal(index.reconstruct_code(5), codes[5])
    np.testing.assert_array_equal(index.reconstruct_codes(3, 4), codes[3:7])
    few = IndexBinaryPreTransform(prh, flat())
    few.add(XB[:2])
    distances, found, returned = few.search_and_return_codes(XQ, 3)
    np.testing.assert_array_equal(found[:, 2], -1)
    np.testing.assert_array_equal(distances[:, 2], 2147483647)
    np.testing.assert_array_equal(returned[:, :2], codes[found[:, :2]])
    assert not returned[:, 2].any()


@pytest.mark.parametrize("kind", ["Flat", "IVF", "HNSW", "MultiHash"])
def test_codes_of_results(prh, kind):
    index, codes = made_and_filled(prh, kind), prh.encode(XB)
    distances, found, returned = index.search_and_return_codes(XQ, 5)
    assert_same((distances,), index.search(XQ, 5)[:1])  # equal distances may come in another order
    np.testing.assert_array_equal(returned[found >= 0], codes[found[found >= 0]])
    assert not returned[found < 0].any()


def test_codes_of_results_that_are_not_kept(prh):
    with pytest.raises(ValueError, match="IndexBinaryHash does not give its codes back"):
        made_and_filled(prh, "Hash").search_and_return_codes(XQ, 5)


@pytest.mark.parametrize("wrap", [faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2])
def test_removal_from_an_id_map_of_an_ivf(prh, wrap):
    """Stock Faiss then finds the wrong ids (1.8 to 1.15)."""
    index = IndexBinaryPreTransform(prh, wrap(ivf()))
    index.train(XT)
    ids = np.arange(len(XB)) * 3 + 7
    index.add_with_ids(XB, ids)
    assert index.remove_ids(ids[:200]) == 200
    distances, found = index.search(XB[200:], 1)
    exact = distances[:, 0] == 0
    assert exact.sum() > 500
    np.testing.assert_array_equal(found[exact, 0], ids[200:][exact])
    if wrap is faiss.IndexBinaryIDMap2:
        faiss.downcast_IndexBinary(index.index.index).make_direct_map()
        np.testing.assert_array_equal(index.reconstruct_code(int(ids[300])), prh.encode(XB[300:301])[0])
        with pytest.raises(RuntimeError, match="direct map"):
            index.remove_ids(ids[300:301])


@pytest.mark.parametrize("kind", ["Flat", "IVF"])
def test_merge(prh, kind):
    whole, first, second = made_and_filled(prh, kind), made(prh, kind), made(prh, kind)
    first.add(XB[:300])
    second.add(XB[300:])
    if kind == "IVF":
        first.merge_from(second, 300)
    else:
        first.merge_from(second)
    assert (first.ntotal, second.ntotal) == (len(XB), 0)
    assert_same(first.search(XQ, 10)[:1], whole.search(XQ, 10)[:1])


def test_merging_another_rotation_is_refused(prh):
    index = made_and_filled(prh, "Flat")
    other = IndexBinaryPreTransform(PRHTransform.random(D), flat())
    other.add(XB)
    with pytest.raises(RuntimeError, match="another rotation"):
        index.merge_from(other)
    with pytest.raises(ValueError, match="same transforms"):
        index.merge_from(flat())
    assert index.ntotal == other.ntotal == len(XB)


@pytest.mark.parametrize(
    ("transforms", "index", "error", "message"),
    [
        ([], flat, ValueError, "at least one transform"),
        (3, flat, TypeError, "not int"),
        (["PCA"], flat, TypeError, "not str"),
        (lambda: PRHTransform(D), lambda: faiss.IndexFlatL2(D), TypeError, "not IndexFlatL2"),
        (lambda: PRHTransform(96), flat, ValueError, "96 dimensions need an index of 96 bits, not 104"),
        (lambda: [faiss.PCAMatrix(D, 60), PRHTransform(D)], flat, ValueError, "to 60 .* from 100"),
    ],
)
def test_bad_construction(transforms, index, error, message):
    with pytest.raises(error, match=message):
        IndexBinaryPreTransform(transforms() if callable(transforms) else transforms, index())


def test_bad_input_changes_nothing(prh):
    index = IndexBinaryPreTransform(prh, faiss.IndexBinaryIDMap2(flat()))
    index.add_with_ids(XB, np.arange(len(XB)))
    spoiled = XB.copy()
    spoiled[400, 3] = np.nan
    for bad in (
        lambda: index.add_with_ids(spoiled, np.arange(len(XB))),
        lambda: index.add_with_ids(XB, np.arange(5)),
        lambda: index.add_with_ids(XB, np.zeros(len(XB))),
        lambda: index.add_with_ids(XB[:, :5], np.arange(len(XB))),
        lambda: index.add(XB),
        lambda: index.search(XQ, 0),
        lambda: index.search(XQ, 2.5),
        lambda: index.range_search(XQ, -1),
        lambda: index.search(XQ[:, :7], 2),
        lambda: index.train(np.empty((0, D))),
        lambda: index.remove_ids([0.5]),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            bad()
        assert index.ntotal == len(XB)
    untrained = IndexBinaryPreTransform(PRHTransform(D), ivf())
    with pytest.raises(RuntimeError, match="not trained"):
        untrained.add(XB)
    with pytest.raises(RuntimeError, match="not trained"):
        untrained.search(XQ, 1)


def test_non_finite_vectors_are_named_in_chains():
    index = IndexBinaryPreTransform(faiss.RandomRotationMatrix(D, 64), faiss.IndexBinaryFlat(64))
    index.train(XT)
    spoiled = XB.copy()
    spoiled[17, 3] = np.inf
    with pytest.raises(ValueError, match=r"^vector 17 "):
        index.add(spoiled)
    with pytest.raises(ValueError, match="training vector 17 "):
        index.train(spoiled)


def test_verbose_is_the_indexs(prh):
    index = made(prh, "Flat")
    index.verbose = True
    assert index.index.verbose
    assert index.verbose


def test_quantizers_that_find_fewer_lists(prh):
    """Lists that are missing for a query must not shift those of the next."""
    index = made_and_filled(prh, "IVF")
    few = faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 3))
    selector = faiss.IDSelectorRange(0, 400)
    distances, found = index.search(
        XQ, 6, params=faiss.SearchParametersIVF(nprobe=7, sel=selector, quantizer_params=few)
    )
    allowed = np.zeros(len(XB), dtype=bool)
    for number in range(3):
        allowed[get_invlist(index.index.invlists, number)[0]] = True
    allowed[400:] = False
    np.testing.assert_array_equal(distances, np.sort(brute_force(prh, allowed), axis=1)[:, :6])
    assert allowed[found[found >= 0]].all()


def test_parameters_of_the_quantizer_are_followed(prh):
    quantizer = faiss.IndexBinaryHNSW(BITS, 4)
    index = IndexBinaryPreTransform(prh, faiss.IndexBinaryIVF(quantizer, BITS, 40))
    index.train(XT)
    index.add(XB)
    quantizer.hnsw.efSearch = 200
    wide = index.search(XB, 1)
    quantizer.hnsw.efSearch = 1
    params = faiss.SearchParametersIVF(nprobe=1, quantizer_params=faiss.SearchParametersHNSW(efSearch=200))
    try:
        assert_same(index.search(XB, 1, params=params), wide)
    except RuntimeError as error:  # before Faiss 1.14
        assert "set them on the index" in str(error)


def test_a_failed_training_is_forgotten():
    index = IndexBinaryPreTransform(PRHTransform(D), faiss.IndexBinaryIVF(flat(), BITS, 300))
    with pytest.raises(RuntimeError):
        index.train(XT[:10])
    assert not index.is_trained
    index.train(XT)
    np.testing.assert_allclose(index.chain[0].mean, XT.mean(axis=0), atol=1e-5)


def test_one_index_in_two_wrappers_is_not_merged(prh):
    index = made_and_filled(prh, "Flat")
    with pytest.raises(ValueError, match="itself"):
        index.merge_from(IndexBinaryPreTransform(index.chain, index.index))
    assert index.ntotal == len(XB)


@pytest.mark.parametrize("ids", [[-1], [-7], np.array([2**63 + 5], dtype=np.uint64)])
def test_ids_that_cannot_be(prh, ids):
    index = made(prh, "IVF")
    with pytest.raises(ValueError, match="ids must"):
        index.add_with_ids(XB[:1], ids)
    assert index.ntotal == 0


def test_reconstruction_of_what_is_not_there(prh):
    index = made_and_filled(prh, "Flat")
    for key in (len(XB), 10**12):
        with pytest.raises(ValueError, match=f"no vector has the id {key}"):
            index.reconstruct(key)
    with pytest.raises(ValueError, match="key must be from 0"):
        index.reconstruct(-1)
    with pytest.raises(ValueError, match=f"no vector has the id {len(XB)}"):
        index.reconstruct_n(len(XB) - 5, 6)
    for n0, ni in ((0, 10**15), (len(XB) + 1, -1)):
        with pytest.raises(ValueError, match=f"there are {len(XB)} vectors"):
            index.reconstruct_n(n0, ni)


def test_parameters_that_are_none(prh):
    index = made_and_filled(prh, "IVF")
    with pytest.raises(TypeError, match="not int"):
        index.search(XQ, 3, params=42)
    with pytest.raises(ValueError, match="nprobe"):
        index.search(XQ, 3, params=faiss.SearchParametersIVF(nprobe=0))


def test_a_filter_on_shards_is_refused(prh):
    shards = faiss.IndexBinaryShards(BITS)
    shards.add_shard(stock(prh, "Flat"))
    shards.add_shard(stock(prh, "Flat"))
    index = IndexBinaryPreTransform(prh, shards)
    index.add(XB)
    with pytest.raises(RuntimeError, match="filter what it finds"):
        index.search(XQ, 3, params=faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 9)))
