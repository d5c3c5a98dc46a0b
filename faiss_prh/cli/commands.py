"""The commands of `faiss-prh`. Each checks first whatever is quick to check, does its work, and reports what it did."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import faiss
import numpy as np

from .._common.arrays import as_float32
from .._common.numbers import bytes_of
from ..config import as_text, show_config
from ..index.factory import index_factory
from ..index.factory_string import factory_string
from ..index.parts_of import nested, transforms_of
from ..storage.files import write_index
from ..transform import PRHTransform
from . import evaluation, results
from .errors import UsageError
from .extras import optional_module
from .files import check_output, holds_transform, open_index, open_trained_index, open_transform, written
from .interrupts import ending_at_once
from .progress import batches, training
from .vector_files import Array, VectorFileError, check_usable, memory_bytes, read_vectors


class Report(NamedTuple):
    """What a command did."""

    facts: Any
    """For `--json`."""
    text: str
    """For people."""


def train(source: str, bits: int | None, output: str, seed: int | None) -> Report:
    """Train a PRHTransform and write it to a file."""
    check_output(output, [source])
    vectors = read_vectors(source)
    try:
        prh = PRHTransform(vectors.shape[1], bits)
    except ValueError as error:
        raise UsageError(f"{source} to {bits or vectors.shape[1]} bits: {error}") from error
    _seed([prh], seed)
    check_usable(source, vectors)
    taken = _train(prh, source, vectors)
    with written(output) as file:
        file.write(prh.to_bytes())
    described = prh.describe()
    facts = {"output": output, "seconds": taken, **_as_json(described)}
    return Report(facts, f"{output}: trained in {taken:.2f} s\n{described}")


def encode(model: str, source: str, output: str, bitorder: Literal["little", "big"]) -> Report:
    """Write the codes of vectors as an array of uint8."""
    if not output.lower().endswith(".npy"):
        raise UsageError(f"{output}: codes go into an .npy file")
    check_output(output, [model, source])
    prh = open_transform(model)
    if not prh.is_trained:
        raise ValueError(f"{model}: a transform that is not trained")
    vectors = read_vectors(source, d=prh.d_in)
    start = time.perf_counter()
    with written(output) as file:
        shape = (len(vectors), bytes_of(prh.d_out))
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for batch in batches([(source, vectors)], "encoding"):
            file.write(prh.encode(batch, bitorder=bitorder).tobytes())
    taken = time.perf_counter() - start
    facts = {"output": output, "vectors": len(vectors), "bits": prh.d_out, "seconds": taken}
    return Report(facts, f"{output}: {len(vectors)} codes of {prh.d_out} bits, in {taken:.2f} s")


def build(factory: str, train: str, add: Sequence[str], output: str, seed: int | None) -> Report:
    """Make an index, train it, fill it and write it to a file."""
    check_output(output, [train, *add])
    vectors = read_vectors(train)
    files = [(source, read_vectors(source, d=vectors.shape[1])) for source in add]
    index = _new_index(factory, vectors, seed)
    check_usable(train, vectors)
    train_seconds = _train(index, train, vectors)
    add_seconds = _add(index, files)
    with written(output) as file:
        write_index(index, file)
    facts = {
        "output": output, "factory": factory, "dimensions": index.d, "vectors": index.ntotal,
        "train_seconds": train_seconds, "add_seconds": add_seconds, "bytes": os.path.getsize(output),
    }  # fmt: skip
    text = f"{output}: {factory}, {index.ntotal} vectors of {index.d} dimensions"
    return Report(facts, f"{text}; trained in {train_seconds:.2f} s, added in {add_seconds:.2f} s")


def add(path: str, sources: Sequence[str], trusted: bool) -> Report:
    """Add vectors to the index in a file, and replace the file."""
    check_output(path, sources)
    index = open_trained_index(path, trusted)
    _check_ids(path, index)
    files = [(source, read_vectors(source, d=index.d)) for source in sources]
    taken = _add(index, files)
    with written(path) as file:
        write_index(index, file)
    added = sum(len(vectors) for _, vectors in files)
    facts = {"index": path, "added": added, "vectors": index.ntotal, "seconds": taken}
    return Report(facts, f"{path}: {added} vectors added in {taken:.2f} s, now {index.ntotal}")


def search(
    path: str, source: str, k: int, output: str,
    nprobe: int | None, margin: float | None, k_factor: float | None, trusted: bool,
) -> Report:  # fmt: skip
    """Search an index, and write the distances and ids of what was found to a file."""
    if not output.lower().endswith(".npz"):
        raise UsageError(f"{output}: results go into an .npz file")
    check_output(output, [path, source])
    index = open_trained_index(path, trusted)
    queries = read_vectors(source, d=index.d)
    _set(index, "nprobe", nprobe, f"--nprobe: {path} has no inverted lists")
    _set(index, "margin", margin, f"--margin: {path} has no margin")
    _set(index, "k_factor", k_factor, f"--k-factor: {path} does not rank its results again")
    if 12 * k * len(queries) > memory_bytes():
        raise UsageError(f"-k {k}: the results do not fit into memory")
    start = time.perf_counter()
    found = [index.search(batch, k) for batch in batches([(source, queries)], "searching")]
    taken = time.perf_counter() - start
    distances, ids = (np.concatenate(part) for part in zip(*found, strict=True))
    with written(output) as file:
        np.savez(file, distances=distances, ids=ids)
    facts = {"output": output, "queries": len(queries), "k": k, "milliseconds_per_query": 1000 * taken / len(queries)}
    each = f"{1000 * taken / len(queries):.3f} ms a query"
    return Report(facts, f"{output}: distances and ids of {k} neighbours of {len(queries)} queries, {each}")


def info(path: str | None, trusted: bool) -> Report:
    """Describe the index or the transform in a file, or without one what runs here."""
    if path is None:
        config = show_config("dicts") or {}
        return Report(config, as_text(config))
    facts: dict[str, Any] = {"file": path, "bytes": os.path.getsize(path)}
    if holds_transform(path):
        prh = open_transform(path)
        transforms = [prh]
        facts |= {"type": "PRHTransform", "dimensions": prh.d_in, "bits": prh.d_out, "is_trained": prh.is_trained}
    else:
        index = open_index(path, trusted)
        transforms = transforms_of(index)
        *_, inside = nested(index)
        facts |= {"type": type(index).__name__, "factory": factory_string(index), "dimensions": index.d}
        if isinstance(inside, faiss.IndexBinary):
            facts["bits"] = int(transforms[-1].d_out if transforms else inside.d)
        facts |= {"is_trained": bool(index.is_trained), "vectors": index.ntotal}
    learned = [t.describe() for t in transforms if isinstance(t, PRHTransform) and t.is_trained]
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()]
    for described in learned:
        lines += ["PRH:", *(f"  {line}" for line in str(described).splitlines())]
    return Report(facts | {"prh": [_as_json(described) for described in learned]}, "\n".join(lines))


def evaluate(
    factories: Sequence[str], train: str, base: str, query: str,
    target: float | None, plot: str | None, seed: int | None,
) -> Report:  # fmt: skip
    """Compare indexes with exact search."""
    if plot is not None:
        check_output(plot, [train, base, query])
        figure = _figure(plot)
    vectors = read_vectors(train)
    d = vectors.shape[1]
    files = [(base, read_vectors(base, d=d))]
    n = len(files[0][1])
    if n < evaluation.NEIGHBOURS:
        raise VectorFileError(f"{base}: expected at least {evaluation.NEIGHBOURS} vectors, not {n}")
    queries = as_float32(read_vectors(query, d=d))
    check_usable(query, queries)
    indexes = {factory: _new_index(factory, vectors, seed) for factory in dict.fromkeys(factories)}
    check_usable(train, vectors)
    truth = evaluation.exact_neighbours(queries, batches(files, "exact search"), evaluation.NEIGHBOURS)
    found: list[evaluation.Evaluation] = []
    for factory in list(indexes):
        index = indexes.pop(factory)  # so that only one is filled at a time
        train_seconds = _train(index, train, vectors)
        empty = evaluation.stored_bytes(index)
        add_seconds = _add(index, files, factory)
        found += evaluation.evaluate(factory, index, queries, truth, empty, train_seconds, add_seconds)
    if plot is not None:
        panel = figure.add_subplot()
        results.draw(panel, found, f"{n} vectors of {d} dimensions", evaluation.NEIGHBOURS)
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1))  # beside the curves
        with written(plot) as file:
            figure.savefig(file, format=Path(plot).suffix[1:].lower(), dpi=150, bbox_inches="tight")
    return Report(results.as_json(found, target), results.as_text(found, target))


def _new_index(factory: str, training: Array, seed: int | None) -> Any:
    """Make the index that a factory string asks for, if it can be trained and filled."""
    try:
        index = index_factory(training.shape[1], factory)
    except (ValueError, RuntimeError, OverflowError, MemoryError) as error:
        raise UsageError(f"--factory {factory}: {error}") from error
    if isinstance(index, faiss.IndexBinary):
        raise UsageError(f"--factory {factory}: it takes codes, not vectors; put a transform in front, as in PRH,BFlat")
    _check_ids(f"--factory {factory}", index)
    for part in nested(index):
        if hasattr(part, "nlist") and part.nlist == 0:
            raise UsageError(f"--factory {factory}: no lists")
        if _has_list_centroids(part) and part.nlist > len(training):
            raise UsageError(f"--factory {factory}: more lists than the {len(training)} training vectors")
    _seed(transforms_of(index), seed)
    return index


def _has_list_centroids(index: Any) -> bool:
    """Whether an index learns a centroid for each of its lists, rather than combine them from parts (IMI, RCQ)."""
    if isinstance(index, faiss.IndexIVF):
        quantizer = faiss.downcast_index(index.quantizer)
        return not isinstance(quantizer, (faiss.MultiIndexQuantizer, faiss.AdditiveCoarseQuantizer))
    return hasattr(index, "nlist")


def _seed(transforms: Sequence[Any], seed: int | None) -> None:
    for transform in transforms:
        if isinstance(transform, PRHTransform) and seed is not None:
            transform.parameters = replace(transform.parameters, seed=seed)


def _check_ids(where: str, index: Any) -> None:
    if any(isinstance(part, (faiss.IndexIDMap, faiss.IndexBinaryIDMap)) for part in nested(index)):
        raise UsageError(f"{where}: an IDMap needs ids, which the command line does not take")


def _train(trained: Any, source: str, vectors: Array) -> float:
    """Train an index or a transform, and return the seconds that it took."""
    x = as_float32(vectors) if isinstance(trained, faiss.Index) else vectors
    try:
        with ending_at_once(), training():
            return evaluation.seconds(lambda: trained.train(x))
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{source}: {error}") from error


def _add(index: Any, files: Sequence[tuple[str, Array]], title: str = "adding") -> float:
    """Add the vectors of files to an index, and return the seconds that it took."""
    start = time.perf_counter()
    for batch in batches(files, title):
        index.add(batch)
    return time.perf_counter() - start


def _set(index: Any, name: str, value: Any, refusal: str) -> None:
    """Set a parameter of the first part of an index that has it."""
    if value is None:
        return
    holder = next((part for part in nested(index) if hasattr(part, name)), None)
    if holder is None:
        raise UsageError(refusal)
    setattr(holder, name, min(value, holder.nlist) if name == "nprobe" else value)


def _figure(plot: str) -> Any:
    """Make an empty figure that can be written to a file of this name."""
    matplotlib_figure = optional_module("matplotlib.figure")
    if matplotlib_figure is None:
        raise UsageError("--plot: matplotlib is needed to draw")
    figure = matplotlib_figure.Figure()
    kinds = figure.canvas.get_supported_filetypes()
    if Path(plot).suffix[1:].lower() not in kinds:
        raise UsageError(f"--plot {plot}: expected a name that ends in .png, or .{', .'.join(sorted(kinds))}")
    return figure


def _as_json(described: Any) -> dict[str, Any]:
    """Return a Description as a dictionary for JSON, with null for what is not known (NaN)."""
    return {name: None if value != value else value for name, value in described._asdict().items()}
