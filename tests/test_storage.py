"""Files: what is written is what is read; what is not whole is refused; what stood there stays."""

import copy
import io
import json
import os
import pickle
import stat
import struct
import zlib
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import faiss_prh
from faiss_prh import clone_index, deserialize_index, index_factory, read_index, serialize_index, write_index
from faiss_prh.storage import container as _container

D = 20
GOLDEN = Path(__file__).with_name("golden")
RNG = np.random.default_rng(0)
XT, XB, XQ = (RNG.normal(size=(n, D)).astype(np.float32) for n in (300, 200, 6))

OURS = [
    "PRH,BFlat",
    "PRH(3,1),BIVF4",
    "PRH,BIVF4_HNSW8",
    "PCA17,PRH,BHNSW8",
    "ITQ16,BHash6",
    "L2norm,PRH,BHash3x6",
    "IDMap2,RR24,BFlat",
    "PRH,BFlat,RFlat",
    "PRH,BIVF4,RFlat",
    "IDMap2,PRH,BIVF4,Refine(SQ8)",
    "PRH,BFlat,RAsym",
    "PRH,BIVF4,RAsym",
    "IDMap,OPQ4_16,PRH,BHNSW8,RAsym",
]
STOCK = [
    "PRH,LSH",
    "PCA16,PRH,PQ4x4",
    "PRH,IVF4,SQ8",
    "IDMap,PRH,Flat",
    "IDMap2,PRH,IVF4,Flat",
    "PRH,LSH,RFlat",
    "PRH,SQ8,IDMap2,Refine(SQ8)",
    "HNSW8",
    "PCA8,IVF4,Flat",
]


def filled(description):
    index = faiss_prh.index_factory(D, description)
    index.train(XT)
    if "IDMap" in description:
        index.add_with_ids(XB, np.arange(len(XB)) * 7 + 10**12)
    else:
        index.add(XB)
    if hasattr(index, "k_factor"):
        index.k_factor = 3
    return index


def assert_same_index(index, again):
    assert type(again) is type(index)
    assert (again.ntotal, again.d, again.is_trained) == (index.ntotal, index.d, index.is_trained)
    for mine, theirs in zip(again.search(XQ, 5), index.search(XQ, 5), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("description", OURS + STOCK)
def test_round_trip(description, tmp_path, thread_count):
    thread_count(1)
    index = filled(description)
    write_index(index, tmp_path / "i.prh")
    again = read_index(tmp_path / "i.prh")
    assert_same_index(index, again)
    assert os.listdir(tmp_path) == ["i.prh"]
    np.testing.assert_array_equal(clone_index(index).search(XQ, 5)[1], index.search(XQ, 5)[1])
    # What was read goes on working: it can be added to, and written again.
    if "IDMap" in description:
        again.add_with_ids(XT, np.arange(len(XT)))
    else:
        again.add(XT)
    assert again.ntotal == len(XB) + len(XT)
    assert index.ntotal == len(XB)
    assert_same_index(again, deserialize_index(serialize_index(again)))


@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,BIVF4,RAsym", "IDMap,PRH,BFlat,RFlat", "PRH,IVF4,Flat"])
def test_untrained_and_empty(description):
    untrained = clone_index(faiss_prh.index_factory(D, description))
    assert not untrained.is_trained
    untrained.train(XT)
    assert untrained.is_trained
    empty = clone_index(untrained)
    assert empty.is_trained
    assert empty.ntotal == 0
    assert (empty.search(XQ, 2)[1] == -1).all()


@pytest.mark.parametrize("description", OURS)
def test_pickle_and_copy(description, thread_count):
    thread_count(1)
    index = filled(description)
    for again in (pickle.loads(pickle.dumps(index)), copy.copy(index), copy.deepcopy(index)):
        assert_same_index(index, again)
        again.reset()
        assert index.ntotal == len(XB)


def test_parameters_survive():
    index = filled("PRH,BIVF4,RAsym")
    index.index.nprobe = 3
    again = clone_index(index)
    assert (again.index.nprobe, again.k_factor) == (3, 3.0)
    assert again.chain[0].parameters == index.chain[0].parameters
    again.index.nprobe = 1
    assert index.index.nprobe == 3


def test_file_objects_may_hold_more_and_give_less():
    class Trickle(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 7))

        def write(self, data):
            return super().write(bytes(data[:5]))

    file = Trickle()
    file.write(b"ab")
    write_index(filled("PRH,BFlat"), file)
    write_index(filled("PRH,LSH"), file)
    file.write(b"yz")
    file.seek(2)
    assert isinstance(read_index(file), faiss_prh.IndexBinaryPreTransform)
    assert isinstance(read_index(file), faiss.IndexPreTransform)
    assert file.read(2) == b"yz"


def test_file_objects_that_break_their_promises():
    class Full(io.BytesIO):
        def write(self, data):
            return 0

    class Generous(io.BytesIO):
        def read(self, size=-1):
            return super().read(size) + b"more"

    with pytest.raises(OSError, match="takes no more"):
        write_index(filled("PRH,BFlat"), Full())
    with pytest.raises(ValueError, match="when asked for"):
        read_index(Generous(serialize_index(filled("PRH,BFlat"))))


def test_what_is_written_can_be_read():
    """Also long chains; and what is too deep for the reader is not written."""
    index = index_factory(D, "L2norm," * 30 + "PRH(1),BFlat")
    index.train(RNG.normal(size=(50, D)))
    assert len(clone_index(index).chain) == 31
    nested = index_factory(D, "PRH(1),Flat")
    for _ in range(20):
        nested = faiss.IndexRefineFlat(nested)
    with pytest.raises(ValueError, match="in more than 10 others"):
        serialize_index(nested)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("id_map", ["", "IDMap,"])
def test_hashes_of_few_vectors(n, id_map):
    """Faiss's own file of a MultiHash loses the vectors if all are in one list."""
    x = np.tile(RNG.normal(size=D).astype("f4"), (n, 1))
    index = index_factory(D, f"{id_map}PRH(1),BHash2x4")
    index.train(RNG.normal(size=(50, D)))
    index.add_with_ids(x, np.arange(n) + 7) if id_map else index.add(x)
    again = clone_index(index)
    for _ in range(2):
        for mine, theirs in zip(again.search(x, n), index.search(x, n), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert (again.search(x, n)[1] >= 0).all()
        again = clone_index(again)


def test_memory_that_runs_out_is_no_damage(monkeypatch):
    def read(reader):
        raise MemoryError("std::bad_alloc")

    data = serialize_index(filled("PRH,BFlat"))
    monkeypatch.setattr(faiss, "read_index_binary", read)
    with pytest.raises(MemoryError):
        deserialize_index(data)


def test_streaming_takes_little_memory(tmp_path):
    """A file is written and read in pieces: none is larger than a chunk."""

    class Watching(io.BytesIO):
        largest = 0

        def write(self, data):
            self.largest = max(self.largest, len(data))
            return super().write(data)

    index = faiss_prh.index_factory(64, "PRH,BFlat,RFlat")
    x = np.random.default_rng(0).normal(size=(20000, 64)).astype(np.float32)
    index.train(x[:1000])
    index.add(x)
    file = Watching()
    write_index(index, file)
    assert len(file.getvalue()) > 5 << 20
    assert file.largest <= 1 << 20


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "i.prh"
    write_index(filled("PRH,BFlat"), path)
    before = path.read_bytes()
    shards = faiss.IndexBinaryShards(24)
    shards.add_shard(faiss.IndexBinaryFlat(24))
    with pytest.raises(ValueError, match="cannot be written"):
        write_index(faiss_prh.IndexBinaryPreTransform(faiss.RandomRotationMatrix(D, 24), shards), path)
    with pytest.raises(TypeError, match="an index is needed, not str"):
        write_index("PRH,BFlat", path)

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space"):
            write_index(filled("PRH,BFlat,RFlat"), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["i.prh"]
    with pytest.raises(FileNotFoundError):
        write_index(filled("PRH,BFlat"), tmp_path / "no" / "folder")
    with pytest.raises(FileNotFoundError):
        read_index(tmp_path / "nothing")


def test_names_as_long_as_they_may_be(tmp_path):
    path = tmp_path / ("數" * 83 + ".prh")
    write_index(filled("PRH,BFlat"), path)
    assert read_index(path).ntotal


def test_links_and_permissions_stay(tmp_path):
    target, link = tmp_path / "target.prh", tmp_path / "link.prh"
    index = filled("PRH,BFlat")
    write_index(index, target)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
    target.chmod(0o640)
    link.symlink_to(target)
    write_index(filled("PRH,BFlat,RFlat"), link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert isinstance(read_index(target), faiss_prh.IndexBinaryRefine)


DATA = serialize_index(filled("IDMap2,PRH,BIVF4,RFlat"))


@given(place=st.integers(0, len(DATA) - 1), change=st.integers(1, 255))
def test_any_changed_byte_is_found(place, change):
    damaged = bytearray(DATA)
    damaged[place] ^= change
    with pytest.raises(ValueError, match=r"index file"):
        deserialize_index(bytes(damaged))


@given(length=st.integers(0, len(DATA) - 1))
def test_any_truncation_is_found(length):
    with pytest.raises(ValueError, match=r"index file"):
        deserialize_index(DATA[:length])


def test_what_is_no_index_file(tmp_path):
    other = tmp_path / "other"
    for content, message in (
        (b"", "not an index file"),
        (b"\x89PNG" + bytes(100), "not an index file"),
        (faiss.serialize_index(faiss.IndexFlatL2(3)).tobytes(), "not an index file"),
        (faiss_prh.PRHTransform(8).to_bytes(), "not an index file"),
        (DATA[:8] + b"\x07\x00" + DATA[10:], "format version 7"),
        (DATA + b"x", "too long"),
    ):
        other.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_index(other)
        with pytest.raises(ValueError, match=message):
            deserialize_index(content)


def forged(*parts):
    """A stream that is whole, with anything in it."""
    file = io.BytesIO()
    writer = _container.ChunkWriter(file)
    for part in parts:
        if isinstance(part, dict):
            part = json.dumps(part).encode()
            writer.write(struct.pack("<I", len(part)))
        writer.write(part)
    writer.finish()
    return file.getvalue()


def binary(index):
    return faiss.serialize_index_binary(index).tobytes()


def flat(n=3, bits=16):
    index = faiss.IndexBinaryFlat(bits)
    index.add(np.zeros((n, bits // 8), np.uint8))
    return index


def ivf_with_ids(ids):
    quantizer = flat(1)
    index = faiss.IndexBinaryIVF(quantizer, 16, 1)
    index.is_trained = True
    index.add_with_ids(np.zeros((len(ids), 2), np.uint8), np.array(ids))
    return index


def id_mapped(ivf):
    """An IDMap of three vectors around what it would not take."""
    index = faiss.IndexBinaryIDMap(flat(0))
    index.index, index.ntotal, index.d = ivf, 3, 16
    faiss.copy_array_to_vector(np.arange(3), index.id_map)
    return binary(index)


PRH = faiss_prh.PRHTransform.random(16).to_bytes()
PRH_RECORD = {"type": "PRHTransform", "size": len(PRH)}
LEAF = {"type": "faiss.IndexBinary"}
FLOATS = faiss.IndexFlatL2(16)
FLOATS.add(np.zeros((3, 16), np.float32))
FLOAT_DATA = faiss.serialize_index(FLOATS).tobytes()
OTHER_FLOATS = faiss.serialize_index(faiss.IndexFlatL2(16)).tobytes()
REFINE = {"type": "IndexBinaryRefine", "transforms": 1, "k_factor": 1.0, "own_id_map": False}
ASYMMETRIC = {"type": "IndexBinaryAsymmetric", "transforms": 1, "k_factor": 1.0, "own_id_map": False}
SCALE = {"scale": [1.0, 0.1, 0.1]}


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ({"type": "faiss.Nonsense"},),
        ({"type": "PRHTransform", "size": len(PRH)}, PRH),
        ({"kind": "faiss.Index"},),
        ({"type": "faiss.Index"}, b"junk" * 10),
        ({"type": "faiss.Index", "more": 1}, FLOAT_DATA),
        ({"type": ["faiss.Index"]}, FLOAT_DATA),
        (struct.pack("<I", 2), b"[]"),
        (struct.pack("<I", 2), b"\xff\xfe"),
        (struct.pack("<I", 1 << 31),),
        ({"type": "faiss.Index"}, FLOAT_DATA, b"more"),
        ({"type": "IndexBinaryPreTransform", "transforms": 0}, LEAF, binary(flat())),
        ({"type": "IndexBinaryPreTransform", "transforms": 10**9}, PRH_RECORD, PRH),
        ({"type": "IndexBinaryPreTransform", "transforms": "1"}, PRH_RECORD, PRH),
        ({"type": "IndexBinaryPreTransform", "transforms": 1}, {**PRH_RECORD, "size": 10**12}, PRH),
        ({"type": "IndexBinaryPreTransform", "transforms": 1}, {**PRH_RECORD, "size": -5}, PRH),
        ({"type": "IndexBinaryPreTransform", "transforms": 1}, PRH_RECORD, PRH, LEAF, binary(flat(bits=24))),
        ({"type": "IndexBinaryPreTransform", "transforms": 1}, LEAF, binary(flat()), LEAF, binary(flat())),
        (REFINE, PRH_RECORD, PRH, LEAF, binary(flat()), {"type": "faiss.Index"}, OTHER_FLOATS),
        ({**REFINE, "k_factor": -1}, PRH_RECORD, PRH, LEAF, binary(flat()), {"type": "faiss.Index"}, FLOAT_DATA),
        ({**REFINE, "k_factor": None}, PRH_RECORD, PRH, LEAF, binary(flat()), {"type": "faiss.Index"}, FLOAT_DATA),
        ({**REFINE, "own_id_map": True}, PRH_RECORD, PRH, LEAF, binary(flat()), {"type": "faiss.Index"}, FLOAT_DATA),
        (REFINE, PRH_RECORD, PRH, LEAF, id_mapped(ivf_with_ids([0, 1, 99])), {"type": "faiss.Index"}, FLOAT_DATA),
        (REFINE, PRH_RECORD, PRH, LEAF, id_mapped(ivf_with_ids([0, 1, -1])), {"type": "faiss.Index"}, FLOAT_DATA),
        (REFINE, PRH_RECORD, PRH, LEAF, id_mapped(ivf_with_ids([0, 1, 1])), {"type": "faiss.Index"}, FLOAT_DATA),
        ({**ASYMMETRIC, **SCALE}, PRH_RECORD, PRH, LEAF, binary(flat()), LEAF, binary(flat(bits=16))),
        ({**ASYMMETRIC, **SCALE}, PRH_RECORD, PRH, LEAF, binary(flat()), LEAF, binary(flat(n=2, bits=8))),
        ({**ASYMMETRIC, "scale": [1, 2]}, PRH_RECORD, PRH, LEAF, binary(flat()), LEAF, binary(flat(bits=8))),
        ({**ASYMMETRIC, "scale": ["1", 2, 3]}, PRH_RECORD, PRH, LEAF, binary(flat()), LEAF, binary(flat(bits=8))),
        (
            {**ASYMMETRIC, "scale": [1, 2, float("nan")]},
            PRH_RECORD,
            PRH,
            LEAF,
            binary(flat()),
            LEAF,
            binary(flat(bits=8)),
        ),
        ({"type": "IndexIDMap", "ntotal": 2}, bytes(16), {"type": "faiss.Index"}, FLOAT_DATA),
        ({"type": "IndexIDMap", "ntotal": -1}, {"type": "faiss.Index"}, FLOAT_DATA),
        (
            {"type": "IndexRefine", "k_factor": 1},
            {"type": "faiss.Index"},
            FLOAT_DATA,
            {"type": "faiss.Index"},
            OTHER_FLOATS,
        ),
        ({"type": "IndexPreTransform", "transforms": 1}, PRH_RECORD, PRH, LEAF, binary(flat())),
        tuple({"type": "IndexIDMap", "ntotal": 0} for _ in range(5000)),
    ],
)
def test_forged_files_are_refused(parts):
    with pytest.raises(ValueError, match=r"."):
        deserialize_index(forged(*parts))


def test_no_other_file_is_opened(tmp_path):
    """A Faiss index may name a file with its lists; a file from a stranger must not."""
    quantizer = faiss.IndexFlatL2(D)
    index = faiss.IndexIVFFlat(quantizer, D, 2)
    index.train(XT)
    on_disk = faiss.OnDiskInvertedLists(2, index.code_size, str(tmp_path / "lists"))
    index.replace_invlists(on_disk)
    index.add(XB)
    with pytest.raises(ValueError, match="file of their own"):
        serialize_index(index)
    stolen = forged({"type": "faiss.Index"}, faiss.serialize_index(index).tobytes())
    with pytest.raises(ValueError, match="names inverted lists in another file"):
        deserialize_index(stolen)


def test_transforms_that_would_read_elsewhere():
    remap = faiss.RemapDimensionsTransform(16, 16, False)
    faiss.copy_array_to_vector(np.full(16, 10**9, np.int32), remap.map)
    linear = faiss.LinearTransform(16, 16, False)
    linear.is_trained = True
    for transform in (remap, linear):
        with pytest.raises(ValueError, match="damaged"):
            deserialize_index(serialize_index(faiss_prh.IndexBinaryPreTransform(transform, flat(0))))


def test_claims_beyond_memory():
    data = bytearray(binary(flat(n=1000)))
    place = data.rindex(struct.pack("<Q", 2000))
    data[place : place + 8] = struct.pack("<Q", 2**39)
    with pytest.raises(ValueError, match="damaged"):
        deserialize_index(forged(LEAF, bytes(data)))


def test_neither_path_nor_file():
    for nothing in (None, b"path", 3):
        with pytest.raises(TypeError, match="a path or a binary file object"):
            write_index(filled("PRH,BFlat"), nothing)
        with pytest.raises(TypeError, match="a path or a binary file object"):
            read_index(nothing)


def test_the_checksum_is_crc32():
    header, size, checksum = DATA[:10], *struct.unpack_from("<II", DATA, 10)
    assert checksum == zlib.crc32(header + DATA[18 : 18 + size])


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.prh")))
def test_golden_files(name):
    """Files of every version of the format, made by golden/make.py, are read for ever."""
    expected = np.load(GOLDEN / f"{name}.npz")
    index = read_index(GOLDEN / f"{name}.prh")
    distances, found = index.search(expected["xq"], expected["I"].shape[1])
    np.testing.assert_array_equal(found, expected["I"])
    np.testing.assert_allclose(distances, expected["D"], rtol=1e-4)


def test_there_are_golden_files():
    assert len(list(GOLDEN.glob("v1-*.prh"))) >= 5
