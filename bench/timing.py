"""Rivals timed side by side."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import faiss
from threadpoolctl import threadpool_limits

WARM_UP_SECONDS = 0.3


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


def interleaved(rivals: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """
    Return the median seconds of each rival, run in turn so that a busy machine is so for all of them.

    What the rival before leaves behind (threads of OpenMP and OpenBLAS that go on spinning, freed memory) slows the
    next one for up to some tenths of a second; so each is run that long before it is timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
        for name, run in rivals.items():
            elapsed = warm_up = _timed(run)
            while warm_up < WARM_UP_SECONDS:
                elapsed = _timed(run)
                warm_up += elapsed
            seconds[name].append(elapsed)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def paired(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """
    Return the median seconds of both, and the median ratio of runs side by side.

    For rivals that take almost the same time: each goes first as often as the other, and drift hits both.
    """
    first_seconds, second_seconds = [], []
    for repeat in range(repeats + 1):
        if repeat % 2:
            after, before = _timed(second), _timed(first)
        else:
            before, after = _timed(first), _timed(second)
        if repeat:  # once to warm up
            first_seconds.append(before)
            second_seconds.append(after)
    ratios = [a / b for a, b in zip(first_seconds, second_seconds, strict=True)]
    return statistics.median(first_seconds), statistics.median(second_seconds), statistics.median(ratios)
