"""Genuine files, which must be read whatever is refused to forged ones; and those that are read only if trusted."""

import copy
import pickle

import faiss
import numpy as np
import pytest
from test_forged import CODES, TRANSFORMS, X, binary_id_map, changed, made
from test_storage import flat

from faiss_prh import IndexBinaryPreTransform, clone_index, deserialize_index, index_factory, serialize_index

GENUINE = [
    *("Flat", "PQ2x4np", "PQ4x5np", "LSH", "LSHr", "LSHt", "LSHrt", "IVF4,Flat", "IVF4,SQ8", "IVF4,PQ2x4np"),
    *("IVF4_HNSW4,Flat", "HNSW4,Flat", "HNSW4,SQ8", "HNSW4,PQ2x4np", "IDMap,Flat", "IDMap2,IVF4,Flat", "PCA8,Flat"),
    *("ITQ8,LSH", "L2norm,Flat", "SQ8,RFlat", "Flat,Refine(SQ8)", "IDMap2,PCA8,IVF4,SQ8"),
    *("BFlat", "BIVF4", "BIVF4_HNSW4", "BHNSW4", "BHash8", "BIDMap"),
]


RISKY_UNTRAINED = {"IVF4,SQ8", "HNSW4,SQ8", "HNSW4,PQ2x4np", "IDMap2,PCA8,IVF4,SQ8"}
"""Whose search before the training ends the process: these alone need trust then."""


def assert_same_search(index, again):
    assert (again.ntotal, again.is_trained) == (index.ntotal, index.is_trained)
    if index.is_trained and index.ntotal:  # Faiss 1.8 sets no distances if there is nothing to find
        x = CODES if isinstance(index, faiss.IndexBinary) else X
        for mine, theirs in zip(again.search(x, 3), index.search(x, 3), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def assert_read(index, trusted=False):
    assert_same_search(index, deserialize_index(serialize_index(index), trusted=trusted))


@pytest.mark.parametrize("description", GENUINE)
def test_genuine_files(description):
    for n in (0, 1, 100):
        assert_read(made(description, n))
    if description not in ("BIDMap", "ITQ8,LSH"):  # Faiss 1.15 does not read its own untrained ITQ
        untrained = (faiss.index_binary_factory if description[0] == "B" else faiss.index_factory)(16, description)
        assert_read(untrained, trusted=description in RISKY_UNTRAINED)


SCALARS = ["8bit", "6bit", "4bit", "8bit_uniform", "4bit_uniform", "8bit_direct", "8bit_direct_signed", "fp16", "bf16"]


@pytest.mark.parametrize("name", [name for name in SCALARS if hasattr(faiss.ScalarQuantizer, f"QT_{name}")])
def test_genuine_scalar_quantizers(name):
    kind = getattr(faiss.ScalarQuantizer, f"QT_{name}")
    quantizer = faiss.IndexFlatL2(16)
    for index in (
        faiss.IndexScalarQuantizer(16, kind),
        faiss.IndexIVFScalarQuantizer(quantizer, 16, 4, kind),
        faiss.IndexHNSWSQ(16, kind, 4),
    ):
        assert_read(index, trusted=not isinstance(index, faiss.IndexScalarQuantizer))
        index.train(np.abs(X))
        assert_read(index)
        index.add(np.abs(X))
        assert_read(index)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 100])
@pytest.mark.parametrize(("n_tables", "b"), [(1, 1), (5, 3), (2, 8), (1, 16)])
def test_genuine_multi_hashes(n, n_tables, b):
    assert_read(made(f"BHash{n_tables}x{b}", n))


def test_other_genuine_files():
    for metric in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_Linf, faiss.METRIC_Lp):
        index = faiss.IndexFlat(16, metric)
        index.metric_arg = 3
        index.add(X)
        assert_read(index)
    for kind in (faiss.DirectMap.Array, faiss.DirectMap.Hashtable):
        index = made("IVF4,Flat")
        index.set_direct_map_type(kind)
        assert_read(index)
        np.testing.assert_array_equal(clone_index(index).reconstruct(7), X[7])
    index = faiss.IndexBinaryIDMap2(flat(0))
    index.add_with_ids(CODES, np.arange(100) + 10**12)
    assert_read(index)
    assert_read(binary_id_map(np.arange(100), made("BIVF4")))
    assert_read(binary_id_map(np.arange(100), made("BHash8")))
    assert_read(changed(made("IVF4,Flat", 0), {"is_trained": False}))
    index = changed(made("BIVF4"), {"nprobe": 1000})
    assert deserialize_index(serialize_index(index)).nprobe == 4


def test_genuine_transforms():
    untrained = [TRANSFORMS[name]() for name in ("PCA", "rotation")]  # Faiss 1.15 does not read others
    for vt in (*map(made, TRANSFORMS), *untrained):
        index = IndexBinaryPreTransform(vt, faiss.IndexBinaryFlat(vt.d_out))
        assert deserialize_index(serialize_index(index)).is_trained == vt.is_trained


UNKNOWN = {
    "RaBitQ": "IndexRaBitQ",
    "IVF4,RaBitQ": "IndexIVFRaBitQ",
    "PQ4x4fs": "IndexPQFastScan",
    "IVF4,PQ4x4fs": "IndexIVFPQFastScan",
    "NSG8,Flat": "IndexNSGFlat",
    "RQ2x4": "IndexResidualQuantizer",
}
HERE = [description for description, name in UNKNOWN.items() if hasattr(faiss, name)]


@pytest.mark.parametrize("description", HERE)
def test_formats_that_are_not_checked(description):
    x = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    index = faiss.index_factory(16, description)
    index.train(x)
    index.add(x)
    with pytest.raises(ValueError, match=r"is not checked.*trusted=True, --trusted"):
        deserialize_index(serialize_index(index))
    for again in (deserialize_index(serialize_index(index), trusted=True), clone_index(index)):
        np.testing.assert_array_equal(again.search(x, 3)[1], index.search(x, 3)[1])


@pytest.mark.parametrize("store", [name for name in ("RaBitQ", "RQ2x4") if name in HERE])
def test_copies_are_trusted(store):
    index = index_factory(16, f"PRH,BFlat,Refine({store})")
    index.train(X)
    index.add(X)
    with pytest.raises(ValueError, match="trusted=True"):
        deserialize_index(serialize_index(index))
    for again in (clone_index(index), pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        np.testing.assert_array_equal(again.search(X, 3)[1], index.search(X, 3)[1])


def test_lists_without_a_vector_that_was_not_finite():
    """Faiss counts it, and drops it."""
    x = X.copy()
    x[7, 3] = np.nan
    index = index_factory(16, "PRH(1),IVF4,Flat")
    index.train(X)
    index.add(x)
    assert_read(index)


def test_a_trusted_file_is_left_to_faiss():
    """Also one that Faiss itself has broken: it moves the ids of an IDMap at a removal, but not the rows of its IVF."""
    index = index_factory(16, "IDMap,PRH(1),IVF4,Flat")
    index.train(X)
    index.add_with_ids(X, np.arange(100))
    index.remove_ids(np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="IDMap does not know"):
        deserialize_index(serialize_index(index))
    assert clone_index(index).ntotal == 97
