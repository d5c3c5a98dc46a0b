"""Fig. 5: fewer bits than dimensions, after PCA: all methods at 64 and 32 bits, PRH at several."""

from bench.baselines import Makers, layers, prh_makers, rival_makers
from bench.curves import Row, run_rows
from bench.report import Options
from bench.sift import low_dimensional, repeated

BITS = (64, 32)
PRH_BITS = (16, 32, 64, 96, 128)


def at_bits(d: int, bits: int, quick: bool) -> Makers:
    n = layers(bits)
    return {**prh_makers(d, [(n, 0, 0.0), (n, 0, 0.4), (n, n, 0.0)], bits), **rival_makers(d, bits, quick=quick)}


def prh_at_several(d: int) -> Makers:
    return {
        f"{name}, {bits} bits": make
        for bits in PRH_BITS
        if bits <= d
        for name, make in prh_makers(d, [(layers(bits), layers(bits), 0.0)], bits).items()
    }


def run(options: Options) -> None:
    rows = []
    for dataset in low_dimensional(options, least=max(BITS) + 1):
        panels = {f"{bits} bits": at_bits(dataset.d, bits, options.quick) for bits in BITS}
        panels["PRH at several bits"] = prh_at_several(dataset.d)
        title = f"{dataset.name} ({dataset.d} dimensions)"
        rows.append(Row(title, repeated(dataset, options), panels, {f"{bits} bits": bits for bits in BITS}))
    run_rows(options, "reduction", rows)
