"""The `faiss-prh` command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="faiss-prh", description="Pairwise Rotation Hashing for Faiss.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="compare PRH with Faiss's ITQ on made-up data: time, memory, recall")
    parser.parse_args(arguments)

    from . import demo  # after the arguments, so that a mistake in them is answered at once

    print(demo.comparison())
