import argparse
from pathlib import Path

from bench import cost, encode, gaussian, highdim, reduction, search, sift, tradeoff, train
from bench.report import Options

COMMANDS = {
    "encode": encode,
    "train": train,
    "search": search,
    "tradeoff": tradeoff,
    "gaussian": gaussian,
    "sift": sift,
    "reduction": reduction,
    "highdim": highdim,
    "cost": cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure faiss-prh against its rivals.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__)
        command.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not to quote")
        command.add_argument("--data", type=Path, metavar="PATH", help="a folder or file with data sets")
        command.add_argument("--output", type=Path, metavar="DIR", help="where to write the figures as JSON and a plot")
    arguments = parser.parse_args()
    COMMANDS[arguments.command].run(Options(arguments.quick, arguments.data, arguments.output))


if __name__ == "__main__":
    main()
