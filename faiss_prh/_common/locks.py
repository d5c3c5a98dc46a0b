"""A lock for objects that threads share and processes are forked with."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any


class ForkSafeLock:
    """
    A reentrant lock that a forked child does not find held by a thread that it does not have.

    A copy, or one that comes out of a pickle, is a lock of its own.

    Examples
    --------
    >>> lock = ForkSafeLock()
    >>> with lock, lock:
    ...     print("held twice")
    held twice
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return ForkSafeLock, ()

    def _renew_if_lost(self) -> None:
        """Replace a lock that can no longer be had; one held by the thread that has forked, it will release."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


@contextlib.contextmanager
def held(*locks: ForkSafeLock) -> Iterator[None]:
    """Hold several locks, taken in the same order by all threads, so that no two wait for each other."""
    with contextlib.ExitStack() as stack:
        for lock in sorted(locks, key=id):
            stack.enter_context(lock)
        yield


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_lost_locks() -> None:
    for lock in list(_locks):
        lock._renew_if_lost()


os.register_at_fork(after_in_child=_renew_lost_locks)
