"""The three pictures of the README: encoding time, recall against bits, recall against speed; some ten minutes."""

from bench import bits, encode, search
from bench.datasets import HIGH_DIMENSION, Dataset, clustered, load_suitable, synthetic
from bench.plots import save
from bench.report import Options


def run(options: Options) -> None:
    # First of all, so that unsuitable data are refused before the run.
    at_bits, searched = few_dimensional(options), search.datasets_of(options)
    values, repeats = (1 << 20, 1) if options.quick else (1 << 23, 5)
    encoding = encode.measure_batches(values, repeats, [1], has_targets=False)
    save(options.output, "encode", encoding, encode.plot)
    save(options.output, "bits", {"recall": bits.measure_all(at_bits, options.quick)}, bits.plot)
    save(options.output, "search", search.measure_all(searched, options.quick), search.plot)


def few_dimensional(options: Options) -> list[Dataset]:
    """Return the data sets for `bits` whose dimension lets dense methods learn in minutes."""
    if options.data is not None:
        wanted = f"of fewer than {HIGH_DIMENSION} dimensions"
        found = load_suitable(options.data, wanted, lambda dataset: dataset.d < HIGH_DIMENSION)
        return [dataset.first(1000, 5000, 100) for dataset in found[:1]] if options.quick else found
    if options.quick:
        return bits.datasets_of(options)
    return [synthetic(128, 10_000, 50_000, 1000), clustered(300, 10_000, 50_000, 1000)]
