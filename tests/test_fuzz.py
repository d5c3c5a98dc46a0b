"""Inputs that the fuzzer found, or could have found; and that it finds what there is to find."""

import io
import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import faiss
import numpy as np
import pytest
from test_serialization import signed
from test_storage import FLOAT_DATA, LEAF, PRH, PRH_RECORD, binary, flat, forged, ivf_with_ids

from bench.mutation import Mutator
from faiss_prh import PRHTransform, clone_index, deserialize_index, index_factory, read_index

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FLOAT = {"type": "faiss.Index"}
TRANSFORM = {"type": "faiss.VectorTransform"}
PRE_TRANSFORM = {"type": "IndexBinaryPreTransform", "transforms": 1}
X = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)


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


def filled(index):
    index.train(X)
    index.add(X)
    return index


FLAT_VECTORS = floats(filled(faiss.IndexFlatL2(16)))
CLAIMS = {
    "binary flat": (LEAF, binary(flat(1000)), 2000),
    "transform": (TRANSFORM, transform(trained(faiss.PCAMatrix(16, 9))), 144),
    "float flat": (FLOAT, FLAT_VECTORS, 1600),
    "SQ": (FLOAT, floats(filled(faiss.IndexScalarQuantizer(16, faiss.ScalarQuantizer.QT_8bit))), 1600),
    "LSH": (FLOAT, floats(filled(faiss.IndexLSH(16, 24))), 384),
    "PQ": (FLOAT, floats(filled(faiss.IndexPQ(16, 2, 4))), 256),
    "HNSW": (FLOAT, floats(filled(faiss.IndexHNSWFlat(16, 8))), 1600),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_no_room_is_made_for_what_is_not_there(name):
    record, data, count = CLAIMS[name]
    parts = (record, replaced(data, count, 1 << 30))
    if record is TRANSFORM:
        parts = (PRE_TRANSFORM, *parts)
    assert_refused(r"claims \d+ bytes where \d+ are left", *parts)


def test_no_room_is_made_for_centroids_that_are_not_there():
    data = floats(faiss.IndexPQ(16, 2, 4))
    assert_refused(r"claims \d+ bytes where \d+ are left", FLOAT, replaced(data, 4, 20))


def test_a_pipe_has_no_length_and_is_read_all_the_same():
    class Pipe(io.RawIOBase):
        def __init__(self, data):
            self._data = io.BytesIO(data)

        def readable(self):
            return True

        def read(self, size=-1):
            return self._data.read(size)

    assert read_index(Pipe(forged(FLOAT, FLAT_VECTORS))).ntotal == 100


def test_lists_that_take_memory_and_no_bytes():
    untrained = faiss.IndexBinaryIVF(flat(0), 16, 12345)
    data = binary(untrained).replace(struct.pack("<Q", 12345), struct.pack("<Q", 1 << 40))
    assert_refused("1099511627776 lists", LEAF, data)
    three = struct.pack("<Q", 3)
    before, _, after = binary(ivf_with_ids([5, 6, 7])).rpartition(three)
    assert_refused("lists that do not hold", LEAF, before + struct.pack("<Q", 1 << 30) + after)


def test_searches_without_end():
    graph = faiss.IndexBinaryHNSW(16, 4)
    graph.add(np.zeros((3, 2), np.uint8))
    graph.hnsw.efSearch = 2**31 - 1
    assert_refused("efSearch", LEAF, binary(graph))
    float_graph = filled(faiss.IndexHNSWFlat(16, 8))
    float_graph.hnsw.efSearch = 2**31 - 1
    assert_refused("efSearch", FLOAT, floats(float_graph))
    for hashed in (faiss.IndexBinaryHash(64, 60), faiss.IndexBinaryMultiHash(64, 1, 60)):
        hashed.add(np.zeros((3, 8), np.uint8))
        hashed.nflip = 3
        assert clone_index(hashed).nflip == 3
        hashed.nflip = 30
        assert_refused("nflip = 30", LEAF, binary(hashed))
    refined = {"type": "IndexRefine", "k_factor": 1e12}
    assert_refused("k_factor", refined, FLOAT, FLOAT_DATA, FLOAT, FLOAT_DATA)


def spoiled_graph(change):
    index = filled(faiss.IndexHNSWFlat(16, 4))
    change(index.hnsw, faiss.vector_to_array(index.hnsw.levels))
    return floats(index)


def lift_entry(hnsw, levels):
    hnsw.max_level += 1


def enter_below(hnsw, levels):
    hnsw.entry_point = int(levels.argmin())


def edge_below(hnsw, levels):
    top = int(levels.argmax())
    first = int(hnsw.offsets.at(top)) + int(hnsw.cum_nneighbor_per_level.at(1))
    faiss.rev_swig_ptr(hnsw.neighbors.data(), hnsw.neighbors.size())[first] = levels.argmin()


@pytest.mark.parametrize("change", [lift_entry, enter_below, edge_below])
def test_graphs_that_lead_outside(change):
    """Faiss 1.15 reads these, and a search then reads elsewhere."""
    assert_refused("way into|below its level", FLOAT, spoiled_graph(change))


def itq_of_another_size():
    itq = trained(faiss.ITQTransform(16, 8, True))
    itq.d_out = 3
    return itq


def centring_of_another_size():
    centring = trained(faiss.CenteringTransform(16))
    faiss.copy_array_to_vector(np.zeros(20, np.float32), centring.mean)
    return centring


@pytest.mark.parametrize("make", [itq_of_another_size, centring_of_another_size])
def test_transforms_whose_parts_do_not_fit(make):
    made = make()
    bits = -(-made.d_out // 8) * 8
    assert_refused("another size", PRE_TRANSFORM, TRANSFORM, transform(made), LEAF, binary(flat(0, bits)))


def test_an_lsh_without_its_thresholds():
    index = filled(faiss.IndexLSH(16, 24, True, True))
    faiss.copy_array_to_vector(np.empty(0, np.float32), index.thresholds)
    assert_refused("thresholds", FLOAT, floats(index))


def test_an_id_map_that_does_not_know_its_vectors():
    around = faiss.IndexBinaryIDMap(flat(0))
    inside = ivf_with_ids([0, 1, 10**9])
    around.index, around.ntotal = inside, 3
    faiss.copy_array_to_vector(np.arange(3), around.id_map)
    assert_refused("IDMap does not know", PRE_TRANSFORM, PRH_RECORD, PRH, LEAF, binary(around))
    hashed = faiss.IndexBinaryHash(16, 8)
    hashed.add_with_ids(np.zeros((3, 2), np.uint8), np.array([0, 1, 10**9]))
    around.index = hashed
    assert_refused("IDMap does not know", PRE_TRANSFORM, PRH_RECORD, PRH, LEAF, binary(around))
    quantizer = faiss.IndexFlatL2(16)
    ivf = faiss.IndexIVFFlat(quantizer, 16, 1)
    ivf.train(X)
    ivf.add_with_ids(X[:2], np.array([0, 10**9]))
    parts = {"type": "IndexIDMap", "ntotal": 2}, bytes(16), FLOAT, floats(ivf)
    assert_refused("IDMap does not know", *parts)


def test_an_ivf_without_its_lists():
    ivf = faiss.IndexIVFFlat(faiss.IndexFlatL2(16), 16, 1)
    ivf.train(X)
    data = floats(ivf)
    assert_refused("without its lists", FLOAT, data[: data.index(b"ilar")] + b"il00")
    data = binary(ivf_with_ids([]))
    assert_refused("without its lists", LEAF, data[: data.index(b"ilar")] + b"il00")


def test_a_signalling_nan_is_refused_without_a_warning():
    prh = PRHTransform.random(4)
    angle = prh.rotation.layers[0].theta[:1].tobytes()
    data = signed(prh.to_bytes()[:-4].replace(angle, struct.pack("<I", 0x7F800001), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="finite"):
            PRHTransform.from_bytes(data)


@pytest.mark.parametrize(
    "description",
    ["PRH,BFlat\0", "PRH,BIVF٣", "PRH\udc80,BFlat", "IVF1000000000000,Flat", "PRH,BIVF1000000000", "PRH,BIVF99999M"],
)
def test_factory_strings_that_are_refused(description):
    with pytest.raises(ValueError, match=r"."):
        index_factory(16, description)


@pytest.mark.parametrize("d", [0, -1, 1 << 21, 1 << 40])
def test_dimensions_that_are_refused(d):
    for description in ("Flat", "BFlat", "PRH,BFlat"):
        with pytest.raises(ValueError, match="d must be from 1"):
            index_factory(d, description)


@pytest.mark.parametrize("scale", [[1e38, 0.1, 0.1], [1, 1e300, 0.1], [0, 0.1, 0.1], [1, -1, 0.1], [1, 0.1, 7]])
def test_norms_that_cannot_be(scale):
    record = {"type": "IndexBinaryAsymmetric", "transforms": 1, "k_factor": 1.0, "own_id_map": False, "scale": scale}
    assert_refused("NormScale", record, PRH_RECORD, PRH, LEAF, binary(flat()), LEAF, binary(flat(bits=8)))


# As `python -m bench` does, but that imports what draws the plots of other commands.
RUN = "import argparse; parser = argparse.ArgumentParser(); {0}.add_arguments(parser); {0}.run(parser.parse_args())"


def fuzz(*arguments, prelude=""):
    program = f"from bench import fuzz\n{prelude}\n{RUN.format('fuzz')}"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_short_run_finds_nothing(tmp_path):
    run = fuzz("--inputs", "3000", "--seed", "1", "--failure", str(tmp_path / "failure"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[0]) >= 3000
    assert not (tmp_path / "failure").exists()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise KeyError(3)", "an error other than ValueError"),
        ("import os; os.kill(os.getpid(), 11)", "ended with -11"),
        ("import time; time.sleep(60)", "no end after"),
    ],
)
def test_the_fuzzer_finds_faults(fault, message, tmp_path):
    prelude = f"""
fuzz.LONGEST_SECONDS = 1
def broken(data):
    if b"x" in data:
        {fault}
fuzz.KINDS = tuple(kind._replace(use=broken) for kind in fuzz.KINDS)
"""
    run = fuzz("--failure", str(tmp_path / "failure"), prelude=prelude)
    assert run.returncode == 1
    assert message in run.stdout
    assert b"x" in (tmp_path / "failure").read_bytes()


def test_the_inputs_reach_what_is_behind_the_checksums():
    """Most refusals must come from the readers behind, not from a checksum, and some inputs must be accepted."""
    mutator, messages = Mutator(), []
    mutator.begin(3)
    for _ in range(200):
        try:
            deserialize_index(mutator.index_file())
            messages.append("accepted")
        except ValueError as error:
            messages.append(str(error))
    assert sum("checksum" in message for message in messages) < 40
    assert messages.count("accepted") > 5
    assert len(set(messages)) > 30
