"""Inner products and cosines beside plain NumPy, and the metrics that are refused."""

import faiss
import numpy as np
import pytest

from faiss_prh import IndexBinaryAsymmetric, IndexBinaryRefine, PRHTransform, clone_index, index_factory
from faiss_prh.index import chain as chains

D, K = 60, 5
IP = faiss.METRIC_INNER_PRODUCT


def vectors(n, seed):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, D)) * np.linspace(2, 0.2, D) + np.linspace(-1, 1, D)).astype(np.float32)


XT, XB, XQ = vectors(800, 0), vectors(900, 1), vectors(20, 2)


def filled(description, metric=IP, k_factor=10):
    index = index_factory(D, description, metric)
    index.train(XT)
    if "IDMap" in description:
        index.add_with_ids(XB, np.arange(len(XB)) + 1000)
    else:
        index.add(XB)
    index.k_factor = k_factor
    return index


def transformed(index, x):
    for transform in index.chain:
        x = transform.apply(np.ascontiguousarray(x))
    return x.astype(np.float64)


def shortlist(index, k):
    """Rows of the nearest codes, of queries that are centred by half."""
    z, zero = transformed(index, XQ), transformed(index, np.zeros((1, D), np.float32))
    return index.index.search(np.packbits(z - zero / 2 >= 0, axis=1, bitorder="little"), k)[1]


def ranked(similarities, rows):
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(similarities, order, 1), np.take_along_axis(rows, order, 1)


@pytest.mark.parametrize("description", ["PRH,BFlat,RFlat", "PRH,BFlat,Refine(SQ8)", "PCA40,PRH,BIVF4,RFlat"])
def test_stored_vectors_rank_by_inner_products(description):
    index = filled(description)
    assert isinstance(index, IndexBinaryRefine)
    assert index.metric_type == IP
    rows = shortlist(index, K * 10)
    products = np.einsum("qkd,qd->qk", index.refine_index.reconstruct_n(0, len(XB))[rows], XQ)
    expected, expected_rows = ranked(products, rows)
    found = index.search(XQ, K)
    np.testing.assert_array_equal(found[1], expected_rows)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4)


def test_a_query_is_centred_by_half():
    index = filled("PRH,BFlat,RFlat", k_factor=1)
    (prh,) = index.chain
    expected = index.index.range_search(prh.encode(XQ + prh.mean / 2), 20)
    for mine, theirs in zip(index.range_search(XQ, 20), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("chain", ["ITQ", "PCA40,L2norm,PRH"])
def test_shortlists_behind_transforms_that_are_not_affine_are_those_of_their_codes(chain):
    index = filled(f"{chain},BFlat,RFlat")
    expected = index.index.range_search(index.encode(XQ), 20)
    for mine, theirs in zip(index.range_search(XQ, 20), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


CHAINS = ["PRH", "PRH37", "PCA40,PRH", "L2norm,PRH", "RR", "L2norm,PCA40,PRH", "OPQ4_40,PRH"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chain", CHAINS)
def test_estimates_of_inner_products(chain, simd_level):
    index = filled(f"{chain},BFlat,RAsym")
    assert isinstance(index, IndexBinaryAsymmetric)
    assert index.metric_type == IP
    zt, zb, zq = (transformed(index, x) for x in (XT, XB, XQ))
    (zero,) = transformed(index, np.zeros((1, D), np.float32))
    rows = shortlist(index, K * 10)
    norms = np.linalg.norm(zt, axis=1)
    reach, low, high = np.mean(norms / np.abs(zt).sum(axis=1)), norms.min() / 1.25, norms.max() * 1.25
    places = np.rint(255 * np.log(np.linalg.norm(zb, axis=1) / low) / np.log(high / low)).clip(0, 255)
    kept_norms = low * (high / low) ** (places / 255)
    seen, products = zt @ zero, zb @ zero
    least, most = seen.min() - np.ptp(seen) / 8, seen.max() + np.ptp(seen) / 8
    if most > least:
        products = least + (most - least) * np.rint(255 * (products - least) / (most - least)).clip(0, 255) / 255
    signs = np.where(zb >= 0, 1, -1)
    estimates = reach * kept_norms[rows] * np.einsum("qkd,qd->qk", signs[rows], zq)
    estimates -= products[rows] + ((zq - zero) @ zero)[:, None]
    expected, expected_rows = ranked(estimates, rows)
    found = index.search(XQ, K)
    # A rounding may move a byte by one.
    step = (most - least) / 255 + 1e-3 * np.abs(expected).max()
    np.testing.assert_allclose(found[0], expected, atol=step)
    assert np.mean(found[1] == expected_rows) > 0.9


@pytest.mark.parametrize("chain", ["PRH", "L2norm,PRH"])
def test_estimates_are_near_the_truth(chain):
    """Not only their order: what comes back as similarity is one."""
    index = filled(f"{chain},BFlat,RAsym", k_factor=1)
    similarities, found = index.search(XQ, len(XB))
    x, q = (v / np.linalg.norm(v, axis=1, keepdims=True) if "L2norm" in chain else v for v in (XB, XQ))
    truth = np.einsum("qkd,qd->qk", x[found], q)
    error = np.sqrt(np.mean((similarities - truth) ** 2))
    assert error < 0.65 * truth.std()  # with 60 bits
    assert abs(np.mean(similarities - truth)) < 0.2 * truth.std()
    assert (np.diff(similarities, axis=1) <= 0).all()


def test_cosines_do_not_depend_on_lengths():
    lengths = np.random.default_rng(3).uniform(0.5, 2, (len(XB), 1)).astype(np.float32)
    index = filled("L2norm,PRH,BFlat,RAsym")
    expected = index.search(XQ, K)
    index.reset()
    index.add(XB * lengths)
    similarities, found = index.search(7 * XQ, K)
    np.testing.assert_allclose(similarities, expected[0], atol=1e-2)
    assert np.mean(found == expected[1]) > 0.95


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, IP])
def test_both_rank_better_than_codes(metric):
    truth = faiss.knn(XQ, XB, K, metric=metric)[1]
    recall = {}
    for refine, k_factor in (("RAsym", 1), ("RAsym", 20), ("RFlat", 20)):
        found = filled(f"PRH,BFlat,{refine}", metric, k_factor).search(XQ, K)[1]
        recall[refine, k_factor] = np.mean([len(set(a) & set(b)) for a, b in zip(found, truth, strict=True)])
    assert recall["RAsym", 1] < recall["RAsym", 20] < recall["RFlat", 20]


@pytest.mark.parametrize("refine", ["RFlat", "RAsym"])
def test_what_is_missing_is_the_least(refine):
    index = index_factory(D, f"PRH,BFlat,{refine}", IP)
    index.train(XT)
    assert (index.search(XQ, 3)[0] == np.finfo(np.float32).min).all()
    index.add(XB[:2])
    similarities, found = index.search(XQ, 3)
    assert (similarities[:, 0] >= similarities[:, 1]).all()
    assert (similarities[:, 2] == np.finfo(np.float32).min).all()
    assert (found[:, 2] == -1).all()


@pytest.mark.parametrize("description", ["PRH,BFlat,RAsym", "IDMap2,PCA40,PRH,BIVF4,RAsym", "PRH,BIVF4,RFlat"])
def test_files_keep_the_metric(description):
    index = filled(description)
    again = clone_index(index)
    assert again.metric_type == IP
    for mine, theirs in zip(again.search(XQ, K), index.search(XQ, K), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    again.add_with_ids(XT, np.arange(len(XT)) + 5000) if "IDMap" in description else again.add(XT)
    assert again.ntotal == len(XB) + len(XT)


@pytest.mark.parametrize("kind", ["BFlat", "BIVF4"])
def test_both_bytes_follow_their_vectors(kind):
    index, whole = filled(f"PRH,{kind},RAsym"), filled(f"PRH,{kind},RAsym")
    first, second = clone_index(index), clone_index(index)
    first.remove_ids(np.arange(400, len(XB)))
    second.reset()
    second.add(XB[400:])
    if kind == "BFlat":
        first.merge_from(second)
    else:
        first.merge_from(second, 400)
    for mine, theirs in zip(first.search(XQ, K), whole.search(XQ, K), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_bytes_do_not_depend_on_the_batch():
    index = filled("PRH,BFlat,RAsym")
    parts = [index.sa_encode(XB[first : first + 37]) for first in range(0, len(XB), 37)]
    np.testing.assert_array_equal(np.concatenate(parts), index.sa_encode(XB))


@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,BIVF4", "ITQ,BFlat", "IDMap2,PRH,BHNSW8", "BFlat"])
@pytest.mark.parametrize("metric", [IP, faiss.METRIC_L1])
def test_hamming_distances_stand_in_for_euclidean_ones_only(description, metric):
    with pytest.raises(ValueError, match=r"Hamming .*METRIC_L2.*RFlat.*RAsym"):
        index_factory(64, description, metric)


@pytest.mark.parametrize(
    ("description", "metric", "message"),
    [
        ("PRH,BFlat,RAsym", faiss.METRIC_L1, "METRIC_L2 and METRIC_INNER_PRODUCT"),
        ("PRH,BFlat,RFlat", faiss.METRIC_L1, "METRIC_L2 or METRIC_INNER_PRODUCT"),
        ("ITQ,BFlat,RAsym", IP, "behind ITQTransform: only behind linear"),
        ("PCA40,L2norm,PRH,BFlat,RAsym", IP, "behind PCAMatrix, NormalizationTransform, PRHTransform"),
    ],
)
def test_metrics_that_cannot_be_followed(description, metric, message):
    with pytest.raises(ValueError, match=message):
        index_factory(64, description, metric)


def test_metrics_of_all_classes():
    assert index_factory(64, "PRH,BFlat").metric_type == faiss.METRIC_L2
    for refine in ("RFlat", "RAsym"):
        for metric in (faiss.METRIC_L2, IP):
            assert index_factory(64, f"PRH,BFlat,{refine}", metric).metric_type == metric


@pytest.mark.parametrize("name", ["PCA40", "PCAW40", "RR", "OPQ4_40", "ITQ", "L2norm", "Pad64", "HR"])
def test_which_transforms_are_affine(name):
    """Asked of the transforms themselves: whether they keep the middle between two vectors in the middle."""
    if name == "HR" and not hasattr(faiss, "HadamardRotation"):
        pytest.skip("not in this Faiss")
    index = index_factory(D, f"{name},BFlat")
    index.train(XT)
    middle = transformed(index, (XB + XT[:1]) / 2)
    is_affine = np.allclose(middle, (transformed(index, XB) + transformed(index, XT[:1])) / 2, atol=1e-3)
    assert chains.is_affine(index.chain) == is_affine or name == "L2norm"
    assert chains.is_affine([faiss.NormalizationTransform(D, 2.0), *index.chain]) == is_affine
    assert not chains.is_affine([PRHTransform(D), faiss.NormalizationTransform(D, 2.0)])
