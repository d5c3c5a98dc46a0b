"""Work through vectors in batches, small enough for a progress bar to move and an interrupt to be answered."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .._common.arrays import as_float32
from .._common.types import Floats
from ..learning.progress import telling
from .extras import optional_module
from .vector_files import Array, check_usable

# Fixed sizes, not what a second allows: a graph depends on how its vectors are cut into batches.
_BATCH_ROWS = 1 << 10
_BATCH_VALUES = 1 << 22


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """
    Show a progress bar, and yield a function that moves it on by a number of vectors.

    Nothing is shown unless standard error is a terminal and tqdm is installed.

    Examples
    --------
    >>> with progress("adding", 10) as advance:
    ...     _ = advance(10)
    """
    tqdm = optional_module("tqdm")
    if tqdm is None:
        yield lambda n: None
        return
    with tqdm.tqdm(total=total, desc=title, unit=" vectors", unit_scale=True, disable=None, leave=False) as bar:
        yield bar.update


@contextmanager
def training() -> Iterator[None]:
    """Show how far the training in this context is, where `progress` shows something."""
    tqdm = optional_module("tqdm")
    if tqdm is None:
        yield
        return
    with tqdm.tqdm(total=1.0, bar_format="{desc}: {percentage:3.0f}%|{bar}|", disable=None, leave=False) as bar:

        def listener(doing: str, share: float) -> None:
            bar.set_description(doing, refresh=False)
            bar.update(share - bar.n)

        with telling(listener):
            yield


def batches(files: Sequence[tuple[str, Array]], title: str) -> Iterator[Floats]:
    """
    Yield the vectors of files in batches, in single precision. A value that is not finite is a VectorFileError.

    Parameters
    ----------
    files : sequence of (str, ndarray)
        The name of each file, for errors, and its vectors.
    title : str
        What to write in front of the progress bar.

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
                check_usable(source, batch, first)
                yield batch
                _forget(vectors)
                advance(len(batch))


def _forget(vectors: Array) -> None:
    """Release the pages read of a mapped file, which would otherwise count as memory of this process."""
    mapped = getattr(vectors, "_mmap", None)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)
