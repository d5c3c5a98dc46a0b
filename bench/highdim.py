"""Fig. 6: VLAD vectors of 25600 and 64000 dimensions, against BPBC: recall, training time, encoding time."""

import time

from bench.baselines import BPBC, Makers, hadamard, layers, prh_makers, srr
from bench.curves import Curve, Row, run_rows
from bench.datasets import Dataset, load, vlad_like
from bench.report import Options, print_table, versus
from bench.sift import repeated
from bench.timing import interleaved

SMALLEST = 2000
TILTS = [0, 0.1, 0.3, 0.5, 0.7, 1]
TRAIN_TARGET, ENCODE_TARGET = 10, 12


def high_dimensional(options: Options) -> list[Dataset]:
    if options.data is not None:
        datasets = [dataset for dataset in load(options.data) if dataset.d >= SMALLEST]
        return [dataset.first(300, 600, 50) for dataset in datasets[:1]] if options.quick else datasets
    if options.quick:
        return [vlad_like(20, 300, 600, 50)]
    return [vlad_like(200, 1000, 4000, 400), vlad_like(500, 1000, 2000, 200)]


def against_bpbc(d: int) -> Makers:
    n = layers(d)
    return {
        **prh_makers(d, [(n, 0, 0.3), (n, 0, 0.5), (n, n, 0.0)]),
        "BPBC": lambda seed: BPBC(d, seed=seed),
        "SRR": lambda seed: srr(d, seed),
        "Hadamard": lambda seed: hadamard(d, seed),
    }


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
    found = run_rows(options, "highdim", rows)
    for dataset, row in zip(datasets, rows, strict=True):
        print_cost(dataset, row.panels["against BPBC"], found[f"{row.title}, against BPBC"], options.quick)


def print_cost(dataset: Dataset, makers: Makers, curves: dict[str, Curve], quick: bool) -> None:
    """Print what the same encoders cost to train and to run, beside BPBC."""
    seconds, encoders = {}, {}
    for name, make in makers.items():
        encoder = encoders[name] = make(0)
        start = time.perf_counter()
        encoder.train(dataset.train)
        seconds[name] = time.perf_counter() - start
    x = dataset.base[:500]
    encoding = interleaved(
        {name: lambda encoder=encoder: encoder.encode(x) for name, encoder in encoders.items()}, repeats=5
    )
    rows = []
    for name in makers:
        per_vector = encoding[name] / len(x)
        is_fast_prh = name.startswith("PRH") and not quick and ",0," in name
        rows.append(
            [
                name,
                f"{curves[name].at(10).mean():.3f}",
                f"{seconds[name]:.2f}",
                versus(seconds["BPBC"] / seconds[name], TRAIN_TARGET if is_fast_prh else None),
                f"{per_vector * 1e6:.0f}",
                versus(encoding["BPBC"] / encoding[name], ENCODE_TARGET if is_fast_prh else None),
            ]
        )
    print(f"\n{dataset.name}: the cost. {len(dataset.train)} training vectors.\n")
    print_table(["", "recall@10", "train, s", "BPBC /", "encode, µs", "BPBC /"], rows)
