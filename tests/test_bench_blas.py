"""Rivals run with the BLAS kernels of this CPU, whatever the OpenBLAS inside Faiss takes it for."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("threadpoolctl")
from bench import blas


def libraries(faiss, numpy):
    openblas = {"internal_api": "openblas"}
    others = [{"internal_api": "openmp", "filepath": "/faiss_cpu.libs/libgomp.so", "architecture": None}]
    if faiss:
        others += [{**openblas, "filepath": "/faiss_cpu.libs/libopenblas.so", "architecture": faiss}]
    if numpy:
        others += [{**openblas, "filepath": "/numpy.libs/libopenblas.so", "architecture": numpy}]
    return lambda: others


@pytest.mark.parametrize(
    ("faiss", "numpy", "expected"),
    [
        ("Prescott", "SkylakeX", "SkylakeX"),
        ("Prescott", "Zen", "Zen"),
        ("Prescott", "SapphireRapids", "SkylakeX"),
        ("Prescott", "Prescott", None),
        ("Haswell", "SkylakeX", None),
        ("Prescott", None, None),
        (None, "Zen", None),
    ],
)
def test_core_type(faiss, numpy, expected, monkeypatch):
    monkeypatch.setattr(blas, "threadpool_info", libraries(faiss, numpy))
    assert blas.core_type() == expected


def test_it_begins_again_once(monkeypatch):
    begun = []
    monkeypatch.setattr(blas, "threadpool_info", libraries("Prescott", "Haswell"))
    monkeypatch.setattr(os, "execve", lambda *arguments: begun.append(arguments))
    monkeypatch.setattr(sys, "argv", ["bench", "train", "--quick"])
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    blas.begin_again_with_the_right_kernels()
    ((program, arguments, environment),) = begun
    assert (program, arguments) == (sys.executable, [sys.executable, "-m", "bench", "train", "--quick"])
    monkeypatch.setenv("OPENBLAS_CORETYPE", environment["OPENBLAS_CORETYPE"])
    blas.begin_again_with_the_right_kernels()
    assert len(begun) == 1


def test_the_command_line_has_them():
    code = "import bench.__main__, bench.blas; print(bench.blas.core_type())"
    wanted = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    # Not an empty one: some versions of OpenBLAS take that for an unknown CPU.
    again = {**os.environ, **({} if wanted == "None" else {"OPENBLAS_CORETYPE": wanted})}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=again)
    assert done.stdout.strip() == "None"
