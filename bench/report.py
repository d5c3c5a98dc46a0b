"""What an experiment leaves: a table on the terminal, figures as JSON, and a plot."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def versus(ratio: float, target: float | None, *, at_most: bool = False) -> str:
    """Return a ratio and, where there is one, the target it is to reach."""
    text = f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"
    if target is None:
        return text
    reached = ratio <= target if at_most else ratio >= target
    return f"{text} ({'≤' if at_most else '≥'}{target:g}{'' if reached else ' MISSED'})"


def save(output: Path | None, name: str, results: Any, figure: Any) -> None:
    """Write results as JSON and a figure as PNG to the folder, which exists, if one was named."""
    if output is None:
        return
    (output / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    figure.savefig(output / f"{name}.png", dpi=150, bbox_inches="tight")
    print(f"\nWritten: {output / name}.json and .png")
