"""Training time against ITQ and against forming the covariance matrix, and the memory it takes."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np

from bench.report import Options, print_table, versus
from bench.rivals import machine
from bench.timing import interleaved, paired, seconds, thread_counts, threads
from faiss_prh import PRHTransform

# Dimension, bits, training vectors, and how many times as fast as what at least. Without a rival: seconds at most.
CASES = [
    (128, 128, 100_000, "ITQ", 15.0),
    (128, 64, 20_000, "ITQ", 2.0),
    (384, 128, 20_000, "ITQ", 4.0),
    (784, 256, 20_000, "ITQ", 8.0),
    (1536, 512, 20_000, "ITQ", 20.0),
    (784, 784, 10_000, "ITQ", 60.0),
    (25600, 1024, 1_000, "", 15.0),
    (25600, 256, 1_000, "", 15.0),
    (40000, 64, 50, "", 15.0),
    (25600, 25600, 4_000, "covariance", 8.0),
]
QUICK_CASES = [(64, 64, 5_000, "ITQ", 15.0), (64, 16, 2_000, "ITQ", 2.0), (2048, 2048, 500, "covariance", 8.0)]
MOST_REPEATED = 500
"""Dimensions above which a rival takes up to minutes, and so is run only once."""
MEMORY_CASES = [(784, 100_000), (25600, 20_000), (64000, 10_000)]
QUICK_MEMORY_CASES = [(2048, 40_000)]
MEMORY_TARGET = 2.5
MATRIX_CASE, QUICK_MATRIX_CASE = (4096, 20_000), (512, 500)
MATRIX_TARGET = 1.1
"""How much longer training may take for the dense matrix that Faiss writes."""


def sample(d: int, m: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = np.empty((m, d), dtype=np.float32)
    spread = np.exp(rng.normal(size=d) / 2).astype(np.float32)
    for first in range(0, m, 1000):  # so that making the sample takes no more memory than the sample
        block = x[first : first + 1000]
        rng.standard_normal(block.shape, dtype=np.float32, out=block)
        block *= spread
    return x


def itq(x: np.ndarray, bits: int) -> None:
    """Train Faiss's ITQ, which reduces dimensions by PCA."""
    d = x.shape[1]
    faiss.ITQTransform(d, bits, bits < d).train(x)


def covariance_by_sgemm(x: np.ndarray, _: int) -> None:
    """Form the covariance matrix of `x`."""
    x = x - x.mean(axis=0)
    d = x.shape[1]
    covariance = np.empty((d, d), dtype=np.float32)
    for first in range(0, d, 1024):  # whole, NumPy would notice the symmetry and not call sgemm
        np.matmul(x[:, first : first + 1024].T, x, out=covariance[first : first + 1024])
    covariance /= len(x)


RIVALS = {"ITQ": itq, "covariance": covariance_by_sgemm}


def peak_memory(d: int, m: int, **parameters: int) -> float:
    """Return a fresh process's peak memory after training, in multiples of the training matrix."""
    code = f"from bench.train import print_peak_memory; print_peak_memory({d}, {m}, **{parameters})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def print_peak_memory(d: int, m: int, **parameters: int) -> None:
    x = sample(d, m)
    PRHTransform(d, **parameters).train(x)
    # Not getrusage, which counts what the process was before it became Python.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(int(peak[1]) * 1024 / x.nbytes)


def run(options: Options) -> None:
    quick = options.quick
    print(f"{machine()}\n")
    print("Seconds to train: as by default, and without learning from neighbours. On all threads.\n")
    rows = []
    for d, bits, m, rival, target in QUICK_CASES if quick else CASES:
        x = sample(d, m)
        ours: dict[str, Callable[[], object]] = {"default": partial(PRHTransform(d, bits).train, x)}
        ours["untuned"] = partial(PRHTransform(d, bits, tune=False).train, x)
        takes_long = d > MOST_REPEATED
        if rival and not takes_long:
            ours[rival] = partial(RIVALS[rival], x, bits)
        with threads(thread_counts()[-1]):
            taken = interleaved(ours, repeats=1 if d > 10_000 else 3)
            cells = [f"{taken[name]:.3f}" for name in ("default", "untuned")]
            if rival:
                its_time = seconds(partial(RIVALS[rival], x, bits)) if takes_long else taken[rival]
                against = [f"{its_time:.3f}", versus(its_time / taken["default"], None if quick else target)]
            else:
                against = ["", f"≤{target:g} s" + (" MISSED" if taken["default"] > target else "")]
        rows.append([str(d), str(bits), str(m), *cells, rival, *against])
        del x, ours
    print_table(["d", "bits", "m", "default", "untuned", "rival", "its time", "rival/default"], rows)

    print("\nPeak memory of a process that makes and trains on the matrix, in multiples of it.\n")
    rows = []
    for d, m in QUICK_MEMORY_CASES if quick else MEMORY_CASES:
        rows.append([str(d), str(m), f"{d * m * 4 / 1e9:.2f}", versus(peak_memory(d, m), MEMORY_TARGET, at_most=True)])
    print_table(["d", "m", "matrix, GB", "peak"], rows)

    print("\nWith and without the dense matrix that Faiss writes: seconds to train, and peak memory.\n")
    d, m = QUICK_MATRIX_CASE if quick else MATRIX_CASE
    x, target = sample(d, m), None if quick else MATRIX_TARGET
    with_matrix, without = PRHTransform(d), PRHTransform(d, max_dense_bytes=0)
    *times, ratio = paired(lambda: with_matrix.train(x), lambda: without.train(x), repeats=3 if quick else 20)
    peaks = [peak_memory(d, m), peak_memory(d, m, max_dense_bytes=0)]
    rows = [
        [str(d), str(m), "seconds", *(f"{taken:.3f}" for taken in times), versus(ratio, target, at_most=True)],
        [str(d), str(m), "peak", *(f"{peak:.3f}" for peak in peaks), versus(peaks[0] / peaks[1], target, at_most=True)],
    ]
    print_table(["d", "m", "", "with", "without", "with/without"], rows)
