"""Files: what is written is what is read; what is not whole is refused; what stood there stays."""

import copy
import io
import os
import pickle
import stat
import struct
import threading
import zlib
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import faiss_prh
from faiss_prh import clone_index, deserialize_index, index_factory, read_index, serialize_index, write_index

D = 20
GOLDEN = Path(__file__).with_name("golden")
RNG = np.random.default_rng(0)
XT, XB, XQ = (RNG.normal(size=(n, D)).astype(np.float32) for n in (300, 200, 6))

OURS = [
    "PRH,BFlat",
    "PRH(3,1),BIVF4",
    "PRH,BIVF4_HNSW8",
    "PCA17,PRH,BHNSW8",
    "ITQ16,BHash2x6",
    "L2norm,PRH,BHash3x6",
    "IDMap2,RR24,BFlat",
    "PRH,BFlat,RFlat",
    "PRH,BIVF4,RFlat",
    "IDMap2,PRH,BIVF4,Refine(SQ8)",
    "PRH,BFlat,RAsym",
    "PRH,BIVF4,RAsym",
    "IDMap,OPQ4_16,PRH,BHNSW8,RAsym",
    "PRH,IVF4,Signs",
    "PCA13,PRH,IVF4_HNSW8,Signs",
    "PRH,IVF4,Signs,RFlat",
    "IDMap,PRH,IVF4_HNSW8,Signs,Refine(SQ8)",
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
    index, trusted = filled(description), description in STOCK
    write_index(index, tmp_path / "i.prh")
    again = read_index(tmp_path / "i.prh", trusted=trusted)
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
    assert_same_index(again, deserialize_index(serialize_index(again), trusted=trusted))


@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,BIVF4,RAsym", "IDMap,PRH,BFlat,RFlat", "PRH,IVF4,Flat",
                                         "PRH,IVF4,Signs", "PRH,IVF4_HNSW8,Signs,Refine(SQ8)"])  # fmt: skip
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
    assert isinstance(read_index(file, trusted=True), faiss.IndexPreTransform)
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


def test_long_chains():
    index = index_factory(D, "L2norm," * 30 + "PRH(1),BFlat")
    index.train(RNG.normal(size=(50, D)))
    assert len(clone_index(index).chain) == 31


@pytest.mark.parametrize("n", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("id_map", ["", "IDMap,"])
def test_hashes_of_few_vectors(n, id_map):
    """Faiss's own file of a MultiHash loses the vectors if all are in one list; ours adds them again."""
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
    def no_room(*arguments):
        raise MemoryError("std::bad_alloc")

    data = serialize_index(filled("PRH,BFlat"))
    monkeypatch.setattr(faiss.IndexBinaryFlat, "add", no_room)
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
    with pytest.raises(FileNotFoundError) as raised:
        write_index(filled("PRH,BFlat"), tmp_path / "no" / "folder")
    assert raised.value.filename == str(tmp_path / "no" / "folder")  # and not a name that nobody gave
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
        (faiss.serialize_index(faiss.IndexFlatL2(3)).tobytes(), r"not an index file.*for faiss\.read_index$"),
        (faiss.serialize_index(index_factory(8, "IVF2,Flat")).tobytes(), r"for faiss\.read_index$"),
        (faiss.serialize_index_binary(faiss.IndexBinaryFlat(8)).tobytes(), r"for faiss\.read_index_binary$"),
        (faiss_prh.PRHTransform(8).to_bytes(), r"not an index file.*PRHTransform\.from_bytes$"),
        (DATA[:8] + b"\x07\x00" + DATA[10:], "format version 7"),
        (DATA + b"x", "too long"),
    ):
        other.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_index(other)
        with pytest.raises(ValueError, match=message):
            deserialize_index(content)


def test_lists_in_a_file_of_their_own_are_not_written(tmp_path):
    """The index file alone would be worth nothing."""
    quantizer = faiss.IndexFlatL2(D)
    index = faiss.IndexIVFFlat(quantizer, D, 2)
    index.train(XT)
    on_disk = faiss.OnDiskInvertedLists(2, index.code_size, str(tmp_path / "lists"))
    index.replace_invlists(on_disk)
    index.add(XB)
    with pytest.raises(ValueError, match="cannot be written: its inverted lists are in a file of their own"):
        serialize_index(index)


@pytest.mark.parametrize(
    "description",
    ["PRH,Flat", "PRH,IDMap,Flat", "IDMap2,PRH,IVF4,Flat", "PRH,BFlat", "PRH,BIVF4,RFlat", "PRH,LSH,RFlat",
     "PRH,IVF4,Signs", "PRH,IVF4_HNSW8,Signs,RFlat"],
)  # fmt: skip
def test_a_clone_can_be_merged_with_its_original(description):
    index = filled(description)
    clone = clone_index(index)
    if description == "PRH,IDMap,Flat":
        innermost = [faiss.downcast_index(faiss.downcast_index(one.index).index) for one in (index, clone)]
        innermost[0].merge_from(innermost[1], 0)
        assert innermost[0].ntotal == 2 * len(XB)
        return
    if isinstance(index, faiss.IndexPreTransform):
        index.merge_from(clone, 0)
        assert (index.ntotal, clone.index.ntotal) == (2 * len(XB), 0)
        return
    if isinstance(index, faiss_prh.IndexBinaryPreTransform):
        index.merge_from(clone, len(XB))
    else:  # Faiss merges no IDMap or IndexRefine of others
        outer = "base_index" if isinstance(index, faiss.IndexRefine) else "index"
        inner, other = (faiss.downcast_index(getattr(one, outer)) for one in (index, clone))
        inner.merge_from(other, 0)
        assert inner.ntotal == 2 * len(XB)
        return
    assert (index.ntotal, clone.ntotal) == (2 * len(XB), 0)


@pytest.mark.parametrize("description", ["PRH,BIVF16", "IDMap2,PRH,BIVF16,RFlat", "PRH,BFlat,RAsym", "PRH,BHNSW8",
                                         "PRH,IVF16,Signs", "IDMap,PRH,IVF16,Signs,RFlat"])  # fmt: skip
def test_what_is_written_while_another_thread_adds_is_whole(description, tmp_path):
    index = filled(description)
    failures, done = [], threading.Event()

    def add():
        try:
            for number in range(60):
                if "IDMap" in description:
                    index.add_with_ids(XB, np.arange(len(XB)) + 10**6 * (number + 1))
                else:
                    index.add(XB)
        except BaseException as error:  # for the main thread to see
            failures.append(error)
        finally:
            done.set()

    adding = threading.Thread(target=add)
    adding.start()
    seen = set()
    while not done.is_set():
        write_index(index, tmp_path / "i.prh")
        seen.add(read_index(tmp_path / "i.prh").ntotal)
    adding.join()
    assert not failures
    assert all(n % len(XB) == 0 for n in seen)
    assert_same_index(index, clone_index(index))


def test_a_float_index_that_changes_while_it_is_written_is_not_written(tmp_path, monkeypatch):
    """Faiss's own indexes have no lock. The old file stays."""
    index = filled("PRH,Flat")
    write_index(index, tmp_path / "i.prh")
    before = (tmp_path / "i.prh").read_bytes()

    def write_and_add(inside, writer, write=faiss.write_index):
        write(inside, writer)
        index.add(XB)

    monkeypatch.setattr(faiss, "write_index", write_and_add)
    with pytest.raises(ValueError, match="cannot be written: it changed meanwhile"):
        write_index(index, tmp_path / "i.prh")
    assert (tmp_path / "i.prh").read_bytes() == before
    monkeypatch.undo()
    index = filled("PRH,Flat")
    inside = faiss.downcast_index(index.index)
    inside.codes.resize(inside.codes.size() + 4 * D)  # as in the middle of an add
    with pytest.raises(ValueError, match="another thread is adding to it"):
        write_index(index, tmp_path / "i.prh")
    assert os.listdir(tmp_path) == ["i.prh"]


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
    index = read_index(GOLDEN / f"{name}.prh", trusted=name == "v2-stock")
    distances, found = index.search(expected["xq"], expected["I"].shape[1])
    np.testing.assert_array_equal(found, expected["I"])
    np.testing.assert_allclose(distances, expected["D"], rtol=1e-4)


def test_there_are_golden_files():
    assert len(list(GOLDEN.glob("v2-*.prh"))) >= 5
