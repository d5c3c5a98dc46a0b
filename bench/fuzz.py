"""Feed mutated transforms, index files and factory strings to the readers: they may refuse them, and nothing else."""

import argparse
import contextlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np

from bench.mutation import Mutator
from faiss_prh import (
    IndexBinaryPreTransform,
    IndexIVFSigns,
    PRHTransform,
    SearchParametersIVFSigns,
    deserialize_index,
    index_factory,
)

BATCH = 1000
"""Inputs of a child process: what Faiss's readers leak when they refuse a file is gone with it."""
LONGEST_SECONDS = 10
MEMORY = 1 << 28
"""What a child may map more than it begins with."""
LARGEST_DIMENSION = 1000
_VECTORS = np.random.default_rng(2).normal(size=(2, LARGEST_DIMENSION)).astype(np.float32)
_CODES = np.random.default_rng(3).integers(0, 256, (2, LARGEST_DIMENSION // 8), np.uint8)


def use_transform(data: bytes) -> None:
    prh = PRHTransform.from_bytes(data)
    if prh.is_trained and prh.d_in <= LARGEST_DIMENSION:
        prh.encode(_VECTORS[:, : prh.d_in])


def use_index_file(data: bytes) -> None:
    """Read an index, and do to it what its owner would."""
    index = deserialize_index(data)
    if index.d > LARGEST_DIMENSION:
        return
    given = _CODES[:, : index.d // 8] if isinstance(index, faiss.IndexBinary) else _VECTORS[:, : index.d]
    acts: list[Callable[[], Any]] = [
        lambda: index.search(given, 3),
        lambda: index.add_with_ids(given, np.array([1, 1000])),
        lambda: index.add(given),
        lambda: index.search(given, 3),
    ]
    if index.ntotal:  # some of Faiss's empty indexes, not forged at all, end the process
        acts[1:1] = [
            lambda: index.range_search(given, 3),
            lambda: index.reconstruct(0),
            lambda: index.remove_ids(np.arange(0, 300, 7)),
        ]
        if isinstance(index, IndexBinaryPreTransform):
            acts[1:1] = [lambda: index.reconstruct_codes(0, 2), lambda: index.search_and_reconstruct(given, 3)]
    if isinstance(index, IndexIVFSigns):
        acts.insert(1, lambda: index.search(given, 3, params=SearchParametersIVFSigns(nprobe=index.nlist, margin=1e9)))
    for act in acts:
        # An index may be untrained, or not able to; and numbers that are far too large are its owner's affair.
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError), np.errstate(all="ignore"):
            act()


def use_factory_string(data: bytes) -> None:
    d, description = json.loads(data)
    index_factory(d, description)


class Kind(NamedTuple):
    """What is fed to what."""

    use: Callable[[bytes], Any]
    mutated: Callable[[Mutator], bytes]


KINDS = (
    Kind(use_index_file, Mutator.index_file),
    Kind(use_transform, Mutator.transform),
    Kind(use_factory_string, Mutator.factory_arguments),
)
TURNS = (0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 2)
"""Which kind is next: files have most to go wrong, and Faiss takes milliseconds to look at a string."""


class Progress:
    """What a child and its parent both see: how far it is, and at what."""

    _COUNTS = struct.Struct("<QQ")
    _INPUT = struct.Struct("<BI")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1 << 22)

    @property
    def counts(self) -> tuple[int, int]:
        """Inputs begun, and accepted."""
        begun, accepted = self._COUNTS.unpack_from(self._memory)
        return begun, accepted

    @counts.setter
    def counts(self, value: tuple[int, int]) -> None:
        self._COUNTS.pack_into(self._memory, 0, *value)

    @property
    def input(self) -> tuple[int, bytes]:
        kind, size = self._INPUT.unpack_from(self._memory, self._COUNTS.size)
        place = self._COUNTS.size + self._INPUT.size
        return kind, self._memory[place : place + size]

    @input.setter
    def input(self, value: tuple[int, bytes]) -> None:
        kind, data = value
        self._INPUT.pack_into(self._memory, self._COUNTS.size, kind, len(data))
        place = self._COUNTS.size + self._INPUT.size
        self._memory[place : place + len(data)] = data


def attempt(kind: int, data: bytes) -> bool:
    """Return whether an input is accepted. Anything but a ValueError is a failure, also that memory runs out."""
    try:
        KINDS[kind].use(data)
    except ValueError:
        return False
    return True


def run_batch(mutator: Mutator, progress: Progress) -> None:
    """Run a batch in this process, a child, and leave it."""
    status = 1
    try:
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("error", RuntimeWarning)  # NumPy's: of a number that no check has kept out
        for number in range(BATCH):
            kind = TURNS[number % len(TURNS)]
            data = KINDS[kind].mutated(mutator)
            progress.input = kind, data
            is_accepted = attempt(kind, data)
            begun, accepted = progress.counts
            progress.counts = begun + 1, accepted + is_accepted
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(child: int, progress: Progress) -> str:
    """Return what went wrong with a child, or ''."""
    seen, since = progress.counts, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return {0: "", 1: "an error other than ValueError"}.get(code, f"the process ended with {code}")
        if progress.counts != seen:
            seen, since = progress.counts, time.monotonic()
        elif time.monotonic() > since + LONGEST_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"no end after {LONGEST_SECONDS} s"
        time.sleep(0.01)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--failure", type=Path, default=Path("fuzz-failure.bin"), metavar="PATH", help="where to save it"
    )
    parser.add_argument("--replay", type=Path, metavar="PATH", help="run a saved input, in this process")


def run(arguments: argparse.Namespace) -> None:
    faiss.omp_set_num_threads(1)  # a forked child has no others
    if arguments.replay:
        saved = arguments.replay.read_bytes()
        print("accepted" if attempt(saved[0], saved[1:]) else "refused")
        return
    progress, mutator, seed = Progress(), Mutator(), arguments.seed
    start = time.monotonic()
    while progress.counts[0] < arguments.inputs:
        mutator.begin(seed)
        child = os.fork()
        if child == 0:
            run_batch(mutator, progress)
        failure = wait(child, progress)
        if failure:
            kind, data = progress.input
            arguments.failure.write_bytes(bytes([kind]) + data)
            print(f"seed {seed}: {KINDS[kind].use.__name__}: {failure}; the input is in {arguments.failure}")
            sys.exit(1)
        seed += 1
    begun, accepted = progress.counts
    seconds = time.monotonic() - start
    print(
        f"{begun} inputs in {seconds:.0f} s ({begun / seconds:.0f}/s), seeds {arguments.seed} to {seed - 1}: no failure"
    )
    print(f"accepted and used: {accepted}")
