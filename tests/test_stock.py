"""to_faiss: stock indexes that find the same, and that Faiss reads in a process without this package."""

import subprocess
import sys

import faiss
import numpy as np
import pytest

import faiss_prh
from faiss_prh import PRHTransform, to_faiss

D = 100
RNG = np.random.default_rng(0)
XT, XB, XQ = (RNG.normal(size=(n, D)).astype(np.float32) for n in (500, 700, 9))

SCRIPT = """
import sys, faiss, numpy as np
index = faiss.read_index(sys.argv[1])
D, I = index.search(np.load(sys.argv[2]), 6)
np.savez(sys.argv[3], D=D, I=I)
assert "faiss_prh" not in sys.modules
"""


def filled(description):
    index = faiss_prh.index_factory(D, description)
    index.train(XT)
    if "IDMap" in description:
        index.add_with_ids(XB, np.arange(len(XB)) * 3 + 10**9)
    else:
        index.add(XB)
    return index


@pytest.mark.parametrize(
    "description",
    [
        "PRH,BFlat",
        "PRH,BIVF8",
        "PCA61,PRH,BIVF8",
        "ITQ64,BFlat",
        "IDMap,PRH,BFlat",
        "IDMap2,L2norm,PRH,BIVF8",
        "PRH,BFlat,RFlat",
        "IDMap2,PRH,BFlat,RFlat",
        "IDMap,PRH,BIVF8,Refine(SQ8)",
        "PRH,BIVF8,Refine(SQ8)",
        "PRH,LSH",
        "PRH,IVF8,Flat",
        "IDMap2,PCA64,PRH,PQ8x4",
        "PRH,LSH,RFlat",
    ],
)
def test_a_machine_without_the_plugin_finds_the_same(description, tmp_path):
    index = filled(description)
    if "BIVF" in description:
        inner = index.index
        while hasattr(inner, "index"):
            inner = faiss.downcast_IndexBinary(inner.index)
        inner.nprobe = 3
    if hasattr(index, "k_factor"):
        index.k_factor = (
            1000  # all that is in the lists: which of equally near codes get on a short list is not promised
        )
    faiss.write_index(to_faiss(index), str(tmp_path / "index.faiss"))
    np.save(tmp_path / "xq.npy", XQ)
    subprocess.run(
        [sys.executable, "-c", SCRIPT, "index.faiss", "xq.npy", "found.npz"], cwd=tmp_path, check=True, timeout=100
    )
    found = np.load(tmp_path / "found.npz")
    distances, ids = index.search(XQ, 6)
    np.testing.assert_allclose(found["D"], distances, rtol=1e-4)
    # Where distances are equal, lists that are scanned in another way may give other ids.
    at_cut = distances == distances[:, -1:]
    np.testing.assert_array_equal(np.sort(np.where(at_cut, -1, found["I"])), np.sort(np.where(at_cut, -1, ids)))


def test_the_copy_is_a_copy():
    index = filled("PRH,IVF8,Flat")
    stock = to_faiss(index)
    stock.add(XB)
    assert (stock.ntotal, index.ntotal, index.index.ntotal) == (2 * len(XB), len(XB), len(XB))


def test_vectors_can_be_added_to_the_copy():
    index = filled("PRH,BIVF8")
    stock = to_faiss(index)
    index.index.nprobe = stock_ivf(stock).nprobe = 8
    index.add(XT)
    stock.add(XT)
    np.testing.assert_array_equal(stock.search(XQ, 10)[0], index.search(XQ, 10)[0])


def stock_ivf(stock):
    return faiss.downcast_index(stock.index)


def test_a_transform():
    prh = PRHTransform(D)
    prh.train(XT + 3)
    linear = to_faiss(prh)
    assert type(linear) is faiss.LinearTransform
    np.testing.assert_allclose(linear.apply(XB), prh.apply(XB), atol=1e-4)
    np.testing.assert_allclose(linear.reverse_transform(linear.apply(XB)), XB, atol=1e-4)


@pytest.mark.parametrize("description", ["PRH,BHNSW8", "PRH,BHash8", "PRH,BFlat,RAsym", "PRH,IVF8,Signs",
                                         "PRH,IVF8,Signs,RFlat"])  # fmt: skip
def test_what_has_no_counterpart(description):
    with pytest.raises(ValueError, match="no counterpart"):
        to_faiss(filled(description))


def test_bad_input():
    with pytest.raises(TypeError, match="not str"):
        to_faiss("PRH,BFlat")
    with pytest.raises(RuntimeError, match="not trained"):
        to_faiss(PRHTransform(8))
