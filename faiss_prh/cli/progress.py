"""Long work in pieces: short enough for a progress bar to move, and for an interrupt to be answered."""

from __future__ import annotations

import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from .._common.arrays import as_float32
from .._common.types import Floats
from .vector_files import Array, VectorFileError

INTERRUPTED = 130
"""The exit code of a process that was interrupted, as shells have it."""

# Of fixed size, and not by the clock: a graph depends on how its vectors are cut into batches.
_BATCH_ROWS = 1 << 10
_BATCH_VALUES = 1 << 22


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """
    Show a bar on standard error if that is a terminal and tqdm is installed. Calls of what is yielded move it.

    Examples
    --------
    >>> with progress("adding", 10) as advance:
    ...     _ = advance(10)
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda n: None
        return
    with tqdm(total=total, desc=title, unit=" vectors", unit_scale=True, disable=None, leave=False) as bar:
        yield bar.update


def batches(files: Sequence[tuple[str, Array]], title: str) -> Iterator[Floats]:
    """
    Yield the vectors of files, some at a time, in single precision.

    Parameters
    ----------
    files : sequence of (str, ndarray)
        What to call a file if one of its vectors is not finite, which is a VectorFileError, and its vectors.
    title : str
        Of the progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> [len(batch) for batch in batches([("x.npy", np.zeros((2000, 3)))], "adding")]
    [1024, 976]
    """
    with progress(title, sum(len(vectors) for _, vectors in files)) as advance:
        for source, vectors in files:
            step = max(1, min(_BATCH_ROWS, _BATCH_VALUES // vectors.shape[1]))
            for first in range(0, len(vectors), step):
                batch = as_float32(vectors[first : first + step])
                check_finite(source, batch, first)
                yield batch
                _forget(vectors)
                advance(len(batch))


def _forget(vectors: Array) -> None:
    """Take what was read of a mapped file out of this process, which would otherwise seem to hold all of it."""
    mapped = getattr(vectors, "_mmap", None)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def check_finite(source: str, vectors: Floats, first: int = 0) -> None:
    """
    Raise a VectorFileError if a vector is not finite. The first one's number in its file is `first`.

    Examples
    --------
    >>> import numpy as np
    >>> check_finite("x.npy", np.array([[0, 1], [np.nan, 2]], "float32"), first=7)
    Traceback (most recent call last):
    faiss_prh.cli.vector_files.VectorFileError: x.npy: vector 8 has a non-finite value
    """
    good = np.isfinite(vectors).all(axis=1)
    if not good.all():
        raise VectorFileError(f"{source}: vector {first + int(good.argmin())} has a non-finite value")


@contextmanager
def ending_at_once(message: str) -> Iterator[None]:
    """
    Let an interrupt end the process even while native code runs, which Python would wait for: after the message, 130.

    For training, which may take minutes, and leaves nothing to clean up.

    Examples
    --------
    >>> with ending_at_once("interrupted"):
    ...     pass
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(signal.getsignal(signal.SIGINT)):  # ignored, as in the background of a script
        yield
        return
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)

    def watch() -> None:
        while number := os.read(receiver, 1):
            if number[0] == signal.SIGINT:
                os.write(2, f"{message}\n".encode())
                os._exit(INTERRUPTED)

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.set_wakeup_fd(sender)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(sender)
        watcher.join()
        os.close(receiver)
