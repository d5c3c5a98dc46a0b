"""Run a command: whatever goes wrong is one line on standard error and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence

from . import INTERRUPTED, interrupts
from .arguments import new_parser
from .errors import UsageError, reason, report


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Interrupts are raised, once they are worth cleaning up after."""
    _encode_all_names()
    try:
        try:
            _answer(new_parser().parse_args(arguments))
        finally:  # here, and not when Python ends: also after --help
            if sys.stdout is not None:  # closed, as with >&-
                sys.stdout.flush()
        return 0
    except BrokenPipeError:  # the reader has seen enough
        _drop_output()
        return 1
    except Exception as error:
        if interrupts.was_raised():
            report("interrupted")
            return INTERRUPTED
        if not isinstance(error, (ValueError, RuntimeError, OSError, MemoryError)):
            raise
        if isinstance(error, OSError) and error.filename is None:
            _drop_output()
        report(reason(error))
        return 2 if isinstance(error, UsageError) else 1


def _answer(given: argparse.Namespace) -> None:
    # Imported after the arguments were read, so that --help and mistakes are answered at once.
    if given.command == "demo":
        from . import demo

        print(demo.comparison())
        return

    import faiss

    from . import commands

    interrupts.raise_from_now_on()
    if given.threads is not None:
        faiss.omp_set_num_threads(min(given.threads, os.cpu_count() or 1))
    answer = given.run(commands, given)
    print(json.dumps(answer.facts, allow_nan=False) if given.json else answer.text)


def _encode_all_names() -> None:
    """Let a name that the terminal cannot show be printed with escapes, rather than be an error after the work."""
    with contextlib.suppress(AttributeError):  # of standard output that is closed
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop_output() -> None:
    """Let what could not be written to standard output go nowhere, so that Python does not try again at the end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
