"""One run: contenders that serve side by side, measured in turn; its table and files."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import msgspec

from policybridge_bench.bounds import Bound, print_bounds
from policybridge_bench.contenders.contract import Contender, Serving, Setting, load_contender
from policybridge_bench.contenders.own import WAYS, PolicyBridge, policybridge
from policybridge_bench.drive import Command
from policybridge_bench.loads import Candidate, Loads, run_rounds
from policybridge_bench.options import baseline, names, numbers, words
from policybridge_bench.payloads import PAYLOADS
from policybridge_bench.policies import backends
from policybridge_bench.processes import regime
from policybridge_bench.results import Case, Run, machine, write_csv, write_json
from policybridge_bench.table import live
from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_core.plugins import load_part
from policybridge_core.text import meant
from policybridge_serdes import SERDES


def measure(
    arguments: argparse.Namespace,
    contenders: Mapping[str, Contender] | None = None,
    wanted: Callable[[Case], bool] = lambda _: True,
    more: Callable[[Mapping[str, Serving]], Sequence[Candidate]] = lambda _: (),
) -> Run:
    """Start contenders, measure them under load, and show the table as it fills.

    Args:
        arguments: the command line, with its defaults filled in.
        contenders: by name; absent: those that ``--contenders`` names.
        wanted: tells whether to measure a case of a contender.
        more: gives further cases from the serving contenders.

    Raises:
        InvalidError: an option names something that does not exist, or no case is left.

    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pb-")))
        started = Started(folder, arguments, stack)
        ways = words(arguments.ways)
        for name, contender, only in _contenders(arguments, contenders):
            default = ways if isinstance(contender, PolicyBridge) else ["all"]
            started.start(name, contender, only or default)
        loads = _loads(arguments, folder, started.skip)
        candidates = [one for each in started.serving.items() for one in loads.candidates(*each) if wanted(one.case)]
        if contenders is not None:
            # Variants of one server: measure the same case of all of them without another case between.
            candidates.sort(key=lambda one: msgspec.structs.replace(one.case, contender="").name)
        candidates += more(started.serving)
        if not candidates:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in started.skipped.items())
            raise InvalidError(f"nothing is left to measure. {reasons}")
        return conduct(arguments, candidates, started.skipped)


def conduct(
    arguments: argparse.Namespace, candidates: Sequence[Candidate], skipped: Mapping[str, str] | None = None
) -> Run:
    """Measure all candidates in rounds and show the table as it fills."""
    with live(baseline(arguments.baseline)) as show, regime(busy=arguments.busy):
        measured = run_rounds(candidates, arguments.rounds, show)
    return Run(
        machine=machine(),
        regime="busy" if arguments.busy else "quiet",
        seconds=arguments.seconds,
        cases=measured,
        skipped=dict(skipped or {}),
    )


def finish(
    run: Run,
    arguments: argparse.Namespace,
    figures: Iterable[tuple[str, float]] = (),
    bounds: Iterable[Bound] = (),
) -> int:
    """Print the scenario's own ``bounds`` and ``figures``, write the wanted files, and give the status."""
    print_bounds(bounds)
    run = msgspec.structs.replace(run, figures=dict(figures))
    for name, value in run.figures.items():
        print(f"{name:<64} {value:12,.2f}")
    if arguments.json:
        write_json(run, arguments.json)
    if arguments.csv:
        write_csv(run, arguments.csv)
    if arguments.html:
        # Loaded only here, because plotly takes a second to load.
        write_page = load_part("policybridge_bench.page:write_page [bench]", "--html")
        cast("Callable[[Run, Path], None]", write_page)(run, arguments.html)
    return 0


@dataclass
class Started:
    """The serving contenders, and the reasons why others do not serve."""

    folder: Path
    arguments: argparse.Namespace
    stack: contextlib.ExitStack
    serving: dict[str, Serving] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, contender: Contender, ways: Sequence[str]) -> None:
        """Start a contender with its ``ways``; if a foreign server cannot run here, print the reason and go on."""
        own = self.folder / name
        own.mkdir()
        try:
            contender.prepare(self.arguments.cache)
            serving = self.stack.enter_context(contender.serve(_setting(self.arguments, own)))
        except (PolicyFailedError, PreconditionError) as error:
            if isinstance(contender, PolicyBridge):
                raise
            self.skip(name, str(error))
        else:
            _check_ways(name, ways, {route.way for route in serving.routes}, contender)
            routes = [route for route in serving.routes if "all" in ways or route.way in ways]
            self.serving[name] = Serving(serving.pid, routes)

    def skip(self, name: str, reason: str) -> None:
        """Note a contender that cannot run here."""
        self.skipped[name] = reason
        sys.stderr.write(f"policybridge bench: without {name}: {reason}\n")


def _check_ways(name: str, ways: Sequence[str], offered: Collection[str], contender: Contender) -> None:
    # Ours may not offer all its ways here: --server names the addresses, and --serdes leaves some out.
    known = sorted({*offered, *(WAYS if isinstance(contender, PolicyBridge) else ()), "all"})
    for way in ways:
        if way not in known:
            raise InvalidError(f"{name} has no way {way!r}; {meant(way, known)}there are {', '.join(known)}")


def _contenders(
    arguments: argparse.Namespace, given: Mapping[str, Contender] | None
) -> Iterator[tuple[str, Contender, list[str]]]:
    """Give each contender with its name and the ways that ``--contenders`` names; no ways: all."""
    if given is not None:
        yield from ((name, contender, []) for name, contender in given.items())
        return
    chosen: dict[str, list[str]] = {}
    for word in words(arguments.contenders):
        name, _, way = word.partition("/")
        chosen.setdefault(name, []).extend([way] if way else [])
    for name, ways in chosen.items():
        yield name, policybridge(arguments) if name == "policybridge" else load_contender(name, arguments.known), ways


def _setting(arguments: argparse.Namespace, folder: Path) -> Setting:
    return Setting(
        folder,
        arguments.cache,
        names(arguments.payloads, "payload", PAYLOADS),
        names(arguments.backends, "backend", backends()),
        names(arguments.serdes, "SerDes", SERDES.names()),
    )


def _loads(arguments: argparse.Namespace, folder: Path, skip: Callable[[str, str], None]) -> Loads:
    named = names(arguments.generators or "all", "generator", arguments.prepare)
    made: dict[str, Command] = {}
    for name in named:
        try:
            made[name] = arguments.prepare[name](arguments.cache, folder)
        except PreconditionError as error:
            if named == [name]:
                raise
            skip(name, str(error))
    return Loads(
        generators=made,
        clients=[int(count) for count in numbers(arguments.clients)],
        rates=numbers(arguments.rates) or [None],
        seconds=arguments.seconds,
        warm_up=arguments.warm_up,
        each=bool(arguments.generators),
    )
