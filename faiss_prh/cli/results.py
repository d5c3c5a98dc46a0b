"""The results of `faiss-prh eval`: what is best among them, and all of them as text, as JSON and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .evaluation import Evaluation, Point, table

_MARKERS = "os^DvPX*<>"
_DARK = ("#08306b", "#67000d", "#00441b", "#3f007d")
_PALE = ("#fd8d3c", "#74a9cf", "#78c679", "#999999")


def is_unbeaten(point: Point, points: Sequence[Point]) -> bool:
    """
    Return whether no other point has at least the recall and the speed of this one, and more of either.

    Examples
    --------
    >>> points = [Point("Flat", "", recall, speed, 8.0) for recall, speed in ((0.5, 90), (0.4, 80), (0.9, 10))]
    >>> [is_unbeaten(point, points) for point in points]
    [True, False, True]
    """
    mine = point.recall, point.queries_per_second
    return not any(
        other.recall >= mine[0] and other.queries_per_second >= mine[1]
        for other in points
        if (other.recall, other.queries_per_second) != mine
    )


def as_json(found: Sequence[Evaluation], target: float | None) -> dict[str, Any]:
    """Return what `faiss-prh eval --json` prints. `fastest` is null without a target, and if nothing reaches it."""
    points = [
        {
            "factory": e.index, "setting": e.setting, "recall_at_10": e.recall, "recall_at_100": e.recall_at_100,
            "train_seconds": e.train_seconds, "add_seconds": e.add_seconds,
            "milliseconds_per_query": 1000 / e.queries_per_second, "bytes_per_vector": e.bytes_per_vector,
            "file_bytes": e.file_bytes, "is_unbeaten": is_unbeaten(e, found),
        }
        for e in found
    ]  # fmt: skip
    fastest = None if target is None else _fastest(found, target)
    return {
        "points": points,
        "target_recall": target,
        "fastest": None if fastest is None else points[found.index(fastest)],
    }


def as_text(found: Sequence[Evaluation], target: float | None) -> str:
    """Return what `faiss-prh eval` prints: a table, and below it what is fastest among those that reach the target."""
    header = ["", "", "setting", "10-recall@10", "@100", "train, s", "add, s", "search, ms/query", "bytes/vector"]
    rows = [
        [
            "*" * is_unbeaten(e, found), e.index, e.setting, f"{e.recall:.3f}", f"{e.recall_at_100:.3f}",
            f"{e.train_seconds:.2f}", f"{e.add_seconds:.2f}", f"{1000 / e.queries_per_second:.3f}",
            f"{e.bytes_per_vector:.1f}",
        ]
        for e in found
    ]  # fmt: skip
    text = f"{table(header, rows)}\n\n* nothing else has at least this 10-recall@10 and this speed, and more of either"
    if target is None:
        return text
    fastest = _fastest(found, target)
    if fastest is None:
        closest = max(found, key=lambda e: (e.recall, e.queries_per_second))
        return f"{text}\n\nNone reaches 10-recall@10 of {target:g}. The closest is {_in_words(closest)}"
    return f"{text}\n\nThe fastest with 10-recall@10 of at least {target:g} is {_in_words(fastest)}"


def _fastest(found: Sequence[Evaluation], target: float) -> Evaluation | None:
    reaching = [e for e in found if e.recall >= target]
    return max(reaching, key=lambda e: (e.queries_per_second, e.recall), default=None)


def _in_words(e: Evaluation) -> str:
    name = f"{e.index}, {e.setting}" if e.setting else e.index
    return f"{name}: {e.recall:.4f}, {1000 / e.queries_per_second:.3f} ms/query, {e.bytes_per_vector:.1f} bytes/vector"


def draw(panel: Any, points: Sequence[Point], title: str, k: int) -> None:
    """
    Draw recall against speed on axes of Matplotlib, a line for each index, through what no other of its settings beats.

    Lines with PRH are dark and solid with filled markers, all others pale and dashed with hollow ones, so that they
    are told apart also in grey.
    """
    drawn = {True: 0, False: 0}
    for name in dict.fromkeys(point.index for point in points):
        own = [point for point in points if point.index == name]
        curve = sorted((p.recall, p.queries_per_second) for p in own if is_unbeaten(p, own))
        is_ours = "PRH" in name
        colours, number = _DARK if is_ours else _PALE, drawn[is_ours]
        panel.plot(
            *zip(*curve, strict=True),
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
