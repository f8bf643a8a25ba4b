"""Servers under load beside floors and other servers, in one interleaved run."""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from statistics import median

from policybridge_bench.bounds import Bound
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.policies import NAMED
from policybridge_bench.ratios import find, ratio
from policybridge_bench.results import Case, Measured
from tests.peers.promises import bounds
from tests.peers.tables import FLOORS, PEERS, RESTLESS

_UNARY = "policybridge/grpc-unary,policybridge/grpc-infer,grpc-echo/unary,triton/unary"
_SESSION = "policybridge,model,python-socket-echo,python-grpc-echo/stream"


def peers(arguments: argparse.Namespace) -> int:
    """Measure all contenders but the restless; print the reason for each that cannot run here."""
    contenders = ["policybridge", *FLOORS, *(peer for peer in PEERS if peer not in RESTLESS)]
    fill(arguments, contenders=",".join(contenders), ways="all", baseline="grpc-echo/unary")
    return _beside_others(arguments)


def unary(arguments: argparse.Namespace) -> int:
    """Measure single calls with 38 named inputs (the payload inliner) and with one packed tensor (vector)."""
    fill(arguments, contenders=_UNARY, payloads="inliner,vector", baseline="grpc-echo/unary")
    return _beside_others(arguments)


def _beside_others(arguments: argparse.Namespace) -> int:
    run = measure(arguments)
    return finish(run, arguments, bounds=bounds(run.cases))


def session(arguments: argparse.Namespace) -> int:
    """Measure sessions and bare echoes over the same transport, and the promised ratios.

    All ways have 1 client; the socket with prepared bytes also has 16 clients, and 38 named inputs.
    """
    fill(arguments, contenders=_SESSION, clients="1,16", generators="wire,python", backends=f"onnx,{NAMED}")
    run = measure(arguments, wanted=_in_session)
    return finish(run, arguments, bounds=_session_bounds(run.cases))


def _in_session(case: Case) -> bool:
    if case.clients == 1 and case.backend != NAMED:
        return True
    return (case.way, case.generator) == ("socket", "wire") and (case.clients == 1 or case.backend != NAMED)


def _session_bounds(cases: Sequence[Measured]) -> Iterator[Bound]:
    """Give the bounds whose cases were measured; the model's own time is subtracted from a p50."""
    socket = find(cases, way="socket", generator="wire", backend="onnx")
    for few, many in itertools.combinations(socket, 2):
        text = f"socket: {many.case.clients} clients / {few.case.clients}, decisions/s"
        yield Bound(text, ratio(many, few, "throughput"), 3, at_least=True)
    echo, stream = find(cases, contender="python-socket-echo"), find(cases, contender="python-grpc-echo")
    for way, generator, floor, limit in (
        ("socket", "wire", echo, 3),
        ("socket", "python", echo, 3),
        ("grpc", "python", stream, 1.5),
    ):
        own = find(cases, way=way, generator=generator, backend="onnx", clients=1)
        model = find(cases, contender="model")
        if own and model and floor:
            text = f"{way}, {generator}: (p50 - model) / bare echo"
            yield Bound(text, _beyond(own[0], model[0], floor[0]), limit, at_least=False)


def _beyond(own: Measured, model: Measured, floor: Measured) -> float:
    rounds = zip(own.rounds, model.rounds, floor.rounds, strict=True)
    return median((one.p50 - alone.p50) / bare.p50 for one, alone, bare in rounds)
