import argparse

from bench import encode, train

COMMANDS = {"encode": encode, "train": train}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure faiss-prh against its rivals.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.__doc__)
        command.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not to quote")
    arguments = parser.parse_args()
    COMMANDS[arguments.command].run(quick=arguments.quick)


if __name__ == "__main__":
    main()
