"""The `faiss-prh` command."""

import _thread
import os

INTERRUPTED = 130
"""The exit code of an interrupted process, as shells have it."""
_ending = _thread.allocate_lock()


def main(arguments: list[str] | None = None) -> int:
    """
    Run a command, by default that of this process, and return its exit code.

    The code is 0, 1 for a failure, 2 for wrong usage, or 130 if interrupted. Interrupts are ignored afterwards, because
    the process is about to end.
    """
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if ignored, as in the background
            signal.signal(signal.SIGINT, end_interrupted)
    except (KeyboardInterrupt, RuntimeError):  # up to Python 3.11, a class interrupted while made is a RuntimeError
        end_interrupted()

    # Only now, because these imports take long enough to be interrupted.
    from . import interrupts
    from .run import run

    try:
        try:
            return run(arguments)
        finally:
            interrupts.ignore()
    except KeyboardInterrupt:
        end_interrupted()
        return INTERRUPTED


def end_interrupted(*_: object) -> None:
    """Say that the command was interrupted, and end the process without further ado. Does nothing the second time."""
    if _ending.acquire(blocking=False):
        os.write(2, b"faiss-prh: interrupted\n")
        os._exit(INTERRUPTED)
