"""Contenders that serve side by side, and are measured in turn."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_bench import native
from policybridge_bench.busy import regime
from policybridge_bench.contenders.contract import Contender, Serving, Setting, load_contender
from policybridge_bench.contenders.own import PolicyBridge
from policybridge_bench.options import baseline, numbers, words
from policybridge_bench.output import write
from policybridge_bench.payloads import PAYLOADS, payload
from policybridge_bench.policies import backends
from policybridge_bench.results import Run, machine
from policybridge_bench.rounds import Candidate, Plan, run_rounds
from policybridge_bench.table import live
from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_serdes import SERDES, load_serdes

_GENERATORS = ("native", "wire", "python")


def measure(arguments: argparse.Namespace, *, contenders: str, ways: str) -> Run:
    """Measure, show and write; ``contenders`` and ``ways`` stand where the arguments name none."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pb-")))
        started = Started(folder, arguments, stack)
        for name in words(arguments.contenders or contenders):
            started.start(name)
        plan = _plan(arguments, folder, started.skip)
        candidates = list(_candidates(started, plan, words(arguments.ways or ways)))
        if not candidates:
            raise InvalidError(f"nothing is left to measure. {started.reasons()}")
        show = stack.enter_context(live(baseline(arguments.baseline)))
        stack.enter_context(regime(busy=arguments.busy))
        measured = run_rounds(candidates, arguments.rounds, show)
        run = Run(
            machine=machine(),
            regime="busy" if arguments.busy else "quiet",
            seconds=arguments.seconds,
            cases=measured,
            skipped=started.skipped,
        )
    write(run, arguments)
    return run


@dataclass
class Started:
    """The contenders that serve, and why others do not."""

    folder: Path
    arguments: argparse.Namespace
    stack: contextlib.ExitStack
    serving: dict[str, Serving] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start one; what cannot run here is said and left out."""
        contender = _contender(name, self.arguments)
        own = self.folder / name
        own.mkdir()
        try:
            contender.prepare(self.arguments.cache)
            self.serving[name] = self.stack.enter_context(contender.serve(_setting(self.arguments, own)))
        except (PolicyFailedError, PreconditionError) as error:
            if name == "policybridge":
                raise
            self.skip(name, str(error))

    def skip(self, name: str, reason: str) -> None:
        """Note that something cannot run here."""
        self.skipped[name] = reason
        sys.stderr.write(f"policybridge bench: without {name}: {reason}\n")

    def reasons(self) -> str:
        """Give all reasons."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())


def _contender(name: str, arguments: argparse.Namespace) -> Contender:
    if name != "policybridge":
        return load_contender(name)
    if (arguments.server or arguments.repository) and not arguments.policy:
        raise InvalidError("--server and --repository go with --policy, which names the policy to ask")
    return PolicyBridge(
        arguments.python,
        arguments.repository,
        arguments.policy,
        arguments.server,
        arguments.server_pid,
        arguments.serve_option,
    )


def _setting(arguments: argparse.Namespace, folder: Path) -> Setting:
    payloads = words(arguments.payloads, list(PAYLOADS))
    serdes = words(arguments.serdes, SERDES.names())
    for name in payloads:
        payload(name)
    for name in serdes:
        load_serdes(name)
    wanted = words(arguments.backends, backends())
    unknown = set(wanted) - set(backends())
    if unknown:
        raise InvalidError(f"no backend {', '.join(sorted(unknown))} is installed; there are {', '.join(backends())}")
    return Setting(folder, arguments.cache, payloads, wanted, serdes)


def _plan(arguments: argparse.Namespace, folder: Path, skip: Callable[[str, str], None]) -> Plan:
    named = words(arguments.generators or ",".join(_GENERATORS), _GENERATORS)
    unknown = set(named) - set(_GENERATORS)
    if unknown:
        raise InvalidError(f"no generator {', '.join(sorted(unknown))}; there are {', '.join(_GENERATORS)}")
    client = None
    if "native" in named:
        try:
            client = native.program("policybridge-load", arguments.cache)
        except PreconditionError as error:
            if arguments.generators:
                raise
            skip("native", str(error))

    return Plan(
        generators=[name for name in named if name != "native" or client],
        clients=[int(count) for count in numbers(arguments.clients)],
        rates=numbers(arguments.rates) or [None],
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        client=client,
        folder=folder,
        each=bool(arguments.generators),
    )


def _candidates(started: Started, plan: Plan, ways: Sequence[str]) -> Iterator[Candidate]:
    for name, serving in started.serving.items():
        for candidate in plan.candidates(name, serving):
            if name != "policybridge" or "all" in ways or candidate.case.way in ways:
                yield candidate
