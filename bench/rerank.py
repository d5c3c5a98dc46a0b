"""Re-ranking: how long shortlists should be, and inner products of vectors with a mean."""

from functools import partial
from typing import Any

import faiss
import numpy as np

import faiss_prh
from bench.datasets import Dataset
from bench.report import Options, print_table
from bench.search import datasets_of
from bench.timing import interleaved, threads
from faiss_prh.cli.evaluation import recall

K = 10
K_FACTORS = (1, 2, 5, 10, 20, 30, 50)
NPROBE = 16
MEANS = (0, 1, 3)
"""Lengths of a vector added to all, as multiples of their mean length."""
REFINEMENTS = ("RAsym", "RFlat")


def run(options: Options) -> None:
    print("One thread.\n")
    with threads(1):
        for dataset in datasets_of(options):
            lengths(dataset, options.quick)
            inner_products(dataset)


def lengths(dataset: Dataset, quick: bool) -> None:
    """Print recall and speed for each length of the shortlist."""
    truth = dataset.neighbours(K)
    prh = faiss_prh.PRHTransform(dataset.d)
    prh.train(dataset.train)
    for core in ("BFlat", "BIVF16" if quick else "BIVF256"):
        ways = {}
        for refine in REFINEMENTS:
            index = filled(f"PRH,{core},{refine}", dataset, prh)
            if core != "BFlat":
                index.index.nprobe = NPROBE
            ways |= {(refine, factor): partial(search_with, index, factor, dataset.query) for factor in K_FACTORS}
        seconds = interleaved({str(name): way for name, way in ways.items()}, 1 if quick else 3)
        figures = {
            name: f"{recall(way()[1], truth):.3f}, {len(dataset.query) / seconds[str(name)]:.0f}"
            for name, way in ways.items()
        }
        print(f"{dataset.name}, {core}: share of the {K} nearest neighbours among {K} results, queries a second")
        rows = [[str(factor), *(figures[refine, factor] for refine in REFINEMENTS)] for factor in K_FACTORS]
        print_table(["k_factor", *REFINEMENTS], rows)
        print()


def inner_products(dataset: Dataset) -> None:
    """Print the share of the largest inner products that is found, also with a vector added to all."""
    direction = np.random.default_rng(0).normal(size=dataset.d)
    direction *= np.linalg.norm(dataset.train, axis=1).mean() / np.linalg.norm(direction)
    rows = []
    for length in MEANS:
        parts = (dataset.train, dataset.base, dataset.query)
        moved = Dataset(dataset.name, *((x + length * direction).astype(np.float32) for x in parts))
        truth = faiss.knn(moved.query, moved.base, K, metric=faiss.METRIC_INNER_PRODUCT)[1]
        centring, other = (faiss_prh.PRHTransform(dataset.d) for _ in range(2))
        centring.train(moved.train)
        other.train(moved.train - moved.train.mean(axis=0))  # what it subtracts is then zero
        found = [
            filled(f"PRH,BFlat,{refine}", moved, prh, faiss.METRIC_INNER_PRODUCT).search(moved.query, K)[1]
            for refine in REFINEMENTS
            for prh in (centring, other)
        ]
        rows.append([str(length), *(f"{recall(ids, truth):.3f}" for ids in found)])
    print(f"{dataset.name}: share of the {K} largest inner products among {K} results")
    print_table(["vector added", "RAsym", "RAsym, not centred", "RFlat", "RFlat, not centred"], rows)
    print()


def filled(description: str, dataset: Dataset, prh: faiss_prh.PRHTransform, metric: int = faiss.METRIC_L2) -> Any:
    index = faiss_prh.index_factory(dataset.d, description, metric)
    index.chain[0] = prh
    index.train(dataset.train)
    index.add(dataset.base)
    return index


def search_with(index: Any, k_factor: float, xq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    index.k_factor = k_factor
    return index.search(xq, K)
