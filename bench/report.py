"""The options of an experiment, and the tables that it prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faiss_prh.cli.evaluation import table

NO_FIGURE = "\N{EN DASH}"


@dataclass
class Options:
    """What the command line asked for."""

    quick: bool
    data: Path | None
    output: Path | None


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(table(header, rows), flush=True)


def versus(ratio: float, target: float | None, *, at_most: bool = False, unit: str = "x") -> str:
    """Return a ratio as text, with its target, if any, and whether that was missed."""
    text = f"{ratio:.2f}{unit}" if ratio < 10 else f"{ratio:.{0 if unit else 1}f}{unit}"
    if target is None:
        return text
    reached = ratio <= target if at_most else ratio >= target
    return f"{text} ({'≤' if at_most else '≥'}{target:g}{'' if reached else ' MISSED'})"


def ahead(difference: float, least: float | None = None) -> str:
    """Return a difference of recalls as text, with the least that it should be, if any, and whether that was missed."""
    text = f"{difference:+.3f}"
    return text if least is None else f"{text} (≥{least:g}{'' if difference >= least else ' MISSED'})"
