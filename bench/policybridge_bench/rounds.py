"""Rounds: every case once, one after the other, and in each round another one first."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from policybridge_bench.contenders.contract import Route, Serving
from policybridge_bench.drive import command, drive
from policybridge_bench.load import Load
from policybridge_bench.requests import native
from policybridge_bench.results import Case, Measured, Round


@dataclass(frozen=True)
class Candidate:
    """A case, and how it is measured."""

    case: Case
    command: Sequence[str]
    server: int | None

    def measure(self) -> Round:
        """Measure it once."""
        return drive(self.command, self.case.clients, self.server)


@dataclass(frozen=True)
class Plan:
    """What is measured of each route.

    Attributes:
        generators: in the order in which they are preferred; the first that a route can be asked by is taken.
        clients: how many at once.
        rates: open loops, in asks per second of all clients together; ``None`` for the closed loop.
        seconds: for each case in each round.
        warm_up: before.
        client: the native client, where it could be built.
        folder: for what the native client sends.
        each: take all generators that a route can be asked by.

    """

    generators: Sequence[str]
    clients: Sequence[int]
    rates: Sequence[float | None]
    seconds: float
    warm_up: float
    client: Path | None
    folder: Path
    each: bool = False

    def candidates(self, contender: str, serving: Serving) -> Iterator[Candidate]:
        """Give all cases of one contender."""
        for route in serving.routes:
            able = [name for name in self.generators if name in route.generators]
            taken = able if self.each else able[:1]
            for generator, clients, rate in itertools.product(taken, self.clients, self.rates):
                asking = command(self._load(route, generator, clients, rate), self._client(generator))
                yield Candidate(_case(contender, route, generator, clients, rate), asking, serving.pid)

    def _client(self, generator: str) -> Path | None:
        return self.client if generator == "native" else None

    def _load(self, route: Route, generator: str, clients: int, rate: float | None) -> Load:
        load, own = route.load, None if rate is None else rate / clients
        if generator == "native":
            load = native(load, self.folder)
        kind = "wire" if generator == "wire" else load.kind
        return msgspec.structs.replace(load, kind=kind, rate=own, seconds=self.seconds, warm_up=self.warm_up)


def _case(contender: str, route: Route, generator: str, clients: int, rate: float | None) -> Case:
    return Case(
        contender=contender,
        way=route.way,
        generator=generator,
        clients=clients,
        payload=route.load.payload,
        serdes=route.load.serdes if route.load.policy else "",
        backend=route.backend,
        rate=rate,
    )


def run_rounds(
    candidates: Sequence[Candidate], rounds: int, show: Callable[[list[Measured], str], None]
) -> list[Measured]:
    """Measure all candidates so many times; ``show`` is told what there is so far, and what is measured next."""
    measured = [Measured(case=candidate.case, rounds=[]) for candidate in candidates]
    for number in range(rounds):
        first = number * len(candidates) // rounds
        for index in [*range(first, len(candidates)), *range(first)]:
            show(measured, f"round {number + 1} of {rounds}: {candidates[index].case.name}")
            measured[index].rounds.append(candidates[index].measure())
    show(measured, "")
    return measured
