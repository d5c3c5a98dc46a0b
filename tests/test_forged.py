"""Files whose checksums are right and whose contents are not: every refusal, each with a file that only it refuses."""

import contextlib
import math

import faiss
import numpy as np
import pytest
from forgery import as_file, parts_of, place_of, read, with_array, with_fields

from faiss_prh import (
    IndexBinaryPreTransform,
    IndexBinaryRefine,
    IndexIVFSigns,
    PRHTransform,
    deserialize_index,
    index_factory,
)
from faiss_prh.index.binary_ops import ids_in_list
from faiss_prh.index.residuals import ResidualScale, centroids_of
from faiss_prh.storage.limits import KINDS

D = 16
XT = np.random.default_rng(0).normal(size=(300, D)).astype(np.float32)
X = XT[:60]
CODES = np.packbits(X > 0, axis=1)


@pytest.fixture(autouse=True)
def one_thread(thread_count):
    thread_count(1)


def filled(description, n=60):
    index = index_factory(D, description)
    x, xt = (CODES, CODES) if isinstance(index, faiss.IndexBinary) else (X, XT)
    index.train(xt)
    if "IDMap" in description:
        index.add_with_ids(x[:n], np.arange(n) + 10**12)
    else:
        index.add(x[:n])
    return index


def parts(description, n=60):
    return parts_of(filled(description, n))


def assert_refused(message, forged, trusted=False):
    with pytest.raises(ValueError, match=message):
        read(forged, trusted)


def numbers(dtype, change):
    """Change an array of some type in place."""

    def changed(data):
        values = np.frombuffer(data, dtype).copy()
        returned = change(values)
        return (values if returned is None else returned).tobytes()

    return changed


def put(place, value, dtype="<i4"):
    return numbers(dtype, lambda values: values.__setitem__(place, value))


@contextlib.contextmanager
def noting(what):
    """Say what was accepted."""
    yield
    raise AssertionError(f"accepted: {what}")


EVERY_KIND = [
    "PCA8,PRH,BIVF4", "ITQ8,BHNSW4", "L2norm,OPQ2_8,RR8,BHash2x4", "IDMap,Pad24,PRH,BFlat,RFlat", "PRH,BIVF4_HNSW4",
    "IDMap2,PRH,BFlat,Refine(SQ8)", "PRH,BIVF4,RAsym", "ITQ8,BHash8", "IDMap,PRH,Flat,RFlat", "IDMap2,PRH,LSH",
    "PRH,IVF4_HNSW4,Signs", "IDMap,PRH,IVF4,Signs,RFlat",
]  # fmt: skip
BAD_VALUES = [None, "1", [1], {}, math.nan, math.inf, -(2**200), 2**200, 1e39]


@pytest.mark.parametrize("description", EVERY_KIND)
def test_fields_that_cannot_be(description):
    genuine = parts(description)
    assert read(genuine, trusted=True).ntotal == 60
    for place, part in enumerate(genuine):
        if not isinstance(part, dict):
            continue
        others = [{name: value for name, value in part.items() if name != left_out} for left_out in part]
        others += [part | {"more": 1}]
        others += [part | {name: value} for name in part for value in BAD_VALUES]
        for other in others:
            with pytest.raises(ValueError, match="a damaged index file"), noting(other):
                read([*genuine[:place], other, *genuine[place + 1 :]], trusted=True)


def test_every_kind_is_tried():
    tried = {part["type"] for name in EVERY_KIND for part in parts(name) if isinstance(part, dict)}
    others = {"LinearTransform", "CenteringTransform", "HadamardRotation"}  # below, and in test_genuine.py
    alike = {"IndexFlatL2", "IndexFlatIP", "faiss.VectorTransform"}
    assert set(KINDS) - tried <= others | alike


@pytest.mark.parametrize("make", [lambda: faiss.LinearTransform(D, 8), lambda: faiss.CenteringTransform(D)])
def test_fields_of_transforms_without_a_factory_word(make):
    transform = make()
    genuine = parts_of(IndexBinaryPreTransform(transform, faiss.IndexBinaryFlat(transform.d_out)))
    assert read(genuine).d == D
    for name in set(genuine[1]) - {"type"}:
        for value in BAD_VALUES:
            assert_refused("a damaged index file", [genuine[0], genuine[1] | {name: value}, *genuine[2:]])


RANGES = 0
"""Where a scalar quantizer's arrays begin; the others' in their order."""
LEVELS, NEIGHBOURS, ROOMS, VECTORS_OF_A_GRAPH = 2, 3, 0, 4
CENTROIDS, SIZES, IDS = 0, 1, 2
"""Those behind the record of a quantizer; codes follow, one array for each list, and then the ids of rows, if any."""


CHANGED = [
    # binary indexes
    ("claims 2199023255552 bytes", "BFlat", lambda p: with_fields(p, "IndexBinaryFlat", ntotal=1 << 40)),
    ("goes on too long", "BFlat", lambda p: with_fields(p, "IndexBinaryFlat", ntotal=59)),
    ("no multiple of 8", "BFlat", lambda p: with_fields(p, "IndexBinaryFlat", d=12)),
    ("5 of 4 lists to be searched", "BIVF4", lambda p: with_fields(p, "IndexBinaryIVF", nprobe=5)),
    ("centroids of 8 bits", "BIVF4", lambda p: with_fields(p, "IndexBinaryFlat", d=8)),
    ("3 lists of 4 centroids", "BIVF4", lambda p: with_fields(p, "IndexBinaryIVF", nlist=3)),
    ("claims 134217728 bytes", "BIVF4", lambda p: with_fields(p, "IndexBinaryIVF", nlist=1 << 24)),
    ("claims", "BIVF4", lambda p: with_array(p, "IndexBinaryFlat", 1, put(0, 1 << 60, "<u8"))),
    ("claims|too long|early", "BIVF4", lambda p: with_array(p, "IndexBinaryFlat", 1, put(0, 0, "<u8"))),
    ("damaged", "BIVF4", lambda p: with_array(
        with_fields(p, "IndexBinaryIVF", direct_map=1), "IndexBinaryFlat", 2, put(0, 10**12, "<i8"))),
    ("'IndexBinaryIVF' where IndexBinaryFlat or", "BIVF4", lambda p: [p[0], *p]),
    ("without levels", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", ROOMS, put(0, 1))),
    ("without room", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", ROOMS, put(-1, 0))),
    ("or with too much", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", ROOMS, put(-1, 1 << 20))),
    ("a vertex on no level", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", LEVELS, put(0, 0))),
    ("a vertex on no level", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", LEVELS, put(0, 100))),
    ("an edge to no vertex", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", NEIGHBOURS, put(0, -2))),
    ("an edge to no vertex", "BHNSW4", lambda p: with_array(p, "IndexBinaryHNSW", NEIGHBOURS, put(0, 60))),
    ("no way into the graph", "BHNSW4", lambda p: with_fields(p, "IndexBinaryHNSW", entry_point=-1)),
    ("no way into the graph", "BHNSW4", lambda p: with_fields(p, "IndexBinaryHNSW", entry_point=60)),
    ("no way into the graph", "BHNSW4", lambda p: with_fields(p, "IndexBinaryHNSW", max_level=50)),
    ("claims 1099511627776", "BHNSW4", lambda p: with_fields(p, "IndexBinaryHNSW", ntotal=1 << 38)),
    ("damaged", "BHNSW4", lambda p: with_fields(p, "IndexBinaryHNSW", ntotal=59)),
    ("no way into the graph", "BIVF4_HNSW4", lambda p: with_fields(p, "IndexBinaryHNSW", max_level=50)),
    ("3 hashes of 8 bits, but codes of 16", "BHash2x8", lambda p: with_fields(p, "IndexBinaryMultiHash", nhash=3)),
    ("8 bits with nflip = 9, which is more", "BHash2x8", lambda p: with_fields(p, "IndexBinaryMultiHash", nflip=9)),
    ("59 ids for an IndexBinaryFlat", "IDMap,BFlat", lambda p: [
        p[0] | {"ntotal": 59}, p[1][8:], *p[2:]]),
    ("does not have just the rows", "IDMap,BIVF1", lambda p: with_array(p, "IndexBinaryFlat", 2, put(0, 1, "<i8"))),
    ("does not have just the rows", "IDMap2,BIVF1", lambda p: with_array(p, "IndexBinaryFlat", 2, put(0, 99, "<i8"))),
    ("does not have just the rows", "IDMap,BIVF1", lambda p: with_array(p, "IndexBinaryFlat", 2, put(0, -1, "<i8"))),
    ("'IndexBinaryIDMap' where", "IDMap,BFlat", lambda p: [*p[:2], *p]),
    # this package's
    ("need an index of", "PRH,BFlat", lambda p: with_fields(p, "IndexBinaryFlat", d=24, ntotal=40)),
    ("stands before one from", "PCA8,PRH8,BFlat", lambda p: [p[0], *p[place_of(p, "PRHTransform"):][:2], *p[1:4],
                                                             *p[place_of(p, "IndexBinaryFlat"):]]),
    ("'IndexBinaryFlat' where", "PRH,BFlat", lambda p: with_fields(p, "IndexBinaryPreTransform", n_transforms=2)),
    ("a damaged PRHTransform", "PRH,BFlat", lambda p: with_array(p, "PRHTransform", 0, put(-1, 0, "u1"))),
    ("60 vectors, but what ranks its results again has 59", "PRH,BFlat,RFlat", lambda p: [
        *with_fields(p, "IndexFlat", ntotal=59)[:-1], p[-1][4 * D:]]),
    ("must have 16 dimensions, not 8", "PRH,BFlat,RFlat", lambda p: [
        *with_fields(p, "IndexFlat", d=8)[:-1], p[-1][: 4 * 8 * 60]]),
    ("must be behind an IDMap", "PRH,BFlat,RFlat", lambda p: with_fields(p, "IndexBinaryRefine", own_id_map=True)),
    ("IndexFlatL2 with metric 0", "PRH,BFlat,RFlat",
     lambda p: with_fields(p, "IndexFlat", type="IndexFlatL2", metric=0)),
    ("METRIC_L2 or METRIC_INNER", "PRH,BFlat,RFlat",
     lambda p: with_fields(p, "IndexFlat", metric=3)),
    ("of kind 999", "PRH,BFlat,Refine(SQ8)", lambda p: with_fields(p, "IndexScalarQuantizer", qtype=999)),
    ("with 30 limits of ranges instead of 32", "PRH,BFlat,Refine(SQ8)",
     lambda p: with_fields(p, "IndexScalarQuantizer", n_ranges=15)),
    ("with 32 limits of ranges instead of 2", "PRH,BFlat,Refine(SQ8)",
     lambda p: with_fields(p, "IndexScalarQuantizer", qtype=faiss.ScalarQuantizer.QT_8bit_uniform)),
    ("not finite", "PRH,BFlat,Refine(SQ8)",
     lambda p: with_array(p, "IndexScalarQuantizer", RANGES, put(0, math.nan, "<f4"))),
    ("Scales", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", low=3e38, step=0.1)),
    ("Scales", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", step=50)),
    ("Scales", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", low=0)),
    ("Scales", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", least=3e38, width=1e36)),
    ("width = -1", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", width=-1)),
    ("METRIC_L2 and METRIC_INNER", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", metric=3)),
    ("claims 120 bytes", "PRH,BFlat,RAsym", lambda p: with_fields(p, "IndexBinaryAsymmetric", metric=0)),
    ("only behind linear transforms", "ITQ8,BFlat,RAsym",
     lambda p: [*with_fields(p, "IndexBinaryAsymmetric", metric=0), p[-1]]),
    ("claims 60 bytes", "PRH,BFlat,RAsym", lambda p: [*p[:-1], p[-1][20:]]),
    # lists of signs
    ("5 of 4 lists to be searched", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", nprobe=5)),
    ("3 lists of 4 centroids", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", nlist=3)),
    ("4 lists of 3 centroids", "PRH,IVF4,Signs", lambda p: with_array(
        with_fields(p, "IndexFlat", ntotal=3), "IndexFlat", CENTROIDS, lambda data: data[: 3 * 4 * D])),
    ("4 lists of 0 centroids", "PRH,IVF4,Signs", lambda p: with_array(
        with_fields(p, "IndexFlat", ntotal=0), "IndexFlat", CENTROIDS, lambda data: b"")),
    ("claims 134217728 bytes", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", nlist=1 << 24)),
    ("claims 6597069766656 bytes", "PRH,IVF4,Signs", lambda p: with_fields(
        p, "IndexFlat", ntotal=3 * 2**40 // (2 * D))),
    ("claims", "PRH,IVF4,Signs", lambda p: with_array(p, "IndexFlat", SIZES, put(0, 1 << 60, "<u8"))),
    ("claims|too long|early", "PRH,IVF4,Signs", lambda p: with_array(p, "IndexFlat", SIZES, put(0, 0, "<u8"))),
    ("not trained", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", has_scale=False)),
    ("the id -1, which is negative", "PRH,IVF1,Signs", lambda p: with_array(p, "IndexFlat", IDS, put(3, -1, "<i8"))),
    ("damaged", "PRH,IVF1,Signs", lambda p: with_array(
        with_fields(p, "IndexIVFSigns", direct_map=1), "IndexFlat", IDS, put(0, 10**12, "<i8"))),
    ("a centroid that is not finite", "PRH,IVF4,Signs", lambda p: with_array(
        p, "IndexFlat", CENTROIDS, put(-1, math.nan, "<f4"))),
    ("a centroid that is not finite", "PRH,IVF4,Signs", lambda p: with_array(
        p, "IndexFlat", CENTROIDS, put(0, -math.inf, "<f4"))),
    ("or too large", "PRH,IVF4,Signs", lambda p: with_array(p, "IndexFlat", CENTROIDS, put(0, 2.0**62, "<f4"))),
    ("a centroid that is not finite", "PRH,IVF4_HNSW4,Signs", lambda p: with_array(
        p, "IndexHNSWFlat", VECTORS_OF_A_GRAPH, put(0, math.nan, "<f4"))),
    ("norms that cannot be", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", low=2.0**63)),
    ("norms that cannot be", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", step=2.0**55)),
    ("low = -1", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", low=-1)),
    ("reach = 1.5", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", reach=1.5)),
    ("margin = -0.5", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", margin=-0.5)),
    ("that of the quantizer", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexIVFSigns", metric=0)),
    ("METRIC_L2 or METRIC_INNER", "PRH,IVF4,Signs", lambda p: with_fields(
        with_fields(p, "IndexIVFSigns", metric=3), "IndexFlat", metric=3)),
    ("only behind linear transforms|behind ITQ", "ITQ8,IVF4,Signs", lambda p: with_fields(
        with_fields(p, "IndexIVFSigns", metric=0), "IndexFlat", metric=0)),
    ("16 dimensions need a quantizer of as many, not 8", "PRH,IVF4,Signs", lambda p: with_array(
        with_fields(p, "IndexFlat", d=8), "IndexFlat", CENTROIDS, lambda data: data[: 4 * 4 * 8])),
    ("'IndexBinaryFlat' where", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexFlat", type="IndexBinaryFlat")),
    ("'IndexPreTransform' where", "PRH,IVF4,Signs", lambda p: with_fields(p, "IndexFlat", type="IndexPreTransform")),
    ("no way into the graph", "PRH,IVF4_HNSW4,Signs", lambda p: with_fields(p, "IndexHNSWFlat", entry_point=60)),
    ("an edge to no vertex", "PRH,IVF4_HNSW4,Signs", lambda p: with_array(
        p, "IndexHNSWFlat", NEIGHBOURS, put(0, 4))),
    ("a vertex on no level", "PRH,IVF4_HNSW4,Signs", lambda p: with_array(p, "IndexHNSWFlat", LEVELS, put(0, 0))),
    ("claims", "PRH,IVF4_HNSW4,Signs", lambda p: with_fields(p, "IndexHNSWFlat", d=1 << 20)),
    ("claims 1099511627776", "PRH,IVF4_HNSW4,Signs", lambda p: with_fields(p, "IndexHNSWFlat", ntotal=1 << 38)),
    ("not the rows", "PRH,IVF1,Signs,RFlat", lambda p: with_array(p, "IndexFlat", IDS, put(0, 1, "<i8"))),
    ("not the rows", "PRH,IVF1,Signs,RFlat", lambda p: with_array(p, "IndexFlat", IDS, put(0, 60, "<i8"))),
    ("the id -7, which is negative", "IDMap,PRH,IVF1,Signs,RFlat", lambda p: with_array(
        p, "IndexFlat", IDS + 2, put(0, -7, "<i8"))),
    ("'type'|damaged", "IDMap,PRH,IVF4,Signs,RFlat", lambda p: with_fields(
        p, "IndexIVFSignsRefine", own_id_map=False)),
    ("60 vectors, but what ranks its results again has 59", "PRH,IVF4,Signs,RFlat", lambda p: [
        *p[:-2], p[-2] | {"ntotal": 59}, p[-1][4 * D:]]),
    ("must have 16 dimensions, not 8", "PRH,IVF4,Signs,RFlat", lambda p: [
        *p[:-2], p[-2] | {"d": 8}, p[-1][: 4 * 8 * 60]]),
    ("lists of metric 1 with a store of metric 0", "PRH,IVF4,Signs,RFlat", lambda p: [
        *p[:-2], p[-2] | {"metric": 0}, p[-1]]),
    # Faiss's transforms
    ("claims", "PCA8,BFlat", lambda p: with_fields(p, "PCAMatrix", d_in=1 << 20, d_out=1 << 20)),
    ("dimensions that do not exist", "Pad24,BFlat", lambda p: with_array(p, "RemapDimensionsTransform", 0, put(0, 16))),
    ("dimensions that do not exist", "Pad24,BFlat", lambda p: with_array(p, "RemapDimensionsTransform", 0, put(0, -2))),
]  # fmt: skip


@pytest.mark.parametrize(("message", "description", "change"), CHANGED)
def test_contents_that_do_not_fit(message, description, change):
    genuine = parts(description)
    assert read(genuine).ntotal == 60
    assert_refused(message, change(genuine))


def test_a_graph_with_an_edge_below_its_level():
    index = filled("BHNSW2")
    hnsw = index.hnsw
    levels = faiss.vector_to_array(hnsw.levels)
    assert levels.max() > 1
    first = int(hnsw.offsets.at(int(levels.argmax()))) + int(hnsw.cum_nneighbor_per_level.at(1))
    forged = with_array(parts_of(index), "IndexBinaryHNSW", NEIGHBOURS, put(first, int(levels.argmin())))
    assert_refused("below its level", forged)


def test_a_way_into_an_empty_graph():
    empty = parts_of(faiss.IndexBinaryHNSW(D, 4))
    assert read(empty).ntotal == 0
    for changes in ({"entry_point": 0}, {"max_level": 0}):
        assert_refused("a way into an empty graph", with_fields(empty, "IndexBinaryHNSW", **changes))


def test_vectors_of_a_quantizer_that_is_not_trained():
    forged = with_fields(parts("PRH,BFlat,Refine(SQ8)"), "IndexScalarQuantizer", is_trained=False, n_ranges=0)
    assert_refused("with 0 limits of ranges instead of 32", forged)


@pytest.mark.parametrize("b", [60, 64])
def test_hashes_that_look_up_too_much(b):
    genuine = parts_of(faiss.IndexBinaryMultiHash(64, 1, b))
    assert read(with_fields(genuine, "IndexBinaryMultiHash", nflip=3)).nflip == 3
    assert_refused("lookups", with_fields(genuine, "IndexBinaryMultiHash", nflip=30))
    assert_refused("b = 65", with_fields(genuine, "IndexBinaryMultiHash", b=65))


@pytest.mark.parametrize(
    "forged",
    [
        [],
        [b"\2\0\0\0[]"],
        [b"\2\0\0\0\xff\xfe"],
        [b"\0\0\0\x7f"],
        [b"\x04\0\0\0null"],
        [{"type": "faiss.Nonsense"}],
        [{"type": ["faiss.Index"], "class": "IndexFlat"}],
        [{"kind": "IndexBinaryFlat", "d": 8, "ntotal": 0}],
        [{"type": "PRHTransform", "n_bytes": 0}],
        [{"type": "IndexBinaryFlat", "d": 8, "ntotal": 0}, b"more"],
        [{"type": "IndexIDMap", "ntotal": 0}] * 5000,
        [b"\xff\xff\0\0" + b"[" * 0xFFFF],
    ],
)
def test_records_that_are_none(forged):
    assert_refused("a damaged index file", forged)
    assert_refused("a damaged index file", forged, trusted=True)


def test_the_deepest_json():
    nested = b"[" * 4000
    assert_refused("a damaged index file", [len(nested).to_bytes(4, "little") + nested])


@pytest.mark.parametrize("description", ["PRH,Flat", "ITQ8,BHash8", "PRH,BFlat,Refine(PQ2x4)"])
def test_faiss_bytes_are_read_only_with_trust(description):
    index = filled(description)
    genuine = parts_of(index)
    assert_refused(r"Faiss's own bytes of an \w+, which are not checked.*trusted=True.*--trusted", genuine)
    again = read(genuine, trusted=True)
    np.testing.assert_array_equal(again.search(X, 3)[1], index.search(X, 3)[1])
    assert_refused("damaged|truncated", genuine[:-1], trusted=True)
    assert_refused("too long", [*genuine, b"more"], trusted=True)


@pytest.mark.parametrize(
    "forged",
    [
        [{"type": "IndexBinaryPreTransform", "n_transforms": 1000}]
        + [{"type": "HadamardRotation", "d_in": 1 << 20, "seed": 1}] * 1000,
        [{"type": "IndexBinaryMultiHash", "d": 1 << 20, "ntotal": 0, "nhash": 1 << 20, "b": 1, "nflip": 0}],
    ],
    ids=["signs", "tables"],
)
def test_memory_that_no_bytes_stand_for(forged):
    assert_refused(r"more than 64 MiB of memory besides what it holds|does not have", forged)


def test_a_transform_that_this_faiss_does_not_have(monkeypatch):
    monkeypatch.delattr(faiss, "HadamardRotation", raising=False)
    forged = [
        {"type": "IndexBinaryPreTransform", "n_transforms": 1},
        {"type": "HadamardRotation", "d_in": 8, "seed": 1},
    ]
    assert_refused(f"a HadamardRotation, which Faiss {faiss.__version__} does not have", forged)


def test_norms_that_cannot_be():
    genuine = parts("PRH,BFlat,RAsym")
    for low, step in ((1e38, 0.0), (1e-300, 10.0), (0, 0.1)):
        assert_refused("norms that cannot be", with_fields(genuine, "IndexBinaryAsymmetric", low=low, step=step))
    D, _ = read(with_fields(genuine, "IndexBinaryAsymmetric", low=1e-300, step=2.8)).search(X, 3)
    assert np.isfinite(D).all()


def test_claims_of_a_pipe_take_no_memory_either():
    """A pipe has no length to compare a claim with; memory is made for what has come, not for what is claimed."""

    class Pipe:
        def __init__(self, data):
            self._data, self._place = data, 0

        def read(self, size):
            self._place += size
            return self._data[self._place - size : self._place]

    from faiss_prh import read_index

    data = as_file(*with_fields(parts("BFlat"), "IndexBinaryFlat", ntotal=1 << 40))
    with pytest.raises(ValueError, match="ends too early"):
        read_index(Pipe(data))


def test_what_cannot_be_read_is_not_written():
    """And says why, instead of being called damaged later."""

    def refused(index, message):
        with pytest.raises(ValueError, match=f"cannot be written: {message}"):
            parts_of_file(index)

    graph = filled("BHNSW4")
    graph.hnsw.efSearch = 1 << 17
    refused(graph, "IndexBinaryHNSW with efSearch = 131072")
    graph = filled("BHNSW4")
    graph.hnsw.entry_point = 99
    refused(graph, "no way into the graph")
    broken = filled("IDMap,BIVF4")
    faiss.IndexBinaryIDMap.remove_ids(broken, np.array([10**12]))  # by which Faiss loses track of the rows
    refused(broken, "59 ids for an IndexBinaryIVF that does not have just the rows")
    hashed = faiss.IndexBinaryMultiHash(64, 1, 60)
    hashed.nflip = 30
    refused(hashed, "hashes of 60 bits with nflip = 30")
    linear = faiss.LinearTransform(D, 8)
    linear.is_trained = True
    refused(IndexBinaryPreTransform(linear, faiss.IndexBinaryFlat(8)), "LinearTransform: A has 0 values instead of 128")
    remap = faiss.RemapDimensionsTransform(D, 8, False)
    faiss.copy_array_to_vector(np.full(8, 99, np.int32), remap.map)
    refused(IndexBinaryPreTransform(remap, faiss.IndexBinaryFlat(8)), "a RemapDimensionsTransform of dimensions")
    nested = index_factory(D, "PRH(1),Flat")
    for _ in range(20):
        nested = faiss.IndexRefineFlat(nested)
    refused(nested, "it is inside more than 10 others")
    store = faiss.IndexScalarQuantizer(D, faiss.ScalarQuantizer.QT_8bit)
    store.train(np.array([[-3e38] * D, [3e38] * D], np.float32))
    index = IndexBinaryRefine(PRHTransform.random(D), faiss.IndexBinaryFlat(D), store)
    refused(index, "ranges of a scalar quantizer that are not finite")
    lists = filled("BIVF4")
    lists.quantizer.reset()
    refused(lists, "4 lists of 0 centroids")


def test_lists_of_signs_that_cannot_be_read_are_not_written():
    def refused(index, message):
        with pytest.raises(ValueError, match=f"cannot be written: {message}"):
            parts_of_file(index)

    index = filled("PRH,IVF4,Signs")
    index.quantizer.reset()
    refused(index, "4 lists of 0 centroids")
    index = filled("PRH,IVF4,Signs")
    index._scale = None
    refused(index, "vectors in lists that are not trained")
    index._scale = ResidualScale(2.0**63, 0.0, 0.5)
    refused(index, r"ResidualScale\(.*\), which stands for norms that cannot be")
    index = filled("PRH,IVF4,Signs")
    code, its_id, its_list = np.zeros(3, np.uint8), np.array([-5]), np.array([0])  # which must outlive their pointers
    index.index.add_core(1, *map(faiss.swig_ptr, (code, its_id, its_list)))
    refused(index, "the id -5, which is negative")
    index = filled("PRH,IVF4,Signs")
    centroids_of(index.quantizer)[2, 3] = np.nan
    refused(index, "a centroid that is not finite, or too large")
    index = filled("PRH,IVF4_HNSW4,Signs")
    index.quantizer.hnsw.entry_point = 99
    refused(index, "no way into the graph")
    index = filled("PRH,IVF4_HNSW4,Signs")
    faiss.downcast_index(index.quantizer.storage).add(X[:1])
    refused(index, "a graph of 4 centroids, of which 5 are there")
    index = filled("PRH,IVF1,Signs,RFlat")
    ids_in_list(index.index, 0)[7] = 3
    refused(index, "the binary index has ids that are not the rows")
    index = filled("PRH,IVF1,Signs,RFlat")
    index.refine_index.add(X)
    refused(index, "the binary index has 60 vectors, but what ranks its results again has 120")


def test_other_quantizers_need_trust():
    quantizer = faiss.IndexHNSWSQ(D, faiss.ScalarQuantizer.QT_fp16, 4)
    index = IndexIVFSigns(PRHTransform(D), quantizer, 4)
    index.train(XT)
    index.add(X)
    genuine = parts_of(index)
    assert_refused("Faiss's own bytes of an IndexHNSWSQ, which are not checked", genuine)
    np.testing.assert_array_equal(read(genuine, trusted=True).search(X, 3)[1], index.search(X, 3)[1])


@pytest.mark.parametrize(
    ("description", "kind"), [("PRH,BIVF4", "IndexBinaryIVF"), ("PRH,IVF4,Signs", "IndexIVFSigns")]
)
def test_short_files_that_claim_many_lists(description, kind):
    forged = with_fields(parts_of(index_factory(D, description)), kind, nlist=1 << 24)
    assert_refused("it claims 134217728 bytes where", forged)


def parts_of_file(index):
    from faiss_prh import serialize_index

    return serialize_index(index)


def test_many_lists_before_training():
    """Each of them takes eight bytes of the file, so that a short file cannot ask for much memory."""
    index = index_factory(D, "PRH,BIVF100000")
    again = deserialize_index(parts_of_file(index))
    assert again.index.nlist == 100_000
    assert not again.is_trained


def test_a_prh_transform_of_other_dimensions():
    other = PRHTransform.random(24).to_bytes()
    genuine = parts("PRH,BFlat")
    place = place_of(genuine, "PRHTransform")
    forged = [*genuine[:place], genuine[place] | {"n_bytes": len(other)}, other, *genuine[place + 2 :]]
    assert_refused("24 dimensions need an index of 24 bits, not 16", forged)
