"""Running the compiler of ``policybridge run`` from this process, where the native launcher does not."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from policybridge_client.credentials import Credentials
from policybridge_client.decisions.finding import OFF, find_store
from policybridge_client.llvm.compiler_cache import compiler_cache
from policybridge_client.llvm.compilers import CompilerCommand, compiles, is_build, is_trial, source_of
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.decided import DecisionsConfig, run_as_it_is, run_with_decisions
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.signals import TakenSignals
from policybridge_client.llvm.statistics import Report, write_report
from policybridge_client.llvm.task_table import asks_to_inline
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.lacking import lacking
from policybridge_core.terminal import complain
from policybridge_serdes import Exploration, PolicyReference

_BUILD: Final = (
    "a build starts its compilers itself, and gets no decisions from here: let it start each so, as by make "
    "CC='policybridge run -- clang'"
)

_AT_LINK: Final = "all decisions at link time are the compiler's own: policybridge-run alone gives the linker a plugin"


def host(compiler: Sequence[str], arguments: argparse.Namespace, *, optional: bool) -> int:
    """Run the compiler; return its exit status.

    Args:
        compiler: its command.
        arguments: of ``policybridge run``.
        optional: whether it runs as it is if there are no decisions for it.

    Raises:
        Interrupted: by a signal.
        PolicyBridgeError: an argument is wrong, or there are no decisions.
        OSError: the compiler cannot be started.

    """
    with TakenSignals() as interrupts:
        if optional:
            arguments.decisions = _found(compiler, arguments)
        if optional and arguments.decisions is None:
            report = run_as_it_is(compiler, interrupts=interrupts)
        elif arguments.policy is not None:
            report = run_compiler(compiler, _config_of(arguments), interrupts=interrupts)
        else:
            store = DecisionsConfig(arguments.decisions, arguments.fallback, arguments.growth_limit)
            report = run_with_decisions(compiler, store, interrupts=interrupts)
        if arguments.stats:
            _write(report, arguments, compiler)
    return _told(report, arguments, compiler)


def _config_of(arguments: argparse.Namespace) -> HostConfig:
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


def _found(command: Sequence[str], arguments: argparse.Namespace) -> Path | None:
    """Give the project's own store, if there is one that may be used and the command compiles."""
    if arguments.no_decisions:
        os.environ[OFF] = "1"  # for a plugin in the command
    if os.environ.get(OFF):
        return None
    if not asks_to_inline(command):
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
        _say(f"{ended}: {report.error}")
    elif fallback is not None:
        where = f"{fallback.decisions} decisions" if fallback.decisions else "all decisions"
        _remark(f"{where} are the compiler's own: {fallback.reason}", command)
    if report.note:
        _remark(report.note, command)
    is_asked = arguments.policy or arguments.decisions
    if is_asked and arguments.task == INLINE.name and CompilerCommand.of(command).links_with_lto:
        _remark(lacking(_AT_LINK), command)
    return report.status


def _remark(message: str, command: Sequence[str]) -> None:
    """Write a line that tells no failure, unless the command is a trial."""
    if not is_trial(command):
        _say(message)


def _say(message: str) -> None:
    complain(f"policybridge run: {message}")
