"""The command ``policybridge run``: run a compiler with the decisions of a policy."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from policybridge_client.decisions.finding import OFF, find_store
from policybridge_client.llvm.asked import check_asks
from policybridge_client.llvm.compiler_cache import compiler_cache
from policybridge_client.llvm.compilers import CompilerCommand, compiles, is_build, is_trial, source_of
from policybridge_client.llvm.decided import DecisionsConfig, run_as_it_is, run_with_decisions
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.launcher import become_launcher
from policybridge_client.llvm.run_arguments import add_arguments, check_arguments, config_of
from policybridge_client.llvm.signals import Interrupted, TakenSignals
from policybridge_client.llvm.statistics import Report, write_report
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.lacking import lacking
from policybridge_core.terminal import complain

__all__ = ["add_arguments", "run"]

_NOT_FOUND: Final = 127
_NOT_STARTED: Final = 126
_USAGE: Final = 2

_BUILD: Final = (
    "a build starts its compilers itself, and gets no decisions from here: let it start each so, as by make "
    "CC='policybridge run -- clang'"
)


def run(arguments: argparse.Namespace) -> int:
    """Run the compiler; return its exit status."""
    compiler = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        optional = bool(compiler) and arguments.policy is None and arguments.decisions is None
        check_arguments(arguments)
        # A program that calls this command in its own process is not replaced.
        if sys.argv[1:2] == ["run"] and not (optional and _is_unknown(compiler)):
            become_launcher(sys.argv[2:], CompilerCommand.of(compiler), arguments.task, arguments.server)
        with TakenSignals() as interrupts:
            if optional:
                arguments.decisions = _found(compiler, arguments)
            if optional and arguments.decisions is None:
                report = run_as_it_is(compiler, interrupts=interrupts)
            elif arguments.policy is not None:
                report = run_compiler(compiler, config_of(arguments), interrupts=interrupts)
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
    if os.environ.get(OFF):
        return None
    if _is_unknown(command):
        if is_build(command):
            _remark(_BUILD, command)
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
        said = f"the policy decides {kind}, too, for which LLVM asks through a plugin alone"
        _remark(f"{said} (policybridge doctor tells where to get it)", command)
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
