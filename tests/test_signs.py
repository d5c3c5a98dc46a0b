"""Lists of residuals' signs beside plain NumPy: estimates, parameters, ids, codes, and what is refused."""

import functools
import gc
import itertools

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faiss_prh
from faiss_prh import (
    IndexBinaryAsymmetric,
    IndexBinaryPreTransform,
    IndexBinaryRefine,
    IndexIVFSigns,
    IndexIVFSignsRefine,
    PRHTransform,
    SearchParametersIVFSigns,
    index_factory,
)
from faiss_prh.index import residuals
from faiss_prh.index.factory_string import factory_string
from faiss_prh.index.parts_of import nested, transforms_of

L2, IP = faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT
D, K, NLIST = 40, 5, 16
ALL = 1e9  # the margin with which all codes are looked at closely
LARGEST = np.finfo(np.float32).max
PRE, REFINE = faiss.SearchParametersPreTransform, faiss.IndexRefineSearchParameters


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)  # tests share the machine


def vectors(n, seed, d=D):
    """Clusters off zero, of another size in each dimension."""
    centres = np.random.default_rng(99).normal(size=(12, d)) * 2 + np.linspace(-1, 2, d)
    rng = np.random.default_rng(seed)
    return (centres[rng.integers(12, size=n)] + rng.normal(size=(n, d)) * np.linspace(1.5, 0.2, d)).astype(np.float32)


XT, XB, XQ = vectors(700, 0), vectors(900, 1), vectors(50, 2)
IDS = np.random.default_rng(3).permutation(5000)[: len(XB)].astype(np.int64)


@functools.cache
def trained_transforms(chain, d, metric):
    index = index_factory(d, f"{chain},IVF1,Signs", metric)
    index.train(vectors(700, 0, d))
    return index.chain


def trained(description, metric=L2, d=D):
    """A new index whose transforms, which take most of the time, were trained before."""
    index = index_factory(d, description, metric)
    chain = description.removeprefix("IDMap2,").removeprefix("IDMap,").split(",IVF")[0].split(",BIVF")[0]
    index.chain[:] = trained_transforms(chain.split(",BFlat")[0], d, metric)
    index.train(vectors(700, 0, d))
    return index


def filled(description, metric=L2, d=D, ids=None):
    index = trained(description, metric, d)
    xb = vectors(900, 1, d)
    if ids is None:
        index.add(xb)
    else:
        index.add_with_ids(xb, ids)
    return index


unchanged = functools.cache(filled)
"""The same, for tests that change no more than nprobe, margin and k_factor, and set these before each search."""


def transformed(index, x):
    for transform in index.chain:
        x = transform.apply(np.ascontiguousarray(x, np.float32))
    return x.astype(np.float64)


def affinities(metric, y, centroids):
    """What decides which lists are searched: the less, the better."""
    if metric == IP:
        return -y @ centroids.T
    return ((y[:, None] - centroids) ** 2).sum(axis=2)


class Model:
    """What an index of signs should know of vectors and estimate, from its description; all in double precision."""

    def __init__(self, index, xt):
        self.index, self.metric = index, index.metric_type
        self.centroids = index.quantizer.reconstruct_n(0, index.nlist).astype(np.float64)
        z = transformed(index, xt)
        r = z - self.centroids[affinities(self.metric, z, self.centroids).argmin(axis=1)]
        norms = np.linalg.norm(r, axis=1)
        r, norms = r[norms > 1e-6], norms[norms > 1e-6]
        self.low, high = norms.min() / 1.25, norms.max() * 1.25
        self.step = (high - self.low) / 255
        self.reach = np.mean(norms / np.abs(r).sum(axis=1))
        self.bits = index.chain[-1].d_out

    def parts_of(self, codes):
        """Lists, signs and norms."""
        nlist = self.index.nlist
        size = (nlist > 1) + (nlist > 256)
        lists = codes[:, :size].astype(np.int64) @ 256 ** np.arange(size)
        n_bytes = -(-self.bits // 8)
        assert codes.shape[1] == size + n_bytes + 1
        bits = np.unpackbits(codes[:, size : size + n_bytes], axis=1, bitorder="little")
        assert not bits[:, self.bits :].any()
        return lists, bits[:, : self.bits] * 2.0 - 1, self.low + self.step * codes[:, -1]

    def check_codes(self, x, codes):
        lists, signs, norms = self.parts_of(codes)
        z = transformed(self.index, x)
        near = affinities(self.metric, z, self.centroids)
        chosen = np.take_along_axis(near, lists[:, None], 1)[:, 0]
        size = np.square(z).sum(axis=1).mean()
        assert (chosen - near.min(axis=1) < 1e-5 * size).all()
        r = z - self.centroids[lists]
        assert (signs == np.where(r >= 0, 1, -1))[np.abs(r) > 1e-4 * np.sqrt(size)].all()
        true = np.linalg.norm(r, axis=1).clip(self.low, self.low + 255 * self.step)
        assert (np.abs(norms - true) <= 0.501 * self.step).all()

    def probed(self, xq, nprobe):
        """Which lists are searched for each query, and whether that is sure in spite of rounding."""
        y = transformed(self.index, xq)
        if self.metric == IP:
            y = y - self.offset
        near = affinities(self.metric, y, self.centroids)
        order = np.argsort(near, axis=1, kind="stable")
        is_probed = np.zeros(near.shape, bool)
        np.put_along_axis(is_probed, order[:, :nprobe], True, 1)
        sure = np.ones(len(xq), bool)
        if nprobe < near.shape[1]:
            ends = np.take_along_axis(near, order[:, nprobe - 1 : nprobe + 1], 1)
            sure = ends[:, 1] - ends[:, 0] > 1e-5 * np.abs(near).mean()
        return is_probed, sure, order

    @property
    def offset(self):
        return transformed(self.index, np.zeros((1, self.index.d), np.float32))[0]

    def estimates(self, xq, codes):
        """Of all vectors for each query, whatever lists they are in."""
        lists, signs, norms = self.parts_of(codes)
        z = transformed(self.index, xq)
        if self.metric == IP:
            y = z - self.offset
            return (y @ self.centroids.T)[:, lists] + self.reach * norms * (y @ signs.T) - (y @ self.offset)[:, None]
        r = z[:, None] - self.centroids  # query, list, value
        products = np.empty((len(z), len(codes)))
        for number in np.unique(lists):
            there = lists == number
            products[:, there] = r[:, number] @ signs[there].T
        return (r**2).sum(axis=2)[:, lists] + norms**2 - 2 * self.reach * norms * products

    def expected(self, xq, codes, nprobe=None, allowed=None):
        """The estimates of what should be found, infinitely bad where it should not, and which queries are sure."""
        estimates, lists = self.estimates(xq, codes), self.parts_of(codes)[0]
        is_probed, sure, _ = self.probed(xq, nprobe or self.index.nlist)
        found = is_probed[:, lists]
        if allowed is not None:
            found &= allowed
        return np.where(found, estimates, -np.inf if self.metric == IP else np.inf), sure


@functools.cache
def model_of(description, metric=L2, d=D, ids=None):
    """An index that no test changes, the model of it, and the codes in it."""
    index = unchanged(description, metric, d)
    return index, Model(index, vectors(700, 0, d)), index.reconstruct_codes()


def assert_found(found, values, k, metric=L2, ids=None, sure=None, rtol=1e-4):
    """Search results are the k best by their values, whatever stands first among equals."""
    D_, I = found
    assert (D_.dtype, I.dtype, D_.shape) == (np.float32, np.int64, I.shape) == (np.float32, np.int64, (len(values), k))
    sign = -1 if metric == IP else 1
    values = sign * values
    ids = np.arange(values.shape[1]) if ids is None else ids
    order = np.argsort(ids)
    finite = values[np.isfinite(values)]
    atol = rtol * (np.abs(finite).mean() if len(finite) else 1)
    for q in range(len(values)) if sure is None else np.flatnonzero(sure):
        best = np.sort(values[q])[:k]
        n = int(np.isfinite(best).sum())
        assert (I[q, n:] == -1).all()
        assert (D_[q, n:] == sign * LARGEST).all()
        assert len(set(I[q, :n])) == n
        places = order[np.searchsorted(ids, I[q, :n], sorter=order).clip(0, len(ids) - 1)]
        np.testing.assert_array_equal(ids[places], I[q, :n])
        np.testing.assert_allclose(sign * D_[q, :n], best[:n], rtol=rtol, atol=atol)
        np.testing.assert_allclose(sign * D_[q, :n], values[q, places], rtol=rtol, atol=atol)
        assert (np.diff(sign * D_[q, :n]) >= 0).all()


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def overlap(found, truth):
    return np.mean([len(set(mine) & set(true)) / len(true) for mine, true in zip(found, truth, strict=True)])


def brute_force(x, xq, k, metric=L2):
    index = faiss.IndexFlat(x.shape[1], metric)
    index.add(np.ascontiguousarray(x))
    return index.search(np.ascontiguousarray(xq), k)


# What is kept and what is found

CHAINS = ["PRH(3,2)", "PRH37(3,2)", "PRH200", "PRH8(3,2)", "PCA11,PRH(3,2)", "PCA11,PRH70", "RR"]


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("chain", [*CHAINS, "L2norm,PRH(3,2)", "PCAW12,RR", "SRR"])
def test_codes(chain, metric):
    index, model, codes = model_of(f"{chain},IVF16,Signs", metric)
    model.check_codes(XB, codes)
    np.testing.assert_array_equal(codes, index.sa_encode(XB))
    np.testing.assert_array_equal(codes, index.encode(XB))
    assert index.sa_code_size() == codes.shape[1] == 1 + -(-index.chain[-1].d_out // 8) + 1


def test_numbers_of_many_lists_take_two_bytes():
    index = filled("RR,IVF300,Signs")
    codes = index.reconstruct_codes()
    assert index.sa_code_size() == codes.shape[1] == 2 + D // 8 + 1
    Model(index, XT).check_codes(XB, codes)
    assert codes[:, 1].any()
    np.testing.assert_array_equal(codes, index.sa_encode(XB))


@st.composite
def searches(draw):
    d = draw(st.sampled_from([20, 40, 100]))
    chain = draw(st.sampled_from({20: ["PRH(3,2)", "PRH37"], 40: CHAINS[:4], 100: CHAINS[:2]}[d]))
    nlist = draw(st.sampled_from([1, 16] if d == 40 else [7]))
    return {
        "index": (f"{chain},IVF{nlist},Signs", draw(st.sampled_from([L2, IP])), d),
        "nprobe": draw(st.integers(1, nlist + 2)),
        "k": draw(st.sampled_from([1, 2, 5, 33, 899, 900, 1000])),
        "n": draw(st.sampled_from([1, 2, 15, 16, 17, 19, 20, 21, 32, 33, 50])),
        "n_threads": draw(st.sampled_from([1, 2])),
        "by_parameters": draw(st.booleans()),
        "radius": draw(st.floats(0, 1)),
    }


def test_estimates(simd_level, thread_count):
    @given(searches())
    @settings(max_examples=30)
    def check(case):
        index, model, codes = model_of(*case["index"])
        _, metric, d = case["index"]
        xq, k, nprobe = vectors(50, 2, d)[: case["n"]], case["k"], case["nprobe"]
        thread_count(case["n_threads"])
        index.nprobe, index.margin = (1, 0) if case["by_parameters"] else (nprobe, ALL)
        params = SearchParametersIVFSigns(nprobe=nprobe, margin=ALL) if case["by_parameters"] else None
        values, sure = model.expected(xq, codes, min(nprobe, index.nlist))
        assert sure.mean() > 0.8
        assert_found(index.search(xq, k, params=params), values, k, metric, sure=sure)
        radius = np.quantile(values[np.isfinite(values)], case["radius"])
        assert_in_range(index.range_search(xq, radius, params=params), values, radius, metric, sure)

    check()


def assert_in_range(found, values, radius, metric, sure, ids=None):
    limits, D_, I = found
    assert (limits.dtype, D_.dtype, I.dtype) == (np.uint64, np.float32, np.int64)
    assert (limits[0], len(limits), limits[-1]) == (0, len(values) + 1, len(D_))
    sign = -1 if metric == IP else 1
    ids = np.arange(values.shape[1]) if ids is None else ids
    order = np.argsort(ids)
    tolerance = 1e-4 * np.abs(values[np.isfinite(values)]).mean() + 1e-4 * abs(radius)
    for q in np.flatnonzero(sure):
        part = slice(int(limits[q]), int(limits[q + 1]))
        places = order[np.searchsorted(ids, I[part], sorter=order)]
        np.testing.assert_array_equal(ids[places], I[part])
        missing = np.ones(len(ids), bool)
        missing[places] = False
        assert missing.sum() == len(ids) - len(places)
        np.testing.assert_allclose(D_[part], values[q, places], rtol=1e-4, atol=tolerance)
        assert (sign * D_[part] < sign * radius + 1e-6 * abs(radius)).all()
        assert (sign * values[q, missing] > sign * radius - tolerance).all()


@pytest.mark.parametrize("description", ["PRH(3,2),IVF16,Signs", "PRH(3,2),IVF16,Signs,RFlat", "PCA11,RR,IVF16,Signs"])
@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_query_finds_the_same_alone_and_among_others(description, metric, n_threads, thread_count):
    """Up to 20 queries native code finds the lists, for more Faiss does."""
    index = unchanged(description, metric)
    index.nprobe, index.margin = 3, 0.1
    thread_count(n_threads)
    alone = [index.search(XQ[q : q + 1], K) for q in range(len(XQ))]
    for n in (2, 16, 17, 19, 20, 21, 50):
        D_, I = index.search(XQ[:n], K)
        assert_equal_but_for_rounding((D_, I), [np.vstack(arrays)[:n] for arrays in zip(*alone, strict=True)])


def assert_equal_but_for_rounding(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)
    close = np.abs(np.diff(expected[0], axis=1)) < 1e-3  # may have changed places
    unsure = np.pad(close, ((0, 0), (1, 0))) | np.pad(close, ((0, 0), (0, 1)), constant_values=True)
    np.testing.assert_array_equal(found[1][~unsure], expected[1][~unsure])


@pytest.mark.parametrize(("nlist", "nprobe"), [(10, 3), (10, 10), (150, 1), (150, 7), (150, 128)])
@pytest.mark.parametrize("n", [3, 32])
def test_lists_of_equal_centroids(nlist, nprobe, n):
    """Every centroid twice: vectors are in the first of the two lists, and the second is searched after it, in vain."""
    # BLAS may round the products with two equal centroids differently. These it can add up without rounding.
    xb, xq = (np.round(x * 64) / 64 for x in (XB, XQ[:n]))
    same, quantizer = faiss.LinearTransform(D, D), faiss.IndexFlatL2(D)
    faiss.copy_array_to_vector(np.eye(D, dtype=np.float32).ravel(), same.A)
    same.is_trained = True
    quantizer.add(np.tile(xb[:nlist], (2, 1)))
    index = IndexIVFSigns(same, quantizer, 2 * nlist)
    index.train(XT)
    index.add(xb)
    index.nprobe, index.margin = nprobe, ALL
    lists = brute_force(xb[:nlist], xb, 1)[1][:, 0]
    nearest = brute_force(xb[:nlist], xq, -(-nprobe // 2))[1]
    _, I = index.search(xq, len(xb))
    for row, probed in zip(I, nearest, strict=True):
        np.testing.assert_array_equal(np.sort(row[row >= 0]), np.flatnonzero(np.isin(lists, probed)))


def test_one_centroid_for_all_lists():
    index = IndexIVFSigns(trained_transforms("RR", D, L2)[0], faiss.IndexFlatL2(D), 8)
    index.quantizer.add(np.zeros((8, D), np.float32))
    index.train(XT)
    index.add(XB)
    index.nprobe, index.margin = 3, ALL
    for n in (1, 50):
        assert (np.sort(index.search(XQ[:n], len(XB))[1]) == np.arange(len(XB))).all()


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("k", [1, 5, 50, 200])
def test_a_shortlist_of_k_is_the_k_best_estimates(metric, k):
    plain, refined = (unchanged(f"PRH(3,2),IVF16,Signs{end}", metric) for end in ("", ",RFlat"))
    for index in (plain, refined):
        index.nprobe, index.margin = 16, ALL
    refined.k_factor = 1
    D_, I = plain.search(XQ, k + 1)
    is_sure = np.abs(D_[:, -1] - D_[:, -2]) > 1e-3  # what is the last
    found = refined.search(XQ, k)[1]
    assert is_sure.mean() > 0.5
    np.testing.assert_array_equal(np.sort(found[is_sure]), np.sort(I[is_sure, :k]))


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("k_factor", [1, 3, 30])
def test_a_shortlist_of_equal_estimates(metric, k_factor, simd_level):
    index = trained("PRH(3,2),IVF16,Signs,RFlat", metric)
    index.add(np.repeat(XB[:8], 300, axis=0))
    index.nprobe, index.k_factor = 16, k_factor
    distances, I = index.search(XQ, 40)
    assert (I >= 0).all()
    assert all(len(set(row)) == 40 for row in I.tolist())
    assert (np.diff(distances) * (1 if metric == L2 else -1) >= 0).all()


def test_centred_transforms_of_inner_products():
    """The factory makes none: what they subtract must not count."""
    prh = PRHTransform(D, n_iso=3)
    prh.train(XT)
    assert np.abs(prh.mean).max() > 1
    index = IndexIVFSigns(prh, faiss.IndexFlatIP(D), NLIST, IP)
    index.train(XT)
    index.add(XB)
    index.margin = ALL
    model, codes = Model(index, XT), index.reconstruct_codes()
    model.check_codes(XB, codes)
    for n, nprobe in itertools.product((5, 50), (4, 16)):
        index.nprobe = nprobe
        values, sure = model.expected(XQ[:n], codes, nprobe)
        assert_found(index.search(XQ[:n], 400), values, 400, IP, sure=sure)  # so many are in all of the lists
    exact = (XQ @ XB.T).astype(np.float64)
    assert np.corrcoef(model.estimates(XQ, codes).ravel(), exact.ravel())[0, 1] > 0.85
    assert abs((model.estimates(XQ, codes) - exact).mean()) < 0.05 * np.abs(exact).mean()


LAYOUTS = {
    "float64": lambda x: x.astype(np.float64),
    "float16": lambda x: x.astype(np.float16),
    "Fortran": np.asfortranarray,
    "rows": lambda x: np.repeat(x, 2, axis=0)[::2],
    "columns": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: x[::-1][::-1],
    "upside down": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "big endian": lambda x: x.astype(">f4"),
    "list": lambda x: x.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_layouts(layout, refine):
    half = np.float16  # so that all types have the same values
    xb, xq = XB.astype(half).astype(np.float32), XQ.astype(half).astype(np.float32)
    index, other = (trained(f"PRH(3,2),IVF16,Signs{refine}") for _ in range(2))
    index.add(xb)
    other.add(LAYOUTS[layout](xb))
    np.testing.assert_array_equal(index.reconstruct_codes(), other.reconstruct_codes())
    index.nprobe = other.nprobe = 4
    for n in (3, 50):
        expected = index.search(xq[:n], K)
        assert_same(other.search(LAYOUTS[layout](xq[:n]), K), expected)
        assert_same(index.range_search(LAYOUTS[layout](xq[:n]), 9), index.range_search(xq[:n], 9))


def test_levels_and_threads_agree(simd_level, thread_count):
    index = unchanged("PRH37(3,2),IVF16,Signs,RFlat")
    index.nprobe, index.margin, index.k_factor = 5, 0.1, 4
    thread_count(1)
    expected = index.search(XQ, K)
    thread_count(2)
    assert_same(index.search(XQ, K), expected)
    assert_found(expected, np.where(in_lists(index, 5), distances(XQ, XB), np.inf), K, rtol=1e-4, sure=[0])


def distances(xq, xb, metric=L2):
    xq, xb = xq.astype(np.float64), xb.astype(np.float64)
    return xq @ xb.T if metric == IP else ((xq[:, None] - xb) ** 2).sum(axis=2)


def in_lists(index, nprobe):
    """Which vectors of XB are in the lists that are searched for each of XQ."""
    model = Model(index, XT)
    return model.probed(XQ, nprobe)[0][:, model.parts_of(index.reconstruct_codes())[0]]


# Margins


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("chain", ["PRH(3,2)", "PRH200"])
def test_the_default_margin_loses_next_to_nothing(chain, metric):
    index = filled(f"{chain},IVF16,Signs", metric)
    index.nprobe = 8
    assert index.margin == 0.1
    xq = vectors(300, 5)
    truth = brute_force(XB, xq, 10, metric)[1]
    by_default = overlap(index.search(xq, 10)[1], truth)
    index.margin = ALL
    assert by_default > overlap(index.search(xq, 10)[1], truth) - 0.01


def test_a_margin_of_zero_finds_k_and_less_of_what_is_near():
    index = unchanged("PRH(3,2),IVF16,Signs")
    index.nprobe, index.margin = 16, ALL
    best = index.search(XQ, 10)
    index.margin = 0
    assert index.margin == 0
    D_, I = index.search(XQ, 10)
    assert (I >= 0).all()
    assert all(len(set(row)) == 10 for row in I)
    assert (D_ - best[0] >= -1e-3).all()
    assert 0.5 < overlap(I, best[1]) < 1
    assert_same(index.search(XQ, 10, params=SearchParametersIVFSigns(margin=ALL, nprobe=16)), best)
    index.margin = ALL
    assert_same(index.search(XQ, 10, params=SearchParametersIVFSigns(margin=0, nprobe=16)), (D_, I))
    assert_same(index.search(XQ, 10, params=SearchParametersIVFSigns(nprobe=16)), best)
    assert index.margin == ALL


def test_a_margin_in_range_search():
    index, model, codes = model_of("PRH(3,2),IVF16,Signs")
    index.nprobe, index.margin = 16, 0
    radius = np.quantile(model.estimates(XQ, codes), 0.1)
    limits, D_, I = index.range_search(XQ, radius)
    assert D_.max() < radius
    index.margin = ALL
    all_limits, _, all_found = index.range_search(XQ, radius)
    assert 0.5 * len(all_found) < len(I) < len(all_found)
    for q in range(len(XQ)):
        few, many = (ids[int(ends[q]) : int(ends[q + 1])] for ids, ends in ((I, limits), (all_found, all_limits)))
        assert set(few) <= set(many)


BAD_MARGINS = [(bad, ValueError) for bad in (-1e-9, np.nan, np.inf, 1.1e9, 10**400)] + [
    (bad, TypeError) for bad in (None, "0.1", True, [0.1])
]


@pytest.mark.parametrize(("bad", "error"), BAD_MARGINS)
def test_bad_margins(bad, error):
    index = unchanged("PRH(3,2),IVF16,Signs")
    index.margin = 0.3
    with pytest.raises(error, match="margin must be"):
        index.margin = bad
    assert index.margin == 0.3
    if bad is None:
        return  # in parameters, the index's own
    with pytest.raises(error, match="margin must be"):
        SearchParametersIVFSigns(margin=bad)
    params = SearchParametersIVFSigns(nprobe=4)
    params.margin = bad
    with pytest.raises(error, match="margin must be"):
        index.search(XQ, K, params=params)


# Search parameters


@pytest.mark.parametrize("n", [7, 50])
@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_parameters(refine, n):
    index = unchanged(f"PRH(3,2),IVF16,Signs{refine}")
    index.k_factor = 4
    index.nprobe, index.margin = 6, 0.05
    k = 100  # more than a cluster has
    expected = index.search(XQ[:n], k), index.range_search(XQ[:n], 9)
    index.nprobe, index.margin = 1, 0.1
    by_default = index.search(XQ[:n], k)
    inner = SearchParametersIVFSigns(nprobe=6, margin=0.05)
    wrapped = [inner, PRE(index_params=inner), PRE(index_params=PRE(index_params=inner))]
    if refine:
        wrapped += [REFINE(k_factor=4, base_index_params=one) for one in wrapped]
    for params in wrapped:
        assert_same(index.search(XQ[:n], k, params=params), expected[0])
        assert_same(index.range_search(XQ[:n], 9, params=params), expected[1])
        assert_same(index.search_and_return_codes(XQ[:n], k, params=params)[:2], expected[0])
    assert not np.array_equal(by_default[0], expected[0][0])
    for params in (PRE(), faiss.SearchParameters(), PRE(index_params=faiss.SearchParameters())):
        assert_same(index.search(XQ[:n], k, params=params), by_default)
    index.margin = 0.05
    assert_same(index.search(XQ[:n], k, params=faiss.SearchParametersIVF(nprobe=6)), expected[0])


@pytest.mark.parametrize("n", [7, 50])
def test_k_factor_of_parameters(n):
    index = unchanged("PRH(3,2),IVF16,Signs,RFlat")
    index.nprobe, index.margin = 16, 0.1
    index.k_factor = 1
    expected = index.search(XQ[:n], K)
    index.k_factor = 20
    wide = index.search(XQ[:n], K)
    assert wide[0].sum() < expected[0].sum()
    index.nprobe = 1
    inner = faiss.SearchParametersIVF(nprobe=16)
    assert_same(index.search(XQ[:n], K, params=REFINE(base_index_params=inner)), expected)  # 1, as in Faiss
    index.k_factor = 3
    assert_same(index.search(XQ[:n], K, params=REFINE(k_factor=20, base_index_params=inner)), wide)
    for bad in (0.5, np.nan):
        with pytest.raises(ValueError, match="k_factor must be"):
            index.search(XQ[:n], K, params=REFINE(k_factor=bad))


@pytest.mark.parametrize("n", [7, 50])
@pytest.mark.parametrize("metric", [L2, IP])
def test_max_codes(metric, n):
    """After the list with which that many are reached, no more are searched."""
    index, model, codes = model_of("PRH(3,2),IVF16,Signs", metric)
    index.margin = ALL
    sizes = np.bincount(model.parts_of(codes)[0], minlength=NLIST)
    _, sure, order = model.probed(XQ[:n], NLIST)
    for max_codes in (1, 100, 400, 10**6):
        params = faiss.SearchParametersIVF(nprobe=10, max_codes=max_codes)
        I = index.search(XQ[:n], 900, params=params)[1]
        limits, _, _ = index.range_search(XQ[:n], 1e9 if metric == L2 else -1e9, params=params)
        for q in np.flatnonzero(sure):
            ends = np.cumsum(sizes[order[q, :10]])
            expected = ends[min(np.searchsorted(ends, max_codes), 9)]
            assert (I[q] >= 0).sum() == expected == limits[q + 1] - limits[q]


@pytest.mark.parametrize("n", [7, 50])
@pytest.mark.parametrize("lists", ["IVF16", "IVF16_HNSW8"])
def test_parameters_of_quantizers(lists, n):
    index = filled(f"PRH(3,2),{lists},Signs")
    numbers = index.reconstruct_codes()[:, 0]
    kind = faiss.SearchParametersHNSW if "HNSW" in lists else faiss.SearchParameters
    inner = kind(sel=faiss.IDSelectorRange(3, 6))
    params = faiss.SearchParametersIVF(nprobe=16, quantizer_params=inner)
    for wrapped in (params, PRE(index_params=params)):
        found = index.search(XQ[:n], 900, params=wrapped)[1]
        expected = np.flatnonzero((numbers >= 3) & (numbers < 6))
        for row in found:
            np.testing.assert_array_equal(np.sort(row[row >= 0]), expected)


def test_a_graph_finds_the_lists():
    index = filled("PRH(3,2),IVF16_HNSW8,Signs")
    assert isinstance(index.quantizer, faiss.IndexHNSWFlat)
    index.margin = ALL
    model, codes = Model(index, XT), index.reconstruct_codes()
    model.check_codes(XB, codes)
    for n, nprobe in itertools.product((7, 50), (3, 16)):
        params = faiss.SearchParametersIVF(nprobe=nprobe, quantizer_params=faiss.SearchParametersHNSW(efSearch=64))
        values, sure = model.expected(XQ[:n], codes, nprobe)
        assert_found(index.search(XQ[:n], K, params=params), values, K, sure=sure)


REFUSED_PARAMETERS = {
    "a graph's": (lambda: faiss.SearchParametersHNSW(), TypeError, "does not take SearchParametersHNSW"),
    "product quantizers'": (lambda: faiss.IVFPQSearchParameters(), TypeError, "does not take IVFPQSearchParameters"),
    "none": (lambda: {"nprobe": 3}, TypeError, "must be faiss.SearchParameters, not dict"),
    "inside out": (lambda: PRE(index_params=REFINE(k_factor=2)), TypeError, "IndexRefineSearchParameters must be"),
    "filter outside": (lambda: PRE(sel=faiss.IDSelectorAll()), ValueError, "belongs in its index_params"),
    "nprobe": (lambda: faiss.SearchParametersIVF(nprobe=0), ValueError, "nprobe must be at least 1"),
    "a graph's, of a flat quantizer": (
        lambda: faiss.SearchParametersIVF(quantizer_params=faiss.SearchParametersHNSW(efSearch=3)),
        TypeError,
        "IndexFlat.* does not take SearchParametersHNSW",
    ),
    "an IVF's, of a flat quantizer": (
        lambda: faiss.SearchParametersIVF(quantizer_params=faiss.SearchParametersIVF(nprobe=3)),
        TypeError,
        "IndexFlat.* does not take SearchParametersIVF",
    ),
}  # fmt: skip


@pytest.mark.parametrize("n", [7, 50])
@pytest.mark.parametrize("refine", ["", ",RFlat"])
@pytest.mark.parametrize("name", REFUSED_PARAMETERS)
def test_parameters_that_are_not_followed(name, refine, n):
    index = unchanged(f"PRH(3,2),IVF16,Signs{refine}")
    make, error, message = REFUSED_PARAMETERS[name]
    with pytest.raises(error, match=message):
        index.search(XQ[:n], K, params=make())
    with pytest.raises(error, match=message):
        index.range_search(XQ[:n], 9, params=make())
    with pytest.raises(error, match=message):
        index.search_and_reconstruct(XQ[:n], K, params=make())


@pytest.mark.parametrize("params", [faiss.SearchParametersIVF, faiss.SearchParametersPQ])
def test_parameters_that_a_graph_of_lists_does_not_follow(params):
    index = trained("PRH(3,2),IVF16_HNSW8,Signs")
    with pytest.raises(TypeError, match=f"IndexHNSW.* does not take {params.__name__}"):
        index.search(XQ, K, params=faiss.SearchParametersIVF(quantizer_params=params()))


@pytest.mark.parametrize("name", ["max_lists_num", "ensure_topk_full", "max_empty_result_buckets"])
def test_fields_that_are_not_followed(name):
    for params in (faiss.SearchParametersIVF(), SearchParametersIVFSigns(margin=0.1)):
        if not hasattr(params, name):
            pytest.skip("not in this Faiss")
        setattr(params, name, 1 if name != "ensure_topk_full" else True)
        with pytest.raises(ValueError, match=f"does not follow {name}"):
            unchanged("PRH(3,2),IVF16,Signs").search(XQ, K, params=params)


def test_parameters_of_other_indexes():
    with pytest.raises(TypeError, match="outermost parameters, of an index that re-ranks"):
        unchanged("PRH(3,2),IVF16,Signs").search(XQ, K, params=REFINE(k_factor=2))
    for description in ("PRH(3,2),BIVF16", "PRH(3,2),BIVF16,RAsym", "PRH(3,2),BFlat,RFlat"):
        with pytest.raises(TypeError, match="does not take SearchParametersIVFSigns"):
            unchanged(description).search(XQ, K, params=SearchParametersIVFSigns(margin=0.1))


# Filters


def selectors(ids):
    """Faiss's selectors, and which of the ids they select."""
    some, odd = ids[::3], ids[1::2]
    in_some, in_odd = np.isin(ids, some), np.isin(ids, odd)
    in_range = (ids >= 100) & (ids < 1500)
    bitmap = np.packbits(np.isin(np.arange(ids.max() + 1), some), bitorder="little")
    batch, array = faiss.IDSelectorBatch(some), faiss.IDSelectorArray(odd)
    kinds = {
        "Range": (faiss.IDSelectorRange(100, 1500), in_range),
        "Array": (array, in_odd),
        "Batch": (batch, in_some),
        "Bitmap": (faiss.IDSelectorBitmap(bitmap), in_some),
        "Not": (faiss.IDSelectorNot(batch), ~in_some),
        "And": (faiss.IDSelectorAnd(batch, array), in_some & in_odd),
        "Or": (faiss.IDSelectorOr(batch, array), in_some | in_odd),
        "XOr": (faiss.IDSelectorXOr(batch, array), in_some ^ in_odd),
        "All": (faiss.IDSelectorAll(), np.ones(len(ids), bool)),
        "two": (faiss.IDSelectorBatch(ids[7:9]), np.isin(ids, ids[7:9])),
        "nothing": (faiss.IDSelectorRange(10**6, 10**7), np.zeros(len(ids), bool)),
    }
    if hasattr(faiss, "PyCallbackIDSelector"):
        kinds["Python"] = (faiss.PyCallbackIDSelector(lambda one: one % 4 == 1), ids % 4 == 1)
    return kinds


@functools.cache
def filtered_index(description, has_ids):
    id_map = "IDMap," if has_ids and "BFlat" in description else ""
    index = filled(id_map + description, ids=IDS if has_ids else None)
    index.k_factor = ALL
    if isinstance(index, IndexIVFSigns):
        index.nprobe, index.margin = NLIST, ALL
    elif "BIVF" in description:
        index.index.nprobe = NLIST
    return index


def values_of(index, xq):
    """What an index with everything in view ranks XB by."""
    if isinstance(index, IndexBinaryRefine):
        return distances(xq, XB)
    if isinstance(index, IndexBinaryAsymmetric):
        return asymmetric(index, xq)
    return Model(index, XT).estimates(xq, index.sa_encode(XB))


def asymmetric(index, xq, metric=L2):
    """The estimate from the signs of whole vectors and their norms in 256 steps of equal ratio."""
    z, zt, zq = transformed(index, XB), transformed(index, XT), transformed(index, xq)
    norms = np.linalg.norm(zt, axis=1)
    reach = np.mean(norms / np.abs(zt).sum(axis=1))
    low, high = norms.min() / 1.25, norms.max() * 1.25
    places = np.rint(255 * np.log(np.linalg.norm(z, axis=1) / low) / np.log(high / low)).clip(0, 255)
    norms = low * (high / low) ** (places / 255)
    return (zq**2).sum(axis=1)[:, None] + norms**2 - 2 * reach * norms * (zq @ np.where(z >= 0, 1, -1).T)


FILTERED = ["PRH(3,2),BFlat,RFlat", "PRH(3,2),BIVF16,RAsym", "PRH(3,2),IVF16,Signs", "PRH(3,2),IVF16,Signs,RFlat"]


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("description", FILTERED)
def test_filters(description, has_ids, thread_count):
    index = filtered_index(description, has_ids)
    ids = IDS if has_ids else np.arange(len(XB))
    values = values_of(index, XQ)
    is_ivf = "IVF" in description
    for (name, (selector, allowed)), n in itertools.product(selectors(ids).items(), (3, 21)):
        thread_count(2 if n == 21 else 1)
        params = faiss.SearchParameters(sel=selector)
        if is_ivf and name != "Array":  # plain ones as well
            params = faiss.SearchParametersIVF(sel=selector, nprobe=NLIST)
        expected = np.where(allowed, values, np.inf)[:n]
        found = index.search(XQ[:n], K, params=params)
        assert_found(found, expected, K, ids=ids)
        assert_same(index.search(XQ[:n], K, params=PRE(index_params=params)), found)
        if has_ids and name in ("Batch", "two"):
            assert_found(index.search(XQ[:n], 400, params=params), expected, 400, ids=ids)


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_filters_in_some_lists(refine, metric):
    index = filled(f"PRH(3,2),IVF16,Signs{refine}", metric, ids=IDS)
    model, codes = Model(index, XT), index.encode(XB)
    index.margin = index.k_factor = ALL
    allowed = IDS % 3 == 0
    params = SearchParametersIVFSigns(nprobe=4, sel=faiss.IDSelectorBatch(IDS[allowed]))
    values, sure = model.expected(XQ, codes, 4, allowed)
    ranked = np.where(np.isfinite(values), distances(XQ, XB, metric), values) if refine else values
    for n in (20, 50):
        assert_found(index.search(XQ[:n], K, params=params), ranked[:n], K, metric, ids=IDS, sure=sure[:n])
    radius = np.quantile(values[np.isfinite(values)], 0.3)
    assert_in_range(index.range_search(XQ, radius, params=params), values, radius, metric, sure, ids=IDS)


def test_an_error_in_a_filter_written_in_python_does_not_hang():
    if not hasattr(faiss, "PyCallbackIDSelector"):
        pytest.skip("not in this Faiss")
    index = filtered_index("PRH(3,2),IVF16,Signs", False)
    seen = []
    selector = faiss.PyCallbackIDSelector(lambda one: bool(seen.append(one)))
    found = index.search(XQ[:1], K, params=faiss.SearchParameters(sel=selector))[1]
    assert (found == -1).all()
    assert set(seen) == set(range(len(XB)))


# Adding, removing, merging


def pair_of(refine="", metric=L2):
    """Two empty indexes trained alike."""
    return [trained(f"PRH(3,2),IVF16,Signs{refine}", metric) for _ in range(2)]


def wide(index):
    index.nprobe, index.margin = NLIST, ALL
    if isinstance(index, IndexIVFSignsRefine):
        index.k_factor = ALL
    return index


def assert_holds(index, x, ids):
    """An index holds these vectors under these ids, and nothing else."""
    wide(index)
    assert index.ntotal == len(x)
    np.testing.assert_array_equal(np.sort(index.search(XQ[:1], len(x) + 3)[1][0, : len(x)]), np.sort(ids))
    if len(set(ids.tolist())) == len(ids):
        codes = index.encode(x)
        if len(x):
            np.testing.assert_array_equal(np.array([index.reconstruct_code(int(one)) for one in ids[:9]]), codes[:9])
        if isinstance(index, IndexIVFSignsRefine):
            assert_refined(index.search(XQ, K), distances(XQ, x), ids)
        else:
            assert_found(index.search(XQ, K), Model(index, XT).estimates(XQ, codes), K, ids=ids)
    if isinstance(index, IndexIVFSignsRefine):
        assert index.refine_index.ntotal == len(x)


def assert_refined(found, exact, ids):
    """Distances are exact, and next to nothing is missing: the errors of estimates are known up to a probability."""
    D_, I = found
    k = min(I.shape[1], len(ids))
    assert (I[:, k:] == -1).all()
    if not k:
        return
    order = np.argsort(ids)
    places = order[np.searchsorted(ids, I[:, :k], sorter=order)]
    np.testing.assert_array_equal(ids[places], I[:, :k])
    np.testing.assert_allclose(D_[:, :k], np.take_along_axis(exact, places, 1), rtol=1e-4, atol=1e-3)
    assert overlap(places, np.argsort(exact, axis=1)[:, :k]) > 0.98


REFINED = ["", ",RFlat", ",Refine(SQfp16)"]


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_ids(refine):
    index, _ = pair_of(refine)
    index.add_with_ids(XB[:300], IDS[:300])
    index.add_with_ids(XB[300:], IDS[300:])
    assert_holds(index, XB, IDS)
    index.reset()
    assert index.is_trained
    assert_holds(index, XB[:0], IDS[:0])
    index.add_with_ids(XB[:50], IDS[:50] + 2**40)
    assert_holds(index, XB[:50], IDS[:50] + 2**40)
    index.reset()
    index.add(XB)
    index.add(XT[:10])
    assert_holds(index, np.vstack([XB, XT[:10]]), np.arange(len(XB) + 10))


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_nothing_is_added_by_no_vectors(refine):
    index, _ = pair_of(refine)
    index.add(XB[:0])
    index.add_with_ids(XB[:0], IDS[:0])
    assert index.ntotal == 0
    index.add(XB)
    index.add(XB[:0])
    assert_holds(index, XB, np.arange(len(XB)))


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_removing(refine, has_ids):
    index, _ = pair_of(refine)
    ids = IDS if has_ids else np.arange(len(XB))
    index.add_with_ids(XB, ids) if has_ids else index.add(XB)
    kept = np.ones(len(XB), bool)
    kept[np.r_[5, 100:200, 899]] = False
    assert index.remove_ids(np.append(ids[~kept], 10**7)) == (~kept).sum()
    assert index.remove_ids(ids[~kept]) == 0
    if has_ids or not refine:  # where ids are rows, those behind move up
        assert_holds(index, XB[kept], ids[kept])
        assert index.remove_ids(faiss.IDSelectorRange(0, 2500)) == (ids[kept] < 2500).sum()
        kept &= ids >= 2500
        assert_holds(index, XB[kept], ids[kept])
    else:
        assert index.ntotal == kept.sum()
        found = wide(index).search(XB[kept], 1)
        assert (found[0] < 1e-3).all()
        assert not np.isin(found[1], ids[~kept]).any()


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_updating(refine):
    """Removing what an id stood for, and adding something else under it."""
    index, _ = pair_of(refine)
    index.add_with_ids(XB, IDS)
    new = vectors(40, 7)
    changed = np.arange(0, 400, 10)
    assert index.remove_ids(IDS[changed]) == 40
    index.add_with_ids(new, IDS[changed])
    x = XB.copy()
    x[changed] = new
    assert_holds(index, x, IDS)
    np.testing.assert_array_equal(index.reconstruct_code(int(IDS[20])), index.encode(new[2:3])[0])


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("refine", REFINED)
def test_merging(refine, metric):
    first, second = pair_of(refine, metric)
    first.add_with_ids(XB[:400], IDS[:400])
    second.add_with_ids(XB[400:], IDS[400:])
    first.merge_from(second, 10_000)
    assert (first.ntotal, second.ntotal) == (len(XB), 0)
    whole, _ = pair_of(refine, metric)
    whole.add_with_ids(XB, np.append(IDS[:400], IDS[400:] + 10_000))
    assert_equal_but_for_rounding(wide(first).search(XQ, K), wide(whole).search(XQ, K))
    second.add(XT)  # it can go on
    assert second.ntotal == len(XT)
    if metric == L2 and refine != ",Refine(SQfp16)":
        assert_holds(second, XT, np.arange(len(XT)))


def test_merging_without_ids():
    first, second = pair_of()
    first.add(XB[:400])
    second.add(XB[400:])
    first.merge_from(second, 400)
    assert_holds(first, XB, np.arange(len(XB)))


def other_training(refine):
    index = index_factory(D, f"PRH(3,2),IVF16,Signs{refine}")
    index.train(vectors(700, 50))
    return index


def other_centroids(refine):
    """The same in another order, so that the scale is the same."""
    mine = trained(f"PRH(3,2),IVF16,Signs{refine}")
    index = index_factory(D, f"PRH(3,2),IVF16,Signs{refine}")
    index.chain[:] = mine.chain
    index.quantizer.add(mine.quantizer.reconstruct_n(0, 16)[::-1].copy())
    index.train(XT)
    return index


def other_scale(refine):
    mine = trained(f"PRH(3,2),IVF16,Signs{refine}")
    index = index_factory(D, f"PRH(3,2),IVF16,Signs{refine}")
    index.chain[:] = mine.chain
    index.quantizer.add(mine.quantizer.reconstruct_n(0, 16))
    index.train(XT[:300])
    return index


UNLIKE = {
    "training": (other_training, "."),
    "centroids": (other_centroids, "same lists"),
    "scale": (other_scale, "same scale of residuals"),
    "number of lists": (lambda refine: trained(f"PRH(3,2),IVF8,Signs{refine}"), "same training"),
    "metric": (lambda refine: trained(f"PRH(3,2),IVF16,Signs{refine}", IP), "."),
    "bits": (lambda refine: trained(f"PRH37(3,2),IVF16,Signs{refine}"), "."),
    "transforms": (lambda refine: trained(f"PCA11,PRH(3,2),IVF16,Signs{refine}"), "with the same transforms"),
    "class": (lambda refine: trained(f"PRH(3,2),IVF16,Signs{'' if refine else ',RFlat'}"), "only an IndexIVFSigns"),
    "binary": (lambda refine: trained("PRH(3,2),BIVF16"), "only an IndexIVFSigns"),
}


@pytest.mark.parametrize("refine", ["", ",RFlat"])
@pytest.mark.parametrize("name", UNLIKE)
def test_merging_with_what_is_not_alike(name, refine):
    make, message = UNLIKE[name]
    index, other = trained(f"PRH(3,2),IVF16,Signs{refine}"), make(refine)
    index.add(XB)
    other.add(XT)
    before = wide(index).search(XQ, K), other.search(XQ, K)
    with pytest.raises((ValueError, RuntimeError), match=message):
        index.merge_from(other)
    assert (index.ntotal, other.ntotal) == (len(XB), len(XT))
    assert_same(index.search(XQ, K), before[0])
    assert_same(other.search(XQ, K), before[1])


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_merging_with_itself(refine):
    index, other = pair_of(refine)
    index.add(XB)
    other.add(XT)
    with pytest.raises(ValueError, match="merged into itself"):
        index.merge_from(index)
    for bad, error in ((-1, ValueError), (2**63, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="add_id must be"):
            index.merge_from(other, bad)
    with pytest.raises(ValueError, match="beyond"):
        index.merge_from(other, 2**63 - 1)
    assert (index.ntotal, other.ntotal) == (len(XB), len(XT))


# Codes and vectors


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("chain", [*CHAINS, "L2norm,PRH(3,2)"])
def test_vectors_come_back(chain, metric):
    index, model, codes = model_of(f"{chain},IVF16,Signs", metric)
    lists, signs, norms = model.parts_of(codes)
    z = (model.centroids[lists] + model.reach * norms[:, None] * signs).astype(np.float32)
    for transform in reversed(index.chain):
        z = transform.reverse_transform(z)
    np.testing.assert_allclose(index.reconstruct_n(), z, rtol=1e-3, atol=1e-3)
    for some, rows in (
        (index.reconstruct_n(10, 5), slice(10, 15)),
        (index.reconstruct(7), 7),
        (index.reconstruct_batch([9, 3, 9]), [9, 3, 9]),
    ):
        np.testing.assert_allclose(some, index.reconstruct_n()[rows], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(index.reconstruct_codes(10, 5), codes[10:15])
    np.testing.assert_array_equal(index.reconstruct_code(7), codes[7])
    np.testing.assert_allclose(index.sa_decode(index.sa_encode(XB)), index.reconstruct_n(), rtol=1e-4, atol=1e-4)
    if chain in ("PRH(3,2)", "RR"):  # all is kept: they are nearer to what they stand for than the centroids
        true, centroids = transformed(index, XB), model.centroids[lists]
        near = np.square(transformed(index, index.reconstruct_n()) - true).sum(axis=1)
        assert near.mean() < 0.7 * np.square(centroids - true).sum(axis=1).mean()


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("refine", REFINED)
@pytest.mark.parametrize("n", [5, 30])
def test_results_with_codes_and_vectors(n, refine, has_ids):
    index = filled(f"PRH37(3,2),IVF16,Signs{refine}", ids=IDS if has_ids else None)
    index.nprobe = 2
    few = 700 if n == 5 else K  # more than the lists have
    expected = index.search(XQ[:n], few)
    *found, codes = index.search_and_return_codes(XQ[:n], few)
    assert_same(found, expected)
    *found, back = index.search_and_reconstruct(XQ[:n], few)
    assert_same(found, expected)
    there = expected[1] >= 0
    assert there.all() == (few == K)
    assert codes.shape == (n, few, index.encode(XB[:1]).shape[1])
    ids = expected[1][there]
    np.testing.assert_array_equal(codes[there][:20], [index.reconstruct_code(int(one)) for one in ids[:20]])
    np.testing.assert_allclose(back[there], index.reconstruct_batch(ids), rtol=1e-5, atol=1e-5)
    assert (codes[~there] == 0).all()
    assert np.isnan(back[~there]).all()
    np.testing.assert_array_equal(index.assign(XQ[:n], few), expected[1])
    rows = ids if not has_ids else np.array([IDS.tolist().index(one) for one in ids])
    np.testing.assert_array_equal(codes[there], index.encode(XB)[rows])
    if refine:
        np.testing.assert_allclose(back[there], XB[rows], rtol=1e-3, atol=0 if refine == ",RFlat" else 1e-3)


@pytest.mark.parametrize("refine", REFINED)
def test_bytes_of_vectors(refine):
    index = filled(f"PRH37(3,2),IVF16,Signs{refine}")
    codes = index.sa_encode(XQ)
    of_store = {"": 0, ",RFlat": 4 * D, ",Refine(SQfp16)": 2 * D}[refine]
    assert codes.shape == (len(XQ), index.sa_code_size()) == (len(XQ), 1 + 5 + 1 + of_store)
    np.testing.assert_array_equal(codes[:, :7], index.encode(XQ))
    back = index.sa_decode(codes)
    index.add(XQ)
    np.testing.assert_allclose(index.reconstruct_n(len(XB), len(XQ)), back, rtol=1e-5, atol=1e-5)
    if refine:
        np.testing.assert_allclose(back, XQ, rtol=1e-3, atol=0 if refine == ",RFlat" else 1e-3)
    for bad in (codes[:, :-1], codes.astype(int), codes[0]):
        with pytest.raises(ValueError, match="codes must be an array of uint8"):
            index.sa_decode(bad)
    assert index.sa_decode(codes[:0]).shape == (0, D)
    if not refine:
        codes[3, 0] = 200
        with pytest.raises(ValueError, match="a code of list 200; there are 16"):
            index.sa_decode(codes)


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_ids_that_are_not_there(refine):
    index = unchanged(f"PRH(3,2),IVF16,Signs{refine}")
    for read in (index.reconstruct, index.reconstruct_code):
        with pytest.raises(ValueError, match="no vector has the id 900"):
            read(900)
        with pytest.raises(ValueError, match="key must be"):
            read(-1)
    with pytest.raises(ValueError, match="there are 900 vectors"):
        index.reconstruct_n(3, 901)


def test_vectors_do_not_come_back_through_itq():
    index = trained("ITQ,IVF16,Signs")
    index.add(XB)
    with pytest.raises(RuntimeError, match="ITQTransform cannot be reversed"):
        index.reconstruct(0)
    model, codes = Model(index, XT), index.reconstruct_codes()
    model.check_codes(XB, codes)
    values, _ = model.expected(XQ, codes)
    assert_found(wide(index).search(XQ, K), values, K)


# What is refused


@pytest.mark.parametrize("chain", ["PRH(3,2)", "SRR"])  # one that needs training, and one that does not
@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_before_training(refine, chain):
    index = index_factory(D, f"{chain},IVF16,Signs{refine}")
    assert not index.is_trained
    for bad in (
        lambda: index.add(XB),
        lambda: index.add_with_ids(XB, IDS),
        lambda: index.search(XQ, K),
        lambda: index.search(XQ[:3], K),
        lambda: index.search(XQ[:0], K),
        lambda: index.range_search(XQ[:3], 9),
        lambda: index.search_and_reconstruct(XQ, K),
        lambda: index.search_and_return_codes(XQ, K),
        lambda: index.encode(XB),
        lambda: index.sa_encode(XB),
    ):
        with pytest.raises(RuntimeError, match=r"not trained: call train\(x\) first"):
            bad()
    assert index.ntotal == 0


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("refine", ["", ",RFlat"])
@pytest.mark.parametrize("lists", ["IVF16", "IVF16_HNSW8"])
def test_nothing_to_find(lists, refine, metric):
    index = trained(f"PRH(3,2),{lists},Signs{refine}", metric)
    for n in (0, 1, 50):
        D_, I = index.search(XQ[:n], K)
        assert D_.dtype == np.float32
        assert I.dtype == np.int64
        assert I.shape == D_.shape == (n, K)
        assert (I == -1).all()
        assert set(D_.ravel()) <= {LARGEST if metric == L2 else -LARGEST}
        limits, D_, I = index.range_search(XQ[:n], 1e9 if metric == L2 else -1e9)
        assert limits.tolist() == [0] * (n + 1)
        assert len(D_) == len(I) == 0
        *_, codes = index.search_and_return_codes(XQ[:n], K)
        assert codes.shape == (n, K, index.encode(XQ[:1]).shape[1])
        assert not codes.any()
        assert np.isnan(index.search_and_reconstruct(XQ[:n], K)[2]).all()
    index.add(XB)
    assert index.search(XQ[:0], K)[0].shape == (0, K)
    assert index.range_search(XQ[:0], 9)[0].tolist() == [0]


def spoiled(x, row, value):
    x = x.astype(np.float64)
    x[row, 3] = value
    return x


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("description", ["PRH(3,2),IVF16,Signs", "PRH(3,2),IVF16,Signs,RFlat", "RR,RR,IVF16,Signs"])
def test_queries_that_cannot_be_used(description, metric, is_empty):
    index = trained(description, metric)
    if not is_empty:
        index.add(XB)
    values = {np.nan: "non-finite", -np.inf: "non-finite", 1e300: "too large for float32", 3e18: "too large: "}
    for n, (value, message) in itertools.product((1, 18, 50), values.items()):
        xq = spoiled(XQ[:n], n - 1, value)
        for search in (
            lambda xq=xq: index.search(xq, K),
            lambda xq=xq: index.range_search(xq, 9),
            lambda xq=xq: index.search_and_return_codes(xq, K),
        ):
            with pytest.raises(ValueError, match=f"^vector {n - 1} .*{message}"):
                search()
    assert len(index.search(XQ, K)[0]) == 50  # all is well again


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_what_fails_changes_nothing(refine):
    index = filled(f"PRH(3,2),IVF16,Signs{refine}")
    before = wide(index).search(XQ, K), index.reconstruct_codes()
    for bad, error, message in (
        (lambda: index.add(spoiled(XB, 700, np.nan)), ValueError, "^vector 700 has a non-finite"),
        (lambda: index.add(spoiled(XB, 0, 3e18)), ValueError, "^vector 0 is too large"),
        (lambda: index.add_with_ids(spoiled(XB, 5, np.inf), IDS), ValueError, "^vector 5 has a non-finite"),
        (lambda: index.add_with_ids(XB, IDS[:-1]), ValueError, "ids must have shape"),
        (lambda: index.add_with_ids(XB, IDS * 1.0), TypeError, "ids must be integers"),
        (lambda: index.add_with_ids(XB, -IDS), ValueError, "ids must not be negative"),
        (lambda: index.add(XB[:, :7]), ValueError, f"must have {D} columns"),
        (lambda: index.add(XB[0]), ValueError, "must have two dimensions"),
        (lambda: index.add(XB * 1j), TypeError, "must hold real numbers"),
        (lambda: index.remove_ids([1.5]), TypeError, "ids must be integers"),
        (lambda: index.train(spoiled(XT, 8, np.nan)), ValueError, "training vector 8 has a non-finite"),
        (lambda: index.search(XQ, 0), ValueError, "k must be at least 1"),
        (lambda: index.search(XQ, 2.0), TypeError, "k must be an integer"),
        (lambda: index.search(XQ, True), TypeError, "k must be an integer"),
        (lambda: index.search(XQ[:, :7], K), ValueError, f"must have {D} columns"),
        (lambda: index.search(XQ[0], K), ValueError, "must have two dimensions"),
        (lambda: index.range_search(XQ, np.nan), ValueError, "radius must be"),
        (lambda: index.range_search(XQ, "9"), TypeError, "radius must be a number"),
        (lambda: setattr(index, "nprobe", 0), ValueError, "nprobe must be from 1 to"),
        (lambda: setattr(index, "nprobe", -3), ValueError, "nprobe must be from 1 to"),
        (lambda: setattr(index, "nprobe", 2.0), TypeError, "nprobe must be an integer"),
    ):
        with pytest.raises(error, match=message):
            bad()
    assert index.ntotal == len(XB)
    assert index.nprobe == NLIST
    assert_same(index.search(XQ, K), before[0])
    np.testing.assert_array_equal(index.reconstruct_codes(), before[1])
    if refine:
        assert index.refine_index.ntotal == len(XB)


def test_range_search_without_a_limit():
    for metric, radius in ((L2, np.inf), (IP, -np.inf), (L2, 10**400)):
        index = unchanged("PRH(3,2),IVF16,Signs", metric)
        index.nprobe, index.margin = NLIST, ALL
        assert np.diff(index.range_search(XQ[:3], radius)[0].astype(int)).tolist() == [len(XB)] * 3
        assert len(index.range_search(XQ[:3], -radius)[1]) == 0


# Training


def assert_untrained(index):
    assert not index.is_trained
    assert index.quantizer.ntotal == 0
    assert not index.index.is_trained
    assert not index.chain[0].is_trained
    with pytest.raises(RuntimeError, match="not trained"):
        index.add(XB)


@pytest.mark.parametrize("lists", ["IVF16", "IVF16_HNSW8"])
@pytest.mark.parametrize("refine", ["", ",RFlat", ",Refine(SQ8)"])
def test_training_that_fails_leaves_all_untrained(lists, refine, monkeypatch):
    index = index_factory(D, f"PRH(3,2),{lists},Signs{refine}")

    def fail(*_):
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        if refine == ",Refine(SQ8)":
            patch.setattr(index.refine_index, "train", fail, raising=False)  # the last of all
        else:
            patch.setattr(residuals.ResidualScale, "of", fail)
        with pytest.raises(MemoryError, match="no more"):
            index.train(XT)
    assert_untrained(index)
    if refine == ",Refine(SQ8)":
        assert not index.refine_index.is_trained
    index.train(XT)
    index.add(XB)
    expected = index_factory(D, f"PRH(3,2),{lists},Signs{refine}")
    expected.train(XT)
    expected.add(XB)
    assert_same(index.search(XQ, K), expected.search(XQ, K))


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_fewer_training_vectors_than_lists(refine):
    index = index_factory(D, f"PRH(3,2),IVF16,Signs{refine}")
    with pytest.raises((ValueError, RuntimeError), match=r"training points \(15\) .* clusters \(16\)"):
        index.train(XT[:15])
    assert_untrained(index)
    for bad, message in ((XT[:0], "at least one vector"), (XT[:, :3], f"must have {D} columns")):
        with pytest.raises(ValueError, match=message):
            index.train(bad)
    assert_untrained(index)


@pytest.mark.parametrize("lists", ["IVF16", "IVF16_HNSW8"])
def test_centroids_that_are_there_stay(lists):
    index = index_factory(D, f"PRH(3,2),{lists},Signs")
    index.chain[:] = trained_transforms("PRH(3,2)", D, L2)
    centroids = transformed(index, vectors(16, 4)).astype(np.float32)
    index.quantizer.add(centroids)
    assert not index.is_trained
    index.train(XT)
    np.testing.assert_array_equal(index.quantizer.reconstruct_n(0, 16), centroids)
    index.add(XB)
    Model(index, XT).check_codes(XB, index.reconstruct_codes())


def test_a_failure_leaves_centroids_that_were_there(monkeypatch):
    index = index_factory(D, "PRH(3,2),IVF16,Signs")
    centroids = vectors(16, 4)
    index.quantizer.add(centroids)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(residuals.ResidualScale, "of", lambda *_: 1 / 0)
        index.train(XT)
    assert not index.is_trained
    assert not index.chain[0].is_trained
    np.testing.assert_array_equal(index.quantizer.reconstruct_n(0, 16), centroids)


@pytest.mark.parametrize("n", [3, 17])
def test_a_quantizer_with_another_number_of_centroids(n):
    index = index_factory(D, "PRH(3,2),IVF16,Signs")
    index.quantizer.add(vectors(n, 4))
    with pytest.raises(ValueError, match=f"the quantizer has {n} centroids for 16 lists"):
        index.train(XT)
    assert not index.is_trained
    assert not index.chain[0].is_trained
    np.testing.assert_array_equal(index.quantizer.reconstruct_n(0, n), vectors(n, 4))
    assert index.quantizer.ntotal == n


def test_every_training_vector_a_centroid():
    index = index_factory(D, "PRH(3,2),IVF16,Signs,RFlat")
    index.chain[:] = trained_transforms("PRH(3,2)", D, L2)
    index.quantizer.add(transformed(index, XT[:16]).astype(np.float32))
    index.train(XT[:16])
    index.add(XB)
    # Nothing is known of residuals: all that is in the lists may be the nearest.
    assert_found(wide(index).search(XQ, K), distances(XQ, XB), K)


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_training_in_batches_and_twice(refine):
    index, other = (index_factory(D, f"PRH(3,2),IVF16,Signs{refine}") for _ in range(2))
    index.train(XT)
    other.train(iter([XT[:100], XT[100:101], XT[101:]]))
    for one in (index, other):
        one.add(XB)
    assert_same(index.search(XQ, K), other.search(XQ, K))
    codes = index.reconstruct_codes()
    np.testing.assert_array_equal(other.reconstruct_codes(), codes)
    index.train(vectors(500, 9) * 3 + 1)  # nothing is untrained
    np.testing.assert_array_equal(index.encode(XB), codes)
    assert_same(index.search(XQ, K), other.search(XQ, K))


# Construction

BAD_PARTS = [
    (lambda: (PRHTransform(D), faiss.IndexFlatL2(39), 16), ValueError, "to 40 dimensions need a quantizer of as many"),
    (lambda: (PRHTransform(D, 37), faiss.IndexFlatL2(40), 16), ValueError, "37 dimensions need .* not 40"),
    (lambda: (PRHTransform(D), faiss.IndexBinaryFlat(40), 16), TypeError, "quantizer must be a faiss.Index, not Ind"),
    (lambda: (PRHTransform(D), None, 16), TypeError, "quantizer must be a faiss.Index, not NoneType"),
    (lambda: (PRHTransform(D), faiss.IndexFlatL2(D), 0), ValueError, "nlist must be at least 1"),
    (lambda: (PRHTransform(D), faiss.IndexFlatL2(D), 2.5), TypeError, "nlist must be an integer"),
    (lambda: ([], faiss.IndexFlatL2(D), 16), ValueError, "at least one transform"),
    (lambda: ("PRH", faiss.IndexFlatL2(D), 16), TypeError, "transforms must be faiss.VectorTransform"),
    (lambda: ([PRHTransform(D, 37), PRHTransform(D)], faiss.IndexFlatL2(D), 16), ValueError, "stands before one from"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD_PARTS)
def test_parts_that_do_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        IndexIVFSigns(*make())
    with pytest.raises(error, match=message):
        IndexIVFSignsRefine(*make(), faiss.IndexFlatL2(D))


def test_metrics_that_do_not_fit():
    prh, quantizer, products = PRHTransform(D), faiss.IndexFlatL2(D), faiss.IndexFlatIP(D)
    for bad in (
        lambda: IndexIVFSigns(prh, products, 16),
        lambda: IndexIVFSigns(prh, quantizer, 16, IP),
        lambda: IndexIVFSigns(prh, faiss.IndexFlat(D, faiss.METRIC_L1), 16, faiss.METRIC_L1),
        lambda: IndexIVFSigns(prh, quantizer, 16, faiss.METRIC_Linf),
        lambda: IndexIVFSignsRefine(prh, quantizer, 16, products),
        lambda: IndexIVFSignsRefine(prh, products, 16, quantizer),
    ):
        with pytest.raises(ValueError, match="metric must be METRIC_L2 or METRIC_INNER_PRODUCT, and that of the quant"):
            bad()
    for chain in ([faiss.ITQTransform(D, D, False)], [prh, faiss.NormalizationTransform(D, 2.0), PRHTransform(D)]):
        with pytest.raises(ValueError, match="inner products cannot be estimated behind"):
            IndexIVFSigns(chain, products, 16, IP)


def test_stores_that_do_not_fit():
    full = faiss.IndexFlatL2(D)
    full.add(XB)
    for store, error, message in (
        (faiss.IndexFlatL2(39), ValueError, "refine_index must have 40 dimensions, not 39"),
        (faiss.IndexHNSWFlat(D, 8), TypeError, "must store vectors row by row"),
        (faiss.IndexBinaryFlat(40), TypeError, "refine_index must be a faiss.Index, not IndexBinaryFlat"),
        (None, TypeError, "refine_index must be a faiss.Index, not NoneType"),
        (full, ValueError, "begins with empty indexes"),
    ):
        with pytest.raises(error, match=message):
            IndexIVFSignsRefine(PRHTransform(D), faiss.IndexFlatL2(D), 16, store)
    for bad in (0.5, np.nan, 1e10):
        with pytest.raises(ValueError, match="k_factor must be"):
            IndexIVFSignsRefine(PRHTransform(D), faiss.IndexFlatL2(D), 16, faiss.IndexFlatL2(D), bad)


def test_what_an_index_says_of_itself():
    for metric in (L2, IP):
        for description, kind in (
            ("PRH37(3,2),IVF16,Signs", IndexIVFSigns),
            ("RR,IVF16,Signs,RFlat", IndexIVFSignsRefine),
        ):
            index = unchanged(description, metric)
            assert type(index) is kind
            assert isinstance(index, IndexBinaryPreTransform)
            assert (index.d, index.ntotal, index.nlist, index.metric_type) == (D, len(XB), NLIST, metric)
            assert index.is_trained
    index = index_factory(D, "RR,IVF16,Signs")
    assert (index.nprobe, index.margin) == (1, 0.1)
    assert index_factory(D, "RR,IVF16,Signs,RFlat").k_factor == 10
    index.nprobe = np.int64(3)
    assert index.nprobe == 3
    assert faiss_prh.SearchParametersIVFSigns().margin is None


@pytest.mark.parametrize(
    ("description", "canonical"),
    [
        ("PRH,IVF16,Signs", None),
        ("PRH37(3,2),IVF16,Signs", "PRH37(3,2,0),IVF16,Signs"),
        ("PRH(3,2,0.5),IVF1k,Signs", "PRH(3,2,0.5),IVF1024,Signs"),
        ("PRH,IVF4k,Signs", "PRH,IVF4096,Signs"),
        ("PRH,IVF16_HNSW8,Signs", None),
        ("PRH,IVF16_HNSW,Signs", "PRH,IVF16_HNSW32,Signs"),
        ("IDMap,PRH,IVF16,Signs", "PRH,IVF16,Signs"),
        ("IDMap2,PRH,IVF16,Signs,RFlat", "PRH,IVF16,Signs,RFlat"),
        ("PRH,IVF16,Signs,IDMap", "PRH,IVF16,Signs"),
        ("PRH,IVF16,Signs,RFlat", None),
        ("PRH,IVF16,Signs,Refine(SQ8)", None),
        ("PRH,IVF16,Signs,Refine(SQfp16)", None),
        ("PRH,IVF16,Signs,Refine(Flat)", "PRH,IVF16,Signs,RFlat"),
        ("L2norm,PRH,IVF16,Signs", None),
        ("PCA20,PRH,IVF16,Signs", None),
        ("PCAW20,PRH30,IVF16,Signs,RFlat", None),
        ("ITQ20,IVF16,Signs", None),
        ("OPQ4_20,PRH,IVF16,Signs", None),
        ("RR24,IVF16,Signs", None),
        ("SRR,IVF16,Signs", None),
        ("SRR16,IVF16_HNSW4,Signs,RFlat", None),
        ("Pad64,PRH,IVF16,Signs", None),
        ("L2norm,PCA20,RR20,IVF1,Signs", None),
    ],
)  # fmt: skip
def test_factory_strings(description, canonical):
    index = index_factory(D, description)
    gc.collect()
    assert type(index) is (IndexIVFSignsRefine if ",R" in description.split("Signs")[1] else IndexIVFSigns)
    assert factory_string(index) == (canonical or description)
    again = index_factory(D, factory_string(index))
    assert (type(again), again.nlist, again.d) == (type(index), index.nlist, D)
    assert [type(one) for one in again.chain] == [type(one) for one in index.chain]
    assert again.chain[-1].d_out == index.chain[-1].d_out == index.quantizer.d
    assert type(again.quantizer) is type(index.quantizer)
    assert list(nested(index)) == [index]
    assert transforms_of(index) == index.chain
    assert not index.is_trained


@pytest.mark.parametrize(
    "description",
    [
        "IDMap,RR,IVF16,Signs",
        "L2norm,RR,IVF16_HNSW8,Signs",
        "PCA20,RR,IVF16,Signs,Refine(SQ8)",
        "ITQ20,IVF4,Signs,RFlat",
    ],
)
def test_what_the_factory_makes_works(description):
    index = index_factory(D, description)
    gc.collect()
    index.train(XT)
    index.add_with_ids(XB, IDS)
    gc.collect()
    index.nprobe = index.nlist
    assert index.search(XB, 3)[1][:, 0].tolist().count(-1) == 0
    assert (index.search(XB, 3)[1] == IDS[:, None]).any(axis=1).mean() > 0.9


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("IVF16,Signs", "'Signs' needs transforms before it"),
        ("IDMap,IVF16,Signs,RFlat", "'Signs' needs transforms before it"),
        ("PRH,Flat,Signs", "'Flat,Signs': the lists are written IVF<lists> or IVF<lists>_HNSW<links>"),
        ("PRH,IMI2x4,Signs", "'IMI2x4,Signs': the lists are written"),
        ("PRH,IVF16(IVF4,Flat),Signs", "the lists are written"),
        ("PRH,IVF16,Flat,Signs", "the lists are written"),
        ("PRH,IVF16,Signs,RAsym", "'RAsym' ranks the results of a binary index; 'Signs' ranks that way by itself"),
        ("PRH,IVF0,Signs", "an IVF without lists"),
        ("PRH,IVF0k_HNSW8,Signs", "an IVF without lists"),
        ("PRH,IVF99M,Signs", "lists are more than"),
        ("PRH,IVF16,Signs,Refine(HNSW8)", "Refine.* after 'Signs': refine_index must store vectors row by row"),
        ("PRH,IVF16,Signs,Refine(SQ8", "parentheses"),
        ("PRH,BIVF16,Signs", "no binary index"),
        ("PRH,Signs", "Signs"),
        ("PRH,IVF16,Signs,SQ8", "Signs,SQ8"),
        ("PRH,IVF16,", "an empty part"),
        ("PCA50,PRH,IVF16,Signs", "can keep 1 to 40"),
        ("PRH,IVF16_HNSW0,Signs", "must be at least 2 and at most 1000"),
        ("PRH,IVF16_HNSW1,Signs", "must be at least 2 and at most 1000"),
        ("PRH,IVF16_HNSW1001,Signs,RFlat", "must be at least 2 and at most 1000"),
    ],
)
def test_strings_that_are_refused(description, message):
    with pytest.raises(ValueError, match=message):
        index_factory(D, description)


@pytest.mark.parametrize("refine", ["", ",RFlat"])
def test_metrics_of_the_factory(refine):
    for metric in (faiss.METRIC_L1, faiss.METRIC_Linf):
        with pytest.raises(ValueError, match="metric must be METRIC_L2 or METRIC_INNER_PRODUCT"):
            index_factory(D, f"PRH,IVF16,Signs{refine}", metric)
    with pytest.raises(ValueError, match="inner products cannot be estimated behind ITQTransform"):
        index_factory(D, f"ITQ,IVF16,Signs{refine}", IP)
    index = index_factory(D, f"PRH,IVF16,Signs{refine}", IP)
    assert index.metric_type == index.quantizer.metric_type == IP


def test_installed():
    before = faiss.index_factory
    faiss_prh.install()
    try:
        assert type(faiss.index_factory(D, "PRH,IVF16,Signs")) is IndexIVFSigns
        assert type(faiss.index_factory(D, "PCA20,IVF16,Signs,RFlat", IP)) is IndexIVFSignsRefine
        with pytest.raises(ValueError, match="the lists are written"):
            faiss.index_factory(D, "PRH,Flat,Signs")
        with pytest.raises(RuntimeError):
            faiss.index_factory(D, "IVF16,Signs")  # no word of ours: Faiss's own error
    finally:
        faiss_prh.uninstall()
    assert faiss.index_factory is before


# Cosines, and results ranked by vectors


def unit(x):
    return x / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)


@pytest.mark.parametrize("n", [10, 50])
def test_cosines(n):
    index, model, codes = model_of("L2norm,PRH(3,2),IVF16,Signs", IP)
    index.nprobe, index.margin = 16, ALL
    values, _ = model.expected(XQ[:n], codes)
    assert_found(index.search(XQ[:n], K), values, K, IP)
    cosines = unit(XQ[:n]) @ unit(XB).T
    assert np.abs(values - cosines).mean() < 0.06
    longer = np.random.default_rng(0).uniform(0.1, 10, (n, 1))
    assert_equal_but_for_rounding(index.search(XQ[:n] * longer, K), index.search(XQ[:n], K))
    truth = np.argsort(-cosines, axis=1)[:, :K]
    assert overlap(index.search(XQ[:n], 5 * K)[1], truth[:, :1]) > 0.7


STORES = {"RFlat": 1e-4, "Refine(SQ8)": 1e-3, "Refine(SQfp16)": 1e-3}


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("n", [10, 50])
def test_refined_distances_are_those_of_what_is_stored(store, metric, n):
    index = filled(f"PRH(3,2),IVF16,Signs,{store}", metric)
    index.nprobe = 3
    stored = index.reconstruct_n()
    if store == "RFlat":
        np.testing.assert_array_equal(stored, XB)
    D_, I = index.search(XQ[:n], K)
    expected = np.take_along_axis(distances(XQ[:n], stored, metric), I, 1)
    np.testing.assert_allclose(D_, expected, rtol=STORES[store], atol=1e-3)
    order = np.diff(D_, axis=1)
    assert (order >= 0 if metric == L2 else order <= 0).all()


EXACT_CHAINS = ["PRH(3,2)", "PRH37(3,2)", "PRH200", "PRH8(3,2)", "PCA11,PRH(3,2)", "PCA11,PRH70", "RR",
                "PCA8,RR64", "L2norm,PRH(3,2)", "PCAW30,PRH(3,2)", "PCAW40,RR", "Pad64,RR"]  # fmt: skip
if hasattr(faiss, "HadamardRotation"):
    EXACT_CHAINS.append("HR")


@pytest.mark.parametrize("metric", [L2, IP])
@pytest.mark.parametrize("chain", EXACT_CHAINS)
def test_with_all_in_view_the_refined_results_are_those_of_brute_force(chain, metric):
    """However far estimates are from distances: what is left out must not be nearer."""
    index = filled(f"{chain},IVF16,Signs,RFlat", metric)
    wide(index)
    index.margin = 0.1
    for n in (10, 50):
        assert_found(index.search(XQ[:n], K), distances(XQ[:n], XB, metric), K, metric)


def test_with_all_in_view_behind_itq():
    index = wide(filled("ITQ20,IVF16,Signs,RFlat"))
    assert_found(index.search(XQ, K), distances(XQ, XB), K)


def test_with_all_in_view_from_the_centroids():
    """There, distances are norms, of which the byte is all that is known."""
    index = wide(filled("PRH(3,2),IVF16,Signs,RFlat"))
    centroids = index.chain[0].reverse_transform(index.quantizer.reconstruct_n(0, NLIST))
    for k in (1, 5, 20):
        assert_found(index.search(centroids, k), distances(centroids, XB), k)


@pytest.mark.parametrize("factor", [0.05, 8])
def test_with_all_in_view_and_residuals_of_other_lengths_than_in_training(factor):
    index = wide(trained("PRH(3,2),IVF16,Signs,RFlat"))
    x, xq = XB.copy(), XQ.copy()
    mean = x.mean(axis=0)
    x[::9] = mean + (x[::9] - mean) * factor
    xq[::3] = mean + (xq[::3] - mean) * factor
    index.add(x)
    assert_found(index.search(xq, K), distances(xq, x), K)


@pytest.mark.parametrize("metric", [L2, IP])
def test_shortlists_of_estimates(metric):
    """Whatever is refined is among the best estimates, and the best of these are found."""
    index, model, codes = model_of("L2norm,PRH(3,2),IVF16,Signs,RFlat", metric)  # which has no early stop
    index.nprobe, index.margin, index.k_factor = 16, ALL, 6
    sign = -1 if metric == IP else 1
    values = sign * model.estimates(XQ, codes)
    exact = sign * distances(XQ, XB, metric)
    last = np.sort(values, axis=1)[:, 6 * K - 1 :][:, :1]
    slack = 1e-4 * np.abs(values).mean()
    D_, I = index.search(XQ, K)
    found = np.take_along_axis(values, I, 1)
    assert (found <= last + slack).all()
    left_out = values < last - slack
    np.put_along_axis(left_out, I, False, 1)
    assert (np.where(left_out, exact, np.inf).min(axis=1) >= sign * D_[:, -1] - 1e-3).all()
    assert overlap(I, brute_force(XB, XQ, K, metric)[1]) < 1


def test_a_longer_shortlist_is_never_worse():
    index = unchanged("PRH(3,2),IVF16,Signs,RFlat")
    index.nprobe, index.margin = 16, 0.1
    sums = []
    for k_factor in (1, 2, 5, 50):
        index.k_factor = k_factor
        sums.append(index.search(XQ, K)[0].sum())
    assert sums == sorted(sums, reverse=True)
    assert sums[0] > sums[-1]


# Binary indexes whose results are ranked again: the same native scan


def hamming(index, xq, metric):
    z = transformed(index, xq)
    if metric == IP:
        z = z - transformed(index, np.zeros((1, D), np.float32)) / 2
    signs, others = (np.where(one >= 0, 1, -1) for one in (z, transformed(index, XB)))
    return (z.shape[1] - signs @ others.T) // 2


@pytest.mark.parametrize("n", [1, 33])
@pytest.mark.parametrize("kind", ["BFlat", "BIVF16"])
@pytest.mark.parametrize("chain", ["PRH8(3,2)", "PRH37(3,2)", "PRH(3,2)", "PRH200"])
def test_binary_shortlists(chain, kind, n, simd_level):
    """Of codes that are equally near, any may be in the shortlist."""
    metrics = (("RFlat", L2), ("RFlat", IP), ("RAsym", L2))
    for (refine, metric), k_factor in itertools.product(metrics, (1, 4, 1000)):
        index = unchanged(f"{chain},{kind},{refine}", metric)
        index.k_factor = k_factor
        if kind == "BIVF16":
            index.index.nprobe = NLIST
        bits = hamming(index, XQ[:n], metric)
        sign = -1 if metric == IP else 1
        exact = sign * (distances(XQ[:n], XB, metric) if refine == "RFlat" else asymmetric(index, XQ[:n]))
        D_, I = index.search(XQ[:n], K)
        assert all(len(set(row)) == K for row in I)
        np.testing.assert_allclose(sign * D_, np.take_along_axis(exact, I, 1), rtol=1e-3, atol=1e-2)
        assert (np.diff(sign * D_, axis=1) >= 0).all()
        last = np.sort(bits, axis=1)[:, min(K * k_factor, len(XB)) - 1 :][:, :1]
        assert (np.take_along_axis(bits, I, 1) <= last).all()
        left_out = bits < last
        np.put_along_axis(left_out, I, False, 1)
        assert (np.where(left_out, exact, np.inf).min(axis=1) >= sign * D_[:, -1] - 1e-2).all()


@pytest.mark.parametrize("refine", ["RFlat", "RAsym"])
def test_lists_of_binary_shortlists(refine):
    """Lists are those of the nearest codes of the quantizer; of equally near ones, any."""
    index = unchanged(f"PRH(3,2),BIVF16,{refine}")
    index.k_factor = ALL
    quantizer = faiss.downcast_IndexBinary(index.index.quantizer)
    near = quantizer.search(index.encode(XQ), NLIST)
    to_list = np.empty((len(XQ), NLIST))
    np.put_along_axis(to_list, near[1], near[0], 1)
    lists = quantizer.search(index.encode(XB), 1)[1][:, 0]
    values = distances(XQ, XB) if refine == "RFlat" else asymmetric(index, XQ)
    for nprobe, n in itertools.product((1, 4, 16), (3, 50)):
        sure = np.ones(len(XQ), bool) if nprobe == NLIST else near[0][:, nprobe - 1] < near[0][:, nprobe]
        assert sure.any()
        expected = np.where(to_list[:, lists] <= near[0][:, nprobe - 1 : nprobe], values, np.inf)
        params = faiss.SearchParametersIVF(nprobe=nprobe)
        assert_found(index.search(XQ[:n], 30, params=params), expected[:n], 30, sure=sure[:n], rtol=1e-3)
    index.index.nprobe = 1


def test_max_codes_of_binary_shortlists():
    index = unchanged("PRH(3,2),BIVF16,RFlat")
    index.k_factor = ALL
    for max_codes in (1, 300):
        params = faiss.SearchParametersIVF(nprobe=NLIST, max_codes=max_codes)
        counts = (index.search(XQ, len(XB), params=params)[1] >= 0).sum(axis=1)
        assert (counts >= max_codes).all()
        assert (counts < len(XB)).all()
