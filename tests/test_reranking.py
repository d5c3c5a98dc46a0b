"""Re-ranking beside stock Faiss and beside the formula in NumPy."""

import gc
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest

import faiss_prh
from faiss_prh import IndexBinaryAsymmetric, IndexBinaryPreTransform, IndexBinaryRefine, PRHTransform

D = 100
K = 5


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)  # several build an HNSW graph in the order in which they come


def vectors(n, seed):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, D)) * np.linspace(3, 0.3, D) + 1).astype(np.float32)


XT, XB, XQ = vectors(600, 0), vectors(900, 1), vectors(11, 2)
XQ_LONG = np.random.default_rng(3).normal(size=(20, 256)).astype(np.float32) / 5
KINDS = ["BFlat", "BIVF8", "BHNSW16", "BHash8", "BHash3x8", "IDMap,BFlat", "IDMap2,BIVF8", "IDMap,BHNSW16"]


def filled(description, metric=faiss.METRIC_L2):
    index = faiss_prh.index_factory(D, description, metric)
    index.train(XT)
    if "IDMap" in description:
        index.add_with_ids(XB, np.arange(len(XB)) + 1000)
    else:
        index.add(XB)
    return index


def described(kind, refine):
    id_map, _, base = kind.rpartition(",")
    return f"{id_map},PRH,{base},{refine}".lstrip(",")


def shortlist(index, k):
    """What the binary index alone finds, as rows."""
    plain = index.index
    if isinstance(plain, faiss.IndexBinaryIDMap):
        plain = plain.index
    return plain.search(index.encode(XQ), k)[1]


def ranked(distances, rows, k):
    distances = np.where(rows < 0, np.inf, distances)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(rows, order, 1)


def assert_found(index, found, distances, rows):
    D_, I = found
    expected, expected_rows = ranked(distances, rows, K)
    assert D_.dtype == np.float32
    assert I.dtype == np.int64
    offset = 1000 if isinstance(index.index, faiss.IndexBinaryIDMap) else 0
    there = expected_rows >= 0
    np.testing.assert_array_equal(I, np.where(there, expected_rows + offset, -1))
    np.testing.assert_allclose(D_[there], expected[there], rtol=1e-4, atol=1e-2)
    assert (D_[~there] == np.finfo(np.float32).max).all()


@pytest.mark.parametrize("kind", KINDS)
def test_flat_store_ranks_by_exact_distances(kind):
    index = filled(described(kind, "RFlat"))
    assert isinstance(index, IndexBinaryRefine)
    index.k_factor = 8
    rows = shortlist(index, K * 8)
    assert_found(index, index.search(XQ, K), ((XB[rows] - XQ[:, None]) ** 2).sum(axis=2), rows)


@pytest.mark.parametrize("store", ["RFlat", "Refine(SQ8)", "Refine(SQfp16)"])
def test_stores_are_those_of_faiss(store):
    index = filled(f"PRH,BFlat,{store}")
    index.k_factor = 10
    stock = faiss.IndexPreTransform(index.chain[0], faiss.IndexLSH(D, D, False, False))
    quantizer = {"RFlat": "Flat", "Refine(SQ8)": "SQ8", "Refine(SQfp16)": "SQfp16"}[store]
    stock = faiss.IndexRefine(stock, faiss.index_factory(D, quantizer))
    stock.train(XT)
    stock.add(XB)
    stock.k_factor = 10
    expected_distances, expected_ids = stock.search(XQ, K)
    distances, found = index.search(XQ, K)
    np.testing.assert_array_equal(found, expected_ids)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-4)


def asymmetric(index, rows):
    """The estimate of the squared distance, from the signs and the norm in 256 steps of equal ratio."""
    x, xq = XB, XQ
    for transform in index.chain:
        x, xq = transform.apply(x), transform.apply(xq)
    xt = XT
    for transform in index.chain:
        xt = transform.apply(xt)
    norms_seen = np.linalg.norm(xt, axis=1)
    reach = np.mean(norms_seen / np.abs(xt).sum(axis=1))
    low, high = norms_seen.min() / 1.25, norms_seen.max() * 1.25
    places = np.rint(255 * np.log(np.linalg.norm(x, axis=1) / low) / np.log(high / low)).clip(0, 255)
    norms = (low * (high / low) ** (places / 255))[rows]
    products = np.einsum("qkd,qd->qk", np.where(x >= 0, 1, -1)[rows], xq)
    return (xq**2).sum(axis=1)[:, None] + norms**2 - 2 * reach * norms * products


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "BHash8"])
def test_asymmetric_distances(kind, simd_level):
    index = filled(described(kind, "RAsym"))
    assert isinstance(index, IndexBinaryAsymmetric)
    index.k_factor = 8
    rows = shortlist(index, K * 8)
    assert_found(index, index.search(XQ, K), asymmetric(index, rows), rows)


@pytest.mark.parametrize("chain", ["ITQ64", "PCA40,PRH", "L2norm,RR", "PRH"])
def test_asymmetric_behind_other_transforms(chain):
    index = filled(f"{chain},BFlat,RAsym")
    index.k_factor = 6
    rows = shortlist(index, K * 6)
    found = index.search(XQ, K)
    expected, expected_rows = ranked(asymmetric(index, rows), rows, K)
    np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found[1], expected_rows)


def test_asymmetric_ranks_better_than_hamming_and_worse_than_exact():
    exact = faiss.IndexFlatL2(D)
    exact.add(XB)
    truth = exact.search(XQ, K)[1]
    recall = {}
    for refine in ("", ",RAsym", ",RFlat"):
        index = filled(f"PRH,BFlat{refine}")
        if refine:
            index.k_factor = 10
        found = index.search(XQ, K)[1]
        recall[refine] = np.mean([len(set(mine) & set(true)) for mine, true in zip(found, truth, strict=True)])
    assert recall[""] < recall[",RAsym"] < recall[",RFlat"]


@pytest.mark.parametrize(("d", "bits"), [(100, 100), (100, 37), (20, 33), (1, 1)])
@pytest.mark.parametrize("n", [0, 1, 2, 9, 16, 333])
def test_encoding_with_norms(d, bits, n, simd_level, monkeypatch):
    x = np.random.default_rng(n).normal(size=(n, d)).astype(np.float32) + 1
    prh = PRHTransform(d, bits, n_iso=3)
    prh.train(np.random.default_rng(1).normal(size=(300, d)))
    codes, norms = prh._encode_with_norms(x)
    np.testing.assert_array_equal(codes, prh.encode(x))
    np.testing.assert_allclose(norms, np.linalg.norm(prh.apply(x).astype(np.float64), axis=1), rtol=1e-6)
    monkeypatch.setattr(faiss_prh._common.arrays, "BLOCK_VALUES", 7 * d)
    for mine, whole in zip(prh._encode_with_norms(x), (codes, norms), strict=True):
        np.testing.assert_array_equal(mine, whole)
    if n:
        x[-1, -1] = np.nan
        with pytest.raises(ValueError, match=f"vector {n - 1} "):
            prh._encode_with_norms(x)


@pytest.mark.parametrize("chain", ["PRH", "PCA40,PRH", "PRH37", "ITQ64"])
def test_codes_are_the_same_with_norms_beside_them(chain):
    index, plain = filled(f"{chain},BFlat,RAsym"), filled(f"{chain},BFlat")
    np.testing.assert_array_equal(index.reconstruct_codes(), plain.reconstruct_codes())


@pytest.mark.parametrize("refine", ["RFlat", "RAsym"])
@pytest.mark.parametrize("kind", ["BFlat", "BIVF8", "BHNSW16", "IDMap,BFlat", "IDMap2,BIVF8"])
def test_filters(kind, refine):
    index = filled(described(kind, refine))
    index.k_factor = 20  # all that is allowed: Hamming ties are broken in no order
    offset = 1000 if "IDMap" in kind else 0
    allowed = np.arange(0, len(XB), 9) + offset
    selector = faiss.IDSelectorBatch(allowed)
    params = {
        "BHNSW16": lambda: faiss.SearchParametersHNSW(sel=selector, efSearch=len(XB)),
        "BIVF8": lambda: faiss.SearchParametersIVF(sel=selector, nprobe=8),
        "BFlat": lambda: faiss.SearchParameters(sel=selector),
    }[kind.rpartition(",")[2]]()
    D_, I = index.search(XQ, K, params=params)
    few = faiss_prh.index_factory(D, f"PRH,BFlat,{refine}")
    few.chain[0], few.k_factor = index.chain[0], 20
    few.train(XT)
    few.add(XB[allowed - offset])
    expected_distances, expected = few.search(XQ, K)
    np.testing.assert_array_equal(np.sort(I), np.sort(allowed[expected]))
    np.testing.assert_allclose(D_, expected_distances, rtol=1e-5)
    if "IDMap" in kind:
        assert params.sel.is_member(int(allowed[0]))  # the caller's parameters are as they were


def test_parameters_as_faiss_has_them():
    index = filled("PRH,BIVF8,RFlat")
    inner = faiss.SearchParametersIVF(nprobe=8)
    wide = index.search(XQ, K, params=faiss.IndexRefineSearchParameters(k_factor=20, base_index_params=inner))
    index.index.nprobe, index.k_factor = 8, 20
    for mine, theirs in zip(wide, index.search(XQ, K), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    index.index.nprobe, index.k_factor = 1, 1
    assert not np.array_equal(wide[1], index.search(XQ, K)[1])
    by_params = index.search(XQ, K, params=inner)
    index.index.nprobe = 8
    np.testing.assert_array_equal(by_params[1], index.search(XQ, K)[1])


@pytest.mark.parametrize("refine", ["RFlat", "RAsym"])
def test_few_vectors_and_none(refine):
    index = faiss_prh.index_factory(D, f"PRH,BIVF8,{refine}")
    index.train(XT)
    index.index.nprobe = 8
    distances, found = index.search(XQ, K)
    assert (found == -1).all()
    assert (distances == np.finfo(np.float32).max).all()
    index.add(XB[:2])
    distances, found = index.search(XQ, K)
    assert (np.sort(found, axis=1) == [-1, -1, -1, 0, 1]).all()
    assert (distances[:, 2:] == np.finfo(np.float32).max).all()
    assert index.search(XQ[:0], K)[0].shape == (0, K)


@pytest.mark.parametrize("kind", ["BFlat", "IDMap2,BFlat", "BHNSW16"])
def test_codes_of_results(kind):
    index = filled(described(kind, "RFlat"))
    offset = 1000 if "IDMap" in kind else 0
    distances, found, codes = index.search_and_return_codes(XQ, K)
    for mine, theirs in zip(index.search(XQ, K), (distances, found), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(codes, index.encode(XB)[found - offset])


@pytest.mark.parametrize("refine", ["RFlat", "RAsym"])
@pytest.mark.parametrize("kind", ["BFlat", "BIVF8", "IDMap,BFlat"])
def test_what_fails_changes_nothing(kind, refine):
    spoiled = XB[:50].copy()
    spoiled[40, 3] = np.inf
    index = filled(described(kind, refine))
    before = index.search(XQ, K)
    for bad in (
        lambda: index.add(spoiled),
        lambda: index.add_with_ids(spoiled, np.arange(50)),
        lambda: index.add_with_ids(XB[:50], np.arange(49)),
        lambda: index.add_with_ids(XB[:50], np.linspace(0, 1, 50)),
        lambda: index.add(XB[:50, :7]),
        lambda: index.search(XQ, 0),
        lambda: setattr(index, "k_factor", 0.5),
        lambda: setattr(index, "k_factor", float("nan")),
        lambda: index.remove_ids([1.5]),
        lambda: index.merge_from(index),
        lambda: index.merge_from(filled("PRH(3,0),BFlat,RFlat")),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            bad()
        assert index.ntotal == index._beside.ntotal == len(XB)
    for mine, theirs in zip(index.search(XQ, K), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_ids_where_there_can_be_none_change_nothing():
    index = filled("PRH,BFlat,RFlat")
    with pytest.raises(RuntimeError):
        index.add_with_ids(XB, np.arange(len(XB)))
    assert index.ntotal == index.refine_index.ntotal == len(XB)
    index = filled("PRH,BHNSW16,RFlat")
    with pytest.raises(RuntimeError, match="cannot be removed from IndexBinaryHNSW"):
        index.remove_ids([1])
    assert index.ntotal == index.refine_index.ntotal == len(XB)


@pytest.mark.parametrize("kind", ["BIVF8", "BHash8"])
def test_ids_that_the_binary_index_would_keep_itself(kind):
    index = filled(f"PRH,{kind},RFlat")
    assert (index.search(XB, 1)[1][:, 0] == np.arange(len(XB))).all()
    index.add_with_ids(XT, np.arange(len(XT)) * 10**9 + 5000)
    index.add(XQ)
    assert (index.search(XB, 1)[1][:, 0] == np.arange(len(XB))).all()
    assert (index.search(XT, 1)[1][:, 0] == np.arange(len(XT)) * 10**9 + 5000).all()
    assert (index.search(XQ, 1)[1][:, 0] == np.arange(len(XQ)) + len(XB) + len(XT)).all()


def test_an_ivf_keeps_one_byte_a_vector_more():
    sizes = [len(faiss_prh.serialize_index(filled(f"PRH,BIVF8{refine}"))) for refine in ("", ",RAsym")]
    assert len(XB) <= sizes[1] - sizes[0] < len(XB) + 500


def test_only_what_was_trained_alike_is_merged():
    first, second = filled("PRH,BFlat,RAsym"), faiss_prh.index_factory(D, "PRH,BFlat,RAsym")
    second.chain[0] = first.chain[0]
    second.train(2 * XT)
    with pytest.raises(ValueError, match="same scale"):
        first.merge_from(second)


def test_constant_training_vectors():
    index = IndexBinaryAsymmetric(PRHTransform.random(16), faiss.IndexBinaryFlat(16))
    index.train(np.zeros((10, 16)))
    index.add(np.ones((3, 16)))
    assert np.isfinite(index.search(np.ones((1, 16)), 3)[0]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IndexBinaryRefine(PRHTransform(16), faiss.IndexBinaryFlat(16), faiss.IndexFlatL2(8)), "16 dimensions"),
        (lambda: IndexBinaryRefine(PRHTransform(16), faiss.IndexBinaryFlat(16), faiss.IndexFlat(16, 2)), "metric"),
        (lambda: IndexBinaryRefine(PRHTransform(16), faiss.IndexBinaryFlat(16), None), "row by row"),
        (lambda: IndexBinaryRefine(PRHTransform(16), faiss.IndexBinaryFlat(16), faiss.IndexFlatL2(16), 0), "k_factor"),
        (lambda: IndexBinaryAsymmetric(PRHTransform(16), faiss.IndexBinaryHash(16, 4)), "codes"),
        (lambda: IndexBinaryAsymmetric(PRHTransform(16), faiss.IndexBinaryShards(16)), "cannot be ranked"),
        (lambda: IndexBinaryAsymmetric(PRHTransform(D), filled("PRH,BFlat").index), "empty"),
    ],
)
def test_bad_construction(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_range_search_is_the_binary_indexs():
    index = filled("PRH,BIVF8,RFlat")
    plain = IndexBinaryPreTransform(index.chain, index.index)
    for mine, theirs in zip(index.range_search(XQ, 42), plain.range_search(XQ, 42), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_empty_index_finds_nothing():
    for refine in ("RFlat", "Refine(SQ8)", "RAsym"):
        index = filled(f"PRH,BFlat,{refine}")
        index.reset()
        assert (index.search(XQ, 2)[1] == -1).all()


@pytest.mark.parametrize("refine", ["RFlat", "Refine(SQ8)", "RAsym"])
@pytest.mark.parametrize("kind", ["BIVF8", "BHash3x8", "IDMap,BIVF8"])
def test_codes_of_results_need_no_direct_map(kind, refine):
    index = filled(described(kind, refine))
    offset = 1000 if "IDMap" in kind else 0
    _, found, codes = index.search_and_return_codes(XQ, K)
    there = found >= 0
    np.testing.assert_array_equal(codes[there], index.encode(XB)[found[there] - offset])


def test_stores_trained_otherwise_are_not_merged():
    first = filled("PRH,BFlat,Refine(SQ8)")
    store = faiss.IndexScalarQuantizer(D, faiss.ScalarQuantizer.QT_8bit)
    second = IndexBinaryRefine(first.chain, faiss.IndexBinaryFlat(104), store)
    second.train(10 * XT)
    second.add(XB)
    with pytest.raises(ValueError, match="trained alike"):
        first.merge_from(second)
    assert first.ntotal == second.ntotal == len(XB)


def test_a_filter_inside_other_parameters_reaches_range_search():
    index = filled("PRH,BFlat,RFlat")
    inner = faiss.SearchParameters(sel=faiss.IDSelectorRange(5, 9))
    _, _, found = index.range_search(XB[:1], 80, params=faiss.IndexRefineSearchParameters(base_index_params=inner))
    assert set(found) == {5, 6, 7, 8}


@pytest.mark.parametrize("refine", ["", ",RFlat", ",RAsym"])
@pytest.mark.parametrize("kind", ["BFlat", "BHNSW16", "BIVF8"])
def test_threads_share_parameters(kind, refine):
    """Faiss's IDMap changes the parameters it is given for the time of a search."""
    index = filled(f"IDMap2,PRH,{kind}{refine}")
    params = faiss.SearchParameters(sel=faiss.IDSelectorRange(1000, 1100))
    expected = index.search(XQ, K, params=params)

    def search(_):
        for _ in range(20):
            for mine, theirs in zip(index.search(XQ, K, params=params), expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(search, range(4)))


def test_the_inner_index_outlives_what_was_read():
    index = filled("PRH,BIVF8,RFlat")
    index.add_with_ids(XQ, np.arange(len(XQ)) + 10**6)
    inner = faiss_prh.clone_index(index).index
    gc.collect()
    assert (inner.d, inner.ntotal) == (104, len(XB) + len(XQ))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        *((bad, TypeError) for bad in (True, "8", None)),
        *((bad, ValueError) for bad in (0.5, np.nan, np.inf, 10**10)),
    ],
)
def test_a_bad_k_factor_is_refused(bad, error):
    index = faiss_prh.index_factory(D, "PRH,BFlat,RFlat")
    with pytest.raises(error, match="k_factor must be"):
        index.k_factor = bad


def test_millions_of_empty_lists():
    """As a fuzzed string once asked for: looking at each of them took all memory."""
    assert faiss_prh.index_factory(8, "PRH,IVF8M,Signs,RFlat").nlist == 8 << 20


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
@pytest.mark.parametrize("core", ["BFlat", "BIVF4"])
def test_all_of_a_long_shortlist_is_ranked(core, metric):
    """Also where a few vectors are far shorter or longer than others, and signs say little about distances."""
    rng = np.random.default_rng(0)
    x = (
        rng.normal(size=(4000, 256)) * np.where(rng.random((4000, 1)) < 0.01, 0.1, rng.lognormal(0, 0.5, (4000, 1)))
    ).astype("f4")
    index = faiss_prh.index_factory(256, f"PRH,{core},RFlat", metric)
    index.train(x)
    index.add(x)
    for k, k_factor in ((1, 400), (10, 40)):
        index.k_factor = k_factor
        found = index.search(XQ_LONG, k)
        index.k_factor = 1
        everything = index.search(XQ_LONG, k * k_factor)
        np.testing.assert_array_equal(found[0], everything[0][:, :k])
        np.testing.assert_array_equal(found[1], everything[1][:, :k])


def test_vectors_of_almost_no_length():
    x = vectors(500, 0) * np.float32(1e-40)
    index = faiss_prh.index_factory(D, "PRH,BFlat,RFlat")
    index.train(x)
    index.add(x)
    index.k_factor = 30
    _, I = index.search(x[:3], 10)
    assert all(len(set(row)) == 10 and set(row) <= set(range(500)) for row in I.tolist())
