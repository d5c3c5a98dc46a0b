"""Threads, forks and interrupts."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from test_faults import run

from faiss_prh import clone_index, index_factory
from faiss_prh._common import parts

pytestmark = pytest.mark.slow

D = 32
X = np.random.default_rng(0).normal(size=(4000, D)).astype(np.float32)
DESCRIPTIONS = ["PRH,BFlat", "PRH,BIVF16", "PRH,BHNSW8", "PRH,BFlat,RFlat", "PRH,BIVF16,RAsym"]
LONGEST_SECONDS = 1
"""Processor time from an interrupt to the end. Wall-clock time depends on the machine."""


@pytest.mark.parametrize(
    "description", ["PRH,BFlat", "PRH,BIVF16", "PRH,BHNSW8", "PRH,BFlat,RFlat", "PRH,BIVF16,RAsym"]
)
def test_eight_threads_search_while_another_index_grows(description):
    index = index_factory(D, description)
    index.train(X)
    index.add(X)
    growing = clone_index(index)
    growing.chain = index.chain  # one transform in both
    expected = index.search(X[:50], 7)
    stop = threading.Event()

    def grow():
        batches = 0
        while not stop.is_set():
            growing.add(X[:200])
            batches += 1
        return batches

    with ThreadPoolExecutor(9) as pool:
        grown = pool.submit(grow)
        try:
            results = list(pool.map(lambda _: index.search(X[:50], 7), range(64)))
        finally:
            stop.set()
        batches = grown.result()
    assert batches > 0
    assert growing.ntotal == len(X) + 200 * batches
    for found in results:
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_forked_processes_search():
    """After Faiss has used several threads, which a child does not have: there, one must do."""
    program = """
        faiss.omp_set_num_threads(4)
        x = np.random.default_rng(0).normal(size=(20_000, 32)).astype("float32")
        indexes = []
        for description in ("BFlat", "BIVF16", "BFlat,RFlat", "BIVF16,RAsym"):
            index = faiss_prh.index_factory(32, f"PRH(2),{description}")
            index.train(x)
            index.add(x)
            indexes.append((index, index.search(x[:500], 5)[1]))
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                faiss.omp_set_num_threads(1)
                same = [np.array_equal(index.search(x[:500], 5)[1], found) for index, found in indexes]
                os._exit(0 if all(same) else 1)
            children.append(child)
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    """
    assert run(program).strip().endswith("[0, 0, 0, 0]")


def test_a_child_forked_while_an_index_changes():
    """What another thread holds at that moment, the child must not wait for."""
    program = """
        import threading
        x = np.random.default_rng(0).normal(size=(500, 32)).astype("float32")
        index = faiss_prh.index_factory(32, "PRH(2),BIVF4,RFlat")
        index.train(x)
        index.add(x)
        held, done = threading.Event(), threading.Event()

        def hold():
            with index._lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            index.add(x)
            index.remove_ids([3])
            copy = faiss_prh.clone_index(index)
            index.merge_from(copy)
            index.reset()
            os._exit(0 if index.ntotal == copy.ntotal == 0 else 1)
        done.set()
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run(program).strip() == "0"


VECTORS = "x = np.random.default_rng(0).normal(size=({}, {})).astype('f4')"
ENDLESS = {
    "train": (VECTORS.format(20_000, 1024), "PRHTransform(1024, 256).train(x)"),
    "train in Faiss": (
        VECTORS.format(20_000, 1024),
        "faiss.IndexPreTransform(PRHTransform(1024, 256), faiss.IndexFlatL2(256)).train(x)",
    ),
    "train 25600 dimensions": (VECTORS.format(500, 25600), "PRHTransform(25600, 64).train(x)"),
    "encode": ("prh = PRHTransform.random(128)", "prh.encode(np.broadcast_to(np.ones(128, 'f4'), (10**8, 128)))"),
    "encode 25600 dimensions": (
        "prh = PRHTransform.random(25600)",
        "prh.encode(np.broadcast_to(np.ones(25600, 'f4'), (2 * 10**5, 25600)))",
    ),
}


def interrupted(setup, call):
    """Return what a call that takes long ends with, and how many seconds of a processor after an interrupt."""
    program = f"""
        import faiss, numpy as np
        from faiss_prh import PRHTransform, index_factory
        {setup}
        print("begin", flush=True)
        try:
            {call}
        except (KeyboardInterrupt, RuntimeError) as error:
            print(f"{{type(error).__name__}} {{error}}")
    """
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    others = seconds_of_children()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **threads}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "begin\n", process.stderr.read()
            time.sleep(0.7)
            before = seconds_of(process.pid)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    return out, seconds_of_children() - others - before


def seconds_of(process_id):
    user, system = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def seconds_of_children():
    """Return the processor time of child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("name", ENDLESS)
def test_an_interrupt_ends_training_and_encoding(name):
    out, seconds = interrupted(*ENDLESS[name])
    assert "KeyboardInterrupt" in out
    assert seconds < LONGEST_SECONDS


@pytest.mark.parametrize(
    ("description", "search"),
    [
        ("PRH(1),BFlat", "search(x, 10)"),
        ("PRH(1),BFlat", "range_search(x, 8)"),
        ("PRH(1),BFlat,RFlat", "search(x, 10)"),
        ("PRH(1),BIVF4,RAsym", "search(x, 10)"),
        ("PRH(1),BFlat", "search(x, 10, params=faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 10**9)))"),
    ],
)
def test_an_interrupt_ends_a_search(description, search):
    setup = (
        f"index = index_factory(32, '{description}');"
        f" {VECTORS.format(400_000, 32)};"
        " index.train(x[:1000]); index.add(x); index.index.nprobe = 4"
    )
    out, seconds = interrupted(setup, f"index.{search}")
    assert "KeyboardInterrupt" in out
    assert seconds < LONGEST_SECONDS


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_a_search_in_parts_is_a_search(description, monkeypatch):
    """Whatever the parts, which follow from how long they take."""
    index = index_factory(D, description)
    index.train(X)
    index.add(X)

    def results(first, seconds):
        monkeypatch.setattr(parts, "_FIRST", first)
        monkeypatch.setattr(parts, "_SECONDS", seconds)
        selected = faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 3000))
        found = [*index.search(X[:500], 5), *index.search(X[:500], 5, params=selected)]
        return found if "HNSW" in description else [*found, *index.range_search(X[:500], 5)]

    for mine, theirs in zip(results(7, 1e-4), results(10**6, 1), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("seconds_per_query", [1e-6, 1e-3, 0.05])
def test_no_part_of_a_search_takes_long(seconds_per_query, monkeypatch):
    """Or an interrupt would wait for it. Queries may become slower, as among other vectors."""
    now = 0.0
    monkeypatch.setattr(parts.time, "monotonic", lambda: now)
    longest = 0.0
    for number, part in enumerate(parts.parts(100_000)):
        taken = (part.stop - part.start) * seconds_per_query * (1 + number % 2)
        now += taken
        if number:
            longest = max(longest, taken)
    assert longest < 0.5


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_one_thread_is_one_thread():
    """By the processor time that all but the main thread have used. NumPy's BLAS has a setting of its own."""
    program = """
        def time_of_others():
            used = 0
            for thread in os.listdir("/proc/self/task"):
                if thread != str(os.getpid()):
                    with open(f"/proc/self/task/{thread}/schedstat") as file:
                        used += int(file.read().split()[0])
            return used / 1e9

        def used_by_others(call):
            before = time_of_others()
            call()
            return time_of_others() - before

        x = np.random.default_rng(0).normal(size=(20_000, 64)).astype("float32")
        prh = faiss_prh.PRHTransform(64, 32)
        indexes = [faiss_prh.index_factory(64, f"PRH(2),{rest}") for rest in ("BFlat", "BIVF16,RFlat", "BFlat,RAsym")]
        faiss.omp_set_num_threads(1)
        calls = {"train": lambda: prh.train(x[:5000]), "apply": lambda: prh.apply(x), "encode": lambda: prh.encode(x)}
        for index in indexes:
            calls["train", index] = lambda index=index: index.train(x)
            calls["add", index] = lambda index=index: index.add(x)
            calls["search", index] = lambda index=index: index.search(x[:2000], 10)
        others = [used_by_others(call) for call in calls.values()]
        assert max(others) == 0, dict(zip(calls, others))
        faiss.omp_set_num_threads(2)
        assert used_by_others(lambda: indexes[0].search(x, 10)) > 0
    """
    run(program, OMP_NUM_THREADS="2")
