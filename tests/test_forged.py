"""
Every refusal of what Faiss's bytes may say, each with a file that only it refuses.

The walks and the checks are also called by themselves: some versions of Faiss refuse the same, with words of their own.
"""

import struct

import faiss
import numpy as np
import pytest
from test_storage import FLOAT_DATA, LEAF, binary, flat, forged, ivf_with_ids

from faiss_prh import clone_index, deserialize_index
from faiss_prh.index.composites import behind, refined, with_ids
from faiss_prh.storage.binary_formats import binary_index
from faiss_prh.storage.checks import check_binary, check_float, check_transform
from faiss_prh.storage.claims import Claims
from faiss_prh.storage.float_formats import float_index
from faiss_prh.storage.formats import transform as any_transform

FLOAT = {"type": "faiss.Index"}
TRANSFORM = {"type": "faiss.VectorTransform"}
PRE_TRANSFORM = {"type": "IndexBinaryPreTransform", "transforms": 1}
X = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
CODES = np.packbits(X > 0, axis=1)
ROWS = list(range(100))
NO_FLOATS = np.empty(0, np.float32)


def floats(index):
    return faiss.serialize_index(index).tobytes()


def transform(vt):
    writer = faiss.VectorIOWriter()
    faiss.write_VectorTransform(vt, writer)
    return faiss.vector_to_array(writer.data).tobytes()


def assert_refused(message, *parts):
    with pytest.raises(ValueError, match=message):
        deserialize_index(forged(*parts))


def replaced(data, old, new, fmt="<Q"):
    """Put a number in the place of another, which must be there once."""
    old = struct.pack(fmt, old)
    assert data.count(old) == 1
    return data.replace(old, struct.pack(fmt, new))


def trained(vt):
    vt.train(X)
    return vt


TRANSFORMS = {
    "rotation": lambda: faiss.RandomRotationMatrix(16, 16),
    "PCA": lambda: faiss.PCAMatrix(16, 8),
    "remap": lambda: faiss.RemapDimensionsTransform(16, 16, False),
    "centring": lambda: faiss.CenteringTransform(16),
    "ITQ": lambda: faiss.ITQTransform(16, 8, True),
    "norm": lambda: faiss.NormalizationTransform(16),
}


def made(description, n=100):
    """An index with vectors, or a trained transform."""
    if description in TRANSFORMS:
        return trained(TRANSFORMS[description]())
    if description == "BIDMap":
        return binary_id_map(np.arange(n), made("BFlat", n))
    is_binary = description.startswith("B")
    index = (faiss.index_binary_factory if is_binary else faiss.index_factory)(16, description)
    x = CODES if is_binary else X
    index.train(x)
    if description.startswith("IDMap"):
        index.add_with_ids(x[:n], np.arange(n) + 10**12)
    elif n:
        index.add(x[:n])
    return index


def binary_id_map(ids, inside):
    index = faiss.IndexBinaryIDMap(flat(0))
    index.index, index.ntotal = inside, inside.ntotal
    index.referenced_objects = [inside]
    faiss.copy_array_to_vector(ids, index.id_map)
    return index


def downcast(thing):
    if isinstance(thing, faiss.IndexBinary):
        return faiss.downcast_IndexBinary(thing)
    return faiss.downcast_index(thing) if isinstance(thing, faiss.Index) else thing


def changed(thing, changes):
    """Set attributes, or vectors where the value is an array. A function makes the value of the old one."""
    for path, value in changes.items():
        *names, last = path.split(".")
        holder = thing
        for name in names:
            holder = downcast(getattr(holder, name))
        old = getattr(holder, last)
        is_vector = hasattr(old, "size")
        if callable(value):
            value = value(faiss.vector_to_array(old) if is_vector else old)
        if is_vector:
            faiss.copy_array_to_vector(value, old)
        else:
            setattr(holder, last, value)
    return thing


def serialized(thing):
    """Its record and bytes, the walk over them and the check of what was read."""
    if isinstance(thing, faiss.VectorTransform):
        return TRANSFORM, transform(thing), any_transform, check_transform
    if isinstance(thing, faiss.IndexBinary):
        return LEAF, binary(thing), binary_index, check_binary
    return FLOAT, floats(thing), float_index, check_float


def assert_walk_refuses(message, record, data, walk):
    """Refuse it whatever this Faiss does, and together with it."""
    with pytest.raises(ValueError, match=message):
        Claims(walk(), lambda: None).see(data)
    if record is TRANSFORM:
        assert_refused(message, PRE_TRANSFORM, record, data)
    else:
        assert_refused(".", record, data)


def untrained_ivf(n_lists):
    quantizer = faiss.IndexFlatL2(16)
    index = faiss.IndexIVFFlat(quantizer, 16, n_lists)
    index.referenced_objects = [quantizer]
    return index


TOO_MANY = (1 << 20) + 1
WALKED = [
    ("100 vectors of 0 dim", "Flat", {"d": 0}),
    ("100 vectors of 1048577 dim", "Flat", {"d": TOO_MANY}),
    ("-1 vectors of 16 dim", "Flat", {"ntotal": -1}),
    ("-1 vectors of 16 dim", "BFlat", {"ntotal": -1}),
    ("24 bits in 2 bytes", "BFlat", {"d": 24}),
    ("metric 99", "Flat", {"metric_type": 99}),
    ("metric 3 is not checked", "SQ8", {"metric_type": faiss.METRIC_Linf}),
    ("metric 3 is not checked", "HNSW4,Flat", {"metric_type": faiss.METRIC_Linf}),
    ("not finite", lambda: faiss.IndexFlat(16, faiss.METRIC_Lp), {"metric_arg": np.nan}),
    ("vectors of metric 0 instead of 1", "HNSW4,Flat", {"storage.metric_type": faiss.METRIC_INNER_PRODUCT}),
    ("takes no vectors", "Flat", {"is_trained": False}),
    ("6396 bytes of codes instead of 6400", "Flat", {"codes": lambda old: old[:-4]}),
    ("1599 bytes of codes instead of 1600", "SQ8", {"codes": lambda old: old[:-1]}),
    ("99 bytes of codes instead of 100", "PQ2x4np", {"codes": lambda old: old[:-1]}),
    ("199 bytes of codes instead of 200", "LSH", {"codes": lambda old: old[:-1]}),
    ("199 bytes of codes instead of 200", "BFlat", {"xb": lambda old: old[:-1]}),
    ("scalar quantizer 99", "SQ8", {"sq.qtype": 99}),
    ("not finite", "SQ8", {"sq.trained": lambda old: old * np.nan}),
    ("not finite", "SQ8", {"sq.trained": lambda old: old + 1e30}),
    ("15 dimensions with 0 limits", "SQfp16", {"sq.d": 15}),
    ("16 dimensions with 30 limits", "SQ8", {"sq.trained": lambda old: old[:-2]}),
    ("16 dimensions with 32 limits", "SQ8", {"is_trained": False, "ntotal": 0}),
    ("16 dimensions with 0 limits", "SQ8", {"is_trained": False, "sq.trained": NO_FLOATS}),
    ("without training, in lists", "IVF4,SQ8", {"is_trained": False}),
    ("without training, in lists", "HNSW4,SQ8", {"storage.is_trained": False}),
    ("2 parts of 8 dimensions", "PQ2x4np", {"pq.d": 8}),
    ("0 parts of 16", "PQ2x4np", {"pq.M": 0}),
    ("3 parts of 16", "PQ2x4np", {"pq.M": 3}),
    ("with 0 bits", "PQ2x4np", {"pq.nbits": 0}),
    ("with 9 bits is not checked", "PQ2x4np", {"pq.nbits": 9}),
    ("search type -1", "PQ2x4np", {"search_type": -1}),
    ("search type 6", "PQ2x4np", {"search_type": 6}),
    ("LSH of 0 bits", "LSH", {"nbits": 0}),
    ("not finite", "PQ2x4np", {"pq.centroids": lambda old: old * np.nan}),
    ("without its centroids", "PQ2x4np", {"pq.centroids": lambda old: old[:-1]}),
    ("without its thresholds", "LSHt", {"thresholds": NO_FLOATS, "is_trained": False}),
    ("without its thresholds", "LSHt", {"thresholds": NO_FLOATS, "ntotal": 0}),
    ("without its thresholds", "LSH", {"thresholds": X[0]}),
    ("codes of 3 bytes instead of 2", "LSH", {"code_size": 3}),
    ("5 lists of 4 centroids", "IVF4,Flat", {"nlist": 5, "is_trained": False}),
    ("5 lists of 4 centroids", "IVF4,Flat", {"nlist": 5, "ntotal": 0}),
    ("3 lists of 4 centroids", "BIVF4", {"nlist": 3, "ntotal": 0, "is_trained": False}),
    ("of 65537 lists without training is not", lambda: untrained_ivf(65537), {}),
    ("16777217 lists", "BIVF4", {"nlist": (1 << 24) + 1, "is_trained": False, "ntotal": 0}),
    ("8 dimensions instead of 16", "IVF4,Flat", {"quantizer.d": 8, "quantizer.ntotal": 8, "nlist": 8}),
    ("codes of 15 bytes instead of 16", "IVF4,SQ8", {"code_size": 15}),
    ("codes of 2 bytes instead of 1", "IVF4,PQ2x4np", {"code_size": 2}),
    ("without ids for 100", "IDMap,Flat", {"id_map": lambda old: old[:-1]}),
    ("without ids for 100", "BIDMap", {"id_map": lambda old: old[:-1]}),
    *(("99 vectors of 16 dimensions around 100", name, {"ntotal": 99}) for name in ("HNSW4,Flat", "IDMap,Flat")),
    *(("99 vectors of 16 dimensions around 100", name, {"ntotal": 99}) for name in ("BHNSW4", "BIDMap", "BHash2x8")),
    ("100 vectors of 8 dimensions around", "IDMap,Flat", {"d": 8}),
    ("efConstruction = 0", "HNSW4,Flat", {"hnsw.efConstruction": 0}),
    ("efSearch = 0", "HNSW4,SQ8", {"hnsw.efSearch": 0}),
    ("efSearch = 65537 is not checked", "BHNSW4", {"hnsw.efSearch": 65537}),
    ("hash of 0 bits", "BHash8", {"b": 0}),
    ("hash of 17 bits", "BHash8", {"b": 17}),
    ("nflip = -1", "BHash8", {"nflip": -1}),
    ("nflip = -1", "BHash2x8", {"nflip": -1}),
    ("nflip = 9", "BHash8", {"nflip": 9}),
    ("-1 to 16 dim", "rotation", {"d_in": -1}),
    ("1048577 to 16 dim", "rotation", {"d_in": TOO_MANY}),
    ("16 to -1 dim", "rotation", {"d_out": -1}),
    ("16 to 1048577 dim", "rotation", {"d_out": TOO_MANY}),
]


@pytest.mark.parametrize(("message", "description", "changes"), WALKED)
def test_numbers_that_do_not_fit(message, description, changes):
    n = 0 if "b" in changes or "nflip" in changes else 100
    thing = description() if callable(description) else made(description, n)
    record, data, walk, _ = serialized(changed(thing, changes))
    assert_walk_refuses(message, record, data, walk)


def lists(n_lists, code_size, kind, *sizes):
    content = struct.pack("<QQ4sQ", n_lists, code_size, kind, len(sizes)) + np.array(sizes, "<u8").tobytes()
    return lambda data: data[: data.index(b"ilar") + 4] + content


def at(place, fmt, value):
    return lambda data: data[:place] + struct.pack(fmt, value) + data[place + struct.calcsize(fmt) :]


def last(old, new):
    return lambda data: new.join(data.rsplit(old, 1))


def table(id_bits, content, n_lists=1):
    """Of a MultiHash of one vector, with one table of eight bits."""
    return lambda data: data[:MULTI_HASH] + struct.pack("<iiiiQQ", 8, 1, 0, id_bits, n_lists, len(content)) + content


HASH, MULTI_HASH = 25, 25 + 33 + 2  # where what is their own begins
SPOILED = [
    ("format b'none'", "Flat", at(0, "4s", b"none")),
    ("format b'none'", "BFlat", at(0, "4s", b"none")),
    ("format b'none'", "rotation", at(0, "4s", b"none")),
    *(("format b'IxMp'", f"IVF4,{code}", last(b"IxF2", b"IxMp")) for code in ("Flat", "SQ8", "PQ2x4np")),
    ("format b'IBMp'", "BIVF4", last(b"IBxF", b"IBMp")),
    ("format b'IBMp'", "BHNSW4", last(b"IBxF", b"IBMp")),
    ("format b'IBMp'", "BHash2x8", last(b"IBxF", b"IBMp")),
    ("format b'IxSQ'", "HNSW4,Flat", last(b"IxF2", b"IxSQ")),
    ("format b'IxF2'", "HNSW4,SQ8", last(b"IxSQ", b"IxF2")),
    ("format b'IxF2'", "HNSW4,PQ2x4np", last(b"IxPq", b"IxF2")),
    ("without its lists", "IVF4,Flat", last(b"ilar", b"il00")),
    ("without its lists", "BIVF4", last(b"ilar", b"il00")),
    ("format b'none'", "IVF4,Flat", last(b"ilar", b"none")),
    ("codes of 63 bytes instead of 64", "IVF4,Flat", lists(4, 63, b"full")),
    ("codes of 3 bytes instead of 2", "BIVF4", lists(4, 3, b"full")),
    ("5 lists instead of 4", "IVF4,Flat", lists(5, 64, b"full")),
    ("a list without its size", "IVF4,Flat", lists(4, 64, b"sprs", 0, 100, 1)),
    ("a list without its size, or with two", "IVF4,Flat", lists(4, 64, b"sprs", 0, 50, 0, 100)),
    ("a list without its size", "IVF4,Flat", lists(4, 64, b"sprs", 0, 50, 4, 50)),
    ("lists that do not hold 100", "IVF4,Flat", lists(4, 64, b"full", 25, 25, 25, 1 << 30)),
    ("lists that do not hold 100", "IVF4,Flat", lists(4, 64, b"full", 50, 50)),
    ("upper_beam = 0", "HNSW4,Flat", last(struct.pack("<3i", 40, 16, 1), struct.pack("<3i", 40, 16, 0))),
    ("sizes of -1 bits", "BHash8", at(HASH + 16, "<i", -1)),
    ("sizes of 65 bits", "BHash8", at(HASH + 16, "<i", 65)),
    ("hash without its 9 lists", "BHash8", at(HASH + 8, "<Q", 9)),
    ("ids without their codes", "BHash8", lambda data: data[:-10] + struct.pack("<Q", 1) + data[-1:]),
    ("0 hashes of 8 bits", "BHash2x8", at(MULTI_HASH + 4, "<i", 0)),
    ("3 hashes of 8 bits", "BHash2x8", at(MULTI_HASH + 4, "<i", 3)),
    ("lists of ids of -1 bits", "BHash2x8", table(-1, bytes(1))),
    ("lists of ids of 49 bits", "BHash2x8", table(49, bytes(14))),
    ("3 bytes for 1 lists", "BHash2x8", table(2, bytes(3))),
    ("more ids than vectors", "BHash2x8", table(2, bytes([0, 2]))),
    ("an id of no vector", "BHash2x8", table(2, bytes([0, 1 + (3 << 2)]))),
]


@pytest.mark.parametrize(("message", "description", "spoil"), SPOILED)
def test_bytes_that_do_not_fit(message, description, spoil):
    record, data, walk, _ = serialized(made(description, 1 if "Hash" in description else 100))
    assert_walk_refuses(message, record, spoil(data), walk)


@pytest.mark.parametrize("place", [-1, -2 << 32, 4 << 32, 100])
def test_direct_maps_that_lead_outside(place):
    index = made("IVF4,Flat")
    index.make_direct_map()
    places = faiss.vector_to_array(index.direct_map.array)
    places[0] = place
    _, data, _, _ = serialized(changed(index, {"direct_map.array": places}))
    assert_walk_refuses("where no vector is", FLOAT, data, float_index)
    index = made("IVF4,Flat", 0)
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    index.add_with_ids(X[:1], np.array([10**12]))
    data = floats(index)
    data = at(data.index(struct.pack("<Q", 10**12)) + 8, "<q", place)(data)
    assert_walk_refuses("where no vector is", FLOAT, data, float_index)


def test_direct_maps_to_other_vectors():
    """An update or a removal would follow them."""
    index = made("IVF4,Flat")
    index.make_direct_map()
    places = faiss.vector_to_array(index.direct_map.array)
    for wrong, message in ((places[::-1], "to another vector"), (places[:-1], "direct map does not know")):
        data = floats(changed(index, {"direct_map.array": np.ascontiguousarray(wrong)}))
        assert_walk_refuses(message, FLOAT, data, float_index)
    other = ivf_of([*ROWS[:-1], -1])
    other.direct_map.type = faiss.DirectMap.Array
    changed(other, {"direct_map.array": places[:-1]})
    assert_walk_refuses("direct map does not know", FLOAT, floats(other), float_index)
    index = made("IVF4,Flat", 0)
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    index.add_with_ids(X[:1], np.array([10**12]))
    data = floats(index)
    assert deserialize_index(forged(FLOAT, data)).ntotal
    data = at(data.index(struct.pack("<Q", 10**12)), "<q", 5)(data)
    assert_walk_refuses("to another vector", FLOAT, data, float_index)


def test_indexes_of_other_indexes():
    def with_quantizer(ivf, quantizer):
        ivf.own_fields, ivf.quantizer, ivf.referenced_objects = False, quantizer, [quantizer]
        return ivf

    for inside in ("IDMap,Flat", "IVF4,Flat", "LSH"):
        for code in ("Flat", "SQ8", "PQ2x4np"):
            assert_refused("is not checked", FLOAT, floats(with_quantizer(made(f"IVF4,{code}"), made(inside, 4))))
    for inside in ("BIDMap", "BIVF4", "BHash8", "BHash2x8"):
        assert_refused("is not checked", LEAF, binary(with_quantizer(made("BIVF4"), made(inside, 4))))
    assert_refused("b'IBFf' is not checked", LEAF, binary(faiss.IndexBinaryFromFloat(faiss.IndexFlatL2(16))))
    refine = refined(made("SQ8", 99), made("Flat", 100), 1.0)
    assert_walk_refuses("99 vectors of 16 dimensions around 100", FLOAT, floats(refine), float_index)
    refine.ntotal = 100
    assert_walk_refuses("100 vectors of 16 dimensions around 99", FLOAT, floats(refine), float_index)


CLAIMS = {"BFlat": 200, "PCA": 128, "Flat": 1600, "SQ8": 1600, "LSH": 200, "PQ2x4np": 256, "HNSW4,Flat": 1600}


@pytest.mark.parametrize(("description", "count"), CLAIMS.items())
def test_no_room_is_made_for_what_is_not_there(description, count):
    record, data, _, _ = serialized(made(description))
    parts = (record, replaced(data, count, 1 << 30))
    assert_refused(r"claims \d+ bytes where \d+ are left", *((PRE_TRANSFORM, *parts) if record is TRANSFORM else parts))


def test_no_room_is_made_for_centroids_and_lists_that_are_not_there():
    """Faiss makes it before it reads their number."""
    centroids = floats(faiss.IndexPQ(1 << 19, 1, 4))
    centroids = centroids.replace(struct.pack("<QQ", 1, 4), struct.pack("<QQ", 1, 8))
    assert_refused(f"claims {8 + (1 << 29)} bytes", FLOAT, centroids)
    lists_of_hash = at(HASH + 8, "<Q", 1 << 30)(binary(made("BHash8")))
    assert_refused(f"claims {8 + (16 << 30)} bytes", LEAF, lists_of_hash)


@pytest.mark.parametrize("make", [faiss.IndexBinaryHash, lambda d, b: faiss.IndexBinaryMultiHash(d, 1, b)])
def test_hashes_that_look_up_too_much(make):
    index = make(64, 60)
    index.nflip = 3
    assert clone_index(index).nflip == 3
    index.nflip = 30
    assert_refused("60 bits with nflip = 30", LEAF, binary(index))
    long = make(128, 65)
    assert_refused("65 bits with nflip = 0", LEAF, binary(long))


def test_records_around_what_does_not_fit():
    refine = {"type": "IndexRefine", "k_factor": 1e12}
    assert_refused("k_factor", refine, FLOAT, FLOAT_DATA, FLOAT, FLOAT_DATA)
    ids = np.array([0, 1, 10**9])
    index = made("IVF4,Flat", 0)
    index.add_with_ids(X[:3], ids)
    assert_refused("IDMap does not know", {"type": "IndexIDMap", "ntotal": 3}, ids.tobytes(), FLOAT, floats(index))
    index = faiss.IndexBinaryHash(16, 8)
    index.add_with_ids(CODES[:3], ids)
    assert_refused("IDMap does not know", LEAF, binary(binary_id_map(ids, index)))
    assert clone_index(index).ntotal == 3


def put(place, value):
    def change(old):
        old[place] = value
        return old

    return change


def shorter(old):
    return old[:-1]


def edge_below():
    index = made("HNSW4,Flat")
    levels = faiss.vector_to_array(index.hnsw.levels)
    first = int(index.hnsw.offsets.at(int(levels.argmax()))) + int(index.hnsw.cum_nneighbor_per_level.at(1))
    return changed(index, {"hnsw.neighbors": put(first, levels.argmin())})


def ivf_of(ids):
    index = made("IVF4,Flat", 0)
    index.add_with_ids(X, np.array(ids))
    return index


def mapped(inside):
    return with_ids("IndexIDMap", inside, np.arange(inside.ntotal))


def chained(inside, *transforms):
    return behind([made(name) for name in transforms], inside)


def chained_with(changes, name):
    index = faiss.IndexPreTransform(made(name), made("Flat"))
    changed(faiss.downcast_VectorTransform(index.chain.at(0)), changes)
    return index


NO_WAY_IN = {"hnsw.max_level": lambda old: old + 1}
CHECKED = [
    ("linear transform of another size", "PCA", {"A": shorter}),
    ("linear transform of another size", "PCA", {"b": shorter}),
    ("linear transform of another size", "rotation", {"b": X[0]}),
    ("dimensions that do not exist", "remap", {"map": shorter}),
    ("dimensions that do not exist", "remap", {"map": put(0, -2)}),
    ("dimensions that do not exist", "remap", {"map": put(0, 16)}),
    ("mean of another size", "centring", {"mean": shorter}),
    ("mean of another size", "centring", {"d_out": 8}),
    ("ITQ of another size", "ITQ", {"mean": shorter}),
    ("ITQ of another size", "ITQ", {"pca_then_itq.d_in": 15}),
    ("ITQ of another size", "ITQ", {"d_out": 16}),
    ("linear transform of another size", "ITQ", {"pca_then_itq.A": shorter}),
    ("normalization to other dimensions", "norm", {"d_out": 8}),
    ("no levels", "HNSW4,Flat", {"hnsw.assign_probas": shorter}),
    ("no levels", "HNSW4,Flat", {"hnsw.cum_nneighbor_per_level": lambda old: old + 1}),
    ("levels without room", "HNSW4,Flat", {"hnsw.cum_nneighbor_per_level": put(-1, 0)}),
    ("or with too much", lambda: faiss.IndexHNSWFlat(16, 4097), {}),
    ("has not 100 vertices", "HNSW4,Flat", {"hnsw.levels": shorter}),
    ("has not 100 vertices", "HNSW4,Flat", {"hnsw.offsets": shorter}),
    ("vertex on no level", "HNSW4,Flat", {"hnsw.levels": put(0, 0)}),
    ("vertex on no level", "HNSW4,Flat", {"hnsw.levels": put(0, 100)}),
    ("neighbours of no vertex", "HNSW4,Flat", {"hnsw.offsets": put(0, 1)}),
    ("neighbours of no vertex", "HNSW4,Flat", {"hnsw.neighbors": shorter}),
    ("more or fewer neighbours", "HNSW4,Flat", {"hnsw.offsets": put(1, 1)}),
    ("edge to no vertex", "HNSW4,Flat", {"hnsw.neighbors": put(0, -2)}),
    ("edge to no vertex", "HNSW4,Flat", {"hnsw.neighbors": put(0, 100)}),
    ("no way into the graph", "HNSW4,Flat", {"hnsw.entry_point": lambda old: old - 100}),
    ("no way into the graph", "HNSW4,Flat", {"hnsw.entry_point": 100}),
    ("no way into the graph", "HNSW4,SQ8", NO_WAY_IN),
    ("no way into the graph", "BHNSW4", NO_WAY_IN),
    ("below its level", edge_below, {}),
    ("way into an empty graph", lambda: faiss.IndexHNSWFlat(16, 4), {"hnsw.entry_point": 0}),
    ("way into an empty graph", lambda: faiss.IndexHNSWFlat(16, 4), {"hnsw.max_level": 0}),
    ("not finite", "HNSW4,Flat", {"storage.codes": lambda old: old | 255}),
    ("no way into the graph", "IVF4_HNSW4,Flat", {f"quantizer.{path}": to for path, to in NO_WAY_IN.items()}),
    ("no way into the graph", "BIVF4_HNSW4", {f"quantizer.{path}": to for path, to in NO_WAY_IN.items()}),
    ("no way into the graph", "IDMap,HNSW4,Flat", {f"index.{path}": to for path, to in NO_WAY_IN.items()}),
    ("no way into the graph", "PCA8,HNSW4,Flat", {f"index.{path}": to for path, to in NO_WAY_IN.items()}),
    ("no way into the graph", "HNSW4,RFlat", {f"base_index.{path}": to for path, to in NO_WAY_IN.items()}),
    ("IDMap where rows are meant", lambda: mapped(made("IDMap,Flat")), {}),
    ("IDMap where rows are meant", lambda: mapped(chained(made("IDMap,Flat"), "rotation")), {}),
    ("IDMap where rows are meant", lambda: refined(made("IDMap,Flat"), made("Flat"), 1), {}),
    ("ids that the IDMap does not know", lambda: refined(ivf_of([*ROWS[1:], 100]), made("Flat"), 1), {}),
    *(("cannot ask for its vectors", lambda i=i: refined(made("Flat"), made(i), 1), {}) for i in ("IDMap,Flat", "LSH")),
    ("cannot ask for its vectors", lambda: refined(made("Flat"), chained(made("Flat"), "rotation"), 1), {}),
    ("behind transforms without training", lambda: chained_with({"is_trained": False}, "rotation"), {}),
    ("ids that the IDMap does not know", lambda: mapped(ivf_of([*ROWS[1:], 100])), {}),
    ("ids that the IDMap does not know", lambda: mapped(ivf_of([*ROWS[:-1], -1])), {}),
    ("ids that the IDMap does not know", lambda: mapped(chained(ivf_of([*ROWS[1:], 100]), "rotation")), {}),
    ("a row that stands twice", lambda: mapped(ivf_of([*ROWS[1:], 1])), {}),
    ("a row that stands twice", lambda: binary_id_map(np.arange(3), ivf_with_ids([0, 1, 1])), {}),
    ("transforms that do not fit", lambda: chained_with({"d_in": 15}, "norm"), {}),
    ("another size", lambda: chained_with({"A": shorter}, "rotation"), {}),
    ("transforms before another index", lambda: chained_with({"d_out": 8, "map": lambda old: old[:8]}, "remap"), {}),
    ("transforms before another index", "PCA8,Flat", {"ntotal": 99}),
    ("one part only", "SQ8,RFlat", {"base_index.is_trained": False}),
    ("one part only", "Flat,Refine(SQ8)", {"refine_index.is_trained": False}),
    ("k_factor = 0", "SQ8,RFlat", {"k_factor": 0.5}),
    ("k_factor = 1001", "SQ8,RFlat", {"k_factor": 1001}),
    ("LSH without its rotation", "LSHr", {"rrot.is_trained": False}),
    ("LSH without its rotation", "LSH", {"nbits": 15}),
    ("another size", "LSHr", {"rrot.A": shorter}),
]


@pytest.mark.parametrize(("message", "thing", "changes"), CHECKED)
def test_parts_that_do_not_fit(message, thing, changes):
    thing = changed(thing() if callable(thing) else made(thing), changes)
    record, data, _, check = serialized(thing)
    with pytest.raises(ValueError, match=message):
        check(thing)
    parts = (PRE_TRANSFORM, record, data, LEAF, binary(flat(0, thing.d_out))) if record is TRANSFORM else (record, data)
    assert_refused(".", *parts)


def test_empty_lists_of_a_hash_cost_time_and_no_bytes():
    header = b"IBHm" + struct.pack("<iiqBi", 8, 1, 0, 1, 1) + binary(flat(0, 8)) + struct.pack("<iii", 1, 1, 0)
    assert_refused("1 bytes for 8 lists", LEAF, header + struct.pack("<iQQB", 0, 8, 1, 0))


def test_an_id_map_of_an_id_map():
    ids = struct.pack("<Q3q", 3, 0, 1, 2)
    header = b"IBMp" + struct.pack("<iiqBi", 16, 2, 3, 1, 1)
    assert_refused("b'IBMp' is not checked", LEAF, header + header + binary(flat(3)) + ids + ids)
