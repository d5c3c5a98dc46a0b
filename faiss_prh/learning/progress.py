"""How far training is, for whoever wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, float], object]
"""Is told what is being done, and which share of it."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def telling(listener: Listener) -> Iterator[None]:
    """
    Tell a function how far training is, as long as the context lasts.

    Examples
    --------
    >>> with telling(lambda doing, share: print(doing, share)):
    ...     tell("matching", 0.5)
    matching 0.5
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(doing: str, share: float) -> None:
    """Say how far training is."""
    listener = _listener.get()
    if listener is not None:
        listener(doing, min(share, 1.0))


def printing(interval: float = 1.0) -> Listener:
    """Return a listener that prints what it is told, at most once in some seconds."""
    last = time.monotonic()

    def listener(doing: str, share: float) -> None:
        nonlocal last
        if time.monotonic() >= last + interval:
            print(f"PRHTransform: {doing}, {share:.0%}", flush=True)
            last = time.monotonic()

    return listener
