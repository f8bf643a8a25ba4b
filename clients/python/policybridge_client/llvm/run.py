"""The command ``policybridge run``: run a compiler with the decisions of a policy."""

import argparse
import sys
from typing import Final

from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.signals import Interrupted, TakenSignals
from policybridge_client.llvm.statistics import Report, write_report
from policybridge_client.llvm.tasks import TASKS
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyReference

_NOT_FOUND: Final = 127
_NOT_STARTED: Final = 126
_USAGE: Final = 2

_DESCRIPTION: Final = """
Runs a compiler as it is, and answers what it asks from the policy server. The exit status is the compiler's own,
128 + n where signal n ended it; 70 where the host ended it for want of advice; 2 for a wrong command line; 126 or 127
where the compiler cannot be started.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.usage = "policybridge run --policy NAME --server ADDRESS [options] -- COMPILER ARGUMENT…"
    add = parser.add_argument
    add("--policy", required=True, metavar="NAME[@VERSION|@ALIAS]", help="who decides")
    add("--server", required=True, metavar="ADDRESS", help="socket:PATH or grpc:HOST:PORT")
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
        metavar="FACTOR",
        help="stop when a module has grown so much (default: never)",
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
    add("command", nargs=argparse.REMAINDER, metavar="-- COMPILER ARGUMENT…", help="the compiler and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the compiler; return its exit status."""
    compiler = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        with TakenSignals() as interrupts:
            report = run_compiler(compiler, _config(arguments), interrupts=interrupts)
            if arguments.stats:
                write_report(report, arguments.stats)
    except Interrupted as signal:
        return 128 + signal.number
    except PolicyBridgeError as error:
        return _say(str(error), _USAGE)
    except OSError as error:
        return _say(str(error), _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_STARTED)
    return _told(report)


def _config(arguments: argparse.Namespace) -> HostConfig:
    chosen = {} if arguments.growth_limit is None else {"growth_limit": arguments.growth_limit}
    return HostConfig(
        PolicyReference.parse(arguments.policy),
        arguments.server,
        task=arguments.task,
        fallback=arguments.fallback,
        timeout=arguments.timeout,
        options=dict(arguments.option),
        labels=dict(arguments.label),
        **chosen,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _told(report: Report) -> int:
    fallback = report.fallback
    if report.error is not None:
        _say(f"no advice, and the compiler was ended: {report.error}", report.status)
    elif fallback is not None:
        where = f"{fallback.decisions} decisions" if fallback.decisions else "all decisions"
        _say(f"{where} are the compiler's own: {fallback.reason}", report.status)
    return report.status


def _say(message: str, status: int) -> int:
    sys.stderr.write(f"policybridge run: {message}\n")
    return status
