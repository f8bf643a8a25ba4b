"""``policybridge completion``: scripts with which a shell completes the commands and their options."""

import argparse
from contextlib import suppress
from typing import cast

import shtab

from policybridge_client.cli import COMMANDS, SUMMARIES, Command
from policybridge_core.errors import PolicyBridgeError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0; 2 for a wrong command line."
    parser.description = (
        "Print a script that completes commands and options. For bash: "
        "policybridge completion bash > ~/.local/share/bash-completion/completions/policybridge"
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(shtab.complete(_all_commands(), arguments.shell))
    return 0


def _all_commands() -> argparse.ArgumentParser:
    """Give one parser of all commands. A command whose package is not installed has no options."""
    root = argparse.ArgumentParser(prog="policybridge")
    root.add_argument("--version", action="store_true")
    made: dict[str, argparse._SubParsersAction[argparse.ArgumentParser]] = {"": root.add_subparsers()}
    for name in COMMANDS.names():
        first, _, second = name.partition(" ")
        parent = made.get(first if second else "")
        if parent is None:
            continue
        # shtab omits a command without help text.
        parser = parent.add_parser(second or first, help=SUMMARIES.get(name, name))
        with suppress(PolicyBridgeError):
            cast("Command", COMMANDS.load(name)).add_arguments(parser)
        if f"{name} " in " ".join(each for each in COMMANDS.names() if " " in each):
            made[name] = parser.add_subparsers()
    return root
