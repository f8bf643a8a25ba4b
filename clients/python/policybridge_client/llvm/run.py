"""The command ``policybridge run``: run a compiler with the decisions of a policy."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from policybridge_client.connection import SERVER
from policybridge_client.credentials import Credentials
from policybridge_client.credentials import add_arguments as add_credentials
from policybridge_client.decisions.finding import NAME, OFF, find_store
from policybridge_client.llvm.asked import check_asks
from policybridge_client.llvm.compiler_cache import compiler_cache
from policybridge_client.llvm.compilers import CompilerCommand, compiles, is_trial, source_of
from policybridge_client.llvm.config import GROWTH_LIMIT, RETRY_AFTER, HostConfig
from policybridge_client.llvm.decided import DecisionsConfig, run_as_it_is, run_with_decisions
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.launcher import become_launcher
from policybridge_client.llvm.signals import Interrupted, TakenSignals
from policybridge_client.llvm.statistics import Report, write_report
from policybridge_client.llvm.tasks import INLINE, TASKS
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.lacking import lacking
from policybridge_core.terminal import complain
from policybridge_serdes import Exploration, PolicyReference

_NOT_FOUND: Final = 127
_NOT_STARTED: Final = 126
_USAGE: Final = 2

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
        default="inline",
        choices=TASKS,
        metavar="TASK",
        help="the task: %(choices)s (default: inline)",
    )
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
    add("command", nargs=argparse.REMAINDER, metavar="-- COMPILER ARGUMENT…", help="the compiler and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the compiler; return its exit status."""
    compiler = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        optional = bool(compiler) and arguments.policy is None and arguments.decisions is None
        _check(arguments)
        # A program that calls this command in its own process is not replaced.
        if sys.argv[1:2] == ["run"] and not (optional and _is_unknown(compiler)):
            become_launcher(sys.argv[2:], CompilerCommand.of(compiler), arguments.task, arguments.server)
        with TakenSignals() as interrupts:
            if optional:
                arguments.decisions = _found(compiler, arguments)
            if optional and arguments.decisions is None:
                report = run_as_it_is(compiler, interrupts=interrupts)
            elif arguments.policy is not None:
                report = run_compiler(compiler, _config(arguments), interrupts=interrupts)
            else:
                store = DecisionsConfig(arguments.decisions, arguments.fallback, arguments.growth_limit)
                report = run_with_decisions(compiler, store, interrupts=interrupts)
            if arguments.stats:
                _write(report, arguments, compiler)
    except Interrupted as signal:
        return 128 + signal.number
    except PolicyBridgeError as error:
        return _say(str(error), _USAGE)
    except FileNotFoundError as error:
        missing = f"there is no program {error.filename!r}: give the compiler's name or path behind --"
        return _say(lacking(missing), _NOT_FOUND)
    except OSError as error:
        return _say(str(error), _NOT_STARTED)
    return _told(report, arguments, compiler)


def _is_unknown(compiler: Sequence[str]) -> bool:
    try:
        check_asks(CompilerCommand.of(compiler).kind, INLINE)
    except InvalidError:
        return True
    return False


def _found(command: Sequence[str], arguments: argparse.Namespace) -> Path | None:
    """Give the project's own store, if there is one that may be used and the command compiles."""
    if arguments.no_decisions:
        os.environ[OFF] = "1"  # for a plugin in the command
    if os.environ.get(OFF) or _is_unknown(command):
        return None
    words = CompilerCommand.of(command).arguments
    found = find_store(source_of(words)) if compiles(words) else None
    if found is None:
        return None
    refused = found.refused
    if not refused and (cache := compiler_cache()):
        refused = f"{cache} precedes this command, and does not see when the store changes"
    if refused:
        _remark(f"{found.path} is not applied: {refused}", command)
        return None
    if "-v" in words:
        _remark(f"decisions of {found.path}", command)
    return found.path


def _check(arguments: argparse.Namespace) -> None:
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
    elif arguments.task != INLINE.name:
        raise InvalidError(f"a store has decisions of the task {INLINE.name!r} alone, not of {arguments.task!r}")


def _check_without(arguments: argparse.Namespace) -> None:
    given = {"--server": arguments.server, "--explore": arguments.explore}
    if arguments.task != INLINE.name:
        given["--task"] = arguments.task
    for option, value in given.items():
        if value is not None:
            raise InvalidError(f"{option} needs --policy NAME")


def _config(arguments: argparse.Namespace) -> HostConfig:
    return HostConfig(
        PolicyReference.parse(arguments.policy),
        arguments.server,
        task=arguments.task,
        fallback=arguments.fallback,
        timeout=arguments.timeout,
        options=dict(arguments.option),
        labels=dict(arguments.label),
        exploration=None if arguments.explore is None else Exploration.parse(arguments.explore),
        credentials=Credentials.from_arguments(arguments),
        growth_limit=arguments.growth_limit,
        retry_after=arguments.retry_after,
        evaluate=arguments.evaluate,
        spool=not arguments.no_spool,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _write(report: Report, arguments: argparse.Namespace, command: Sequence[str]) -> None:
    content = dict(report.to_json())
    if arguments.policy is None:
        content["store"] = asdict(report.store) if report.store else None
    try:
        write_report(content, arguments.stats)
    except OSError as error:
        # The compilation is over; its status stands.
        _remark(f"no statistics: {error}", command)


def _told(report: Report, arguments: argparse.Namespace, command: Sequence[str]) -> int:
    fallback = report.fallback
    if limited := report.statistics.limited:
        _remark(
            f"{limited} decisions are the compiler's own: the policy has added {arguments.growth_limit:g} times the "
            "module's size (--growth-limit)",
            command,
        )
    for kind in report.statistics.not_asked:
        _remark(f"the policy decides {kind}, too, for which LLVM asks through a plugin alone", command)
    if report.error is not None:
        ended = "no advice, and the compiler was ended" if arguments.policy else "no decisions, and nothing compiled"
        _say(f"{ended}: {report.error}", report.status)
    elif fallback is not None:
        where = f"{fallback.decisions} decisions" if fallback.decisions else "all decisions"
        _remark(f"{where} are the compiler's own: {fallback.reason}", command)
    if report.note:
        _remark(report.note, command)
    return report.status


def _remark(message: str, command: Sequence[str]) -> None:
    """Write a line that tells no failure, unless the command is a trial."""
    if not is_trial(command):
        _say(message, 0)


def _say(message: str, status: int) -> int:
    complain(f"policybridge run: {message}")
    return status
