"""One thread: re-ranking beside the raw scan, one query alone, and sign codes in lists beside RaBitQ and PQ."""

from contextlib import nullcontext
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import faiss
import numpy as np

from bench.datasets import Dataset
from bench.report import NO_FIGURE, Options, ahead, print_table, versus
from bench.rivals import SIGNS, Filled, K, Shelf, machine, part_with, with_centroids_of
from bench.search import datasets_of, large
from bench.timing import interleaved, one_by_one, outside_native, paired, processor_time, threads
from faiss_prh._backend import active_simd_level
from faiss_prh.cli.evaluation import recall, seconds

K_FACTOR = 30
NPROBE = 16
RERANK_TARGET = 0.6
ALONE_TARGET = 1.0
PYTHON_PLAIN, PYTHON_RANKED = 10, 15
"""Of one query alone, the most microseconds in Python."""
ALONE_QUERIES = 200
NPROBES = (4, 16, 64)
RABITQ_SPEEDS = {"avx512": (2, 3.5, 5), "avx2": (1.5, 2.5, 3.5)}
"""Of sign codes in lists, as multiples of RaBitQ's fast scan, at `NPROBES`."""
RABITQ_RECALL = -0.005
PQ_SPEED, PQ_RECALL = 0.9, 0.02
RECALLS = (0.94, 0.98)
RERANKED_SPEED = 1.0
GRID_NPROBES = (4, 8, 12, 16, 24, 32, 48, 64, 128)
GRID_FACTORS = (1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)
GRID_MARGINS = (0.5, 1, 2)
"""As multiples of the margin that an index begins with."""
FINALISTS = 3


def run(options: Options) -> None:
    with threads(1):
        print(f"{machine()} Indexes are filled with more threads.")
    print("Times of batches are those that the processor spends in the one thread.")
    for dataset in datasets_of(options, large):
        print(f"\n{dataset.name}: {len(dataset.base)} vectors of {dataset.d} dimensions, {len(dataset.query)} queries.")
        shelf, n_lists = Shelf(dataset), 16 if options.quick else 256
        for part in (shortlists, alone, in_lists, reranked_lists, twice_the_bits):
            print()
            with nullcontext() if part is alone else processor_time():  # a clock that takes long to read
                part(shelf, n_lists, options.quick)


def shortlists(shelf: Shelf, n_lists: int, quick: bool) -> None:
    """Print what re-ranked search takes beside the scan by which Faiss finds the shortlist alone."""
    print(f"Seconds: re-ranked search, k = {K}, k_factor {K_FACTOR}; Faiss's scan of the codes, k = {K * K_FACTOR}.\n")
    rows, xq = [], shelf.dataset.query
    for core, refine in product(("BFlat", f"BIVF{n_lists}"), ("RFlat", "RAsym")):
        index = shelf.get(f"PRH,{core},{refine}").index
        raw, codes, before = index.index, index.encode(xq), index.k_factor
        index.k_factor = K_FACTOR
        if core != "BFlat":
            raw.nprobe = NPROBE
        with threads(1):
            ours, theirs, ratio = paired(
                partial(index.search, xq, K), partial(raw.search, codes, K * K_FACTOR), repeats=2 if quick else 10
            )
        index.k_factor = before
        verdict = versus(ratio, None if quick else RERANK_TARGET, at_most=True)
        rows.append([f"PRH,{core},{refine}", f"{ours:.4f}", f"{theirs:.4f}", verdict])
    print_table(["index", "re-ranked", "raw", "ratio"], rows)


def alone(shelf: Shelf, n_lists: int, quick: bool) -> None:
    """Print what one query alone takes, and in Python; and Faiss's own search of the codes for as long a shortlist."""
    print(f"One query alone, microseconds, nprobe {NPROBE}; raw: Faiss's search of the codes, encoded before;")
    print("Python's part: what does not pass in native code or in Faiss's.\n")
    lists, compared, rival = f"IVF{n_lists}", f"PRH,BIVF{n_lists},RFlat", f"RR,IVF{n_lists},RaBitQ"
    ours = [f"PRH,{core}{end}" for core in ("BFlat", f"B{lists}", "BHNSW16") for end in ("", ",RAsym", ",RFlat")]
    ours += [f"PRH,{lists},{SIGNS}{end}" for end in ("", ",RFlat")] + ["IDMap,PRH,BFlat", "PRH,BFlat,Refine(SQ8)"]
    ways: dict[str, Any] = {}
    raw_ways: dict[str, Any] = {}
    for found in shelf.those_of([*ours, rival, f"{rival}fs"]):
        if lists in found.name:
            found.set(nprobe=NPROBE)
        index = found.index
        ways[found.name] = lambda query, index=index: index.search(query, K)
        if isinstance(getattr(index, "index", None), faiss.IndexBinary) and SIGNS not in found.name:
            k_short = int(K * getattr(index, "k_factor", 1))
            raw_ways[found.name] = lambda code, raw=index.index, k=k_short: raw.search(code, k)
    n, repeats = (5, 1) if quick else (ALONE_QUERIES, 3)
    queries = shelf.dataset.query[:n]
    with threads(1):
        times = one_by_one(ways, queries, repeats)
        python = outside_native({name: way for name, way in ways.items() if name in ours}, queries, repeats)
        raw_times = one_by_one(raw_ways, shelf.get("PRH,BFlat").index.encode(queries), repeats)
    rows = []
    for name, time in times.items():
        row = [name, f"{1e6 * time:.1f}", NO_FIGURE, NO_FIGURE]
        if name in raw_times:
            row[2] = f"{1e6 * raw_times[name]:.1f}"
        if name in python:
            target = PYTHON_PLAIN if name.split(",")[-1].startswith("B") else PYTHON_RANKED
            row[3] = versus(1e6 * python[name], None if quick else target, at_most=True, unit="")
        rows.append(row)
    print_table(["index", "µs", "raw, µs", "Python's part, µs"], rows)
    if rival in times:
        ratio = versus(times[compared] / times[rival], None if quick else ALONE_TARGET, at_most=True)
        print(f"\n{compared} takes {ratio} as long as {rival}.")


def in_lists(shelf: Shelf, n_lists: int, quick: bool) -> None:
    """Print recall and speed of sign codes in lists beside RaBitQ and PQ with fast scans."""
    print("Sign codes in lists.")
    ours, rabitq = f"PRH,IVF{n_lists},{SIGNS}", f"RR,IVF{n_lists},RaBitQfs"
    pq = f"IVF{n_lists},PQ{shelf.dataset.d // 4}x4fs"
    rivals, found = shelf.those_of([rabitq, pq]), shelf.get(ours)
    same = with_centroids_of(found, rabitq, shelf.dataset) if found else None
    targets: dict[str, tuple[tuple[float, ...], float | None]] = {}
    if not quick:
        level = next((level for level in RABITQ_SPEEDS if active_simd_level().startswith(level)), None)
        speeds = RABITQ_SPEEDS[level] if level else ()
        targets = {rabitq: (speeds, None), pq: ((PQ_SPEED,) * len(NPROBES), PQ_RECALL)}
        if same:
            targets[same.name] = ((), RABITQ_RECALL)
    compare(shelf, found, [*rivals, same] if same else rivals, n_lists, quick, targets)


def twice_the_bits(shelf: Shelf, n_lists: int, quick: bool) -> None:
    """Print recall and speed of sign codes of twice as many bits as dimensions, beside RaBitQ's with two bits."""
    print("Sign codes of twice as many bits as dimensions, beside two bits a dimension.")
    ours = f"PRH{2 * shelf.dataset.d},IVF{n_lists},{SIGNS}"
    rivals = shelf.those_of([f"RR,IVF{n_lists},RaBitQ{kind}" for kind in ("2", "fs2")])
    compare(shelf, shelf.get(ours), rivals, n_lists, quick, {})


def compare(
    shelf: Shelf,
    ours: Filled | None,
    rivals: list[Filled],
    n_lists: int,
    quick: bool,
    targets: dict[str, tuple[tuple[float, ...], float | None]],
) -> None:
    """Print recall and queries a second at each nprobe; targets are those of our speed, by nprobe, and recall."""
    print(f"Batches, recall@{K}; ahead: our speed as a multiple of the rival's, and our recall less the rival's.\n")
    nprobes = [n for n in NPROBES if n <= n_lists]
    indexes = [ours, *rivals] if ours else rivals
    xq = shelf.dataset.query
    ways = {(i.name, n): partial(i.search, xq, nprobe=n) for n, i in product(nprobes, indexes)}
    with threads(1):
        times = interleaved(ways, 1 if quick else 5)
    speeds = {key: len(xq) / time for key, time in times.items()}
    recalls = {key: recall(way(), shelf.truth) for key, way in ways.items()}
    rows = []
    for place, n in enumerate(nprobes):
        for index in indexes:
            key, verdicts = (index.name, n), ["", ""]
            if ours and index is not ours:
                wanted, least = targets.get(index.name, ((), None))
                mine = (ours.name, n)
                verdicts = [
                    versus(speeds[mine] / speeds[key], wanted[place] if wanted else None),
                    ahead(recalls[mine] - recalls[key], least),
                ]
            figures = [f"{index.bytes_per_vector:.1f}", f"{recalls[key]:.3f}", f"{speeds[key]:.0f}"]
            rows.append([str(n), index.name, *figures, *verdicts])
    print_table(["nprobe", "index", "bytes/vector", "recall", "queries/s", "speed ahead", "recall ahead"], rows)


def reranked_lists(shelf: Shelf, n_lists: int, quick: bool) -> None:
    """Print the fastest settings that reach a recall, of sign codes and of PQ, both re-ranked by vectors."""
    print(f"Re-ranked by vectors: the fastest setting that reaches a recall@{K}, and our speed beside PQ's.\n")
    ours, rival = f"PRH,IVF{n_lists},{SIGNS},RFlat", f"IVF{n_lists},PQ{shelf.dataset.d // 4}x4fs,RFlat"
    rows = []
    with_settings = {found.name: (found, grid(found, n_lists, quick)) for found in shelf.those_of([ours, rival])}
    with threads(1):
        rough = {name: tried(*these, shelf.dataset, shelf.truth) for name, these in with_settings.items()}
    for target in RECALLS:
        ways = {
            (name, place): partial(found.search, shelf.dataset.query, **settings[place])
            for name, (found, settings) in with_settings.items()
            for place in finalists(rough[name], target)
        }
        with threads(1):
            times = interleaved(ways, 1 if quick else 5)
        best = {name: (len(shelf.truth) / time, place) for (name, place), time in slowest_first(times)}
        for name, (_, settings) in with_settings.items():
            row = [f"{target:g}", name, *[NO_FIGURE] * 4]
            if name in best:
                speed, place = best[name]
                setting = ", ".join(f"{key} {value:g}" for key, value in settings[place].items())
                row[2:5] = [setting, f"{rough[name][place][0]:.3f}", f"{speed:.0f}"]
                if name == ours and rival in best:
                    row[5] = versus(speed / best[rival][0], None if quick else RERANKED_SPEED)
            rows.append(row)
    print_table(["wanted", "index", "setting", "recall", "queries/s", "ahead"], rows)


def slowest_first(times: dict[Any, float]) -> list[tuple[Any, float]]:
    return sorted(times.items(), key=itemgetter(1), reverse=True)


def grid(found: Filled, n_lists: int, quick: bool) -> list[dict[str, float]]:
    """Return the settings to try: of nprobe and k_factor, and where the index has one, of its margin."""
    parts: list[dict[str, float]] = [
        {"nprobe": n, "k_factor": factor}
        for n, factor in product(GRID_NPROBES, GRID_FACTORS[-1::-4] if quick else GRID_FACTORS)
        if n <= n_lists
    ]
    try:
        margin = part_with(found.index, "margin").margin
    except StopIteration:
        return parts
    margins = dict.fromkeys(margin * multiple for multiple in GRID_MARGINS)
    return [{**part, "margin": each} for part, each in product(parts, margins)]


def tried(
    found: Filled, settings: list[dict[str, float]], dataset: Dataset, truth: np.ndarray
) -> list[tuple[float, float]]:
    """Return the recall and roughly the seconds of each setting."""
    results: list[tuple[float, float]] = []
    for setting in settings:
        hits: list[np.ndarray] = []
        time = seconds(lambda setting=setting, hits=hits: hits.append(found.search(dataset.query, **setting)))
        results.append((recall(hits[0], truth), time))
    return results


def finalists(results: list[tuple[float, float]], target: float) -> list[int]:
    """Return the places of the fastest settings that reach a recall."""
    reached = [place for place, (found, _) in enumerate(results) if found >= target]
    return sorted(reached, key=lambda place: results[place][1])[:FINALISTS]
