"""What is left when a process dies, a disk is full, memory runs out or a batch is bad."""

import os
import subprocess
import sys
import textwrap

import faiss
import numpy as np
import pytest

from faiss_prh import index_factory, serialize_index, write_index
from faiss_prh._common import arrays as _arrays

pytestmark = pytest.mark.slow

D = 24
X = np.random.default_rng(0).normal(size=(300, D)).astype(np.float32)
KINDS = ["PRH,BFlat", "PRH,BIVF4", "PRH,BHNSW8", "IDMap2,PRH,BFlat", "PRH,BFlat,RFlat", "PRH,BIVF4,RFlat",
         "IDMap,PRH,BIVF4,RAsym", "PRH,BFlat,RAsym", "PCA16,PRH,BFlat", "PRH,IVF4,Signs",
         "PRH,IVF4_HNSW8,Signs,RFlat", "IDMap,PRH,IVF4,Signs,RFlat"]  # fmt: skip


def run(program, *arguments, **environment):
    """Run a program in a process of its own, which has the package and NumPy, and return what it printed."""
    prelude = "import os, resource, signal, sys, time\nimport faiss, numpy as np\nimport faiss_prh\n"
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(program), *map(str, arguments)],
        env={**os.environ, **threads, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


def filled(description):
    index = index_factory(D, description)
    index.train(X)
    add(index, description, X)
    return index


def add(index, description, x):
    if "IDMap" in description:
        index.add_with_ids(x, np.arange(len(x)) + 7)
    else:
        index.add(x)


# Files


def test_killed_while_writing(tmp_path):
    """A child that writes two indexes in turn is killed 60 times: each time one of them is there, whole."""
    program = """
        import random
        indexes = []
        for n in (40_000, 60_000):
            x = np.random.default_rng(n).normal(size=(n, 16)).astype("float32")
            index = faiss_prh.index_factory(16, "PRH(2),BFlat,RFlat")
            index.train(x[:500])
            index.add(x)
            indexes.append(index)
        path = os.path.join(sys.argv[1], "i.prh")
        begun = time.monotonic()
        for index in indexes:
            faiss_prh.write_index(index, path)
        both = time.monotonic() - begun  # a busy machine takes longer
        seen, chance = set(), random.Random(0)
        for _ in range(60):
            child = os.fork()
            if child == 0:
                while True:
                    for index in indexes:
                        faiss_prh.write_index(index, path)
            time.sleep(chance.uniform(0, 2 * both))
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            seen.add(faiss_prh.read_index(path).ntotal)
        print(sorted(seen))
    """
    assert run(program, tmp_path).split("\n")[0] == "[40000, 60000]"
    # Some were killed in the middle: what they had written is left, under another name.
    left = [name for name in os.listdir(tmp_path) if name != "i.prh"]
    assert left
    assert all(name.startswith(".i.prh.") and name.endswith(".tmp") for name in left)


def test_a_disk_without_room(tmp_path):
    program = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        index = faiss_prh.index_factory(16, "PRH(2),BFlat")
        x = np.random.default_rng(0).normal(size=(200_000, 16)).astype("float32")
        index.train(x[:100])
        path = os.path.join(sys.argv[1], "i.prh")
        faiss_prh.write_index(index, path)
        index.add(x)
        for room in (0, 1, 1000, 300_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, -1))
            try:
                faiss_prh.write_index(index, path)
            except OSError as error:
                resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
                print(error.strerror)
            assert os.listdir(sys.argv[1]) == ["i.prh"]
            assert faiss_prh.read_index(path).ntotal == 0
    """
    assert run(program, tmp_path).splitlines() == ["File too large"] * 4


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_device_without_room():
    with pytest.raises(OSError, match="No space left on device"):
        write_index(filled("PRH,BFlat"), "/dev/full")
    assert os.path.exists("/dev/full")


def test_a_folder_that_cannot_be_written_to(tmp_path):
    program = """
        folder = sys.argv[1]
        path = os.path.join(folder, "i.prh")
        index = faiss_prh.index_factory(16, "PRH(2),BFlat")
        faiss_prh.write_index(index, path)
        os.chmod(folder, 0o555)
        os.chdir(folder)  # through folders that another user may not pass
        if os.geteuid() == 0:
            os.seteuid(65534)  # root may write anywhere
        try:
            faiss_prh.write_index(index, "i.prh")
        except PermissionError as error:
            print("refused")
        print(os.listdir("."), faiss_prh.read_index("i.prh").d)
    """
    assert run(program, tmp_path).splitlines() == ["refused", "['i.prh'] 16"]


# Batches


@pytest.mark.parametrize("description", KINDS)
def test_a_failed_add_changes_nothing(description, monkeypatch, thread_count):
    thread_count(1)
    index = filled(description)
    before = serialize_index(index)
    monkeypatch.setattr(_arrays, "BLOCK_VALUES", 50 * D)  # the last of several blocks is bad
    spoiled = X.copy()
    spoiled[-1, 3] = np.nan
    with pytest.raises(ValueError, match="vector 299 has a non-finite value"):
        add(index, description, spoiled)
    assert serialize_index(index) == before
    with pytest.raises(ValueError, match="24 columns"):
        add(index, description, X[:, 1:])
    assert serialize_index(index) == before
    if "IVF" in description:  # which takes ids, and must not remember that it was asked to
        with pytest.raises(ValueError, match="vector 299"):
            index.add_with_ids(spoiled, np.arange(300))
        assert serialize_index(index) == before


@pytest.mark.parametrize("description", KINDS)
def test_adding_nothing_changes_nothing(description):
    index = index_factory(D, description)
    index.train(X)
    before = serialize_index(index)
    add(index, description, X[:0])
    assert serialize_index(index) == before
    add(index, description, X)
    assert index.ntotal == 300


@pytest.mark.parametrize("description", ["PRH,BIVF4,RFlat", "PRH,IVF4,Signs,RFlat"])
def test_no_ids_for_no_vectors_change_nothing(description):
    index = index_factory(D, description)
    index.train(X)
    before = serialize_index(index)
    index.add_with_ids(X[:0], [])
    assert serialize_index(index) == before


@pytest.mark.parametrize("description", KINDS)
def test_an_add_without_memory_changes_nothing(description, monkeypatch, thread_count):
    """Where the binary index, which comes last, has no room."""
    thread_count(1)
    index = filled(description)
    before = serialize_index(index)

    def no_room(*arguments):
        raise MemoryError("std::bad_alloc")

    keyed = type(index._keyed)
    monkeypatch.setattr(keyed, "add", no_room)
    monkeypatch.setattr(keyed, "add_with_ids", no_room)
    monkeypatch.setattr(faiss.IndexBinaryIVF, "add_core", no_room)
    with pytest.raises(MemoryError):
        add(index, description, X)
    monkeypatch.undo()
    assert serialize_index(index) == before
    add(index, description, X)
    assert index.ntotal == 600


LIMITED = """
    def limit(extra):
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra if extra else -1, -1))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="/proc tells how much memory is mapped")
@pytest.mark.parametrize(
    "description",
    [
        "PRH(2),BFlat", "PRH(2),BFlat,RFlat", "PRH(2),BIVF16", "PRH(2),BIVF16,RAsym", "IDMap,PRH(2),BFlat",
        "IDMap2,PRH(2),BFlat", "IDMap,PRH(2),BIVF16", "IDMap2,PRH(2),BIVF16", "IDMap,PRH(2),BFlat,RFlat",
        "IDMap2,PRH(2),BIVF16,RAsym", "PRH(2),IVF16,Signs", "IDMap,PRH(2),IVF16,Signs,RFlat",
    ],
)  # fmt: skip
def test_memory_that_runs_out_in_add(description):
    program = textwrap.dedent(LIMITED) + textwrap.dedent("""
        index = faiss_prh.index_factory(64, sys.argv[1])
        x = np.random.default_rng(0).normal(size=(200_000, 64)).astype("float32")
        index.train(x[:1000])

        def add(vectors, first):
            if "IDMap" in sys.argv[1]:
                index.add_with_ids(vectors, np.arange(first, first + len(vectors)))
            else:
                index.add(vectors)

        add(x[:1000], 5)
        queries = x[:5]
        before, expected = faiss_prh.serialize_index(index), index.search(queries, 3)
        failed = 0
        for extra in [kib << 10 for kib in (1, 300, *range(1000, 7000, 100), *range(7000, 40_000, 4000))]:
            limit(extra)
            try:
                add(x, 1005)
                limit(0)
                break
            except MemoryError:
                limit(0)
                failed += 1
                assert faiss_prh.serialize_index(index) == before, extra
                assert all(np.array_equal(*pair) for pair in zip(index.search(queries, 3), expected))
        assert failed
        print("failed and unchanged")
    """)
    # Or what training gave back would do for a while.
    out = run(program, description, MALLOC_MMAP_THRESHOLD_="65536")
    assert out.strip().endswith("failed and unchanged")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="/proc tells how much memory is mapped")
@pytest.mark.parametrize(
    ("d", "bits", "m"), [(128, 128, 20_000), (128, 32, 20_000), (512, 600, 4000), (5000, 5000, 500)]
)
def test_memory_that_runs_out_in_training(d, bits, m):
    program = textwrap.dedent(LIMITED) + textwrap.dedent("""
        d, bits, m = map(int, sys.argv[1:])
        x = np.random.default_rng(0).normal(size=(m, d)).astype("float32")
        small = faiss_prh.PRHTransform(64, 16)
        small.train(x[:400, :64])  # BLAS, Faiss's and NumPy's, gives up the process if it has no memory at the start
        outcomes = []
        for extra in [int(mib * 2**20) for mib in (0.01, 1, 4, 12, 24)]:
            prh = faiss_prh.PRHTransform(d, bits)
            index = faiss.IndexPreTransform(faiss_prh.PRHTransform(d, bits), faiss.IndexFlatL2(bits))
            limit(extra)
            try:
                prh.train(x)
                outcomes.append("trained")
            except MemoryError:
                outcomes.append("MemoryError")
                assert not prh.is_trained
            try:
                index.train(x)
            except RuntimeError as error:
                assert "MemoryError" in str(error), error
                outcomes.append("RuntimeError")
            except MemoryError:  # in Faiss's own part
                outcomes.append("MemoryError")
            limit(0)
        prh.train(x)
        assert prh.is_trained
        print(*outcomes)
    """)
    outcomes = run(program, d, bits, m).split()
    assert "MemoryError" in outcomes
    assert "RuntimeError" in outcomes


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="/proc tells how much memory is mapped")
@pytest.mark.parametrize(("d", "bits"), [(256, 256), (512, 128)])
def test_new_threads_that_find_no_memory(d, bits):
    """To throw takes memory in a new thread, and the C library ends a process that has none."""
    program = textwrap.dedent(LIMITED) + textwrap.dedent("""
        d, bits = map(int, sys.argv[1:])
        x = np.random.default_rng(0).normal(size=(6000, d)).astype("float32")
        faiss_prh.PRHTransform(d, bits).train(x[:1000])
        limit(1)
        try:
            faiss_prh.PRHTransform(d, bits).train(x)
        except MemoryError:
            pass
        limit(0)
        print("alive")
    """)
    assert run(program, d, bits, OMP_NUM_THREADS="4").strip() == "alive"
