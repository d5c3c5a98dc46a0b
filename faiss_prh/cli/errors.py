"""Errors as the command line reports them: one line on standard error."""

from __future__ import annotations

import re
import sys

_FROM_FAISS = re.compile(r"Error in .*? at \S+:\d+: ", re.DOTALL)


class UsageError(ValueError):
    """Arguments that make no sense, by themselves or with what the files hold."""


def reason(error: Exception) -> str:
    """
    Return what an error says, without where in Faiss's sources it was raised.

    Examples
    --------
    >>> reason(RuntimeError("Error in f() at faiss/Index.cpp:42: no room"))
    'no room'
    >>> reason(FileNotFoundError(2, "No such file or directory", "x.npy"))
    'x.npy: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        where = "standard output" if error.filename is None else str(error.filename) or "''"
        return f"{where}: {error.strerror}"
    return _FROM_FAISS.sub("", str(error)) or ("not enough memory" if isinstance(error, MemoryError) else repr(error))


def report(message: str) -> None:
    """Print a message in one line, whatever is in the names of files and arrays that it quotes."""
    line = " ".join(message.split())
    print("faiss-prh:", "".join(c if c.isprintable() else "?" for c in line), file=sys.stderr)
