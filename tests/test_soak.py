"""A short soak finds nothing; and it would find wrong results, and memory that is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_fuzz import RUN

pytestmark = pytest.mark.slow


def soak(minutes, prelude=""):
    program = f"from bench import soak\n{prelude}\n{RUN.format('soak')}"
    return subprocess.run(
        [sys.executable, "-c", program, "--minutes", str(minutes), "--seed", "3"],
        cwd=Path(__file__).parents[1], env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="/proc tells how much memory is in use")
def test_a_short_soak():
    run = soak(0.05)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "operations, each compared with the model" in run.stdout


WRONG = """
import faiss_prh
right = faiss_prh.IndexBinaryPreTransform.range_search
def wrong(index, *arguments, **options):
    limits, distances, ids = right(index, *arguments, **options)
    return limits, distances + 1, ids
faiss_prh.IndexBinaryPreTransform.range_search = wrong
"""
LOST = """
lost, right = [], soak.Soak.step
soak.Soak.step = lambda self: lost.append(bytearray(1 << 20)) or right(self)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="/proc tells how much memory is in use")
@pytest.mark.parametrize(("fault", "message"), [(WRONG, "AssertionError"), (LOST, "MiB at most")])
def test_a_soak_finds_faults(fault, message):
    run = soak(0.1, fault)
    assert run.returncode == 1
    assert message in run.stdout + run.stderr
