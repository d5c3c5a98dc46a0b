"""What native code is worth: the same work with it, with its kernels beside Faiss's stock transform, and without it."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import faiss

from bench.datasets import synthetic
from bench.report import Options, print_table
from bench.timing import seconds
from faiss_prh import PRHTransform, index_factory

STATES = {"native": "1", "kernels": "kernels", "portable": "0"}
INDEXES = ("PRH,BFlat", "PRH,BFlat,RFlat", "PRH,BIVF256,RAsym", "PRH,IVF256,Signs", "PRH,IVF256,Flat")
ROUNDS = 3


def run(options: Options) -> None:
    """Measure each state in a process of its own, in turns, and print medians."""
    found: dict[str, list[dict[str, float]]] = {state: [] for state in STATES}
    for _ in range(1 if options.quick else ROUNDS):
        for state, value in STATES.items():
            done = subprocess.run(
                [sys.executable, "-m", "bench.portable", *(["--quick"] if options.quick else [])],
                env={**os.environ, "FAISS_PRH_NATIVE": value}, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            found[state].append(json.loads(done.stdout))
    rows = []
    for name in found["native"][0]:
        took = [statistics.median(one[name] for one in found[state]) for state in STATES]
        rows.append([name, *(f"{value:.3g}" for value in took), f"{took[2] / took[0]:.1f}x"])
    print_table(["", *STATES, "portable / native"], rows)


def measured(quick: bool) -> dict[str, float]:
    """Return what the state of this process takes, with one thread."""
    faiss.omp_set_num_threads(1)
    data = synthetic(128, 2_000, 5_000, 50) if quick else synthetic(128, 20_000, 100_000, 100)
    found, prh = {}, PRHTransform(128)
    found["train 128 to 128, s"] = seconds(lambda: prh.train(data.train))
    found["train 128 to 64, s"] = seconds(lambda: PRHTransform(128, 64).train(data.train))
    found["encode 128, µs a vector"] = _median(lambda: prh.encode(data.base)) / len(data.base) * 1e6
    for description in INDEXES:
        index = index_factory(128, description)
        index.train(data.train)
        index.add(data.base)
        if "256" in description:
            _probe(index, 16)
        found[f"{description}, µs a query of {len(data.query)}"] = (
            _median(partial(index.search, data.query, 10)) / len(data.query) * 1e6
        )
        found[f"{description}, µs for one query"] = _median(partial(index.search, data.query[:1], 10), 15) * 1e6
    return found


def _probe(index: object, n: int) -> None:
    lists = faiss.extract_index_ivf(index) if isinstance(index, faiss.Index) else index
    lists.nprobe = n


def _median(call: Callable[[], object], repeats: int = 3) -> float:
    call()
    return statistics.median(seconds(call) for _ in range(repeats))


if __name__ == "__main__":
    print(json.dumps(measured("--quick" in sys.argv)))
