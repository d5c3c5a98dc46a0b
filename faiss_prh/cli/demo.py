"""`faiss-prh demo`: PRH and Faiss's ITQ do the same job on data made on the spot."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import faiss
import numpy as np
from faiss.contrib.datasets import SyntheticDataset

from .._common.arrays import packed_signs
from .._common.types import Codes, Floats
from ..transform import PRHTransform

Encoder = Callable[[Floats], Codes]


class Result(NamedTuple):
    """What one method took and reached."""

    name: str
    train_seconds: float
    encode_microseconds: float
    model_bytes: int
    recall_at_10: float
    recall_at_100: float


def comparison(d: int = 128, n_train: int = 20_000, n_base: int = 50_000, n_queries: int = 500) -> str:
    """Train, encode and search with both methods, and return the table."""
    data = SyntheticDataset(d, n_train, n_base, n_queries)
    truth = data.get_groundtruth(10)

    prh = PRHTransform(d)
    itq = faiss.ITQTransform(d, d, False)
    results = [
        measured("PRH", prh.train, prh.encode, lambda: len(prh.to_bytes()), data, truth),
        measured(
            "ITQ (Faiss)", itq.train, lambda x: packed_signs(itq.apply(x)), lambda: stored_bytes(itq), data, truth
        ),
    ]
    lines = [
        f"{n_base} vectors of {d} dimensions as {d}-bit codes; {n_train} training vectors, {n_queries} queries,"
        f" {faiss.omp_get_max_threads()} threads",
        "",
        f"{'':12} {'train':>10} {'encode':>16} {'model':>14} {'10-recall@10':>14} {'10-recall@100':>14}",
    ]
    for r in results:
        lines.append(
            f"{r.name:12} {r.train_seconds:>8.3f} s {r.encode_microseconds:>9.3f} µs/vec {r.model_bytes:>8} bytes"
            f" {r.recall_at_10:>14.3f} {r.recall_at_100:>14.3f}"
        )
    ours, theirs = results
    lines += [
        "",
        f"PRH trains {theirs.train_seconds / ours.train_seconds:.0f}x and encodes"
        f" {theirs.encode_microseconds / ours.encode_microseconds:.0f}x faster, with a model"
        f" {theirs.model_bytes / ours.model_bytes:.0f}x smaller.",
    ]
    return "\n".join(lines)


def measured(
    name: str, train: Callable[..., None], encode: Encoder, model_bytes: Callable[[], int], data: Any, truth: Any
) -> Result:
    """Run one method through training, encoding and search."""
    xt, xb, xq = data.get_train(), data.get_database(), data.get_queries()
    start = time.perf_counter()
    train(xt)
    train_seconds = time.perf_counter() - start

    encode_seconds = []
    for _ in range(5):
        start = time.perf_counter()
        codes = encode(xb)
        encode_seconds.append(time.perf_counter() - start)

    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    _, found = index.search(encode(xq), 100)
    recalls = [faiss.eval_intersection(np.ascontiguousarray(found[:, :k]), truth) / truth.size for k in (10, 100)]
    microseconds = statistics.median(encode_seconds) / len(xb) * 1e6
    return Result(name, train_seconds, microseconds, model_bytes(), *recalls)


def stored_bytes(transform: Any) -> int:
    """Return the size of one of Faiss's own transforms in a file."""
    writer = faiss.VectorIOWriter()
    faiss.write_VectorTransform(transform, writer)
    return int(writer.data.size())
