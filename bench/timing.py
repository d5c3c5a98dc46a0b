"""Rivals timed side by side."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from faiss_prh._backend import BACKEND
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


@contextmanager
def processor_time() -> Iterator[None]:
    """Let all times be those that a processor spends in this thread, so that others on the machine do not count."""
    with mock.patch.object(time, "perf_counter", time.thread_time):
        yield


def thread_counts() -> list[int]:
    return sorted({1, len(os.sched_getaffinity(0))})


def one_by_one(
    rivals: dict[str, Callable[[np.ndarray], object]],
    queries: np.ndarray,
    repeats: int,
    measure: Callable[[Callable[[np.ndarray], object], np.ndarray], float] = lambda run, query: seconds(
        partial(run, query)
    ),
) -> dict[str, float]:
    """
    Return the median seconds that each rival takes for one query alone; they run in turn, each over all queries.

    Each is run for some tenths of a second before it is timed. `measure` may measure something else.
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    alone = [queries[i : i + 1] for i in range(len(queries))]
    for _ in range(repeats):
        for name, run in rivals.items():
            warm_seconds(partial(run, alone[0]))
            times[name] += [measure(run, query) for query in alone]
    return {name: statistics.median(found) for name, found in times.items()}


class NativeClock:
    """While it is entered, the seconds that pass in functions of the native library, and in those of Faiss's."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._patches = ExitStack()

    def __enter__(self) -> "NativeClock":
        places: list[tuple[object, str]] = []
        if BACKEND != "portable":
            from faiss_prh._native.library import library

            functions = ("prh_search", "prh_rank", "prh_transform_encode", "prh_transform_apply")
            places += [(library, name) for name in functions]
        kinds = (faiss.IndexBinaryFlat, faiss.IndexBinaryIVF, faiss.IndexBinaryHNSW, faiss.IndexBinaryIDMap)
        places += [(kind, "search_c") for kind in kinds]
        places += [(faiss.IndexScalarQuantizer, "get_distance_computer")]
        for owner, name in places:
            self._patches.enter_context(mock.patch.object(owner, name, self._counted(getattr(owner, name))))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _counted(self, function: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            begun = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - begun

        return counted


def outside_native(
    searches: dict[str, Callable[[np.ndarray], object]], queries: np.ndarray, repeats: int
) -> dict[str, float]:
    """
    Return the median seconds of one query alone that do not pass in native code or in Faiss's; as `one_by_one`.

    Taking these times apart takes some tenths of a microsecond, which are counted.
    """
    with NativeClock() as inside:

        def outside(search: Callable[[np.ndarray], object], query: np.ndarray) -> float:
            inside.seconds = 0.0
            whole = seconds(partial(search, query))
            return whole - inside.seconds

        return one_by_one(searches, queries, repeats, outside)


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
