"""Encoding time against dimension, beside ITQ, Hadamard, a bilinear encoder and a plain copy of the input."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np

from bench.baselines import has_hadamard
from bench.plots import Figure, log_axis, panels, save, shared_legend, styles
from bench.report import Options, print_table, versus
from bench.timing import interleaved, thread_counts, threads
from faiss_prh import PRHTransform, to_faiss

# By dimension: how many times as fast as ITQ, Hadamard and BPBC at least, and how many times as long as a copy at most.
TARGETS: dict[int, dict[str, float]] = {
    128: {"ITQ": 8, "Hadamard": 10, "copy": 1.5},
    384: {"ITQ": 15, "Hadamard": 10, "copy": 1.5},
    768: {"ITQ": 25, "Hadamard": 10, "copy": 1.5},
    1024: {"ITQ": 30, "Hadamard": 10, "copy": 1.5},
    4096: {"ITQ": 70, "Hadamard": 8, "copy": 2},
    25600: {"BPBC": 12, "Hadamard": 5},
    64000: {"BPBC": 10, "Hadamard": 4},
}
ONE_VECTOR_TARGETS = {128: 1.0, 768: 3.0}
LARGEST_DENSE = 4096
CALLS = 500
COLUMNS = ("PRH", "default", "copy", "ITQ", "dense", "Hadamard", "BPBC")
LABELS = {
    "default": "PRH",
    "ITQ": "ITQ: a dense product",
    "BPBC": "BPBC: two small dense products",
    "Hadamard": "Hadamard rotation, Faiss's",
    "copy": "copy of the vectors, no encoding",
}
"""The lines of the picture, by the columns of the table."""


def call_often(function: Callable[[np.ndarray], object], x: np.ndarray) -> None:
    for _ in range(CALLS):
        function(x)


def packed(y: np.ndarray) -> np.ndarray:
    return np.packbits(y >= 0, axis=1, bitorder="little")


def random_itq(d: int) -> faiss.ITQTransform:
    """Return an ITQ with a random rotation, which costs as much to apply as a learned one, without the training."""
    itq = faiss.ITQTransform(d, d, False)
    rotation = faiss.RandomRotationMatrix(d, d)
    rotation.init(5)
    faiss.copy_array_to_vector(np.zeros(d, np.float32), itq.mean)
    itq.pca_then_itq = faiss.LinearTransform(d, d, False)
    faiss.copy_array_to_vector(faiss.vector_to_array(rotation.A), itq.pca_then_itq.A)
    itq.pca_then_itq.is_trained = itq.is_trained = True
    return itq


def bpbc_encoder(d: int, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """Return a bilinear encoder with d1 = 128: two small rotations of the vector folded into a matrix."""
    d1, d2 = 128, d // 128
    left, right = (np.linalg.qr(rng.normal(size=(k, k)))[0].astype(np.float32) for k in (d1, d2))
    mean = np.zeros(d, np.float32)

    def encode(x: np.ndarray) -> np.ndarray:
        folded = ((x - mean).reshape(-1, d2) @ right).reshape(len(x), d1, d2)
        return packed((left @ folded).reshape(len(x), d))

    return encode


def trained(d: int, rng: np.random.Generator, **parameters: int) -> PRHTransform:
    prh = PRHTransform(d, **parameters)
    prh.train(rng.normal(size=(200, d)).astype(np.float32) * np.exp(rng.normal(size=d).astype(np.float32)))
    return prh


def batch_rivals(x: np.ndarray, rng: np.random.Generator) -> dict[str, Callable[[], object]]:
    d = x.shape[1]
    copy = np.empty_like(x)
    rivals: dict[str, Callable[[], object]] = {
        "PRH": partial(trained(d, rng, n_pca=0).encode, x),
        "default": partial(trained(d, rng).encode, x),
        "copy": partial(np.copyto, copy, x),
    }
    if has_hadamard():
        hadamard = faiss.HadamardRotation(d)
        rivals["Hadamard"] = lambda: packed(hadamard.apply(x))
    if d <= LARGEST_DENSE:
        itq, dense = random_itq(d), to_faiss(trained(d, rng))
        rivals["ITQ"] = lambda: packed(itq.apply(x))
        rivals["dense"] = lambda: packed(dense.apply(x))
    if d > 128 and d % 128 == 0:
        bpbc = bpbc_encoder(d, rng)
        rivals["BPBC"] = lambda: bpbc(x)
    return rivals


def run(options: Options) -> None:
    values, repeats = (1 << 20, 1) if options.quick else (1 << 25, 7)
    results = measure_batches(values, repeats, thread_counts(), has_targets=not options.quick)
    print_one_vector(options.quick)
    print(f"\nLayers: {', '.join(f'{d}: {math.ceil(math.log2(d))}' for d in TARGETS)}.")
    save(options.output, "encode", results, plot)


def measure_batches(
    values: int, repeats: int, threads_tried: list[int], *, has_targets: bool
) -> dict[int, dict[int, dict[str, float]]]:
    """Measure and print encoding in batches of `values` floats; return µs a vector by threads, dimension and method."""
    rng = np.random.default_rng(0)
    print("Codes of a batch, µs a vector. PRH: ⌈log2 d⌉ isotropic layers; default: PRHTransform's defaults;")
    print("dense: the default as stock Faiss writes it and reads it back.")
    print("Ratios are of PRH: times faster than a rival (≥), or times as long as the copy (≤).\n")
    rows = []
    found: dict[int, dict[int, dict[str, float]]] = {n_threads: {} for n_threads in threads_tried}
    for d, targets in TARGETS.items():
        n = max(64, values // d // 16 * 16)
        x = rng.standard_normal((n, d), dtype=np.float32)
        rivals = batch_rivals(x, rng)
        for n_threads in threads_tried:
            with threads(n_threads):
                seconds = interleaved(rivals, repeats)
            found[n_threads][d] = {name: elapsed / n * 1e6 for name, elapsed in seconds.items()}
            row = [str(d), str(n), str(n_threads)]
            for name in COLUMNS:
                row.append(f"{found[n_threads][d][name]:.3g}" if name in seconds else "")
            for name in ("copy", "ITQ", "Hadamard", "BPBC"):
                if name not in seconds:
                    row.append("")
                elif name == "copy":
                    # NumPy copies with one thread: with one thread of ours, the copy's target is not meant.
                    target = targets.get(name) if n_threads > 1 and has_targets else None
                    row.append(versus(seconds["PRH"] / seconds[name], target, at_most=True))
                else:
                    row.append(versus(seconds[name] / seconds["PRH"], targets.get(name) if has_targets else None))
            rows.append(row)
        del x, rivals
    print_table(["d", "n", "threads", *COLUMNS, "/copy", "ITQ/", "Hadamard/", "BPBC/"], rows)
    return found


def print_one_vector(quick: bool) -> None:
    rng = np.random.default_rng(0)
    print("\nOne vector, µs, against ITQTransform.apply.\n")
    rows = []
    for d, target in ONE_VECTOR_TARGETS.items():
        x = rng.standard_normal((1, d), dtype=np.float32)
        rivals = {
            "PRH": partial(call_often, trained(d, rng, n_pca=0).encode, x),
            "default": partial(call_often, trained(d, rng).encode, x),
            "ITQ": partial(call_often, random_itq(d).apply, x),
        }
        for n_threads in thread_counts():
            with threads(n_threads):
                seconds = interleaved(rivals, repeats=1 if quick else 30)
            cells = [f"{seconds[name] / CALLS * 1e6:.1f}" for name in ("PRH", "default", "ITQ")]
            rows.append(
                [str(d), str(n_threads), *cells, versus(seconds["ITQ"] / seconds["PRH"], None if quick else target)]
            )
    print_table(["d", "threads", "PRH", "default", "ITQ", "ITQ/"], rows)


def plot(results: dict[str, Any]) -> Figure:
    """Draw encoding time against dimension, for the smallest number of threads measured."""
    n_threads, at_dimension = min(results.items(), key=lambda item: int(item[0]))
    figure, (panel,) = panels(1, 1, 3.8)
    looks = styles(LABELS.values())
    for name, label in LABELS.items():
        points = [(int(d), times[name]) for d, times in at_dimension.items() if name in times]
        if points:
            panel.plot(*zip(*points, strict=True), **looks[label])
    threads = "one thread" if n_threads == "1" else f"{n_threads} threads"
    panel.set(xlabel="dimensions, and bits", ylabel=f"µs to encode a vector, {threads}")
    log_axis(panel.xaxis, map(int, at_dimension))
    log_axis(panel.yaxis)
    shared_legend(figure, 3)
    return figure
