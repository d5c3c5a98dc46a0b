"""Searching and adding beside raw binary indexes; recall against speed beside RaBitQ, PQ, SQ and HNSW."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, product
from operator import itemgetter
from typing import Any

import numpy as np
from tqdm import tqdm

import faiss_prh
from bench.datasets import Dataset, clustered, load_suitable, synthetic
from bench.plots import Figure, log_axis, panels, save, shared_legend, styles
from bench.report import Options, ahead, print_table, versus
from bench.rivals import Filled, K, Shelf, machine, named
from bench.timing import interleaved, one_by_one, paired, threads
from faiss_prh.cli.evaluation import Point, recall, search_settings

SHORTLIST = 10
SEARCH_TARGET, ADD_TARGET = 1.05, 1.10
RABITQ_TARGET = 0.02
OVERHEAD_SIZES = [(1_000_000, 128), (200_000, 768)]
QUICK_OVERHEAD_SIZES = [(20_000, 128)]
SMALLEST = 10_000  # below, lists and graphs have nothing to speed up
ALONE_QUERIES, ALONE_SECONDS = 100, 2.0
RANKINGS = ("by codes", "by vectors")
SPEEDS = {"queries_per_second": "batches", "queries_per_second_alone": "one query alone"}


@dataclass
class Measured(Point):
    """What was measured of one way to search an index, in batches; and the speed for one query at a time."""

    queries_per_second_alone: float


def run(options: Options) -> None:
    print(f"{machine()}\n")
    datasets = datasets_of(options, large)
    overhead(options.quick)
    save(options.output, "search", measure_all(datasets, options.quick), plot)


def tiny() -> list[Dataset]:
    return [clustered(64, 2000, 5000, 50)]


def small() -> list[Dataset]:
    return [synthetic(128, 20_000, 100_000, 1000)]


def large() -> list[Dataset]:
    return [clustered(128, 50_000, 1_000_000, 1000), clustered(768, 20_000, 200_000, 1000)]


def datasets_of(options: Options, made_up: Callable[[], list[Dataset]] = small) -> list[Dataset]:
    """Return the data sets in the folder that was named, or made-up ones; for a quick run, few vectors."""
    if options.data is None:
        datasets = tiny() if options.quick else made_up()
    else:
        wanted = f"with at least {SMALLEST} base vectors"
        datasets = load_suitable(options.data, wanted, lambda dataset: len(dataset.base) >= SMALLEST)
    return [dataset.first(2000, 10_000, 100) for dataset in datasets[:1]] if options.quick else datasets


def measure_all(datasets: list[Dataset], quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Measure and print every way to search each data set."""
    return {dataset.name: list(map(asdict, table(dataset, quick))) for dataset in datasets}


def overhead(quick: bool) -> None:
    """Print what the wrapper costs beside encoding by hand and a raw index."""
    print("Seconds through IndexBinaryPreTransform, and by hand: encode, then the raw index.\n")
    rows = []
    for n, d in QUICK_OVERHEAD_SIZES if quick else OVERHEAD_SIZES:
        rng = np.random.default_rng(0)
        x, xq = (rng.standard_normal((m, d), dtype=np.float32) for m in (n, 1000))
        prh = faiss_prh.PRHTransform(d)
        prh.train(x[:10_000])
        for description in ("BFlat", "BIVF256"):
            index = faiss_prh.index_factory(d, f"PRH,{description}")
            index.chain[0] = prh
            index.train(x[:20_000])
            raw, codes = index.index, prh.encode(xq)  # the same index for both: where its lists lie in memory matters

            def add_by_hand(raw: Any = raw, prh: Any = prh, x: np.ndarray = x) -> None:
                raw.reset()
                raw.add(prh.encode(x))

            def add(index: Any = index, x: np.ndarray = x) -> None:
                index.reset()
                index.add(x)

            adding = paired(add, add_by_hand, repeats=2 if quick else 10)
            if description != "BFlat":
                raw.nprobe = 16
            searching = paired(partial(index.search, xq, K), partial(raw.search, codes, K), repeats=2 if quick else 20)
            row = [f"{n} x {d} {description}"]
            for (ours, theirs, ratio), target in ((adding, ADD_TARGET), (searching, SEARCH_TARGET)):
                row += [f"{ours:.4f}", f"{theirs:.4f}", versus(ratio, None if quick else target, at_most=True)]
            rows.append(row)
    print_table(["index", "add", "by hand", "ratio", "search 1000", "raw", "ratio"], rows)


def table(dataset: Dataset, quick: bool) -> list[Measured]:
    """Measure and print every way to search a data set, in the order of the bytes that a vector takes."""
    print(f"\n{dataset.name}: {len(dataset.base)} vectors of {dataset.d} dimensions, {len(dataset.query)} queries.")
    print(f"Recall: share of the {K} nearest among the {K} found. Re-ranked: a shortlist of {SHORTLIST} x {K}.")
    print("One thread. Bytes: those of a file, with the ids of lists and the links of graphs.\n")
    shelf = Shelf(dataset)
    points: list[Measured] = []
    for description in tqdm(named(dataset.d, 32 if quick else 256), desc=dataset.name, leave=False):
        found = shelf.make(description)  # with all threads; not kept, as all would fill the memory
        if found is not None:
            with threads(1):
                points += measured(found, dataset.query, shelf.truth, quick)
    points.sort(key=lambda point: point.bytes_per_vector)
    header = ["index", "setting", f"recall@{K}", "queries/s", "one at a time", "bytes/vector"]
    print_table(header, [row_of(point) for point in points])
    ours, theirs = (next((p for p in points if p.index == name), None) for name in ("PRH,BFlat,RAsym", "RR,RaBitQ"))
    if ours and theirs:
        print(
            f"\nRAsym {ours.recall:.3f} with {ours.bytes_per_vector:.0f} bytes a vector, RaBitQ {theirs.recall:.3f} "
            f"with {theirs.bytes_per_vector:.0f}: {ahead(ours.recall - theirs.recall, -RABITQ_TARGET)}."
        )
    return points


def row_of(point: Measured) -> list[str]:
    speeds = [f"{speed:.0f}" for speed in (point.queries_per_second, point.queries_per_second_alone)]
    return [point.index, point.setting, f"{point.recall:.3f}", *speeds, f"{point.bytes_per_vector:.1f}"]


def measured(found: Filled, xq: np.ndarray, truth: np.ndarray, quick: bool) -> list[Measured]:
    """Measure the ways to search an index."""
    ways = settings(found.index, quick)
    times = interleaved({setting: partial(search, xq) for setting, search in ways.items()}, 1 if quick else 3)
    points = []
    for setting, search in ways.items():
        batch = times[setting] / len(xq)
        n = int(np.clip(ALONE_SECONDS / batch, 5, 5 if quick else ALONE_QUERIES))
        alone = one_by_one({"": search}, xq[:n], 1 if quick else 3)[""]
        hits = recall(search(xq)[1], truth)
        points.append(Measured(found.name, setting, hits, 1 / batch, found.bytes_per_vector, 1 / alone))
    return points


def settings(index: Any, quick: bool) -> dict[str, Callable[[np.ndarray], Any]]:
    """Return the ways to search an index, by name."""
    if hasattr(index, "k_factor"):
        index.k_factor = SHORTLIST

    def search_with(choose: Callable[[], None], xq: np.ndarray) -> Any:
        choose()
        return index.search(xq, K)

    ways = {name: partial(search_with, choose) for name, choose in search_settings(index, K).items()}
    return dict(list(ways.items())[-2:-1] or ways) if quick else ways  # one in the middle


def plot(results: dict[str, list[dict[str, Any]]]) -> Figure:
    """
    Draw speed against recall, a line for each index through what no other of its settings beats.

    Each data set has a row of batches and one of single queries, with a panel for each ranking.
    """
    rows = [(dataset, speed) for dataset, speed in product(results, SPEEDS) if speed in results[dataset][0]]
    height = 2.6 + 1.6 / len(rows)  # with room for the legend
    figure, axes = panels(len(RANKINGS) * len(rows), len(RANKINGS), height, sharey="row")
    looks = styles(label_of(point["index"]) for points in results.values() for point in points)
    for panel, ((dataset, speed), ranking) in zip(axes, product(rows, RANKINGS), strict=True):
        is_shown = [point for point in results[dataset] if ranking_of(point["index"]) == ranking]
        for index, points in groupby(is_shown, itemgetter("index")):
            curve = unbeaten([(point["recall"], point[speed]) for point in points])
            panel.plot(*zip(*curve, strict=True), **looks[label_of(index)])
        panel.set(title=f"{dataset}, {SPEEDS[speed]}\nranked {ranking}", xlabel=f"recall@{K}")
        log_axis(panel.yaxis)
    for panel in axes[:: len(RANKINGS)]:
        panel.set(ylabel="queries a second")
    shared_legend(figure, 3)
    return figure


def unbeaten(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other has both coordinates at least as large as, in ascending order."""
    found: list[tuple[float, float]] = []
    for recalled, speed in sorted(points, reverse=True):
        if not found or speed > found[-1][1]:
            found.append((recalled, speed))
    return found[::-1]


def label_of(index: str) -> str:
    """Return the name of an index in the legend: the same for all dimensions, and with and without vectors."""
    return re.sub(r"(PRH|PQ)\d+", r"\1…", index.removesuffix(",RFlat"))


def ranking_of(index: str) -> str:
    """Return what the results are ranked by in the end; graphs of vectors keep those, as re-ranking does."""
    return RANKINGS[index.endswith(",RFlat") or index.startswith("HNSW")]
