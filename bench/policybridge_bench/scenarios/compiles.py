"""Compile a corpus in several ways: processor time compared with the compiler alone."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import numpy as np

from policybridge_bench.measuring import finish
from policybridge_bench.results import Case, Measured, Run, machine, summary
from policybridge_core.errors import InvalidError
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.processes.process import compile_by

PLAIN: Final = "compiler"
"""The way without a plugin."""

_FILES: Final = 100

Seconds = Mapping[str, Sequence[Sequence[float]]]
"""Processor time in seconds: by way, then round, then file."""


def spread(modules: Sequence[Module]) -> Sequence[Module]:
    """Choose a hundred modules, evenly over all."""
    return modules[:: max(1, len(modules) // _FILES)][:_FILES]


def timed(command: Sequence[str], module: Module, environment: Mapping[str, str]) -> float:
    """Compile a module; give the seconds of processor time.

    Raises:
        InvalidError: it does not compile.

    """
    done = compile_by(command, Limits(), environment)
    if not done.ok:
        raise InvalidError(f"{module.name}: {done.status.value}: {done.message}")
    return done.seconds


def compiled(
    ways: Sequence[str],
    modules: Sequence[Module],
    rounds: int,
    compile_once: Callable[[str, Module], float],
    after: Callable[[], None] = lambda: None,
) -> Seconds:
    """Compile each module every way in every round, the ways in turn forwards and backwards; then call ``after``."""
    seconds: dict[str, list[list[float]]] = {way: [[] for _ in range(rounds)] for way in ways}
    for number in range(rounds):
        for place, module in enumerate(modules):
            for way in ways if (number + place) % 2 else ways[::-1]:
                seconds[way][number].append(compile_once(way, module))
            after()
    return seconds


def report(arguments: argparse.Namespace, seconds: Seconds, figures: Iterable[tuple[str, float]] = ()) -> int:
    """Show and write the run with further figures; give the exit status."""
    regime = "busy" if arguments.busy else "quiet"
    cases = [_measured(way, rounds) for way, rounds in seconds.items()]
    results = Run(machine=machine(), regime=regime, seconds=arguments.seconds, cases=cases)
    return finish(results, arguments, [*_figures(seconds), *figures])


def _measured(way: str, rounds: Sequence[Sequence[float]]) -> Measured:
    case = Case(contender=way, way="corpus", generator="compiler", clients=1, payload=f"{len(rounds[0])} files")
    made = [
        summary([np.array(files, np.float32) * 1e6], len(files) / sum(files), sum(files) / len(files) * 1e6)
        for files in rounds
    ]
    return Measured(case=case, rounds=made)


def _figures(seconds: Seconds) -> Iterator[tuple[str, float]]:
    times = {way: [median(each) for each in zip(*rounds, strict=True)] for way, rounds in seconds.items()}
    before = times.pop(PLAIN)
    yield "files", len(before)
    yield "compiler alone, seconds of CPU for all", sum(before)
    for way, after in times.items():
        yield f"{way}: times as much", sum(after) / sum(before)
        ratios = (b / a for a, b in zip(before, after, strict=True))
        yield f"{way}: times as much, median of the files", median(ratios)
