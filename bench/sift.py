"""Fig. 4: SIFT1M's protocol, or any vectors of up to a thousand dimensions, at full dimension."""

from collections.abc import Callable

from bench.baselines import layers, prh_makers, rival_makers
from bench.curves import Row, run_rows
from bench.datasets import Dataset, load, synthetic
from bench.report import Options

SEEDS = 3
LARGEST = 1000
TILTS = [0, 0.2, 0.4, 0.6, 0.8, 1]


def low_dimensional(options: Options) -> list[Dataset]:
    """Return the data sets to measure on."""
    if options.data is None:
        datasets = [synthetic(128, 20_000, 100_000, 1000)]
    else:
        datasets = [dataset for dataset in load(options.data) if dataset.d <= LARGEST]
    return [dataset.first(2000, 10_000, 100) for dataset in datasets[:1]] if options.quick else datasets


def repeated(dataset: Dataset, options: Options) -> Callable[[], list[Dataset]]:
    """Return what gives the same data set for every seed."""
    return lambda: [dataset] * (1 if options.quick else SEEDS)


def run(options: Options) -> None:
    rows = []
    for dataset in low_dimensional(options):
        d, n = dataset.d, layers(dataset.d)
        panels = {
            "all methods": {**prh_makers(d, [(n, 0, 0.0), (n, 0, 0.4), (n, 4, 0.0), (n, n, 0.0)]), **rival_makers(d)},
            "PCA tilting": prh_makers(d, [(n, 0, tilt) for tilt in TILTS]),
            "random sparse PCA": prh_makers(d, [(n, more, 0.0) for more in (0, 1, 2, 4, n, 2 * n)]),
        }
        title = f"{dataset.name} ({d} dimensions)"
        rows.append(Row(title, repeated(dataset, options), panels, dict.fromkeys(panels, d)))
    run_rows(options, "sift", rows)
