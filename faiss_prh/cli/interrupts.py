"""
What an interrupt (Ctrl-C) does: it ends the command with one line and exit code 130, until the output is in place.

How it ends the command depends on what is going on:

- At first, and wherever `ending_at_once` is in force, the process just ends. There is nothing to clean up.
- While a command works (`raise_from_now_on`), KeyboardInterrupt is raised, so that temporary files are removed.
- Once the output is on the disk (`ignore`), it comes too late. The command ends as if there had been none.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from . import end_interrupted

_seen: list[int] = []


def raise_from_now_on() -> None:
    """Make interrupts raise KeyboardInterrupt, unless they are ignored."""
    _seen.clear()
    if signal.getsignal(signal.SIGINT) is end_interrupted:
        signal.signal(signal.SIGINT, _raise)


def was_raised() -> bool:
    """
    Whether KeyboardInterrupt was raised, even if something else was caught.

    C++ that calls Python makes other errors of it: Faiss a RuntimeError, for one.
    """
    return bool(_seen)


def ignore() -> None:
    """Ignore interrupts from now on. One that has come before is raised here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """
    Let an interrupt end the process at once, even in native code, where KeyboardInterrupt would have to wait.

    For what may take minutes and leaves nothing to clean up, such as training; and for imports, because an exception
    in the middle of a native module's import can come out as any other. Other processes than that of `faiss-prh` are
    left alone.

    Examples
    --------
    >>> with ending_at_once():
    ...     pass
    """
    if signal.getsignal(signal.SIGINT) is not _raise:
        yield
        return
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)

    def watch() -> None:
        while number := os.read(receiver, 1):
            if number[0] == signal.SIGINT:
                end_interrupted()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    signal.signal(signal.SIGINT, end_interrupted)
    before = signal.set_wakeup_fd(sender)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(sender)
        watcher.join()
        os.close(receiver)
        signal.signal(signal.SIGINT, _raise)


def _raise(number: int, frame: object) -> NoReturn:
    _seen.append(number)
    raise KeyboardInterrupt
