"""The command ``policybridge``: a table of subcommands. Only the requested one is imported."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table

_USAGE: Final = 2


class Command(Protocol):
    """A subcommand is a module with these two functions."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Run the subcommand; return the exit status."""
        ...


COMMANDS: Final = Table(
    kind="command",
    group="policybridge.commands",
    own={
        "bench": "policybridge_bench.command [bench]",
        "replay": "policybridge_client.llvm.replay_command",
        "policies": "policybridge_client.policies_cli",
        "run": "policybridge_client.llvm.run",
        "serve": "policybridge_server.cli [server]",
        "sessions": "policybridge_server.ledger.cli [server]",
    },
)

_SUMMARIES: Final = {
    "bench": "measure policy servers, ours beside others",
    "replay": "compile again as recorded, without a server, and compare",
    "policies": "publish versions of policies, name them, look at them",
    "run": "run a compiler and let a policy make its decisions",
    "serve": "serve policies to any number of compilers",
    "sessions": "list, show and export what the server recorded",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that the first argument names; return the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        return _print_help()
    if name == "--version":
        return _print_version()
    try:
        command = cast("Command", COMMANDS.load(name))
    except PolicyBridgeError as error:
        sys.stderr.write(f"policybridge: {error}\n")
        return _USAGE
    parser = argparse.ArgumentParser(prog=f"policybridge {name}", description=_SUMMARIES.get(name))
    command.add_arguments(parser)
    return command.run(parser.parse_args(words[1:]))


def _print_version() -> int:
    from importlib.metadata import version  # noqa: PLC0415 - 20 ms that a compilation should not pay

    print(f"policybridge {version('policybridge')}")
    return 0


def _print_help() -> int:
    print("usage: policybridge COMMAND ARGUMENT…\n\ncommands (each explains itself with --help):")
    for name in COMMANDS.names():
        print(f"  {name:10} {_SUMMARIES.get(name, '')}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
