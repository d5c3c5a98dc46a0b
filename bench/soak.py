"""Random operations on random indexes, compared with a model, while memory must stay flat."""

import argparse
import copy
import pickle
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np

import faiss_prh
from bench.model import Modelled

INDEXES = 4
"""How many indexes there are at a time. Each `train` replaces one."""
MOST_VECTORS = 300
WARM_UP = 0.25
"""Share of the time in which memory may grow."""
MOST_GROWTH = 32 << 20
"""How much the memory in use may grow after that."""


class Soak:
    """Some indexes, and what can happen to them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.pools = {
            d: (np.random.default_rng(d).normal(size=(250, d)) * np.linspace(1, 3, d)).astype(np.float32)
            for d in (8, 20, 33)
        }
        self.all = [self._new() for _ in range(INDEXES)]
        self.operations: tuple[Callable[[int], None], ...] = (
            self.train, *[self.add, self.add_with_ids, self.remove, self.merge] * 3,
            self.write_and_read, self.clone, self.pickle, self.fail, self.reset, self.transform, self.encode,
        )  # fmt: skip

    def step(self) -> str:
        """Do something, compare, and return what it was."""
        operation, number = self.random.choice(self.operations), self.random.randrange(INDEXES)
        operation(number)
        if len(self.all[number].ids) > MOST_VECTORS:
            self.all[number].reset()
        self.all[number].check()
        return operation.__name__

    def train(self, number: int) -> None:
        self.all[number] = self._new()

    def add(self, number: int) -> None:
        if self.all[number].takes_none:
            self.all[number].add(self._some())

    def add_with_ids(self, number: int) -> None:
        if self.all[number].takes_ids:
            self.all[number].add_with_ids(self._some(), self.random.randrange(200))

    def remove(self, number: int) -> None:
        self.all[number].remove(self.random.randrange(250), self.random.randrange(100), self.random.random() < 0.5)

    def merge(self, number: int) -> None:
        self.all[number].merge(self._some(), self.random.randrange(200))

    def write_and_read(self, number: int) -> None:
        path = self.folder / f"{number}.prh"
        faiss_prh.write_index(self.all[number].index, path)
        self.all[number].index = faiss_prh.read_index(path)

    def clone(self, number: int) -> None:
        self.all[number].index = faiss_prh.clone_index(self.all[number].index)

    def pickle(self, number: int) -> None:
        twin = copy.deepcopy if self.random.random() < 0.5 else lambda index: pickle.loads(pickle.dumps(index))
        self.all[number].index = twin(self.all[number].index)

    def fail(self, number: int) -> None:
        self.all[number].fail()

    def reset(self, number: int) -> None:
        self.all[number].reset()

    def transform(self, number: int) -> None:
        prh, x = self._prh(number)
        there = prh.apply(x)
        if prh.d_in == prh.d_out:
            np.testing.assert_allclose(prh.reverse_transform(there), x, atol=1e-4)
        np.testing.assert_allclose(there, (x - prh.mean) @ prh.to_dense().T, atol=1e-3)

    def encode(self, number: int) -> None:
        prh, x = self._prh(number)
        expected = np.packbits(prh.apply(x) >= 0, axis=1, bitorder="little")
        np.testing.assert_array_equal(prh.encode(x), expected)

    def _prh(self, number: int) -> tuple[faiss_prh.PRHTransform, np.ndarray]:
        modelled = self.all[number]
        return modelled.index.chain[-1], modelled.vectors(self._some())

    def _some(self) -> list[int]:
        return [self.random.randrange(250) for _ in range(self.random.choice((0, 1, 3, 40)))]

    def _new(self) -> Modelled:
        choose = self.random.choice
        d = choose(list(self.pools))
        transforms = choose(("PRH", "PRH8", f"PRH{d}", "PRH40", "PRH(3,1)", "PRH(2,2,0.5)", "L2norm,PRH(2)"))
        if self.random.random() < 0.4:
            lists = choose(("IVF1", "IVF4", "IVF7"))
            description = f"{transforms},{lists},Signs" + choose(("", ",RFlat"))
            return Modelled(description, self.pools[d], choose((faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT)))
        binary = choose(("BFlat", "BIVF1", "BIVF4", "BIVF7"))
        description = choose(("", "IDMap,", "IDMap2,")) + f"{transforms},{binary}" + choose(("", ",RFlat", ",RAsym"))
        return Modelled(description, self.pools[d])


def memory_in_use() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> None:
    faiss.omp_set_num_threads(1)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(arguments.seed, Path(folder))
        start, warm, most = time.monotonic(), memory_in_use(), 0
        while (share := (time.monotonic() - start) / (60 * arguments.minutes)) < 1:
            try:
                counts[soak.step()] += 1
            except BaseException:
                print(f"seed {arguments.seed}, operation {counts.total()}: {[one.description for one in soak.all]}")
                raise
            if share < WARM_UP:
                warm = max(warm, memory_in_use())
            else:
                most = max(most, memory_in_use())
    print(f"seed {arguments.seed}: {counts.total()} operations, each compared with the model:")
    print("  " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(
        f"memory: {warm >> 20} MiB after warming up, {most >> 20} MiB at most (allowed: {MOST_GROWTH >> 20} MiB more)"
    )
    if most - warm > MOST_GROWTH:
        sys.exit(1)
