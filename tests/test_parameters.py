"""Search parameters as Faiss nests them: what they say is followed, or it is an error."""

import faiss
import numpy as np
import pytest

from faiss_prh import PRHTransform, index_factory
from faiss_prh.index.parameters import inner_params

D, K = 40, 5
RNG = np.random.default_rng(0)
XT, XB, XQ = (RNG.normal(size=(n, D)).astype(np.float32) for n in (500, 600, 7))
RERANKED = ["", ",RFlat", ",RAsym"]
PRH = PRHTransform(D)
PRH.train(XT)


def filled(description):
    index = index_factory(D, description)
    index.chain[0] = PRH
    index.train(XT)
    if "IDMap" in description:
        index.add_with_ids(XB, np.arange(len(XB)))
    else:
        index.add(XB)
    return index


def around(*kinds):
    """Return what puts parameters into others, the innermost first."""

    def wrap(params):
        for kind in kinds:
            name = "index_params" if kind is faiss.SearchParametersPreTransform else "base_index_params"
            more = {} if name == "index_params" else {"k_factor": 8}
            params = kind(**{name: params, **more})
        return params

    return wrap


PRE, REFINE = faiss.SearchParametersPreTransform, faiss.IndexRefineSearchParameters
WRAPPED = {"": [around(PRE), around(PRE, PRE)]}
WRAPPED[",RFlat"] = WRAPPED[",RAsym"] = [*WRAPPED[""], around(REFINE), around(PRE, REFINE), around(PRE, PRE, REFINE)]


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("refine", RERANKED)
@pytest.mark.parametrize("kind", ["BFlat", "IDMap2,BFlat", "BIVF8", "IDMap2,BIVF8"])
def test_what_is_inside_other_parameters_is_followed(kind, refine):
    prefix, _, core = kind.rpartition(",")
    index = filled(",".join(filter(None, [prefix, "PRH", core])) + refine)
    selector = faiss.IDSelectorBatch(np.arange(0, len(XB), 3))
    if core == "BIVF8":
        inner = faiss.SearchParametersIVF(sel=selector, nprobe=5)
        index.index.nprobe = 1
    else:
        inner = faiss.SearchParameters(sel=selector)
    index_k_factor = getattr(index, "k_factor", None)
    for wrap in WRAPPED[refine]:
        params = wrap(inner)
        if refine:
            index.k_factor = 8 if isinstance(params, REFINE) else index_k_factor
        expected = index.search(XQ, K, params=inner), index.range_search(XQ, 15, params=inner)
        if refine:
            index.k_factor = index_k_factor
        assert_same(index.search(XQ, K, params=params), expected[0])
        assert_same(index.range_search(XQ, 15, params=params), expected[1])
        found = index.search(XQ, K, params=params)[1]
        assert (found % 3 == 0).all()


def test_stock_faiss_follows_the_same_parameters():
    """The oracle: the same transform and codes in stock indexes of floats."""
    index = filled("PRH,BIVF8,RFlat")
    stock = faiss.IndexRefineFlat(faiss.IndexPreTransform(PRH, faiss.IndexFlatL2(D)))
    stock.train(XT)
    stock.add(XB)
    selector = faiss.IDSelectorBatch(np.arange(0, len(XB), 7))
    theirs = around(PRE, REFINE)(faiss.SearchParameters(sel=selector))
    mine = around(PRE, REFINE)(faiss.SearchParametersIVF(sel=selector, nprobe=8))
    mine.k_factor = theirs.k_factor = 200  # all that is allowed
    np.testing.assert_array_equal(index.search(XQ, K, params=mine)[1], stock.search(XQ, K, params=theirs)[1])


@pytest.mark.parametrize("wrap", [around(PRE), around(PRE, PRE)])
@pytest.mark.parametrize("id_map", ["", "IDMap2,"])
def test_parameters_of_quantizers(id_map, wrap):
    index = filled(f"{id_map}PRH,BIVF8_HNSW4")
    index.index.nprobe = 1
    few = faiss.SearchParameters(sel=faiss.IDSelectorRange(2, 4))  # of the lists
    everything = faiss.IDSelectorRange(0, 10**6)
    params = faiss.SearchParametersIVF(nprobe=8, sel=everything, quantizer_params=few)
    found = index.search(XQ, len(XB), params=wrap(params))[1]
    ivf = faiss.downcast_IndexBinary(index.index.index if id_map else index.index)
    in_lists = sum(ivf.invlists.list_size(number) for number in (2, 3))
    assert ((found >= 0).sum(axis=1) == in_lists).all()


@pytest.mark.parametrize("refine", RERANKED)
def test_parameters_without_any_inside(refine):
    index = filled(f"PRH,BIVF8{refine}")
    assert_same(index.search(XQ, K, params=PRE()), index.search(XQ, K))
    if refine:
        index.k_factor = 3
        assert_same(index.search(XQ, K, params=REFINE(k_factor=3)), index.search(XQ, K))


def selector():
    return faiss.IDSelectorRange(0, 3)


IGNORED = {
    "no re-ranking": ([""], lambda: REFINE(k_factor=2), TypeError, "outermost parameters, of an index that re-ranks"),
    "inside out": (
        RERANKED, lambda: PRE(index_params=REFINE(k_factor=2)), TypeError, "IndexRefineSearchParameters must be",
    ),
    "filter outside": (RERANKED, lambda: PRE(sel=selector()), ValueError, "belongs in its index_params"),
    "filter outside of both": (
        RERANKED[1:], lambda: REFINE(sel=selector(), base_index_params=PRE()), ValueError, "its base_index_params",
    ),
    "no parameters": (RERANKED, lambda: {"nprobe": 3}, TypeError, "must be faiss.SearchParameters, not dict"),
}  # fmt: skip


@pytest.mark.parametrize("name", IGNORED)
def test_what_faiss_would_ignore_is_an_error(name):
    reranked, make, error, message = IGNORED[name]
    for refine in reranked:
        index = filled(f"PRH,BIVF8{refine}")
        with pytest.raises(error, match=message):
            index.search(XQ, K, params=make())
        with pytest.raises(error, match=message):
            index.range_search(XQ, 9, params=make())


@pytest.mark.parametrize("refine", RERANKED)
@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("BIVF8", faiss.SearchParametersHNSW, "IndexBinaryIVF does not take SearchParametersHNSW"),
        ("BFlat", faiss.SearchParametersIVF, "IndexBinaryFlat does not take SearchParametersIVF: it takes SearchPar"),
        ("BHNSW8", faiss.SearchParametersIVF, "IndexBinaryHNSW does not take SearchParametersIVF"),
        ("BIVF8", faiss.IVFPQSearchParameters, "IndexBinaryIVF does not take IVFPQSearchParameters"),
        ("BFlat", faiss.SearchParametersPQ, "IndexBinaryFlat does not take SearchParametersPQ"),
        ("BHash2x8", faiss.SearchParameters, "IndexBinaryMultiHash does not take SearchParameters: it takes none"),
        (
            "BIVF8",
            lambda: faiss.SearchParametersIVF(quantizer_params=PRE()),
            "IndexBinaryFlat does not take SearchParametersPreTransform",
        ),
        (
            "BIVF8_HNSW4",
            lambda: faiss.SearchParametersIVF(quantizer_params=faiss.SearchParametersIVF()),
            "IndexBinaryHNSW does not take SearchParametersIVF",
        ),
    ],
)
def test_parameters_of_other_indexes(kind, params, message, refine):
    index = filled(f"PRH,{kind}{refine}")
    with pytest.raises(TypeError, match=message):
        index.search(XQ, K, params=params())
    with pytest.raises(TypeError, match=message):
        index.search(XQ, K, params=PRE(index_params=params()))


def test_parameters_of_other_indexes_in_shards():
    shards = faiss.IndexBinaryShards(D)
    for _ in range(2):
        shards.add_shard(faiss.IndexBinaryFlat(D))
    index = index_factory(D, "PRH,BFlat")
    index.chain[0], index.index = PRH, shards
    index.add(XB)
    with pytest.raises(TypeError, match="IndexBinaryFlat does not take SearchParametersIVF"):
        index.search(XQ, K, params=faiss.SearchParametersIVF(nprobe=2))


@pytest.mark.parametrize("name", ["max_lists_num", "ensure_topk_full", "max_empty_result_buckets"])
def test_fields_that_binary_indexes_do_not_follow(name):
    params = faiss.SearchParametersIVF(nprobe=4)
    if not hasattr(params, name):
        pytest.skip("not in this Faiss")
    setattr(params, name, 1 if name != "ensure_topk_full" else True)
    with pytest.raises(ValueError, match=f"IndexBinaryIVF does not follow {name}"):
        filled("PRH,BIVF8").search(XQ, K, params=params)


def test_max_codes():
    index = filled("PRH,BIVF8")
    params = faiss.SearchParametersIVF(nprobe=8, max_codes=10)
    found = index.search(XQ, len(XB), params=PRE(index_params=params))[1]
    assert ((found >= 0).sum(axis=1) < len(XB) / 2).all()  # Faiss 1.8 goes to the end of a list
    with pytest.raises(ValueError, match="range_search does not follow max_codes"):
        index.range_search(XQ, 20, params=params)


def test_parameters_that_were_assigned():
    """Faiss 1.8 does not keep them: their kind would be lost."""
    inner, params = faiss.SearchParametersIVF(nprobe=8), PRE()
    params.index_params = inner
    index = filled("PRH,BIVF8")
    try:
        found = index.search(XQ, K, params=params)
    except TypeError as error:
        assert "write SearchParametersPreTransform(index_params=…)" in str(error)
        assert not hasattr(params, "_sp_field_refs")
    else:
        assert_same(found, index.search(XQ, K, params=inner))


def test_inner_parameters_keep_their_kind():
    inner = faiss.SearchParametersHNSW(efSearch=77)
    assert inner_params(faiss.SearchParametersIVF(quantizer_params=inner), "quantizer_params").efSearch == 77
    params = faiss.SearchParametersIVF(quantizer_params=inner)
    params.quantizer_params = None
    assert inner_params(params, "quantizer_params") is None
