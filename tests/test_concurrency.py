"""Threads, forks and interrupts."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_faults import run
from test_interop import needs_proc, threads_started_during

from faiss_prh import IndexBinaryPreTransform, PRHTransform, clone_index, index_factory

D = 32
X = np.random.default_rng(0).normal(size=(4000, D)).astype(np.float32)
LONGEST_SECONDS = 5
"""From an interrupt to the end. On a quiet machine it is less than one; see docs/trust.md."""


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
        assert growing.ntotal == len(X) + 200 * grown.result()
    for found in results:
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert grown.result() > 0


def test_forked_processes_search():
    """After Faiss has used several threads, which a child does not have: there, one must do."""
    program = """
        faiss.omp_set_num_threads(4)
        x = np.random.default_rng(0).normal(size=(20_000, 32)).astype("float32")
        indexes = []
        for description in ("PRH,BFlat", "PRH,BIVF16", "PRH,BFlat,RFlat", "PRH,BIVF16,RAsym"):
            index = faiss_prh.index_factory(32, description)
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


ENDLESS = {
    "train": ("prh = PRHTransform(256)", "prh.train(np.random.default_rng(0).normal(size=(300_000, 256)))"),
    "train in Faiss": (
        "index = faiss.IndexPreTransform(PRHTransform(256), faiss.IndexFlatL2(256));"
        " x = np.random.default_rng(0).normal(size=(300_000, 256)).astype('f4')",
        "index.train(x)",
    ),
    "train 25600 dimensions": (
        "prh = PRHTransform(25600, 64); x = np.random.default_rng(0).normal(size=(500, 25600)).astype('f4')",
        "prh.train(x)",
    ),
    "encode": ("prh = PRHTransform.random(128)", "prh.encode(np.broadcast_to(np.ones(128, 'f4'), (10**9, 128)))"),
    "encode 25600 dimensions": (
        "prh = PRHTransform.random(25600)",
        "prh.encode(np.broadcast_to(np.ones(25600, 'f4'), (10**7, 25600)))",
    ),
}


def interrupted(setup, call):
    """Return what a call that takes long ends with, and how many seconds after an interrupt."""
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
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **threads}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begin\n", process.stderr.read()
    time.sleep(0.7)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out, time.monotonic() - sent
