"""Fig. 6: VLAD vectors of 25600 and 64000 dimensions, against BPBC: recall, training time, encoding time."""

import time
from typing import Any

from bench.baselines import BPBC, Makers, hadamard, has_hadamard, layers, possible, prh_makers, srr
from bench.curves import Curve, Row, as_json, measure_rows
from bench.curves import plot as plot_curves
from bench.datasets import HIGH_DIMENSION, Dataset, load_suitable, vlad_like
from bench.plots import Figure, save
from bench.report import NO_FIGURE, Options, print_table, versus
from bench.sift import repeated
from bench.timing import interleaved

TILTS = [0, 0.1, 0.3, 0.5, 0.7, 1]
TRAIN_TARGET, ENCODE_TARGET = 10, 12


def high_dimensional(options: Options) -> list[Dataset]:
    if options.data is not None:
        wanted = f"of at least {HIGH_DIMENSION} dimensions"
        datasets = load_suitable(options.data, wanted, lambda dataset: dataset.d >= HIGH_DIMENSION)
        return [dataset.first(300, 600, 50) for dataset in datasets[:1]] if options.quick else datasets
    if options.quick:
        return [vlad_like(20, 300, 600, 50)]
    return [vlad_like(200, 1000, 4000, 400), vlad_like(500, 1000, 2000, 200)]


def against_bpbc(d: int) -> Makers:
    n = layers(d)
    makers: Makers = {
        **prh_makers(d, [(n, 0, 0.3), (n, 0, 0.5), (n, n, 0.0)]),
        **possible("BPBC", lambda seed: BPBC(d, seed=seed)),
        "SRR": lambda seed: srr(d, seed),
    }
    if has_hadamard():
        makers["Hadamard"] = lambda seed: hadamard(d, seed)
    return makers


def run(options: Options) -> None:
    datasets, rows = high_dimensional(options), []
    for dataset in datasets:
        d, n = dataset.d, layers(dataset.d)
        panels = {
            "against BPBC": against_bpbc(d),
            "PCA tilting": prh_makers(d, [(n, 0, tilt) for tilt in TILTS]),
            "random sparse PCA": prh_makers(d, [(n, more, 0.0) for more in (0, 2, 4, n)]),
        }
        title = f"{dataset.name} ({d} dimensions)"
        rows.append(Row(title, repeated(dataset, options), panels, dict.fromkeys(panels, d)))
    found = measure_rows(rows)
    cost = {
        row.title: print_cost(dataset, row.panels["against BPBC"], found[f"{row.title}, against BPBC"], options.quick)
        for dataset, row in zip(datasets, rows, strict=True)
    }
    save(options.output, "highdim", {"recall": as_json(found), "cost": cost}, plot)


def plot(results: dict[str, Any]) -> Figure:
    return plot_curves(results["recall"])


def print_cost(dataset: Dataset, makers: Makers, curves: dict[str, Curve], quick: bool) -> dict[str, dict[str, float]]:
    """Print and return what the same encoders cost to train and to run, beside BPBC."""
    training, encoders = {}, {}
    for name, make in makers.items():
        start = time.perf_counter()
        encoder = encoders[name] = make(0)
        encoder.train(dataset.train)
        training[name] = time.perf_counter() - start
    x = dataset.base[:500]
    encoding = interleaved(
        {name: lambda encoder=encoder: encoder.encode(x) for name, encoder in encoders.items()}, repeats=5
    )

    def beside_bpbc(seconds: dict[str, float], name: str, target: float) -> str:
        if "BPBC" not in seconds:
            return NO_FIGURE
        is_fast_prh = name.startswith("PRH") and not quick and ",0," in name
        return versus(seconds["BPBC"] / seconds[name], target if is_fast_prh else None)

    print(f"\n{dataset.name}: the cost. {len(dataset.train)} training vectors.\n")
    print_table(
        ["", "recall@10", "train, s", "BPBC /", "encode, µs", "BPBC /"],
        [
            [
                curves[name].label(name),
                curves[name].shown(10),
                f"{training[name]:.2f}",
                beside_bpbc(training, name, TRAIN_TARGET),
                f"{encoding[name] / len(x) * 1e6:.0f}",
                beside_bpbc(encoding, name, ENCODE_TARGET),
            ]
            for name in makers
        ],
    )
    return {
        name: {"train_seconds": training[name], "encode_microseconds": encoding[name] / len(x) * 1e6} for name in makers
    }
