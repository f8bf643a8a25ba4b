"""The harness's overhead: its clients and a minimal loop, both against a bare socket echo."""

import argparse
import socket
from collections.abc import Mapping, Sequence

from policybridge_bench.contenders.contract import Serving
from policybridge_bench.loads import Candidate
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.payloads import payload
from policybridge_bench.ratios import difference
from policybridge_bench.results import Case, Round, timed

_ECHO = "python-socket-echo"
_LOOP = "bare-loop"
_REPLY = 9


def run(arguments: argparse.Namespace) -> int:
    """Measure each generator and the loop in turn, in every round; the figures are differences to the loop."""
    fill(arguments, contenders=_ECHO, clients="1", generators="native,wire")

    def loop(serving: Mapping[str, Serving]) -> Sequence[Candidate]:
        address = serving[_ECHO].routes[0].load.address
        case = Case(contender=_ECHO, way="unix", generator=_LOOP, clients=1)
        return [Candidate(case, lambda: _loop(address, arguments.seconds))]

    run = measure(arguments, more=loop)
    *harness, bare = run.cases
    return finish(
        run,
        arguments,
        ((f"{each.case.generator}: p50 beyond the bare loop, µs", difference(each, bare, "p50")) for each in harness),
    )


def _loop(address: str, seconds: float) -> Round:
    message = payload("inliner").observations()[0].tobytes()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address.removeprefix("socket:"))

        def ask() -> None:
            connection.sendall(message)
            connection.recv(_REPLY)

        return timed(ask, seconds)
