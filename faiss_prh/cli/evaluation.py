"""Measure indexes: recall against exact search, speed and size; print the results as a table, or draw them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np

from .._common.types import Floats, Ids
from ..index.parts_of import nested
from ..storage.files import write_index

NEIGHBOURS = 10
CUTS = (10, 100)
"""Recall is the share of the `NEIGHBOURS` nearest vectors that is among the first 10, or 100, results."""
WARM_UP_SECONDS = 0.3
_NPROBES = (1, 4, 16, 64)
_EF_SEARCHES = (16, 64, 256)
_MARKERS = "os^DvPX*<>"
_DARK = ("#08306b", "#67000d", "#00441b", "#3f007d")
_PALE = ("#fd8d3c", "#74a9cf", "#78c679", "#999999")


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
    """The same, and what it took to make the index. `recall` is that of the first 10 results."""

    recall_at_100: float
    train_seconds: float
    add_seconds: float
    file_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return what `faiss-prh eval --json` prints."""
        return {
            "factory": self.index,
            "setting": self.setting,
            "recall_at_10": self.recall,
            "recall_at_100": self.recall_at_100,
            "train_seconds": self.train_seconds,
            "add_seconds": self.add_seconds,
            "milliseconds_per_query": 1000 / self.queries_per_second,
            "bytes_per_vector": self.bytes_per_vector,
            "file_bytes": self.file_bytes,
        }


def evaluate(
    name: str, index: Any, queries: Floats, truth: Ids, empty_bytes: int, train_seconds: float, add_seconds: float
) -> list[Evaluation]:
    """Measure every way to search a filled index. `empty_bytes` is the size of its file before it was filled."""
    found, k = [], CUTS[-1]
    file_bytes = stored_bytes(index)
    for setting, choose in search_settings(index, k).items():
        choose()
        ids = index.search(queries, k)[1]
        recalls = [recall(ids[:, :cut], truth) for cut in CUTS]
        speed = len(queries) / warm_seconds(lambda: index.search(queries, k))
        per_vector = (file_bytes - empty_bytes) / index.ntotal
        found.append(
            Evaluation(name, setting, recalls[0], speed, per_vector, recalls[1], train_seconds, add_seconds, file_bytes)
        )
    return found


def as_table(found: Sequence[Evaluation]) -> str:
    """Return the table that `faiss-prh eval` prints."""
    header = ["", "setting", "10-recall@10", "@100", "train, s", "add, s", "search, ms/query", "bytes/vector"]
    rows = [
        [
            e.index, e.setting, f"{e.recall:.3f}", f"{e.recall_at_100:.3f}", f"{e.train_seconds:.2f}",
            f"{e.add_seconds:.2f}", f"{1000 / e.queries_per_second:.3f}", f"{e.bytes_per_vector:.1f}",
        ]
        for e in found
    ]  # fmt: skip
    return table(header, rows)


def recall(found: Ids, truth: Ids) -> float:
    """
    Return the share of the true neighbours that is among what was found.

    Examples
    --------
    >>> import numpy as np
    >>> recall(np.array([[3, 5, 7]]), np.array([[5, 6]]))
    0.5
    """
    return float(np.mean([np.isin(true, mine).mean() for mine, true in zip(found, truth, strict=True)]))


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
    Return the ways to search an index for k vectors: functions that set its `nprobe` or `efSearch`, by name.

    An index without these parameters has a single way, without a name.

    Examples
    --------
    >>> from faiss_prh import index_factory
    >>> list(search_settings(index_factory(64, "PRH,BIVF20"), 10))
    ['nprobe 1', 'nprobe 4', 'nprobe 16']
    """

    def setting(holder: Any, name: str, value: int) -> Callable[[], None]:
        return lambda: setattr(holder, name, value)

    *_, inside = nested(index)
    if hasattr(inside, "nprobe"):
        return {f"nprobe {n}": setting(inside, "nprobe", n) for n in _NPROBES if n <= inside.nlist}
    if hasattr(inside, "hnsw"):
        values = sorted({max(k, value) for value in _EF_SEARCHES})  # Faiss uses k if that is more
        return {f"efSearch {n}": setting(inside.hnsw, "efSearch", n) for n in values}
    return {"": lambda: None}


def warm_seconds(run: Callable[[], object]) -> float:
    """
    Return the seconds that a call takes, after some tenths of a second of such calls.

    For that long, what ran before slows the call: threads of OpenMP and OpenBLAS that still spin, memory just freed.

    Examples
    --------
    >>> 0 <= warm_seconds(lambda: sum(range(1000))) < 1
    True
    """
    elapsed = total = seconds(run)
    while total < WARM_UP_SECONDS:
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


def draw(panel: Any, points: Sequence[Point], title: str, k: int) -> None:
    """
    Draw recall against speed on axes of Matplotlib, a line for each index.

    Lines with PRH are dark and solid with filled markers, all others pale and dashed with hollow ones, so that they
    are told apart also in grey.
    """
    drawn = {True: 0, False: 0}
    for name in dict.fromkeys(point.index for point in points):
        curve = [point for point in points if point.index == name]
        is_ours = "PRH" in name
        colours, number = _DARK if is_ours else _PALE, drawn[is_ours]
        panel.plot(
            [point.recall for point in curve],
            [point.queries_per_second for point in curve],
            linestyle="-" if is_ours else "--",
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            color=colours[number % len(colours)],
            markerfacecolor=None if is_ours else "white",
            label=name,
        )
        drawn[is_ours] += 1
    panel.set(title=title, xlabel=f"recall, {k} of {k}", ylabel="queries per second", yscale="log")
    panel.grid(alpha=0.3)


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
