"""Genuine files, which must be read whatever is refused to forged ones; and those that are read only if trusted."""

import copy
import pickle

import faiss
import numpy as np
import pytest

from faiss_prh import (
    IndexBinaryPreTransform,
    IndexIVFSigns,
    PRHTransform,
    clone_index,
    deserialize_index,
    index_factory,
    serialize_index,
)

X = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
CODES = np.packbits(X > 0, axis=1)


def made(description, n):
    is_binary = description.startswith(("B", "IDMap,B", "IDMap2,B"))
    index = index_factory(16, description)
    x = CODES if is_binary else X
    index.train(x)
    if n:  # adding nothing crashes the HNSW of Faiss 1.8
        if "IDMap" in description:
            index.add_with_ids(x[:n], np.arange(n) + 10**12)
        else:
            index.add(x[:n])
    return index


def assert_same_search(index, again):
    assert (again.ntotal, again.is_trained) == (index.ntotal, index.is_trained)
    if index.is_trained and index.ntotal:  # Faiss 1.8 sets no distances if there is nothing to find
        x = CODES if isinstance(index, faiss.IndexBinary) else X
        for mine, theirs in zip(again.search(x, 3), index.search(x, 3), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def assert_read(index, trusted=False):
    assert_same_search(index, deserialize_index(serialize_index(index), trusted=trusted))


BINARY = [
    *("BFlat", "BIVF4", "BIVF4_HNSW4", "BHNSW4", "BHash1x1", "BHash5x3", "BHash1x16"),
    *("IDMap,BFlat", "IDMap2,BIVF4", "IDMap,BHNSW4", "IDMap2,BHash2x8"),
]


@pytest.mark.parametrize("description", BINARY)
def test_binary_indexes(description):
    for n in (0, 1, 2, 100):
        index = made(description, n)
        assert_read(index)
        again = clone_index(index)
        assert type(again) is type(index)
        if "IDMap" in description:  # what was read goes on as the original does
            index.add_with_ids(CODES, np.arange(300))
            again.add_with_ids(CODES, np.arange(300))
        else:
            index.add(CODES)
            again.add(CODES)
        if "HNSW" not in description:  # whose random levels begin anew
            assert_same_search(index, again)
    assert_read(index_factory(16, description))


def test_what_belongs_to_a_binary_index_is_kept():
    index = made("BIVF4", 100)
    index.nprobe, index.max_codes, index.use_heap = 3, 1000, False
    again = deserialize_index(serialize_index(index))
    assert (again.nprobe, again.max_codes, again.use_heap) == (3, 1000, False)
    index.nprobe = 1000
    assert deserialize_index(serialize_index(index)).nprobe == 4
    graph = made("BHNSW4", 100)
    graph.hnsw.efSearch, graph.hnsw.efConstruction = 77, 99
    again = deserialize_index(serialize_index(graph))
    assert (again.hnsw.efSearch, again.hnsw.efConstruction) == (77, 99)
    assert again.hnsw.nb_neighbors(0) == graph.hnsw.nb_neighbors(0)
    hashed = made("BHash2x8", 100)
    hashed.nflip = 3
    assert deserialize_index(serialize_index(hashed)).nflip == 3


@pytest.mark.parametrize("kind", [faiss.DirectMap.Array, faiss.DirectMap.Hashtable])
def test_direct_maps(kind):
    index = made("BIVF4", 100)
    index.set_direct_map_type(kind)
    assert_read(index)
    again = clone_index(index)
    assert again.direct_map.type == kind
    np.testing.assert_array_equal(again.reconstruct(7), CODES[7])


@pytest.mark.parametrize("levels", [(10, 7), (4, 2, 2)])
def test_graphs_with_other_levels(levels):
    """As some make them by hand."""
    index = faiss.IndexBinaryHNSW(16, 4)
    for level, neighbours in enumerate(levels):
        index.hnsw.set_nb_neighbors(level, neighbours)
    index.add(CODES)
    assert_read(index)
    assert clone_index(index).hnsw.nb_neighbors(0) == levels[0]


SCALARS = ["8bit", "6bit", "4bit", "8bit_uniform", "4bit_uniform", "8bit_direct", "8bit_direct_signed", "fp16", "bf16"]


@pytest.mark.parametrize("name", [name for name in SCALARS if hasattr(faiss.ScalarQuantizer, f"QT_{name}")])
@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
def test_scalar_quantizers_as_stores(name, metric):
    from faiss_prh import IndexBinaryRefine

    store = faiss.IndexScalarQuantizer(16, getattr(faiss.ScalarQuantizer, f"QT_{name}"), metric)
    index = IndexBinaryRefine(PRHTransform(16), faiss.IndexBinaryFlat(16), store, k_factor=5)
    assert_read(index)
    index.train(np.abs(X))
    assert_read(index)
    index.add(np.abs(X))
    assert_read(index)


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
def test_flat_stores(metric):
    index = index_factory(16, "PRH,BFlat,RFlat", metric)
    index.train(X)
    index.add(X)
    assert_read(index)
    assert type(clone_index(index).refine_index) is type(index.refine_index)


METRICS = [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT]
SIGNS = [
    *("PRH,IVF4,Signs", "PRH,IVF4_HNSW4,Signs", "PRH9,IVF1,Signs", "PCA8,PRH20,IVF3,Signs"),
    *("PRH,IVF4,Signs,RFlat", "L2norm,PRH,IVF4_HNSW4,Signs,Refine(SQ8)", "RR16,IVF2,Signs,Refine(SQfp16)"),
]


def assert_same_bytes(index):
    """What was read is the same in all that belongs to it, and so is written as the same bytes."""
    data = serialize_index(index)
    again = deserialize_index(data)
    assert type(again) is type(index)
    assert serialize_index(again) == data
    assert_same_search(index, again)
    return again


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("description", SIGNS)
def test_lists_of_signs(description, metric, thread_count):
    thread_count(1)
    index = index_factory(16, description, metric)
    again = assert_same_bytes(index)
    for one in (index, again):
        one.train(X)
    assert serialize_index(again) == serialize_index(index)
    for one in (index, again):
        one.add(X[:100])
    assert serialize_index(again) == serialize_index(index)
    index.nprobe = index.nlist
    assert_same_bytes(index)
    index.add_with_ids(X[100:200], np.arange(100) * 3 + 10**12)
    again = assert_same_bytes(index)
    for one in (index, again):
        assert one.remove_ids(faiss.IDSelectorRange(10**12, 10**12 + 30)) == 10
        assert one.remove_ids([3, 4, 5]) == 3
        one.add(X[:5])
    assert serialize_index(again) == serialize_index(index)
    np.testing.assert_array_equal(again.reconstruct(7), index.reconstruct(7))
    other = clone_index(index)
    other.reset()
    assert_same_bytes(other)
    other.add(X[200:])
    index.merge_from(other, 5000)
    assert_same_bytes(index)
    assert_same_bytes(other)
    assert (index.ntotal, other.ntotal) == (292, 0)


@pytest.mark.parametrize("description", ["PRH,IVF4,Signs", "PRH,IVF4_HNSW4,Signs,RFlat"])
def test_what_belongs_to_lists_of_signs_is_kept(description):
    index = made(description, 100)
    index.nprobe, index.margin, index.index.max_codes = 3, 0.75, 50
    again = clone_index(index)
    assert (again.nlist, again.nprobe, again.margin, again.index.max_codes) == (4, 3, 0.75, 50)
    assert again._scale == index._scale
    assert again.metric_type == index.metric_type
    assert type(again.quantizer) is type(index.quantizer)
    if "RFlat" in description:
        index.k_factor = 2.5
        index.quantizer.hnsw.efSearch, index.quantizer.hnsw.efConstruction = 77, 99
        again = clone_index(index)
        assert again.k_factor == 2.5
        assert (again.quantizer.hnsw.efSearch, again.quantizer.hnsw.efConstruction) == (77, 99)
        assert again.quantizer.hnsw.nb_neighbors(0) == index.quantizer.hnsw.nb_neighbors(0)
    index.nprobe = 1000
    assert clone_index(index).nprobe == 4


@pytest.mark.parametrize("kind", [faiss.DirectMap.Array, faiss.DirectMap.Hashtable])
@pytest.mark.parametrize("description", ["PRH,IVF4,Signs", "PRH,IVF4,Signs,RFlat"])
def test_direct_maps_of_lists_of_signs(description, kind):
    index = made(description, 100)
    index.index.set_direct_map_type(kind)
    again = assert_same_bytes(index)
    assert again.index.direct_map.type == kind
    again.add(X[100:])
    index.add(X[100:])
    assert_same_search(index, again)
    np.testing.assert_array_equal(again.reconstruct_code(150), index.reconstruct_code(150))


def test_quantizers_with_centroids_before_training():
    centroids = X[:4] / 2
    for quantizer in (
        faiss.IndexFlatL2(16), faiss.IndexFlat(16), faiss.IndexHNSWFlat(16, 4),
        faiss.IndexScalarQuantizer(16, faiss.ScalarQuantizer.QT_fp16),
    ):  # fmt: skip
        quantizer.add(centroids)
        index = IndexIVFSigns(PRHTransform(16), quantizer, 4)
        again = assert_same_bytes(index)
        assert not again.is_trained
        assert type(again.quantizer) is type(quantizer)
        for one in (index, again):
            one.train(X)
            one.add(X)
        assert serialize_index(again) == serialize_index(index)
        np.testing.assert_allclose(again.quantizer.reconstruct_n(0, 4), centroids, rtol=1e-3)


@pytest.mark.parametrize("metric", METRICS)
def test_the_largest_vectors_there_can_be(metric):
    """Opposite ones, whose residuals are twice as long."""
    x = np.zeros((100, 16), np.float32)
    x[:, 3] = 2.0**60.4
    x[7, 3] = -(2.0**60.4)
    index = index_factory(16, "SRR,IVF1,Signs", metric)
    index.train(x)
    index.add(x)
    assert_same_bytes(index)


def test_vectors_that_are_their_centroids():
    index = index_factory(16, "PRH,IVF1,Signs,RFlat")
    x = np.ones((50, 16), np.float32)
    index.train(x)
    index.add(x)
    assert index._scale == (0, 0, 0)
    assert_same_bytes(index)


def test_one_dimension():
    """Where signs and the norm are the whole vector, and what they stand for is the norm itself."""
    x = np.random.default_rng(1).normal(size=(500, 1)).astype(np.float32) * np.float32(1e-21)
    index = index_factory(1, "SRR,IVF2,Signs")
    index.train(np.concatenate([x, X[:, :1]]))
    index.add(X[:, :1])
    assert index._scale.reach <= 1
    again = deserialize_index(serialize_index(index))
    np.testing.assert_array_equal(again.search(X[:, :1], 3)[1], index.search(X[:, :1], 3)[1])


TRANSFORMS = {
    "linear": lambda: faiss.LinearTransform(16, 8, True),
    "rotation": lambda: faiss.RandomRotationMatrix(16, 16),
    "PCA": lambda: faiss.PCAMatrix(16, 8),
    "PCA, whitened and rotated": lambda: faiss.PCAMatrix(16, 8, -0.5, True),
    "OPQ": lambda: faiss.OPQMatrix(16, 2, 8),
    "remap": lambda: faiss.RemapDimensionsTransform(16, 24, False),
    "remap, evenly": lambda: faiss.RemapDimensionsTransform(16, 24, True),
    "centring": lambda: faiss.CenteringTransform(16),
    "ITQ": lambda: faiss.ITQTransform(16, 8, True),
    "ITQ without PCA": lambda: faiss.ITQTransform(16, 16, False),
    "norm": lambda: faiss.NormalizationTransform(16),
    "Hadamard": lambda: faiss.HadamardRotation(16, 7),
}
HERE = [name for name in TRANSFORMS if name != "Hadamard" or hasattr(faiss, "HadamardRotation")]


@pytest.mark.parametrize("name", HERE)
def test_transforms(name):
    transform = TRANSFORMS[name]()
    index = IndexBinaryPreTransform(transform, faiss.IndexBinaryFlat(transform.d_out))
    again = deserialize_index(serialize_index(index))
    assert type(again.chain[0]) is type(transform)
    assert again.is_trained == transform.is_trained
    if name == "linear":  # nothing trains it
        faiss.copy_array_to_vector(X[:8].ravel(), transform.A)
        faiss.copy_array_to_vector(X[9, :8].copy(), transform.b)
        transform.is_trained = True
    else:
        index.train(X)
        again.train(X)
        np.testing.assert_allclose(again.chain[0].apply(X), transform.apply(X), atol=1e-5)
    again = deserialize_index(serialize_index(index)).chain[0]
    np.testing.assert_array_equal(again.apply(X), transform.apply(X))
    if name in ("rotation", "PCA", "OPQ", "centring"):  # the others cannot be undone, Hadamard's not by every Faiss
        y = transform.apply(X)
        np.testing.assert_array_equal(again.reverse_transform(y), transform.reverse_transform(y))


FLOAT = ["Flat", "PQ2x4np", "LSH", "IVF4,Flat", "IVF4,SQ8", "HNSW4,Flat", "IDMap2,PCA8,IVF4,SQ8", "Flat,Refine(SQ8)"]
NEWER = {"RaBitQ": "IndexRaBitQ", "IVF4,PQ4x4fs": "IndexIVFPQFastScan", "NSG8,Flat": "IndexNSGFlat"}


@pytest.mark.parametrize("description", [*FLOAT, *(name for name, needed in NEWER.items() if hasattr(faiss, needed))])
@pytest.mark.parametrize("prh", ["", "PRH(1),"])
def test_float_indexes_need_trust(prh, description):
    """All kinds alike, with PRH in front or without."""
    head, _, rest = description.rpartition("IDMap2,")
    description = f"{head}{'IDMap2,' if 'IDMap2' in description else ''}{prh}{rest}"
    index = made(description, 200)
    with pytest.raises(ValueError, match=r"Faiss's own bytes.*not checked.*trusted=True"):
        deserialize_index(serialize_index(index))
    assert_read(index, trusted=True)
    assert_same_search(index, clone_index(index))


def test_a_plain_hash_needs_trust():
    """Faiss gives its codes back in no other way than in its own bytes. BHash1x8 is the same, and needs none."""
    index = made("BHash8", 100)
    with pytest.raises(ValueError, match="an IndexBinaryHash, which are not checked"):
        deserialize_index(serialize_index(index))
    assert_read(index, trusted=True)


def test_stores_of_other_kinds_need_trust():
    index = index_factory(16, "PRH,BFlat,Refine(PQ4x4)")
    index.train(X)
    index.add(X)
    with pytest.raises(ValueError, match="an IndexPQ, which are not checked"):
        deserialize_index(serialize_index(index))
    for again in (clone_index(index), pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        np.testing.assert_array_equal(again.search(X, 3)[1], index.search(X, 3)[1])


@pytest.mark.skipif(
    faiss.__version__.startswith(("1.8.", "1.13.")),
    reason="Faiss 1.8 (with AVX-512) and 1.13 assign NaN to a list that does not exist",
)
def test_lists_without_a_vector_that_was_not_finite():
    """Faiss counts it, and drops it."""
    x = X.copy()
    x[7, 3] = np.nan
    index = index_factory(16, "PRH(1),IVF4,Flat")
    index.train(X)
    index.add(x)
    assert_read(index, trusted=True)


def test_an_index_that_faiss_has_spoiled():
    """It moves the ids of an IDMap at a removal, but not the rows of its IVF. A copy is as good as the original."""
    index = index_factory(16, "IDMap,PRH(1),IVF4,Flat")
    index.train(X)
    index.add_with_ids(X, np.arange(300))
    index.remove_ids(np.array([0, 1, 2]))
    assert clone_index(index).ntotal == 297
