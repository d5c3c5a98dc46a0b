"""`faiss-prh demo`: compare PRH with Faiss's ITQ on made-up data."""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
from faiss.contrib.datasets import SyntheticDataset

from ..index.factory import index_factory
from .evaluation import CUTS, NEIGHBOURS, recall, seconds, stored_bytes, table, warm_seconds


class Result(NamedTuple):
    """What was measured of one method."""

    train_seconds: float
    encode_microseconds: float
    model_bytes: int
    recalls: list[float]


def comparison(d: int = 128, n_train: int = 20_000, n_base: int = 50_000, n_queries: int = 500) -> str:
    """Measure both methods, and return a table and a summary."""
    data = SyntheticDataset(d, n_train, n_base, n_queries)
    ours, theirs = measured("PRH,BFlat", data), measured(f"ITQ{d},BFlat", data)
    header = ["", "train, s", "encode, µs/vector", "model, bytes", *(f"{NEIGHBOURS}-recall@{cut}" for cut in CUTS)]
    rows = [
        [
            name, f"{result.train_seconds:.3f}", f"{result.encode_microseconds:.3f}", str(result.model_bytes),
            *(f"{share:.3f}" for share in result.recalls),
        ]
        for name, result in {"PRH": ours, "ITQ (Faiss)": theirs}.items()
    ]  # fmt: skip
    return (
        f"{n_base} vectors of {d} dimensions as {d}-bit codes; {n_train} training vectors, {n_queries} queries,"
        f" {faiss.omp_get_max_threads()} threads\n\n{table(header, rows)}\n\n"
        f"PRH trains {theirs.train_seconds / ours.train_seconds:.1f}x and encodes"
        f" {theirs.encode_microseconds / ours.encode_microseconds:.1f}x as fast, with a model"
        f" {theirs.model_bytes / ours.model_bytes:.1f}x smaller."
    )


def measured(factory: str, data: Any) -> Result:
    """Train, encode and search with one method."""
    index, base = index_factory(data.d, factory), data.get_database()
    train_seconds = seconds(lambda: index.train(data.get_train()))
    model_bytes = stored_bytes(index)  # of the transform: no codes are in it yet
    encode_seconds = warm_seconds(lambda: index.encode(base))
    index.add(base)
    found = index.search(data.get_queries(), CUTS[-1])[1]
    truth = data.get_groundtruth(NEIGHBOURS)
    recalls = [recall(found[:, :cut], truth) for cut in CUTS]
    return Result(train_seconds, encode_seconds / len(base) * 1e6, model_bytes, recalls)
