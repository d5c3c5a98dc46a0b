"""Searching and adding beside raw binary indexes; recall and speed beside ITQ and RaBitQ, also re-ranked."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import groupby, product
from operator import itemgetter
from typing import Any

import faiss
import numpy as np
from tqdm import tqdm

import faiss_prh
from bench.datasets import Dataset, load_suitable, synthetic
from bench.plots import Figure, log_axis, panels, save, shared_legend, styles
from bench.report import Options, print_table, versus
from bench.timing import interleaved, paired
from faiss_prh.cli.evaluation import Point, recall, search_settings, stored_bytes

K = 10
SHORTLIST = 10
SEARCH_TARGET, ADD_TARGET = 1.05, 1.10
RABITQ_TARGET = 0.02
OVERHEAD_SIZES = [(1_000_000, 128), (200_000, 768)]
QUICK_OVERHEAD_SIZES = [(20_000, 128)]
SMALLEST = 10_000  # below, lists and graphs have nothing to speed up
RANKINGS = {"": "ranked by codes", "RAsym": "re-ranked by RAsym", "RFlat": "re-ranked by vectors"}
MARKERS = {"IVF": "s", "HNSW": "^", "Flat": "o"}


def run(options: Options) -> None:
    print(f"{faiss.omp_get_max_threads()} threads.\n")
    datasets = datasets_of(options)
    overhead(options.quick)
    save(options.output, "search", measure_all(datasets, options.quick), plot)


def datasets_of(options: Options) -> list[Dataset]:
    if options.data is None:
        datasets = [synthetic(128, 20_000, 100_000, 1000)]
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


def table(dataset: Dataset, quick: bool) -> list[Point]:
    """Measure and print every way to search a data set."""
    print(f"\n{dataset.name}: {len(dataset.base)} vectors of {dataset.d} dimensions, {len(dataset.query)} queries.")
    print(f"Recall: share of the {K} nearest among the {K} found. Re-ranked: a shortlist of {SHORTLIST} x {K}.\n")
    truth = dataset.neighbours(K)
    points = []
    for description, index, per_vector in tqdm(indexes(dataset, quick), desc=dataset.name, total=20, leave=False):
        ways = settings(index, dataset.query, quick)
        seconds = interleaved(ways, repeats=1 if quick else 3)
        for setting, search in ways.items():
            speed = len(truth) / seconds[setting]
            points.append(Point(description, setting, recall(search()[1], truth), speed, per_vector))
    print_table(
        ["index", "setting", f"recall@{K}", "queries/s", "bytes/vector"],
        [
            [p.index, p.setting, f"{p.recall:.3f}", f"{p.queries_per_second:.0f}", f"{p.bytes_per_vector:.1f}"]
            for p in points
        ],
    )
    ours, theirs = (next(p for p in points if p.index == name) for name in ("PRH,BFlat,RAsym", "RR,RaBitQ"))
    verdict = "" if ours.recall >= theirs.recall - RABITQ_TARGET else " MISSED"
    print(
        f"\nRAsym {ours.recall:.3f} with {ours.bytes_per_vector:.0f} bytes a vector, RaBitQ {theirs.recall:.3f} "
        f"with {theirs.bytes_per_vector:.0f} (at most {RABITQ_TARGET} below{verdict})."
    )
    return points


def indexes(dataset: Dataset, quick: bool) -> Iterator[tuple[str, Any, float]]:
    """Yield descriptions, filled indexes, and the bytes that a vector takes in their files."""
    d, n_lists = dataset.d, 32 if quick else 256
    encoders = {"PRH": faiss_prh.PRHTransform(d), f"ITQ{d}": faiss.ITQTransform(d, d, False)}
    for name, encoder in encoders.items():
        encoder.train(dataset.train)
        for base in ("BFlat", f"BIVF{n_lists}", "BHNSW16"):
            for refine in ("", ",RAsym", ",RFlat"):
                index = faiss_prh.index_factory(d, f"PRH,{base}{refine}")
                index.chain[0] = encoder
                index.train(dataset.train)
                yield f"{name},{base}{refine}", *filled(index, dataset)
    for description in ("RR,RaBitQ", f"RR,IVF{n_lists},RaBitQ"):
        index = faiss.index_factory(d, description)
        index.train(dataset.train)
        yield description, *filled(index, dataset)


def filled(index: Any, dataset: Dataset) -> tuple[Any, float]:
    empty = stored_bytes(index)
    index.add(dataset.base)
    return index, (stored_bytes(index) - empty) / len(dataset.base)


def settings(index: Any, xq: np.ndarray, quick: bool) -> dict[str, Callable[[], Any]]:
    """Return the ways to search an index, by name."""
    if hasattr(index, "k_factor"):
        index.k_factor = SHORTLIST

    def search_with(choose: Callable[[], None]) -> Any:
        choose()
        return index.search(xq, K)

    ways = {name: partial(search_with, choose) for name, choose in search_settings(index, K).items()}
    return dict(list(ways.items())[-2:-1] or ways) if quick else ways  # one in the middle


def plot(results: dict[str, list[dict[str, Any]]]) -> Figure:
    """Draw speed against recall: a row for each data set, a panel for each way to rank."""
    figure, axes = panels(len(RANKINGS) * len(results), len(RANKINGS), 3.6, sharex="row", sharey="row")
    looks = styles(("PRH", "ITQ", "RaBitQ"))
    for panel, (dataset, suffix) in zip(axes, product(results, RANKINGS), strict=True):
        is_shown = partial(_is_ranked_by, suffix=suffix)
        for index, points in groupby(filter(is_shown, results[dataset]), itemgetter("index")):
            method = next(method for method in looks if method in index)
            kind = next((kind for kind in MARKERS if kind in index), "Flat")  # the last of all, as it is in RFlat
            curve = [(point["recall"], point["queries_per_second"]) for point in points]
            look = {**looks[method], "label": f"{method}, {kind}", "marker": MARKERS[kind]}
            panel.plot(*zip(*curve, strict=True), **look)
        panel.set(title=f"{dataset}\n{RANKINGS[suffix]}", xlabel=f"recall@{K}")
        log_axis(panel.yaxis)
    for panel in axes[:: len(RANKINGS)]:
        panel.set(ylabel="queries a second")
    shared_legend(figure, 3)
    return figure


def _is_ranked_by(point: dict[str, Any], suffix: str) -> bool:
    """Return whether a point belongs to a panel; RaBitQ, which has one way to rank, belongs to all."""
    has_suffix = point["index"].endswith(suffix) if suffix else point["index"].count(",") == 1
    return has_suffix or "RaBitQ" in point["index"]
