"""Vectors and codes out of an index, beside stock Faiss and beside plain NumPy."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faiss_prh import PRHTransform, index_factory
from faiss_prh.index.binary_ops import places_of

D = 60
RNG = np.random.default_rng(0)
XT, XB, XQ = ((RNG.normal(size=(n, D)) * np.linspace(2, 0.2, D) + 1).astype(np.float32) for n in (500, 300, 6))
KINDS = ["BFlat", "BIVF8", "BHNSW8", "BHash2x8", "IDMap,BFlat", "IDMap2,BFlat", "IDMap,BIVF8", "IDMap2,BIVF8"]
CHAINS = ["PRH", "PRH37", "PCA40,PRH", "PCA13", "L2norm,RR", "OPQ4_40,PRH"]


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)


def filled(chain, kind, refine="", metric=faiss.METRIC_L2):
    id_map, _, core = kind.rpartition(",")
    index = index_factory(D, ",".join(filter(None, [id_map, chain, core, refine])), metric)
    index.train(XT)
    if id_map:
        index.add_with_ids(XB, ids_of(kind))
    else:
        index.add(XB)
    return index


def ids_of(kind):
    return np.arange(len(XB)) * 7 + 5 if "IDMap" in kind else np.arange(len(XB))


def stock_of(index):
    """The same transforms in front of Faiss's float index of signs."""
    bits = index.chain[-1].d_out
    stock = faiss.IndexPreTransform(faiss.IndexLSH(bits, bits, False, False))
    for transform in reversed(index.chain):
        stock.prepend_transform(transform)
    stock.is_trained = True
    stock.add(XB)
    return stock


@pytest.mark.parametrize("chain", CHAINS)
def test_signs_come_back_as_from_stock_faiss(chain):
    index = filled(chain, "BFlat")
    stock = stock_of(index)
    np.testing.assert_allclose(index.reconstruct(3), stock.reconstruct(3), atol=1e-5)
    np.testing.assert_allclose(index.reconstruct_n(), stock.reconstruct_n(), atol=1e-5)
    np.testing.assert_allclose(index.reconstruct_n(5, 7), stock.reconstruct_n(5, 7), atol=1e-5)
    assert index.sa_code_size() == stock.sa_code_size()
    codes = index.sa_encode(XQ)
    np.testing.assert_array_equal(codes, stock.sa_encode(XQ))
    np.testing.assert_allclose(index.sa_decode(codes), stock.sa_decode(codes), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_vectors_that_are_not_there(kind):
    """Faiss 1.8 reads beyond its array."""
    index = filled("PRH", kind, "RFlat")
    with pytest.raises(ValueError, match="no vector has the id 1000000000"):
        index.reconstruct(10**9)


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_give_the_same_back(kind):
    index, flat, ids = filled("PRH", kind), filled("PRH", "BFlat"), ids_of(kind)
    keys, rows = ids[::-3], np.arange(len(XB))[::-3]
    np.testing.assert_array_equal(index.reconstruct_batch(keys), flat.reconstruct_n()[rows])
    np.testing.assert_array_equal(index.reconstruct(int(ids[7])), flat.reconstruct(7))
    np.testing.assert_array_equal(index.reconstruct_code(int(ids[7])), index.encode(XB[7:8])[0])
    if "IDMap" not in kind:
        np.testing.assert_array_equal(index.reconstruct_codes(), index.encode(XB))
    assert index.reconstruct_batch([]).shape == (0, D)
    for missing in (4, 10**9):
        if "IDMap" in kind or missing > 4:
            with pytest.raises(ValueError, match=f"no vector has the id {missing}"):
                index.reconstruct_code(missing)
            with pytest.raises(ValueError, match=f"no vector has the id {missing}"):
                index.reconstruct_batch([int(ids[0]), missing])


def test_a_direct_map_is_used():
    index, expected = filled("PRH", "BIVF8"), filled("PRH", "BFlat")
    index.index.make_direct_map()
    np.testing.assert_array_equal(index.reconstruct_codes(9, 5), expected.reconstruct_codes(9, 5))
    assert index.reconstruct_codes(9, 0).shape == (0, 8)


@pytest.mark.parametrize("store", ["RFlat", "Refine(SQ8)", "Refine(SQfp16)"])
@pytest.mark.parametrize("kind", [*KINDS, "BHash8"])
def test_stored_vectors_come_back(kind, store):
    index, ids = filled("PRH", kind, store), ids_of(kind)
    expected = index.refine_index.reconstruct_n(0, len(XB))
    if store == "RFlat":
        np.testing.assert_array_equal(expected, XB)
    np.testing.assert_array_equal(index.reconstruct_batch(ids[::2]), expected[::2])
    np.testing.assert_array_equal(index.reconstruct(int(ids[5])), expected[5])
    codes = index.sa_encode(XB)
    assert codes.shape == (len(XB), index.sa_code_size())
    np.testing.assert_array_equal(index.sa_decode(codes), expected)
    np.testing.assert_array_equal(codes[:, :8], index.encode(XB))
    index.index.nprobe = 8
    _, found, vectors = index.search_and_reconstruct(XQ, 4)
    np.testing.assert_array_equal(found, index.search(XQ, 4)[1])
    there = found >= 0
    np.testing.assert_array_equal(vectors[there], index.reconstruct_batch(found[there]))
    assert np.isnan(vectors[~there]).all()


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
@pytest.mark.parametrize("chain", CHAINS)
def test_signs_with_norms_come_back(chain, metric):
    index = filled(chain, "BFlat", "RAsym", metric)
    z, zt = XB, XT
    for transform in index.chain:
        z, zt = transform.apply(z), transform.apply(zt)
    reach = np.mean(np.linalg.norm(zt, axis=1) / np.abs(zt).sum(axis=1))
    expected = reach * np.linalg.norm(z, axis=1)[:, None] * np.where(z >= 0, 1, -1).astype(np.float32)
    for transform in reversed(index.chain):
        expected = transform.reverse_transform(np.ascontiguousarray(expected, dtype=np.float32))
    np.testing.assert_allclose(index.reconstruct_n(), expected, atol=0.02 * np.abs(expected).max())  # of a norm's step
    codes = index.sa_encode(XB)
    assert index.sa_code_size() == codes.shape[1] == index.index.code_size + (1 if metric == faiss.METRIC_L2 else 2)
    np.testing.assert_array_equal(index.sa_decode(codes), index.reconstruct_n())


def test_norms_bring_lengths_back():
    """The signs alone do not know how long a vector was."""
    lengths = {}
    for refine in ("", "RAsym"):
        index = index_factory(D, f"PRH,BFlat{',' if refine else ''}{refine}")
        index.train(50 * (XT - 1))
        index.add(50 * (XB - 1))
        lengths[refine] = np.linalg.norm(index.reconstruct_n(), axis=1) / np.linalg.norm(50 * (XB - 1), axis=1)
    assert lengths[""].mean() < 0.1
    assert 0.9 < lengths["RAsym"].min() <= lengths["RAsym"].max() < 1.7


@pytest.mark.parametrize("refine", ["", "RAsym", "RFlat"])
@pytest.mark.parametrize("kind", ["BFlat", "BIVF8", "IDMap,BIVF8", "BHNSW8"])
def test_results_with_vectors_and_with_codes(kind, refine):
    index = filled("PRH37", kind, refine)
    distances, found, vectors = index.search_and_reconstruct(XQ, 4)
    np.testing.assert_array_equal(distances, index.search(XQ, 4)[0])
    there = found >= 0
    np.testing.assert_allclose(vectors[there], index.reconstruct_batch(found[there]), atol=1e-6)
    _, again, codes = index.search_and_return_codes(XQ, 4)
    np.testing.assert_array_equal(again, found)
    rows = (found - 5) // 7 if "IDMap" in kind else found
    np.testing.assert_array_equal(codes[there], index.encode(XB)[rows[there]])


@pytest.mark.parametrize("refine", ["", "RAsym", "RFlat"])
def test_what_is_missing_is_no_number(refine):
    index = filled("PRH", "BFlat", refine)
    index.reset()
    index.add(XB[:2])
    _, found, vectors = index.search_and_reconstruct(XQ, 3)
    assert (found[:, 2] == -1).all()
    assert np.isnan(vectors[:, 2]).all()
    assert np.isfinite(vectors[:, :2]).all()
    assert index.reconstruct_n().shape == (2, D)
    index.reset()
    assert index.reconstruct_n().shape == (0, D)
    assert index.reconstruct_codes().shape == (0, 8)


@pytest.mark.parametrize("refine", ["", "RAsym"])
@pytest.mark.parametrize("chain", ["ITQ", "PCAW30", "PCA40,ITQ16"])
def test_transforms_that_cannot_be_reversed(chain, refine):
    index = filled(chain, "BFlat", refine)
    for call in (
        lambda: index.reconstruct(3),
        index.reconstruct_n,
        lambda: index.search_and_reconstruct(XQ, 2),
        lambda: index.sa_decode(index.sa_encode(XQ)),
    ):
        with pytest.raises(RuntimeError, match=r"(ITQTransform|PCAMatrix) cannot be reversed.*reconstruct_code"):
            call()
    np.testing.assert_array_equal(index.reconstruct_codes(2, 3), index.encode(XB[2:5]))


def test_stored_vectors_need_no_reversal():
    np.testing.assert_array_equal(filled("ITQ", "BFlat", "RFlat").reconstruct_n(), XB)


@pytest.mark.parametrize("refine", ["", "RAsym", "RFlat"])
def test_bad_codes_and_no_training(refine):
    index = filled("PRH", "BFlat", refine)
    size = index.sa_code_size()
    for bad in (np.zeros((2, size + 1), np.uint8), np.zeros((2, size)), np.zeros(size, np.uint8)):
        with pytest.raises(ValueError, match=rf"array of uint8, \(n, {size}\), not"):
            index.sa_decode(bad)
    for key in (1.5, True, "1"):
        with pytest.raises(TypeError):
            index.reconstruct(key)
        with pytest.raises(TypeError):
            index.reconstruct_code(key)
    with pytest.raises(TypeError, match="ids must be integers"):
        index.reconstruct_batch([0.5])
    untrained = index_factory(D, f"PRH,BFlat{',' if refine else ''}{refine}")
    for call in (lambda: untrained.sa_encode(XQ), lambda: untrained.reconstruct_batch([])):
        with pytest.raises(RuntimeError, match="not trained"):
            call()


def test_an_index_of_one_hash_does_not_give_codes_back():
    index = filled("PRH", "BHash8")
    for call in (lambda: index.reconstruct(3), lambda: index.reconstruct_code(3), index.reconstruct_n):
        with pytest.raises(ValueError, match="IndexBinaryHash does not give its codes back"):
            call()


def test_padding_bits_do_not_matter():
    index = filled("PRH37", "BFlat")
    codes = index.sa_encode(XQ)
    noisy = codes.copy()
    noisy[:, 4] |= 0b11100000
    np.testing.assert_array_equal(index.sa_decode(noisy), index.sa_decode(codes))


@given(among=st.lists(st.integers(-5, 30), max_size=40), keys=st.lists(st.integers(-5, 30), max_size=10))
def test_places_of(among, keys):
    last = {key: place for place, key in enumerate(among)}
    arrays = np.array(keys, dtype=np.int64), np.array(among, dtype=np.int64)
    if set(keys) <= set(among):
        assert places_of(*arrays).tolist() == [last[key] for key in keys]
    else:
        with pytest.raises(ValueError, match="no vector has the id"):
            places_of(*arrays)


def test_codes_after_removal():
    index = filled("PRH", "IDMap2,BIVF8", "RFlat")
    ids = ids_of("IDMap2")
    index.remove_ids(ids[::2])
    np.testing.assert_array_equal(index.reconstruct_batch(ids[1::2]), XB[1::2])
    with pytest.raises(ValueError, match=f"no vector has the id {ids[0]}"):
        index.reconstruct(int(ids[0]))
    assert isinstance(index.chain[0], PRHTransform)
