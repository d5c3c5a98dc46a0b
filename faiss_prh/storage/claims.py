"""
What Faiss's own bytes claim, compared with what there is, before Faiss makes room for it.

Faiss's readers make room for as many values as a file says and only then look whether it has them. So the bytes pass by
a walker, which knows some of Faiss's formats (`_formats`), and refuses others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple


class Wish(NamedTuple):
    """How many bytes a walker waits for, whether it wants to see them, and how many must still come after them."""

    size: int
    is_read: bool
    after: int = 0


Walk = Generator[Wish, bytes, Any]


class UnknownError(Exception):
    """A format that no walker knows, by the four bytes that Faiss marks it with, or what is too rare to look after."""


class Claims:
    """
    Follows the bytes that Faiss reads.

    Parameters
    ----------
    walk : Walk
        What they should be.
    left : callable
        Returns how many bytes the source still has, or None where nobody knows.
    """

    def __init__(self, walk: Walk, left: Callable[[], int | None]) -> None:
        self._walk, self._left = walk, left
        self._field = bytearray()
        self._missing = 0
        self._wish: Wish | None = None
        self._go_on(None, 0)

    def see(self, data: bytes) -> None:
        """Follow bytes that Faiss has not got yet. If they claim what is not there, that is a ValueError."""
        place = 0
        while self._wish is not None and place < len(data):
            part = data[place : place + self._missing]
            place += len(part)
            self._missing -= len(part)
            if self._wish.is_read:
                self._field += part
            if not self._missing:
                self._go_on(bytes(self._field), len(data) - place)

    def _go_on(self, field: bytes | None, ahead: int) -> None:
        self._field.clear()
        try:
            self._wish = self._walk.send(field)  # type: ignore[arg-type]
        except StopIteration:
            self._wish = None
            return
        except UnknownError as unknown:
            raise ValueError(
                f"Faiss's format {unknown} is not checked, and read only if the file is said to be trusted "
                "(trusted=True, --trusted)"
            ) from None
        self._missing, left = self._wish.size, self._left()
        claimed = self._missing + self._wish.after
        if left is not None and claimed > left + ahead:
            raise ValueError(f"a damaged index file: it claims {claimed} bytes where {left + ahead} are left")
