"""What the extra `cli` installs, and no command needs until it is used."""

from __future__ import annotations

import importlib
from typing import Any

from .interrupts import ending_at_once


def optional_module(name: str) -> Any:
    """
    Import a module, or return None if it is not installed.

    Examples
    --------
    >>> optional_module("no_such_module") is None
    True
    """
    try:
        with ending_at_once():
            return importlib.import_module(name)
    except ImportError:
        return None
