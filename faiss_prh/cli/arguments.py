"""The arguments of `faiss-prh` and its help. It imports neither NumPy nor Faiss, so that it answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .errors import report

_VECTORS = """\
Vectors are read from .npy, .npz, .fvecs, .bvecs and .hdf5 files, one vector a
row. If an .npz or .hdf5 file holds several arrays, name one after a colon:
sift.hdf5:train."""

_FACTORY = """\
Factory strings are [TRANSFORM,...]INDEX[,RERANKING], with these parts:

TRANSFORM
  PRH[<bits>]         learned rotation; as many bits as dimensions by default
  PRH[<bits>](<n_iso>[,<n_pca>[,<tilt>]])
                      the same with the paper's parameters, not tuned
  SRR[<bits>]         sparse random rotation, which needs no training
  PCA<d> PCAR<d> PCAW<d> PCAWR<d> ITQ[<d>] OPQ<m>[_<d>] RR[<d>] Pad<d>
                      Faiss's transforms, to <d> dimensions
  L2norm HR[<seed>]   Faiss's, to as many dimensions as before
INDEX
  BFlat BIVF<lists> BIVF<lists>_HNSW<links> BHNSW<links> BHash<bits>
  BHash<tables>x<bits>
                      binary indexes, by Hamming distance, of the signs that
                      the last transform returns
  IVF<lists>,Signs    signs of residuals in inverted lists, d/8 + 1 bytes a
                      vector
  Flat SQ8 PQ<m> IVF<lists>,Flat HNSW<links> ...
                      any float index of Faiss
RERANKING
  RFlat               rank the results again, by the vectors themselves
  Refine(<index>)     by compressed vectors: Refine(SQ8)
  RAsym               by the codes of a binary index and a byte more a vector

<lists> may end in k (x 1024) or M (x 1048576). IDMap is refused, because the
command line has no ids to give.

  PRH,BFlat   PRH128,BIVF1k   PCA64,PRH,BHNSW32,RFlat   PRH(8,2,0.5),BHash16
  PRH,BIVF1k_HNSW32,RAsym   ITQ64,BFlat,Refine(SQ8)   PCA64,PRH,IVF256,PQ16"""

_EVALUATION = """\
Each index is searched with several values of nprobe or efSearch, of margin and
of k_factor, if it has them, in all combinations. 10-recall@10 is the share of
the 10 nearest vectors that a search for 10 finds; this search is also timed,
as the median of a few. @100 is the share that a search for 100 finds. A * marks
what is unbeaten: nothing else that was measured has at least its 10-recall@10
and its speed, and more of either. Bytes do not count for this. --plot draws
what no other setting of the same index beats."""

_TRUSTED = (
    "read the index even if the file holds Faiss's own bytes (a float index), which are not checked: "
    "use it only for files you made or trust"
)


def new_parser() -> argparse.ArgumentParser:
    """
    Return the parser of the command line. What it returns has `run`, which calls one of `commands`.

    Examples
    --------
    >>> new_parser().parse_args(["info", "i.prh", "--json"]).file
    'i.prh'
    """
    parser = _Parser(
        prog="faiss-prh",
        description="Pairwise Rotation Hashing for Faiss: binary codes by a learned rotation, and indexes of them.",
        epilog="`faiss-prh <command> --help` explains a command and gives an example.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command", help="what to do; one of:")

    def command(
        name: str, about: str, example: str, run: Callable[[Any, argparse.Namespace], Any], *notes: str
    ) -> argparse.ArgumentParser:
        made = _command(commands, name, about, example, *notes)
        made.add_argument("--json", action="store_true", help="print the report as JSON")
        made.add_argument("--threads", type=_count, metavar="N", help="use at most N threads (default: all cores)")
        made.set_defaults(run=run)
        return made

    train = command(
        "train", "learn a transform from vectors", "faiss-prh train t.npy --bits 256 -o m.prh",
        lambda to, given: to.train(given.vectors, given.bits, given.output, given.seed), _VECTORS,
    )  # fmt: skip
    train.add_argument("vectors", help="file of training vectors")
    train.add_argument("--bits", type=_count, metavar="N", help="bits of a code (default: the number of dimensions)")
    _add_output(train, "file to write the transform to")
    _add_seed(train)

    encode = command(
        "encode", "write the binary codes of vectors", "faiss-prh encode m.prh b.npy -o codes.npy",
        lambda to, given: to.encode(given.transform, given.vectors, given.output, given.bitorder), _VECTORS,
    )  # fmt: skip
    encode.add_argument("transform", help="file written by `faiss-prh train`")
    encode.add_argument("vectors", help="file of vectors to encode")
    _add_output(encode, ".npy file to write the codes to, one a row, as bytes")
    encode.add_argument(
        "--bitorder", choices=("little", "big"), default="little",
        help="put the first bit of a byte lowest (little, as Faiss does; the default) or highest (big, as PostgreSQL)",
    )  # fmt: skip

    build = command(
        "build", "train an index and fill it",
        'faiss-prh build --factory "PRH,BIVF64" --train t.npy --add b.npy -o i.prh',
        lambda to, given: to.build(given.factory, given.train, given.add, given.output, given.seed), _VECTORS, _FACTORY,
    )  # fmt: skip
    build.add_argument("--factory", required=True, metavar="STRING", help="what index to make; see below")
    build.add_argument("--train", required=True, metavar="VECTORS", help="file of training vectors")
    build.add_argument("--add", nargs="+", default=[], metavar="VECTORS", help="files of vectors to fill it with")
    _add_output(build, "file to write the index to")
    _add_seed(build)

    add = command(
        "add", "add vectors to an index", "faiss-prh add i.prh more.npy",
        lambda to, given: to.add(given.index, given.vectors, given.trusted), _VECTORS,
    )  # fmt: skip
    add.add_argument("index", help="file of the index; it is replaced once all vectors are added")
    add.add_argument("vectors", nargs="+", help="files of vectors to add")
    _add_trusted(add)

    search = command(
        "search", "search an index", "faiss-prh search i.prh q.npy -k 10 --nprobe 8 -o r.npz",
        lambda to, given: to.search(
            given.index, given.vectors, given.k, given.output,
            given.nprobe, given.margin, given.k_factor, given.trusted,
        ), _VECTORS,
    )  # fmt: skip
    search.add_argument("index", help="file of the index")
    search.add_argument("vectors", help="file of query vectors")
    search.add_argument("-k", type=_count, default=10, metavar="N", help="results for each query (default: 10)")
    _add_output(search, ".npz file to write two arrays to, `distances` and `ids`, with a row for each query")
    search.add_argument("--nprobe", type=_count, metavar="N", help="inverted lists to visit (default: as stored)")
    search.add_argument(
        "--margin", type=_margin, metavar="M",
        help="how much better than its first estimate a vector may be, for lists of signs (default: as stored)",
    )  # fmt: skip
    search.add_argument(
        "--k-factor", type=_factor, metavar="F",
        help="rank F * k candidates again, if the index has a re-ranking part (default: as stored)",
    )  # fmt: skip
    _add_trusted(search)

    evaluate = command(
        "eval", "compare indexes with exact search: recall, speed, size",
        'faiss-prh eval --factory "PRH,BFlat" --factory "ITQ64,BFlat" --train t.npy --base b.npy --query q.npy',
        lambda to, given: to.evaluate(
            given.factory, given.train, given.base, given.query, given.target_recall, given.plot, given.seed
        ), _EVALUATION, _VECTORS, _FACTORY,
    )  # fmt: skip
    evaluate.add_argument(
        "--factory", required=True, action="append", metavar="STRING",
        help="an index to measure; see below. Repeat it to compare several",
    )  # fmt: skip
    evaluate.add_argument("--train", required=True, metavar="VECTORS", help="file of training vectors")
    evaluate.add_argument("--base", required=True, metavar="VECTORS", help="file of vectors to fill the indexes with")
    evaluate.add_argument("--query", required=True, metavar="VECTORS", help="file of query vectors")
    evaluate.add_argument(
        "--target-recall", type=_share, metavar="R",
        help="name the fastest setting whose 10-recall@10 is at least R, as 0.95",
    )  # fmt: skip
    evaluate.add_argument("--plot", metavar="FILE", help="draw recall against speed, as .png, .svg or .pdf")
    _add_seed(evaluate)

    info = command(
        "info", "describe an index or a transform, or without a file what runs here", "faiss-prh info i.prh",
        lambda to, given: to.info(given.file, given.trusted),
    )  # fmt: skip
    info.add_argument("file", nargs="?", help="file of an index or a transform")
    _add_trusted(info)

    _command(commands, "demo", "compare PRH with Faiss's ITQ on made-up data", "faiss-prh demo")
    return parser


def _command(commands: Any, name: str, about: str, example: str, *notes: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog="\n\n".join([f"Example:\n  {example}", *notes]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _add_output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=what)


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_seed, metavar="N", help="seed of the random choices in training PRH")


def _add_trusted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trusted", action="store_true", help=_TRUSTED)


def _count(text: str) -> int:
    return int(_number(int, text, 1, (1 << 31) - 1))


def _seed(text: str) -> int:
    return int(_number(int, text, 0, (1 << 63) - 1))


def _factor(text: str) -> float:
    return _number(float, text, 1, 1e9)


def _margin(text: str) -> float:
    return _number(float, text, 0, 1e9)


def _share(text: str) -> float:
    value = _number(float, text, 0, 1)
    if not value:
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return value


def _number(kind: Callable[[str], float], text: str, least: int, most: float) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected a number from {least} to {most:.4g}, not {text!r}")
    return value


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        report(f"{message} (see {self.prog} --help)")
        sys.exit(2)


class _Version(argparse.Action):
    """Looks the version up only if asked, because that takes as long as everything else here."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"faiss-prh {version('faiss-prh')}")
        parser.exit()
