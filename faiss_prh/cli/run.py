"""The `faiss-prh` command: arguments, and what goes wrong in one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NoReturn

_FILES = "Vectors: .npy, .npz, .fvecs, .bvecs or .hdf5 files; file.npz:name is one of several arrays."
_FROM_FAISS = re.compile(r"Error in .*? at \S+:\d+: ", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for a failure, 2 for wrong usage, 130 if interrupted."""
    with _noting_interrupts() as interrupted:
        try:
            try:
                _run(_parser().parse_args(arguments))
            finally:  # here, and not when Python ends: also after --help
                if sys.stdout is not None:  # closed, as with >&-
                    sys.stdout.flush()
            return 0
        except KeyboardInterrupt:
            return _refused("interrupted", 130)
        except BrokenPipeError:  # whoever read has had enough
            _drop_output()
            return 1
        except (ValueError, RuntimeError, OSError, MemoryError) as error:
            if interrupted:  # Faiss's C++ makes a RuntimeError of whatever Python raises inside it
                return _refused("interrupted", 130)
            if isinstance(error, OSError) and error.filename is None:
                _drop_output()
            return _refused(_reason(error), 2 if type(error).__name__ == "UsageError" else 1)


def _run(given: argparse.Namespace) -> None:
    # After the arguments, so that a mistake in them is answered at once.
    if given.command == "demo":
        from . import demo

        print(demo.comparison())
        return

    import faiss

    from . import commands

    if given.threads is not None:
        faiss.omp_set_num_threads(min(given.threads, os.cpu_count() or 1))
    report = given.run(commands, given)
    print(json.dumps(report.facts, allow_nan=False) if given.json else report.text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="faiss-prh", description="Pairwise Rotation Hashing for Faiss.", epilog=_FILES)
    parser.add_argument("--version", action="version", version=f"faiss-prh {version('faiss-prh')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, about: str, run: Callable[[Any, argparse.Namespace], Any]) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=_FILES)
        made.add_argument("--json", action="store_true", help="print JSON")
        made.add_argument("--threads", type=_count, metavar="N", help="use at most N threads")
        made.set_defaults(run=run)
        return made

    train = command(
        "train", "learn a transform", lambda to, given: to.train(given.vectors, given.bits, given.output, given.seed)
    )
    train.add_argument("vectors", help="training vectors")
    train.add_argument("--bits", type=_count, metavar="N", help="of a code; as many as dimensions by default")
    _add_output(train, "the transform")
    _add_seed(train)

    encode = command(
        "encode",
        "write the codes of vectors",
        lambda to, given: to.encode(given.transform, given.vectors, given.output, given.bitorder),
    )
    encode.add_argument("transform", help="as `train` wrote it")
    encode.add_argument("vectors")
    _add_output(encode, "codes, .npy")
    encode.add_argument(
        "--bitorder",
        choices=("little", "big"),
        default="little",
        help="where in a byte its first bit is; Faiss: little",
    )

    build = command(
        "build",
        "train and fill an index",
        lambda to, given: to.build(given.factory, given.train, given.add, given.output, given.seed),
    )
    build.add_argument("--factory", required=True, metavar="STRING", help='such as "PRH,BIVF1024"')
    build.add_argument("--train", required=True, metavar="VECTORS")
    build.add_argument("--add", nargs="+", default=[], metavar="VECTORS")
    _add_output(build, "the index")
    _add_seed(build)

    add = command("add", "add vectors to an index", lambda to, given: to.add(given.index, given.vectors, given.trusted))
    add.add_argument("index", help="a file, which is replaced when all is done")
    add.add_argument("vectors", nargs="+")
    _add_trusted(add)

    search = command(
        "search",
        "search an index",
        lambda to, given: to.search(
            given.index, given.vectors, given.k, given.output, given.nprobe, given.k_factor, given.trusted
        ),
    )
    search.add_argument("index")
    search.add_argument("vectors", help="queries")
    search.add_argument("-k", type=_count, default=10, metavar="N", help="results a query; 10 by default")
    _add_output(search, "arrays distances and ids, .npz")
    search.add_argument("--nprobe", type=_count, metavar="N", help="inverted lists to visit")
    search.add_argument("--k-factor", type=_factor, metavar="F", help="rank a shortlist of F * k again")
    _add_trusted(search)

    evaluate = command(
        "eval",
        "compare indexes with exact search",
        lambda to, given: to.evaluate(given.factory, given.train, given.base, given.query, given.plot, given.seed),
    )
    evaluate.add_argument("--factory", required=True, action="append", metavar="STRING", help="may be repeated")
    for name in ("train", "base", "query"):
        evaluate.add_argument(f"--{name}", required=True, metavar="VECTORS")
    evaluate.add_argument("--plot", metavar="FILE", help="draw recall against speed, as .png, .svg or .pdf")
    _add_seed(evaluate)

    info = command("info", "say what is in a file", lambda to, given: to.info(given.file, given.trusted))
    info.add_argument("file", help="an index or a transform")
    _add_trusted(info)

    commands.add_parser("demo", help="compare PRH with Faiss's ITQ on made-up data: time, memory, recall")
    return parser


def _add_output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=what)


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_seed, metavar="N", help="of what PRH draws at random")


def _add_trusted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trusted", action="store_true", help="leave Faiss's bytes unchecked, in all its formats")


def _count(text: str) -> int:
    return int(_number(int, text, 1, (1 << 31) - 1))


def _seed(text: str) -> int:
    return int(_number(int, text, 0, (1 << 63) - 1))


def _factor(text: str) -> float:
    return _number(float, text, 1, 1e9)


def _number(kind: Callable[[str], float], text: str, least: int, most: float) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected a number from {least} to {most:.4g}, not {text!r}")
    return value


class _Parser(argparse.ArgumentParser):
    """Answers a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_refused(f"{message} (see {self.prog} --help)", 2))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = "standard output" if error.filename is None else str(error.filename) or "''"
        return f"{where}: {error.strerror}"
    return _FROM_FAISS.sub("", str(error)) or ("not enough memory" if isinstance(error, MemoryError) else repr(error))


def _refused(reason: str, code: int) -> int:
    """Print a reason in one line, whatever names from a file are in it, and return the code."""
    line = " ".join(reason.split())
    print("faiss-prh:", "".join(c if c.isprintable() else "?" for c in line), file=sys.stderr)
    return code


def _drop_output() -> None:
    """Let what could not be written to standard output go nowhere, so that Python does not try again at the end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Yield a list that an interrupt is put into, besides being raised."""
    seen: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
