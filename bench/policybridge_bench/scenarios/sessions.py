"""Memory of the server for each open session."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

import msgspec

from policybridge_bench.contenders.contract import Route, Serving
from policybridge_bench.loads import Candidate, route_case
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.payloads import payload
from policybridge_bench.processes import usage
from policybridge_bench.results import Case, Round, timed
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession
from policybridge_core.errors import PreconditionError
from policybridge_serdes import PolicyReference, SessionOptions

_WAYS = ("socket", "grpc", "grpc-unix")
_REQUESTS = 2


def run(arguments: argparse.Namespace) -> int:
    """Open ``--count`` sessions on each transport, let each ask, then close them.

    The latencies are of opening. The figures are the server's memory for each session.
    """
    fill(arguments, rounds=1, clients="1")
    measurements: list[_Sessions] = []

    def candidates(serving: Mapping[str, Serving]) -> list[Candidate]:
        measurements.extend(_all(serving, arguments.count))
        return [Candidate(each.case, each.measure) for each in measurements]

    run = measure(arguments, wanted=lambda _: False, more=candidates)
    return finish(run, arguments, (figure for each in measurements for figure in each.figures()))


@dataclass(frozen=True)
class _Sessions:
    """The sessions of one route, and the growth of the server's memory in each round, in bytes."""

    case: Case
    route: Route
    pid: int
    grown: dict[str, list[float]] = field(default_factory=dict)

    def measure(self) -> Round:
        # The first sessions allocate what all later ones share.
        with contextlib.ExitStack() as stack:
            self._open(stack).evaluate(payload(self.case.payload).observations()[0])
        before = usage(self.pid).rss
        with contextlib.ExitStack() as stack:
            sessions: list[ClientSession] = []
            seen = timed(lambda: sessions.append(self._open(stack)), calls=self.case.clients)
            opened = usage(self.pid).rss
            for session in sessions:
                for _ in range(_REQUESTS):
                    session.evaluate(payload(self.case.payload).observations()[0])
            asked = usage(self.pid).rss
        for name, rss in (("opened", opened), ("asked", asked), ("closed", usage(self.pid).rss)):
            self.grown.setdefault(name, []).append(rss - before)
        return msgspec.structs.replace(seen, server_rss=asked)

    def figures(self) -> Iterator[tuple[str, float]]:
        for name, values in self.grown.items():
            each = median(values) / self.case.clients / 1e3
            yield f"{self.case.way}: once {name}, KB of the server for each session", each

    def _open(self, stack: contextlib.ExitStack) -> ClientSession:
        """Open a session on a connection of its own, as a compiler does."""
        connection = connect(self.route.load.address, timeout=30)
        stack.callback(connection.close)
        asked = payload(self.case.payload).signature
        session = connection.open(PolicyReference(self.route.load.policy), asked, SessionOptions())
        stack.callback(session.close)
        return session


def _all(serving: Mapping[str, Serving], count: int) -> Iterator[_Sessions]:
    for name, each in serving.items():
        for route in each.routes:
            if route.way not in _WAYS or each.pid is None:
                raise PreconditionError(
                    f"no server process holds sessions by {route.way}; --ways takes {', '.join(_WAYS)}"
                )
            case = route_case(name, route, "python", count)
            yield _Sessions(case, route, each.pid)
