"""Any number of bits: recall, learning and encoding time beside dense PCA with ITQ, and more bits than dimensions."""

import time
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from bench.baselines import ITQ, PRH, Encoder, FaissITQ, Makers, Reduced, layers, random_orthogonal, srr
from bench.baselines.encoder import packed_signs
from bench.datasets import HIGH_DIMENSION, Dataset, clustered, load, synthetic, vlad_like, words
from bench.plots import Figure, log_axis, panels, save, shared_legend, styles
from bench.recall import CUTS, NEIGHBOURS, recall_curve
from bench.report import Options, print_table, versus
from bench.timing import interleaved, thread_counts, threads

SEEDS, HIGH_SEEDS = 3, 2
HIGH = HIGH_DIMENSION
"""From this dimension on, dense methods are left out unless they make few bits."""
MOST_ITQ_BITS = 1000
MOST_TRAIN = 10_000
EXPANSIONS = ((128, 512), (384, 1024))
# (dimensions, bits): how many times as fast as a dense product, at least
ENCODE_TARGETS = {(784, 256): 2.5, (784, 128): 1.5, (1536, 512): 4, (25600, 1024): 20}
# (dimensions, bits, vectors): seconds to learn, at most
LEARNING_TARGETS = {(784, 256, 10_000): 10, (25600, 1024, 1000): 120, (25600, 1024, 20_000): 300}
BELOW_FAISS, BELOW_PUBLISHED, OVER_RANDOM = 0.01, 0.03, 1.5
ABOVE_PUBLISHED = 0.02
"""Wanted in the mean over all cells."""
FAISS, PUBLISHED, SPARSE = "PCA + ITQ, Faiss's", "PCA + ITQ, published", "random sparse"
UNTUNED, AFTER_PCA = "PRH(l,l,0)", "PCA + PRH"
LABELS = {UNTUNED: "PRH without tuning", AFTER_PCA: "PRH after dense PCA"}
"""Other names in the picture than in the tables."""

Cells = dict[str, dict[str, Any]]


def run(options: Options) -> None:
    results = measure_all(datasets_of(options), options.quick)
    print_bars(results)
    expansions = print_expansions(options.quick)
    encoding = print_encoding(options.quick)
    learning = print_learning(options.quick)
    all_results = {"recall": results, "expansion": expansions, "encoding": encoding, "learning": learning}
    save(options.output, "bits", all_results, plot)


def measure_all(datasets: list[Dataset], quick: bool) -> dict[str, dict[int, Cells]]:
    """Measure and print every data set at some numbers of bits."""
    results: dict[str, dict[int, Cells]] = {}
    for dataset in datasets:
        at_bits = results[dataset.name] = {}
        truth = dataset.neighbours(NEIGHBOURS)
        for bits in bits_of(dataset, quick):
            seeds = 1 if quick else HIGH_SEEDS if dataset.d >= HIGH else SEEDS
            at_bits[bits] = measure(dataset, truth, bits, seeds)
        print_recalls(dataset, at_bits)
    return results


def datasets_of(options: Options) -> list[Dataset]:
    if options.data is not None:
        datasets = load(options.data)
        return [dataset.first(1000, 5000, 100) for dataset in datasets[:1]] if options.quick else datasets
    if options.quick:
        return [synthetic(64, 2000, 5000, 100)]
    sizes = 10_000, 50_000, 1000
    made_up = [synthetic(128, *sizes), synthetic(768, *sizes), clustered(300, *sizes), words(100, *sizes)]
    return [*made_up, vlad_like(200, 1000, 4000, 200)]


def bits_of(dataset: Dataset, quick: bool) -> list[int]:
    """Return the numbers of bits to try, up to the dimension."""
    few = (256, 1024, 4096) if dataset.d >= HIGH else (32, 64, 128, 256)
    return [bits for bits in few[: 1 if quick else None] if bits < dataset.d] + [dataset.d]


class RandomSparse:
    """Some outputs of a sparse random rotation."""

    is_random = True

    def __init__(self, d: int, bits: int, seed: int) -> None:
        self.rotated, self.bits = srr(d, seed), bits

    def train(self, x: np.ndarray) -> None:
        self.rotated.train(x)

    def encode(self, x: np.ndarray) -> np.ndarray:
        return packed_signs(self.rotated.transform.apply(x - self.rotated.mean)[:, : self.bits])


def makers(dataset: Dataset, bits: int) -> Makers:
    d, n = dataset.d, layers(bits)
    made: Makers = {"PRH": lambda seed: PRH(d, bits, seed=seed)}
    made[UNTUNED] = lambda seed: PRH(d, bits, n_iso=n, n_pca=n, seed=seed)
    if d < HIGH or bits <= MOST_ITQ_BITS:
        made[FAISS] = lambda seed: _after_pca(dataset, bits, FaissITQ(bits))
        made[PUBLISHED] = lambda seed: _after_pca(dataset, bits, ITQ(bits, seed))
        if bits < d:
            made[AFTER_PCA] = lambda seed: Reduced(d, bits, PRH(bits, seed=seed))
    if d >= HIGH:
        made[SPARSE] = lambda seed: RandomSparse(d, bits, seed)
    return made


def _after_pca(dataset: Dataset, bits: int, itq: Encoder) -> Encoder:
    """Return ITQ, after Faiss's PCA at high dimension: that needs no covariance matrix if vectors are few."""
    return Reduced(dataset.d, bits, itq) if dataset.d >= HIGH else itq


def measure(dataset: Dataset, truth: np.ndarray, bits: int, seeds: int) -> Cells:
    """Return recalls, learning time, encoding time and the share of variance kept, for each method."""
    cells: Cells = {}
    for name, make in tqdm(makers(dataset, bits).items(), desc=f"{dataset.name}, {bits} bits", leave=False):
        recalls, learning = [], []
        for seed in range(seeds):
            encoder = make(seed)
            start = time.perf_counter()
            encoder.train(dataset.train[:MOST_TRAIN])
            learning.append(time.perf_counter() - start)
            start = time.perf_counter()
            codes = encoder.encode(dataset.base)
            encoding = (time.perf_counter() - start) / len(dataset.base)
            curve = recall_curve(encoder.encode(dataset.query), codes, truth)
            recalls.append([float(curve[cut == CUTS][0]) for cut in (10, 100)])
            if not encoder.is_random:
                break
        cells[name] = {"recalls": recalls, "seconds": float(np.median(learning)), "encoding": encoding}
        if isinstance(encoder, PRH):
            cells[name] |= {"description": encoder.describe()._asdict()}
    return cells


def mean_at(cell: dict[str, Any], cut: int) -> float:
    return float(np.mean(cell["recalls"], axis=0)[(10, 100).index(cut)])


def print_recalls(dataset: Dataset, at_bits: dict[int, Cells]) -> None:
    print(f"\n{dataset.name} ({dataset.d} dimensions, {min(len(dataset.train), MOST_TRAIN)} training vectors)")
    print("10-recall@10 and @100, mean ± half the range of the seeds; seconds to learn; µs to encode a vector.\n")
    rows = []
    for bits, cells in at_bits.items():
        for name, cell in cells.items():
            spread = np.ptp(cell["recalls"], axis=0) / 2
            shown = [f"{mean_at(cell, cut):.3f} ± {half:.3f}" for cut, half in zip((10, 100), spread, strict=True)]
            kept = f"{cell['description']['variance_kept']:.1%}" if "description" in cell else ""
            rows.append([str(bits), name, *shown, f"{cell['seconds']:.2f}", f"{cell['encoding'] * 1e6:.2f}", kept])
    print_table(["bits", "", "@10", "@100", "learn, s", "encode, µs", "variance kept"], rows)


def print_bars(results: dict[str, dict[int, Cells]]) -> None:
    """Print PRH's 10-recall@100, with its defaults, against the rivals'."""
    print("\n10-recall@100 of PRH with its defaults, against the rivals at the same number of bits.\n")
    rows, relative = [], []
    for name, at_bits in results.items():
        for bits, cells in at_bits.items():
            mine = mean_at(cells["PRH"], 100)
            row = [name, str(bits), f"{mine:.3f}", "", "", ""]
            if FAISS in cells:
                difference = mine - mean_at(cells[FAISS], 100)
                ratio = mine / mean_at(cells[PUBLISHED], 100) - 1
                relative.append(ratio)
                row[3] = f"{difference:+.3f}{' MISSED' if difference < -BELOW_FAISS else ''}"
                row[4] = f"{ratio:+.1%}{' MISSED' if ratio < -BELOW_PUBLISHED else ''}"
            if SPARSE in cells:
                target = OVER_RANDOM if bits == 1024 else None
                row[5] = versus(mine / mean_at(cells[SPARSE], 100), target)
            rows.append(row)
    print_table(
        ["", "bits", "PRH", "- Faiss's ITQ (≥ -.01)", f"/ ITQ published (≥ -{BELOW_PUBLISHED:.0%})", "/ random sparse"],
        rows,
    )
    if relative:
        mean = float(np.mean(relative))
        print(f"\nMean against ITQ as published: {mean:+.2%}{'' if mean >= ABOVE_PUBLISHED else ' MISSED'}")


class Frame:
    """A dense random frame with orthonormal columns."""

    is_random = True

    def __init__(self, d: int, bits: int, seed: int) -> None:
        self.bits = bits
        self.matrix = np.ascontiguousarray(
            random_orthogonal(bits, np.random.default_rng(seed))[:, :d].T, dtype=np.float32
        )

    def train(self, x: np.ndarray) -> None:
        self.mean = x.mean(axis=0)

    def encode(self, x: np.ndarray) -> np.ndarray:
        return packed_signs((x - self.mean) @ self.matrix)


def print_expansions(quick: bool) -> dict[str, Any]:
    """Print PRH with more bits than dimensions beside a dense random frame."""
    found: dict[str, Any] = {}
    rows = []
    for d, bits in [(32, 64)] if quick else EXPANSIONS:
        dataset = synthetic(d, 5000, 2000, 50) if quick else synthetic(d, 10_000, 50_000, 1000)
        truth = dataset.neighbours(NEIGHBOURS)
        rivals: Makers = {"PRH": partial(_prh, d, bits), "frame": partial(Frame, d, bits)}
        recalls: dict[str, list[float]] = {name: [] for name in rivals}
        encoders = {}
        for seed in range(1 if quick else SEEDS):
            for name, make in rivals.items():
                encoder = encoders[name] = make(seed)
                encoder.train(dataset.train)
                curve = recall_curve(encoder.encode(dataset.query), encoder.encode(dataset.base), truth)
                recalls[name].append(float(curve[CUTS == 100][0]))
        seconds = interleaved({name: partial(encoder.encode, dataset.base) for name, encoder in encoders.items()}, 5)
        difference = float(np.mean(recalls["PRH"]) - np.mean(recalls["frame"]))
        found[f"{d} to {bits}"] = {"recalls": recalls, "seconds": seconds}
        rows.append(
            [f"{d} → {bits}", *(f"{np.mean(r):.3f} ± {np.ptp(r) / 2:.3f}" for r in recalls.values())]
            + [f"{difference:+.3f}{' MISSED' if not quick and difference < -0.005 else ''}"]
            + [f"{s / len(dataset.base) * 1e6:.2f}" for s in seconds.values()]
            + [versus(seconds["frame"] / seconds["PRH"], None if quick else 4)]
        )
    print("\nMore bits than dimensions, synthetic data: 10-recall@100 and µs to encode a vector.\n")
    print_table(["", "PRH", "dense frame", "(≥ -.005)", "PRH, µs", "frame, µs", "frame /"], rows)
    return found


def _prh(d: int, bits: int, seed: int) -> PRH:
    return PRH(d, bits, seed=seed)


def print_encoding(quick: bool) -> dict[str, Any]:
    """Print how long encoding takes beside a dense product of the same size, with centring and packing."""
    found, rows = {}, []
    targets = {(96, 32): None} if quick else ENCODE_TARGETS
    for (d, bits), target in targets.items():
        dataset = vlad_like(200, 1000, 2000, 1) if d == 25600 else synthetic(d, 10_000, 20_000, 1)
        prh = PRH(d, bits)
        prh.train(dataset.train)
        dense, mean = prh.to_dense().T.astype(np.float32) if d <= HIGH else _any_matrix(d, bits), dataset.train.mean(0)
        rivals = {
            "PRH": partial(prh.encode, dataset.base),
            "dense": lambda dense=dense, mean=mean, x=dataset.base: packed_signs((x - mean) @ dense),
        }
        for n_threads in thread_counts():
            with threads(n_threads):
                seconds = interleaved(rivals, 3 if quick else 7)
            each = {name: s / len(dataset.base) * 1e6 for name, s in seconds.items()}
            found[f"{d} to {bits}, {n_threads} threads"] = each
            ratio = versus(each["dense"] / each["PRH"], target)
            rows.append([f"{d} → {bits}", str(n_threads), *(f"{us:.2f}" for us in each.values()), ratio])
    print("\nEncoding, µs a vector, beside a dense product (sgemm) with centring and packing of the same bits.\n")
    print_table(["", "threads", "PRH", "dense", "dense /"], rows)
    return found


def print_learning(quick: bool) -> dict[str, float]:
    """Print how long learning takes on long vectors and on many."""
    found, rows = {}, []
    for (d, bits, m), most in ({(96, 32, 1000): None} if quick else LEARNING_TARGETS).items():
        rng = np.random.default_rng(0)
        x = rng.normal(size=(m, 100)).astype(np.float32) @ rng.normal(size=(100, d)).astype(np.float32)
        x += rng.normal(size=(1, d)).astype(np.float32)
        start = time.perf_counter()
        PRH(d, bits).train(x)
        seconds = found[f"{d} to {bits}, {m} vectors"] = time.perf_counter() - start
        missed = most is not None and seconds > most
        rows.append([f"{d} → {bits}", str(m), f"{seconds:.1f}", f"≤ {most}{' MISSED' * missed}" if most else ""])
    print("\nSeconds to learn.\n")
    print_table(["", "vectors", "seconds", "target"], rows)
    return found


def _any_matrix(d: int, bits: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(d, bits)).astype(np.float32)


def plot(results: dict[str, Any]) -> Figure:
    """Draw recall against bits, a panel for each data set."""
    recalls = results["recall"]
    figure, axes = panels(len(recalls), 2, 3.4)
    looks = styles(name for at_bits in recalls.values() for cells in at_bits.values() for name in cells)
    for panel, (title, at_bits) in zip(axes, recalls.items(), strict=True):
        for name, look in looks.items():
            points = [(int(bits), mean_at(cells[name], 100)) for bits, cells in at_bits.items() if name in cells]
            if points:
                panel.plot(*zip(*points, strict=True), **look | {"label": LABELS.get(name, name)})
        panel.set(title=title, xlabel="bits", ylabel="10-recall@100")
        log_axis(panel.xaxis, map(int, at_bits))
    shared_legend(figure, 2)
    return figure
