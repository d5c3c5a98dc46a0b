import gc
import importlib
import re

import faiss
import numpy as np
import pytest

from faiss_prh import IndexBinaryPreTransform, PRHTransform, index_factory
from faiss_prh.index.factory_string import factory_string
from faiss_prh.index.parts_of import nested

X = np.random.default_rng(0).normal(size=(600, 64)).astype(np.float32)


def used(index):
    """Train, fill and search an index; each vector must find itself or another as near."""
    index.train(X)
    inside = index.index if isinstance(index, IndexBinaryPreTransform) else index
    if isinstance(inside, (faiss.IndexIDMap, faiss.IndexBinaryIDMap)):
        index.add_with_ids(X, np.arange(len(X)) + 1000)
    else:
        index.add(X)
    gc.collect()
    _, found = index.search(X[:5], 2)
    assert index.ntotal == len(X)
    assert (found[:, 0] >= 0).all()
    return index


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("PRH,BFlat", faiss.IndexBinaryFlat),
        ("PRH64,BIVF16", faiss.IndexBinaryIVF),
        ("PRH(3,2,0.5),BIVF8_HNSW4", faiss.IndexBinaryIVF),
        ("PRH,BHNSW16", faiss.IndexBinaryHNSW),
        ("PRH,BHash6", faiss.IndexBinaryHash),
        ("PRH,BHash3x6", faiss.IndexBinaryMultiHash),
        ("PCA40,L2norm,PRH,BFlat", faiss.IndexBinaryFlat),
        ("ITQ32,BFlat", faiss.IndexBinaryFlat),
        ("RR,BFlat", faiss.IndexBinaryFlat),
        ("OPQ4_32,PRH32,BFlat", faiss.IndexBinaryFlat),
        ("IDMap,PRH,BFlat", faiss.IndexBinaryIDMap),
        ("PRH,BFlat,IDMap2", faiss.IndexBinaryIDMap2),
        ("PCA20,PRH,BFlat", faiss.IndexBinaryFlat),
    ],
)
def test_binary(description, kind):
    index = used(index_factory(64, description))
    assert isinstance(index, IndexBinaryPreTransform)
    assert type(index.index) is kind


@pytest.mark.parametrize(
    "description",
    ["PRH,LSH", "PRH,IVF8,Flat", "PCA32,PRH,PQ16x4", "PRH,L2norm,Flat", "L2norm,PRH64,Flat", "IDMap,PRH,Flat",
     "PRH,IVF16(IVF4,Flat),Flat", "PRH,Flat,IDMap2", "PRH,LSH,RFlat", "PRH,PQ8x4,Refine(SQ8)"],
)  # fmt: skip
def test_float(description):
    index = used(index_factory(64, description))
    assert isinstance(index, faiss.Index)


@pytest.mark.parametrize(
    "description",
    [
        "IVF1000(IVF20,SQ4,Refine(SQ8)),Flat",
        "PRH,IVF1000(IVF20,SQ4,Refine(SQ8)),Flat",
        "PRH,IVF16(IVF4,Flat),Flat",
        "IDMap,PCA32,PRH(3,2),IVF16(IVF4(IVF2,Flat),Flat),SQ8,Refine(SQfp16)",
        "PRH,IVF64(HNSW8),PQ8x4,RFlat",
    ],
)
def test_parentheses_in_parentheses(description):
    index = index_factory(64, description)
    *_, inside = nested(index)
    # Faiss 1.8 takes no parentheses behind an IDMap.
    stock = faiss.index_factory(64, re.sub(r"^IDMap,|PRH(\(3,2\))?,", "", description))
    *_, expected = nested(stock)
    assert type(inside) is type(expected)
    assert inside.nlist == expected.nlist
    assert type(faiss.downcast_index(inside.quantizer)) is type(faiss.downcast_index(expected.quantizer))


@pytest.mark.parametrize(
    ("d", "description"),
    [
        (20, "Pad32,PRH,BFlat"),
        (20, "Pad32,PRH,Flat"),
        (20, "HR,PRH,BFlat"),
        (16, "HR7,PRH,Flat"),
    ],
)
def test_strings_come_back(d, description):
    if description.startswith("HR") and not hasattr(faiss, "HadamardRotation"):
        pytest.skip("this Faiss has no Hadamard rotation")
    assert factory_string(index_factory(d, description)) == description


def test_a_remapping_that_no_string_makes():
    remap = faiss.RemapDimensionsTransform(16, 32, True)  # spread evenly
    assert (
        factory_string(IndexBinaryPreTransform(remap, faiss.IndexBinaryFlat(32))) == "RemapDimensionsTransform32,BFlat"
    )


def test_prh_is_native_inside_a_stock_index():
    index = index_factory(64, "PCA32,PRH(2,1),Flat")
    assert type(index) is faiss.IndexPreTransform
    assert index.chain.size() == 2
    used(index)
    alone = index_factory(64, "PCA32,Flat")
    alone.train(X)
    alone.add(X)
    # A rotation does not change Euclidean distances.
    np.testing.assert_allclose(index.search(X[:5], 3)[0], alone.search(X[:5], 3)[0], atol=1e-4)


def test_parameters():
    (prh,) = index_factory(64, "PRH(3,2,0.5),BFlat").chain
    assert isinstance(prh, PRHTransform)
    assert (prh.parameters.n_iso, prh.parameters.n_pca, prh.parameters.tilt) == (3, 2, 0.5)
    (prh,) = index_factory(64, "PRH(9),BFlat").chain
    assert (prh.parameters.n_iso, prh.parameters.n_pca) == (9, 4)


def test_thousands_of_lists():
    assert index_factory(64, "PRH,BIVF4k").index.nlist == 4096


@pytest.mark.parametrize("description", ["Flat", "PCA32,Flat", "IVF8,PQ8x4", "ITQ32,LSH", "IDMap,Flat", "Flat,RFlat"])
def test_strings_without_prh_are_faisss(description):
    mine, theirs = index_factory(64, description), faiss.index_factory(64, description)
    assert type(mine) is type(theirs)


def test_a_binary_string_alone_is_faisss():
    assert type(index_factory(64, "BIVF2k")) is faiss.IndexBinaryIVF
    assert type(index_factory(64, "IDMap2,BFlat")) is faiss.IndexBinaryIDMap2


def test_metric():
    assert index_factory(64, "PRH,Flat", faiss.METRIC_INNER_PRODUCT).metric_type == faiss.METRIC_INNER_PRODUCT


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("", "empty part"),
        ("PRH", "names no index"),
        ("PRH,", "empty part"),
        ("PRH,,Flat", "empty part"),
        ("PRH(3,BFlat", "do not match"),
        ("PRHx,BFlat", "'PRHx': PRH is written"),
        ("PRH(a),BFlat", "PRH is written"),
        ("PRH(3,2,1.5),BFlat", "tilt must be"),
        ("PRH(3,2,0.5,1),BFlat", "PRH is written"),
        ("PRH0,BFlat", "d_out must be from 1"),
        ("PRH,BIVF16,junk", "'BIVF16,junk' is no binary index; there are BFlat"),
        ("PRH,BIVF4q", "no binary index"),
        ("BIVF16,junk", "no binary index"),
        ("PRH,Bnonsense", "no binary index"),
        ("PRH,nonsense", "'nonsense' with 64 dimensions"),
        ("nonsense", "'nonsense' with 64 dimensions"),
        ("BFlat,RFlat", "needs transforms"),
        ("PRH,BHash100", "at most 64"),
        ("PRH,BHash99999999999", "at most 64"),
        ("PRH,BHash0x8", "at least 1"),
        ("PRH,BHash9x8", "more than the 64 bits"),
        ("PRH,BHNSW1", "at least 2"),
        ("PRH,BHNSW99999999999", "at most 1000"),
        ("PRH,BIVF0", "at least 1"),
        ("PRH,BIVF0k_HNSW8", "at least 1"),
        ("PRH,IVF0,Flat", "at least 1"),
        ("IVF00,Flat", "at least 1"),
        ("PRH,IVF16(IVF0,Flat),Flat", "at least 1"),
        ("PRH,IVF16(IVF4,Flat)),Flat", "do not match"),
        ("PRH,IVF16((IVF4,Flat),Flat", "do not match"),
        (")PRH,BFlat(", "do not match"),
        ("PRH,BFlat,Refine(PQ4,(SQ8)", "do not match"),
        ("PRH,IVF16(IVF4,Flat),", "empty part"),
        ("PRH,BIVF8_HNSW0", "at least 2"),
        ("PCA128,PRH,BFlat", "keep 1 to 64"),
        ("ITQ65,BFlat", "keep 1 to 64"),
        ("PRH,BFlat,Refine(IVF4,Flat)", "row by row"),
        ("PRH,Flat,RAsym", "ranks the results of a binary index"),
        ("PRH,BHash8,RAsym", "does not give its codes back"),
        ("PRH,BFlat,Refine(SQ8)x", "Refine\\(<index>\\)"),
        ("PRH,BFlat,Refine(SQ9)", "'SQ9' with 64 dimensions"),
        ("PRH,BFlat,RSomething", "no binary index"),
        ("BFlat,PRH", "no binary index"),
    ],
)
def test_bad_strings(description, message):
    with pytest.raises(ValueError, match=message):
        index_factory(64, description)


def test_other_types():
    with pytest.raises(TypeError, match="not int"):
        index_factory(64, 3)


def test_a_binary_index_alone_needs_a_multiple_of_8():
    with pytest.raises(ValueError, match="with 61 bits"):
        index_factory(61, "BFlat")


def test_bad_metrics_and_dimensions():
    with pytest.raises(TypeError, match="METRIC"):
        index_factory(64, "PRH,BFlat", "L2")
    with pytest.raises(ValueError, match="from 1 to"):
        index_factory(0, "ITQ,BFlat")


@pytest.mark.parametrize(
    ("description", "says"),
    [
        ("PRH," + "x" * 30_000, "30004 letters"),
        ("IDMap," * 3000 + "Flat", "18004 letters"),
        ("PRH,PQ0", "no parts"),
        ("OPQ0,PRH,Flat", "no parts"),
        ("PRH,IVF20M,Flat", "20971520 lists are more"),
        ("PRH,IMI2x16,Flat", "4294967296 lists are more"),
        ("IMI99999999x99999999,Flat", "lists are more"),
        ("IVF99999999_HNSW8,Flat", "99999999 lists are more"),
    ],
)
def test_what_faiss_would_crash_at(description, says):
    with pytest.raises(ValueError, match=says):
        index_factory(16, description)


@pytest.mark.parametrize("metric", [99, -1, 2**40])
def test_unknown_metrics(metric):
    for description in ("PRH,Flat", "PRH,BFlat,RFlat", "Flat"):
        with pytest.raises(ValueError, match=f"METRIC_…, not {metric}"):
            index_factory(16, description, metric)


def test_strings_of_indexes_without_hadamard_rotations(monkeypatch):
    """Faiss 1.8 has none."""
    monkeypatch.delattr(faiss, "HadamardRotation", raising=False)
    module = importlib.reload(importlib.import_module("faiss_prh.index.factory_string"))
    assert module.factory_string(index_factory(16, "PRH,BFlat")) == "PRH,BFlat"
