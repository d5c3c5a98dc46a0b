"""Rivals timed side by side."""

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from faiss_prh.cli.evaluation import interleaved as interleaved  # so that those who measure find it here
from faiss_prh.cli.evaluation import seconds, warm_seconds


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Give Faiss, faiss-prh and NumPy's BLAS `n` threads each."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n)
    try:
        with threadpool_limits(n):
            # The line above limits Faiss's OpenMP as well as BLAS, from Python's side of it.
            faiss.omp_set_num_threads(n)
            yield
    finally:
        faiss.omp_set_num_threads(before)


def thread_counts() -> list[int]:
    return sorted({1, len(os.sched_getaffinity(0))})


def one_by_one(
    rivals: dict[str, Callable[[np.ndarray], object]], queries: np.ndarray, repeats: int
) -> dict[str, float]:
    """
    Return the median seconds that each rival takes for one query alone; they run in turn, each over all queries.

    Each is run for some tenths of a second before it is timed.
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    alone = [queries[i : i + 1] for i in range(len(queries))]
    for _ in range(repeats):
        for name, run in rivals.items():
            warm_seconds(partial(run, alone[0]))
            times[name] += [seconds(partial(run, query)) for query in alone]
    return {name: statistics.median(found) for name, found in times.items()}


def paired(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """
    Return the median seconds of both, and the median ratio of runs side by side.

    For rivals that take almost the same time: each goes first as often as the other, so that drift affects both alike.
    """
    first_seconds, second_seconds = [], []
    for repeat in range(repeats + 1):
        if repeat % 2:
            after, before = seconds(second), seconds(first)
        else:
            before, after = seconds(first), seconds(second)
        if repeat:  # once to warm up
            first_seconds.append(before)
            second_seconds.append(after)
    ratios = [a / b for a, b in zip(first_seconds, second_seconds, strict=True)]
    return statistics.median(first_seconds), statistics.median(second_seconds), statistics.median(ratios)
