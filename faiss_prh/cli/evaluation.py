"""Measure indexes: recall against exact search, speed and size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, TypeVar

import faiss
import numpy as np

from .._common.types import Floats, Ids
from ..index.parts_of import nested
from ..storage.files import write_index

Name = TypeVar("Name")

NEIGHBOURS = 10
CUTS = (10, 100)
"""Recall is the share of the `NEIGHBOURS` nearest vectors that a search for 10, or 100, finds."""
WARM_UP_SECONDS = 0.3
_REPEATS = 3
_SWEPT: dict[str, Sequence[float]] = {
    "nprobe": (1, 4, 16, 64),
    "efSearch": (16, 64, 256),
    "margin": (0.0, 0.05, 0.1, 0.2),
    "k_factor": (3, 10, 30),
}


@dataclass
class Point:
    """What was measured of one way to search an index."""

    index: str
    setting: str
    recall: float
    queries_per_second: float
    bytes_per_vector: float


@dataclass
class Evaluation(Point):
    """The same, and what it took to make the index. `recall` and the speed are those of a search for 10."""

    recall_at_100: float
    train_seconds: float
    add_seconds: float
    file_bytes: int


def evaluate(
    name: str, index: Any, queries: Floats, truth: Ids, empty_bytes: int, train_seconds: float, add_seconds: float
) -> list[Evaluation]:
    """
    Measure every way to search a filled index, and leave it with the last of them.

    `empty_bytes` is the size of its file before it was filled.
    """

    def search(choose: Callable[[], None], k: int) -> Ids:
        choose()
        ids: Ids = index.search(queries, k)[1]
        return ids

    file_bytes = stored_bytes(index)
    per_vector = (file_bytes - empty_bytes) / index.ntotal
    settings = search_settings(index, NEIGHBOURS)
    # A search for each k: of a longer one, the first 10 would be better than those that a search for 10 finds.
    recalls = {setting: [recall(search(choose, k), truth) for k in CUTS] for setting, choose in settings.items()}
    ways = {setting: partial(search, choose, NEIGHBOURS) for setting, choose in settings.items()}
    taken = interleaved(ways, _REPEATS, WARM_UP_SECONDS / _REPEATS)
    return [
        Evaluation(
            name, setting, at_10, len(queries) / taken[setting], per_vector,
            at_100, train_seconds, add_seconds, file_bytes,
        )
        for setting, (at_10, at_100) in recalls.items()
    ]  # fmt: skip


def recall(found: Ids, truth: Ids) -> float:
    """
    Return the share of the true neighbours that is among what was found.

    Examples
    --------
    >>> import numpy as np
    >>> recall(np.array([[3, 5, 7]]), np.array([[5, 6]]))
    0.5
    """
    hits = sum(int(np.isin(true, mine).sum()) for mine, true in zip(found, truth, strict=True))
    return hits / truth.size  # no mean of means, which may be a little less than the number that is asked for


def exact_neighbours(queries: Floats, base: Iterable[Floats], k: int) -> Ids:
    """
    Return the ids of the k base vectors nearest to each query by Euclidean distance. The base comes in blocks.

    Examples
    --------
    >>> import numpy as np
    >>> base = np.arange(10, dtype="float32")[:, None]
    >>> exact_neighbours(np.array([[6.2]], "float32"), [base[:7], base[7:]], 2)
    array([[6, 7]])
    """
    heap, first = faiss.ResultHeap(len(queries), k), 0
    for block in base:
        distances, ids = faiss.knn(queries, block, min(k, len(block)))
        heap.add_result(distances, ids + first)
        first += len(block)
    heap.finalize()
    found: Ids = heap.I
    return found


def stored_bytes(index: Any) -> int:
    """
    Return the size of an index file, without writing it.

    Examples
    --------
    >>> from faiss_prh import index_factory, serialize_index
    >>> index = index_factory(64, "PRH,BFlat")
    >>> stored_bytes(index) == len(serialize_index(index))
    True
    """
    counter = _Counter()
    write_index(index, counter)  # type: ignore[arg-type]
    return counter.size


class _Counter:
    """A file that keeps only its size."""

    size = 0

    def write(self, data: memoryview) -> None:
        self.size += len(data)


def search_settings(index: Any, k: int) -> dict[str, Callable[[], None]]:
    """
    Return the ways to search an index for k vectors, by name: functions that set all parameters which it has.

    These are the combinations of a few values of `nprobe` or `efSearch`, of `margin` and of `k_factor`. An index
    without these has a single way, without a name.

    Examples
    --------
    >>> from faiss_prh import index_factory
    >>> list(search_settings(index_factory(64, "PRH,BIVF20"), 10))
    ['nprobe 1', 'nprobe 4', 'nprobe 16']
    """
    holders: dict[str, Any] = {}
    for part in nested(index):
        for holder in (part, getattr(part, "hnsw", None)):
            holders = {name: holder for name in _SWEPT if hasattr(holder, name)} | holders
    grid = {name: values for name, values in _SWEPT.items() if name in holders}
    if "nprobe" in grid:
        grid["nprobe"] = [n for n in grid["nprobe"] if n <= holders["nprobe"].nlist]
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    for values in settings:
        if "efSearch" in values:  # Faiss uses the number of results if that is more
            values["efSearch"] = max(values["efSearch"], k * values.get("k_factor", 1))
    settings.sort(key=lambda values: tuple(values.values()))
    return {
        ", ".join(f"{name} {value}" for name, value in values.items()): partial(_set_all, holders, values)
        for values in settings
    }


def _set_all(holders: Mapping[str, Any], values: Mapping[str, float]) -> None:
    for name, value in values.items():
        setattr(holders[name], name, value)


def interleaved(
    rivals: Mapping[Name, Callable[[], object]], repeats: int, warm_up: float | None = None
) -> dict[Name, float]:
    """
    Return the median seconds of each rival; they run in turn, so that a busy machine is busy for all.

    Each time, a rival is first run for `warm_up` seconds, as in `warm_seconds`.

    Examples
    --------
    >>> list(interleaved({"list": list, "set": set}, repeats=3, warm_up=0))
    ['list', 'set']
    """
    times: dict[Name, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
        for name, run in rivals.items():
            times[name].append(warm_seconds(run, warm_up))
    return {name: statistics.median(found) for name, found in times.items()}


def warm_seconds(run: Callable[[], object], warm_up: float | None = None) -> float:
    """
    Return the seconds that a call takes, after `warm_up` seconds (`WARM_UP_SECONDS`, if None) of such calls.

    For that long, what ran before slows the call: threads of OpenMP and OpenBLAS that still spin, memory just freed.

    Examples
    --------
    >>> 0 <= warm_seconds(lambda: sum(range(1000))) < 1
    True
    """
    elapsed = total = seconds(run)
    while total < (WARM_UP_SECONDS if warm_up is None else warm_up):
        elapsed = seconds(run)
        total += elapsed
    return elapsed


def seconds(run: Callable[[], object]) -> float:
    """
    Return the seconds that a call takes.

    Examples
    --------
    >>> seconds(list) >= 0
    True
    """
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """
    Return a table as text.

    Examples
    --------
    >>> print(table(["a", "b"], [["1", "234"]]))
    a    b
    -  ---
    1  234
    """
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = (header, ["-" * width for width in widths], *rows)
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in lines)
