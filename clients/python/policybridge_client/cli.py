"""The command ``policybridge``: a table of subcommands. Only the requested one is imported."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

from policybridge_client.command_line import Parser
from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table
from policybridge_core.terminal import complain, say
from policybridge_core.version import version

_USAGE: Final = 2
_INTERRUPTED: Final = 130


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
        "autotune": "policybridge_train.autotune_command [train]",
        "autotune export": "policybridge_train.tuning.export [train]",
        "bench": "policybridge_bench.command [bench]",
        "check": "policybridge_train.checking.command [train]",
        "completion": "policybridge_client.completion [completion]",
        "corpus": "policybridge_train.corpus.command [train]",
        "doctor": "policybridge_client.doctor",
        "embed": "policybridge_train.embedding.command [train]",
        "embed compare": "policybridge_train.embedding.comparing [train]",
        "health": "policybridge_client.health [server]",
        "replay": "policybridge_client.llvm.replay_command",
        "policies": "policybridge_client.policies_cli",
        "run": "policybridge_client.llvm.run",
        "score": "policybridge_train.scoring.command [train]",
        "serve": "policybridge_server.cli [server]",
        "sessions": "policybridge_server.ledger.cli [server]",
        "size-report": "policybridge_train.checking.size_report [train]",
        "top": "policybridge_client.top [top]",
        "train": "policybridge_train.train_command [train]",
    },
)

SUMMARIES: Final = {
    "autotune": "find decisions that make a program smaller, and keep them in a store",
    "autotune export": "write a module's tuned decisions for LLVM's own replay, which needs no plugin",
    "bench": "measure this policy server beside others",
    "check": "build a project with a policy and without, and fail if a program is larger with it",
    "completion": "print the completion of these commands for bash, zsh or tcsh",
    "corpus": "make a corpus of modules from builds, objects and source packages",
    "doctor": "tell which compilers, plugins, launcher, store and servers this machine has, and what is missing",
    "embed": "write a policy as C, or as a plugin of a compiler, that needs no server",
    "embed compare": "compare a policy's C with the server's engine, on recorded observations",
    "health": "ask a server whether it takes new sessions",
    "replay": "compile again as recorded, without a server, and compare",
    "policies": "publish versions of policies, name them, look at them",
    "run": "run a compiler and let a policy make its decisions",
    "score": "compare policies, stores and flags with LLVM's own decisions over a corpus",
    "serve": "serve policies to any number of compilers",
    "sessions": "list, show and export the sessions that a server recorded",
    "size-report": "compare the bytes of two builds by file, section and function, for a pull request",
    "top": "watch a server: sessions, decisions, latency, roll-outs",
    "train": "train a policy by its effect on the programs of a corpus",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that the first argument names; return the exit status, 130 after Ctrl-C."""
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        # Commands say more about their work; this is for the time in which one is imported.
        complain("policybridge: interrupted")
        return _INTERRUPTED


def _run(words: Sequence[str]) -> int:
    name, rest = _split(words)
    if name in ("-h", "--help"):
        return _print_help()
    if name == "--version":
        return _print_version()
    try:
        command = cast("Command", COMMANDS.load(name))
    except PolicyBridgeError as error:
        complain(f"policybridge: {error}")
        return _USAGE
    parser = Parser(prog=f"policybridge {name}", description=SUMMARIES.get(name))
    command.add_arguments(parser)
    parser.share_epilog()
    return command.run(parser.parse_args(rest))


def _split(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Give the command's name, which may be two words, and what follows it."""
    two = " ".join(words[:2])
    # An option is no word of a name, and to look it up would read the entry points of all installed distributions.
    if not any(word.startswith("-") for word in words[1:2]) and two in COMMANDS:
        return two, words[2:]
    return (words[0], words[1:]) if words else ("--help", ())


def _print_version() -> int:
    say(f"policybridge {version()}")
    return 0


def _print_help() -> int:
    say("usage: policybridge COMMAND ARGUMENT…\n\ncommands (each explains itself with --help):")
    for name in COMMANDS.names():
        say(f"  {name:16} {SUMMARIES.get(name, '')}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
