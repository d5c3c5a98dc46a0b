import argparse
import tempfile
from pathlib import Path

from bench import (
    bits,
    cost,
    curves,
    encode,
    fuzz,
    gaussian,
    highdim,
    pictures,
    portable,
    reduction,
    rerank,
    scan,
    search,
    sift,
    soak,
    tradeoff,
    train,
)
from bench.blas import begin_again_with_the_right_kernels
from bench.plots import redraw
from bench.report import Options

COMMANDS = {
    "encode": encode,
    "train": train,
    "search": search,
    "scan": scan,
    "rerank": rerank,
    "bits": bits,
    "tradeoff": tradeoff,
    "gaussian": gaussian,
    "sift": sift,
    "reduction": reduction,
    "highdim": highdim,
    "cost": cost,
    "pictures": pictures,
    "portable": portable,
}
PLOTS = {
    "encode": encode.plot,
    "search": search.plot,
    "bits": bits.plot,
    "tradeoff": tradeoff.plot,
    "gaussian": curves.plot,
    "sift": curves.plot,
    "reduction": curves.plot,
    "highdim": highdim.plot,
    "cost": cost.plot,
}
TRIALS = {"fuzz": fuzz, "soak": soak}
MAKE_THEIR_DATA = {"encode", "train", "tradeoff", "gaussian", "cost", "portable"}
ONLY_PRINT = {"train", "rerank", "scan", "portable"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure faiss-prh against its rivals.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__)
        command.add_argument(
            "--quick", action="store_true", help="small sizes, to see that it runs; figures not to quote"
        )
        command.set_defaults(data=None, output=None)
        if name not in MAKE_THEIR_DATA:
            command.add_argument(
                "--data", type=Path, metavar="PATH", help="a folder or file with data sets, instead of made-up data"
            )
        if name not in ONLY_PRINT:
            command.add_argument(
                "--output", type=Path, metavar="DIR", help="a folder to write the figures to, as JSON and SVG"
            )
    for name, trial in TRIALS.items():
        trial.add_arguments(commands.add_parser(name, help=trial.__doc__))
    again = commands.add_parser("redraw", help="Draw the pictures in a folder again, from the JSON there.")
    again.add_argument("folder", type=Path, metavar="DIR", help="the --output of other commands")
    arguments = parser.parse_args()
    if arguments.command in TRIALS:
        TRIALS[arguments.command].run(arguments)
        return
    if arguments.command == "redraw":
        files = [file for file in sorted(arguments.folder.glob("*.json")) if file.stem in PLOTS]
        if not files:
            parser.error(f"{arguments.folder}: no figures of an experiment; expected encode.json or the like")
        for file in files:
            redraw(file, PLOTS[file.stem])
        return
    if arguments.output is not None:
        try:  # before the hours that the run may take
            arguments.output.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=arguments.output).close()
        except OSError as error:
            parser.error(f"--output {arguments.output}: {error.strerror}; expected a folder to write to")
    COMMANDS[arguments.command].run(Options(arguments.quick, arguments.data, arguments.output))


if __name__ == "__main__":
    begin_again_with_the_right_kernels()
    main()
