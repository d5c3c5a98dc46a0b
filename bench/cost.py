"""Table 1 and Fig. 7: learning time of all methods; products and encoding time against BPBC as the dimension grows."""

import time
from functools import partial
from typing import Any

import numpy as np

from bench.baselines import BPBC, Makers, layers, prh_makers, rival_makers, srr
from bench.datasets import Dataset, synthetic, vlad_like
from bench.plots import Figure, legend_below, log_axis, panels, save, styles
from bench.report import Options, print_table, versus
from bench.timing import interleaved
from faiss_prh import PRHTransform

DIMENSIONS = (256, 512, 1024, 2048, 4096, 8192, 16384, 25600, 51200, 64000)
QUICK_DIMENSIONS = (256, 1024, 4096)
# Seconds that the paper's Table 1 gives, on its machine.
PAPER = {
    "SIFT": {"PRH(7,0,0.5)": 0.11, "PRH(7,7,0)": 0.10, "SRR": 0.015, "ITQ, published": 12.0, "ISO": 3.9, "PCAH": 0.09,
             "KMH": 402},
    "VLAD": {"PRH(15,0,0.3)": 344, "PRH(15,15,0)": 527, "SRR": 24, "BPBC": 1740},
}  # fmt: skip


def run(options: Options) -> None:
    sift = synthetic(128, 5_000 if options.quick else 100_000, 10, 10)
    vlad = vlad_like(20, 300, 10, 10) if options.quick else vlad_like(200, 1_000, 10, 10)
    low = {**prh_makers(128, [(7, 0, 0.5), (7, 7, 0.0)]), **rival_makers(128)}
    n = layers(vlad.d)
    high = prh_makers(vlad.d, [(n, 0, 0.3), (n, n, 0.0)])
    high |= {"SRR": lambda seed: srr(vlad.d, seed), "BPBC": lambda seed: BPBC(vlad.d, seed=seed)}
    results = {
        "learning": {
            "SIFT": print_learning("SIFT-like", sift, low, PAPER["SIFT"]),
            "VLAD": print_learning("VLAD-like", vlad, high, PAPER["VLAD"]),
        },
        "encoding": print_encoding(QUICK_DIMENSIONS if options.quick else DIMENSIONS),
    }
    save(options.output, "cost", results, plot)


def print_learning(name: str, dataset: Dataset, makers: Makers, paper: dict[str, float]) -> dict[str, float]:
    print(f"\nSeconds to learn from {len(dataset.train)} {name} vectors of {dataset.d} dimensions.\n")
    seconds = {}
    for method, make in makers.items():
        start = time.perf_counter()
        make(0).train(dataset.train)
        seconds[method] = time.perf_counter() - start
    fastest = next(iter(seconds.values()))
    print_table(
        ["", "seconds", "of the first", "the paper's"],
        [
            [method, f"{took:.3f}", f"{took / fastest:.1f}x", f"{paper[method]:g}" if method in paper else ""]
            for method, took in seconds.items()
        ],
    )
    return seconds


def print_encoding(dimensions: tuple[int, ...]) -> dict[str, list[float]]:
    print("\nOne vector: products, and µs. PRH: ⌈log2 n⌉ isotropic layers; BPBC: d1 = 128; dense: n².")
    print("A rotation is 4 products in the paper; the kernel here takes 2, and one a dimension for the scale.\n")
    results: dict[str, list[float]] = {"n": [], "prh": [], "kernel": [], "bpbc": [], "prh_us": [], "bpbc_us": []}
    rows = []
    for d in dimensions:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((max(64, (1 << 23) // d), d), dtype=np.float32)
        prh, bpbc = PRHTransform(d, n_pca=0), BPBC(d, iterations=1)
        prh.train(x[:64] * np.exp(rng.normal(size=d)).astype(np.float32))
        bpbc.train(x[:64])
        seconds = interleaved({"prh": partial(prh.encode, x), "bpbc": partial(bpbc.encode, x)}, repeats=5)
        rotations = prh.rotation.n_rotations
        products = {"prh": 4 * rotations, "kernel": 2 * rotations + d, "bpbc": d * sum(bpbc.shape)}
        results["n"].append(d)
        for name, count in products.items():
            results[name].append(count)
        for name in ("prh", "bpbc"):
            results[f"{name}_us"].append(seconds[name] / len(x) * 1e6)
        rows.append(
            [
                str(d),
                *(f"{count:.3g}" for count in (*products.values(), d * d)),
                versus(products["bpbc"] / products["prh"], None),
                *(f"{results[f'{name}_us'][-1]:.3g}" for name in ("prh", "bpbc")),
                versus(seconds["bpbc"] / seconds["prh"], None),
                f"{results['prh_us'][-1] / (d * np.log2(d)) * 1e6:.0f}",
            ]
        )
    header = ["n", "PRH", "kernel", "BPBC", "dense", "BPBC / PRH", "PRH, µs", "BPBC, µs", "BPBC / PRH", "ps / n log2 n"]
    print_table(header, rows)
    return results


def plot(results: dict[str, Any]) -> Figure:
    """Draw products and speed-up against the dimension."""
    encoding = results["encoding"]
    n = np.array(encoding["n"])
    figure, (products, speed) = panels(2, 2, 3.8)
    curves = {
        "PRH, as in the paper": encoding["prh"],
        "PRH, as run here": encoding["kernel"],
        "BPBC": encoding["bpbc"],
        "dense": n.astype(float) ** 2,
    }
    for name, style in styles(curves).items():
        products.plot(n, curves[name], **style)
    products.set(xlabel="dimensions", ylabel="products a vector", yscale="log")
    ratios = {
        "measured": np.divide(encoding["bpbc_us"], encoding["prh_us"]),
        "by products": np.divide(encoding["bpbc"], encoding["prh"]),
    }
    for name, style in styles(ratios, ours=lambda name: name == "measured").items():
        speed.plot(n, ratios[name], **style)
    speed.set(xlabel="dimensions", ylabel="times as fast as BPBC")
    for panel in (products, speed):
        log_axis(panel.xaxis, n)
        legend_below(panel)
    return figure
