"""Rounds of measurements: each route with its loads.

Every round measures all cases once, one after the other, and each round begins with another case.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from policybridge_bench.contenders.contract import Route, Serving
from policybridge_bench.drive import Command, drive
from policybridge_bench.load import Load
from policybridge_bench.results import Case, Measured, Round


@dataclass(frozen=True)
class Candidate:
    """A case, and the function that measures it once."""

    case: Case
    measure: Callable[[], Round]


@dataclass(frozen=True)
class Loads:
    """The loads of each route.

    Attributes:
        generators: in the order of preference; a route is measured with the first that it supports.
        clients: numbers of clients.
        rates: open loops, in requests per second of all clients together; ``None`` for the closed loop.
        seconds: of each case in each round.
        warm_up: seconds before.
        each: measure with every generator that a route supports.

    """

    generators: Mapping[str, Command]
    clients: Sequence[int]
    rates: Sequence[float | None]
    seconds: float
    warm_up: float
    each: bool = False

    def candidates(self, contender: str, serving: Serving) -> Iterator[Candidate]:
        """Give all cases of one contender."""
        for route in serving.routes:
            able = [name for name in self.generators if name in route.generators]
            taken = able if self.each else able[:1]
            for generator, clients, rate in itertools.product(taken, self.clients, self.rates):
                client = self.generators[generator](self._load(route, clients, rate))
                case = route_case(contender, route, generator, clients, rate)
                yield Candidate(case, partial(drive, client, clients, serving.pid))

    def _load(self, route: Route, clients: int, rate: float | None) -> Load:
        own = None if rate is None else rate / clients
        return msgspec.structs.replace(route.load, rate=own, seconds=self.seconds, warm_up=self.warm_up)


def route_case(contender: str, route: Route, generator: str, clients: int, rate: float | None = None) -> Case:
    """Give the case of a contender's route."""
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
    """Measure all candidates once in each round.

    ``show`` is called before each measurement, with the results so far and a line that names the next case.
    """
    measured = [Measured(case=candidate.case, rounds=[]) for candidate in candidates]
    for number in range(rounds):
        first = number * len(candidates) // rounds
        for index in [*range(first, len(candidates)), *range(first)]:
            show(measured, f"round {number + 1} of {rounds}: {candidates[index].case.name}")
            measured[index].rounds.append(candidates[index].measure())
    show(measured, "")
    return measured
