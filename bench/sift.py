"""Fig. 4: SIFT1M's protocol, or any vectors of fewer than 2000 dimensions, at full dimension."""

from collections.abc import Callable

from bench.baselines import layers, prh_makers, rival_makers
from bench.curves import Row, run_rows
from bench.datasets import HIGH_DIMENSION, Dataset, load_suitable, synthetic
from bench.report import Options

SEEDS = 3
TILTS = [0, 0.2, 0.4, 0.6, 0.8, 1]


def low_dimensional(options: Options, least: int = 1) -> list[Dataset]:
    """Return the data sets to measure on, of at least `least` dimensions."""
    if options.data is None:
        datasets = [synthetic(128, 20_000, 100_000, 1000)]
    else:
        wanted = f"of {least} to {HIGH_DIMENSION - 1} dimensions"
        datasets = load_suitable(options.data, wanted, lambda dataset: least <= dataset.d < HIGH_DIMENSION)
    return [dataset.first(2000, 10_000, 100) for dataset in datasets[:1]] if options.quick else datasets


def repeated(dataset: Dataset, options: Options) -> Callable[[], list[Dataset]]:
    """Return a function that gives the same data set for every seed."""
    return lambda: [dataset] * (1 if options.quick else SEEDS)


def run(options: Options) -> None:
    rows = []
    for dataset in low_dimensional(options):
        d, n = dataset.d, layers(dataset.d)
        panels = {
            "all methods": {
                **prh_makers(d, [(n, 0, 0.0), (n, 0, 0.4), (n, 4, 0.0), (n, n, 0.0)]),
                **rival_makers(d, quick=options.quick),
            },
            "PCA tilting": prh_makers(d, [(n, 0, tilt) for tilt in TILTS]),
            "random sparse PCA": prh_makers(d, [(n, more, 0.0) for more in (0, 1, 2, 4, n, 2 * n)]),
        }
        title = f"{dataset.name} ({d} dimensions)"
        rows.append(Row(title, repeated(dataset, options), panels, dict.fromkeys(panels, d)))
    run_rows(options, "sift", rows)
