"""The arguments of ``policybridge run``, and which of them exclude each other."""

import argparse
import os
from pathlib import Path
from typing import Final

from policybridge_client.addresses import SERVER
from policybridge_client.credentials import add_arguments as add_credentials
from policybridge_client.decisions.finding import NAME, OFF
from policybridge_client.llvm.bounds import GROWTH_LIMIT, RETRY_AFTER
from policybridge_client.llvm.compiler_cache import compiler_cache
from policybridge_client.llvm.task_table import DEFAULT, TASKS
from policybridge_core.errors import InvalidError

_DESCRIPTION: Final = """
Runs an unmodified compiler with the decisions of a policy.
"""

_EPILOG: Final = """
Exit status: the compiler's own; 128 + n if signal n ended it; 70 if the host ended it for want of advice; 2 for a wrong
command line; 126 or 127 if the compiler cannot be started.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.usage = (
        "policybridge run --policy NAME --server ADDRESS [options] -- COMPILER ARGUMENT…\n"
        "       policybridge run [--decisions FILE | --no-decisions] [--plugins DIR] [options] -- COMPILER ARGUMENT…"
    )
    _add_deciders(parser)
    _add_bounds(parser)
    _add_session(parser)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMPILER ARGUMENT…", help="the compiler and its arguments"
    )


def _add_deciders(parser: argparse.ArgumentParser) -> None:
    """Declare what decides: a policy of a server, or a store and its plugins."""
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--policy", metavar="NAME[@VERSION|@ALIAS]", help="the policy that decides")
    who.add_argument(
        "--decisions",
        type=Path,
        metavar="FILE",
        help="a store of tuned decisions, which needs no policy and no server (default without --policy: the file "
        f"{NAME} upwards from the source, not beyond its repository)",
    )
    add = parser.add_argument
    add("--no-decisions", action="store_true", help=f"without --policy: look for no such file; so does {OFF}=1")
    add(
        "--server",
        metavar="ADDRESS",
        help="socket:PATH, grpc[s]:HOST:PORT[,serdes=NAME], or NAME:TARGET; several with commas between: the first "
        "that answers (default: POLICYBRIDGE_SERVER of the environment)",
    )
    add(
        "--plugins",
        type=Path,
        metavar="DIR",
        help="with --decisions and an installed policybridge-run: where the plugins are, besides POLICYBRIDGE_PLUGINS "
        "and lib/policybridge of this environment, /usr/local and /usr; if the compiler loads no plugin, the "
        "interactive mode is used",
    )
    add_credentials(parser)
    add(
        "--task",
        default=DEFAULT,
        choices=TASKS,
        metavar="TASK",
        help="the task: %(choices)s (default: %(default)s)",
    )


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    """Declare what bounds the decisions and the wait for them, and what happens without."""
    add = parser.add_argument
    add(
        "--fallback",
        default="default",
        choices=["default", "error"],
        help="without advice: the compiler's own decision (default), or end the compiler",
    )
    add("--stats", metavar="FILE.json", help="write counts and latencies to this file; %%p becomes the process id")
    add("--timeout", type=float, default=10.0, metavar="SECONDS", help="limit of each wait (default: 10)")
    add(
        "--growth-limit",
        type=float,
        default=GROWTH_LIMIT,
        metavar="FACTOR",
        help="the factor of a module's size that the policy may add to it before the compiler decides for itself "
        "(default: %(default)g; inf: no limit)",
    )
    add(
        "--retry-after",
        type=float,
        default=RETRY_AFTER,
        metavar="SECONDS",
        help="time for which the other compilations of a build do not wait for a server that timed out "
        "(default: %(default)g; 0: each waits)",
    )


def _add_session(parser: argparse.ArgumentParser) -> None:
    """Declare what a policy's session is given, and where it decides."""
    add = parser.add_argument
    add(
        "--label",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="label of the session",
    )
    add("--option", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="option for the policy")
    add(
        "--evaluate",
        default="auto",
        choices=["there", "auto", "here"],
        help="where decisions are made: by the server (there), or by the policy's portable form (here; auto, the "
        "default: if it has one, and in Python, which takes longer than a socket, over gRPC alone)",
    )
    add(
        "--no-spool",
        action="store_true",
        help="do not keep on disk what the policy decided here and a server that went away has not recorded; else the "
        "next compilation sends it",
    )
    add(
        "--explore",
        metavar="temperature=T,epsilon=E,seed=S",
        help="depart from the policy's best advice, for training: draw it from softmax(scores / T), and with the "
        "probability E from all legal ones; the seed and the source's name determine the choices",
    )


def check_arguments(arguments: argparse.Namespace) -> None:
    """Complete the server from the environment.

    Raises:
        InvalidError: two of the arguments exclude each other, or one needs another.

    """
    if arguments.no_decisions and arguments.decisions is not None:
        raise InvalidError("give either --decisions or --no-decisions")
    if arguments.policy is None and arguments.decisions is None:
        _check_without(arguments)
    elif arguments.decisions is None:
        arguments.server = arguments.server or os.environ.get(SERVER)
        if not arguments.server:
            raise InvalidError(f"--policy needs --server ADDRESS, or {SERVER} in the environment")
        if arguments.plugins is not None:
            raise InvalidError("--plugins is for --decisions")
        if arguments.explore is not None and (cache := compiler_cache()):
            raise InvalidError(f"under {cache} nothing explores: it would keep an object that depends on chance")
    elif arguments.server is not None:
        raise InvalidError("with --decisions no server is asked: give either --decisions, or --policy and --server")
    elif arguments.explore is not None:
        raise InvalidError("--explore needs a policy; a store of decisions has nothing to explore")
    elif arguments.task != DEFAULT:
        raise InvalidError(f"a store has decisions of the task {DEFAULT!r} alone, not of {arguments.task!r}")


def _check_without(arguments: argparse.Namespace) -> None:
    given = {"--server": arguments.server, "--explore": arguments.explore}
    if arguments.task != DEFAULT:
        given["--task"] = arguments.task
    for option, value in given.items():
        if value is not None:
            raise InvalidError(f"{option} needs --policy NAME")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
