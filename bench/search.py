"""Search and adding beside raw binary indexes; recall and speed of PRH, ITQ and RaBitQ, with and without re-ranking."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import faiss
import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

import faiss_prh
from bench.datasets import Dataset, load_suitable, synthetic
from bench.report import Options, print_table, save, versus
from bench.timing import interleaved, paired
from faiss_prh.cli.evaluation import Point, draw, recall, search_settings, stored_bytes

K = 10
SHORTLIST = 10
SEARCH_TARGET, ADD_TARGET = 1.05, 1.10
RABITQ_TARGET = 0.02
OVERHEAD_SIZES = [(1_000_000, 128), (200_000, 768)]
QUICK_OVERHEAD_SIZES = [(20_000, 128)]
SMALLEST = 10_000  # below, lists and graphs have nothing to speed up


def run(options: Options) -> None:
    if options.data is None:
        datasets = [synthetic(128, 20_000, 100_000, 1000)]
    else:
        wanted = f"with at least {SMALLEST} base vectors"
        datasets = load_suitable(options.data, wanted, lambda dataset: len(dataset.base) >= SMALLEST)
    if options.quick:
        datasets = [dataset.first(2000, 10_000, 100) for dataset in datasets[:1]]
    print(f"{faiss.omp_get_max_threads()} threads.\n")
    overhead(options.quick)
    results = {dataset.name: table(dataset, options.quick) for dataset in datasets}
    save(options.output, "search", {name: list(map(asdict, points)) for name, points in results.items()}, plot(results))


def overhead(quick: bool) -> None:
    """Print what the wrapper costs beside codes made ready and a raw index."""
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
        for setting, search in ways.items():
            found = search()[1]
            seconds = interleaved({setting: search}, repeats=1 if quick else 3)[setting]
            points.append(Point(description, setting, recall(found, truth), len(truth) / seconds, per_vector))
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
    return dict(list(ways.items())[-2:-1] or ways) if quick else ways  # a middling one


def plot(results: dict[str, list[Point]]) -> Any:
    """Draw recall against speed, a panel for each data set."""
    figure, panels = plt.subplots(1, len(results), figsize=(7 * len(results), 5), squeeze=False)
    for panel, (name, points) in zip(panels[0], results.items(), strict=True):
        draw(panel, points, name, K)
    panels[0][-1].legend(fontsize=7, bbox_to_anchor=(1.02, 1), loc="upper left")
    return figure
