"""Servers under load, in one interleaved run: PolicyBridge alone, with floors and peers, or with another build."""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from policybridge_bench.bounds import Bound, bounds, within
from policybridge_bench.compare import print_comparison
from policybridge_bench.contenders.contract import FLOORS, PEERS, RESTLESS, Contender, load_contender
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill, numbers, words
from policybridge_bench.policies import NAMED
from policybridge_bench.processes import module
from policybridge_bench.ratios import Baseline, find, ratio
from policybridge_bench.results import Case, Measured, Run
from policybridge_core.errors import InvalidError

_UNARY = "policybridge/grpc-unary,policybridge/grpc-infer,grpc-echo/unary,triton/unary"
_SESSION = "policybridge,model,python-socket-echo,python-grpc-echo/stream"
_OTHER = "other"
_RECORDING = "recording"
_LEDGER_LIMIT = 1.15
"""Bound on the p50 of one client, as a multiple of the p50 without a ledger."""


def load(arguments: argparse.Namespace) -> int:
    """Measure what ``--contenders`` names; by default PolicyBridge alone."""
    fill(arguments)
    return finish(measure(arguments), arguments)


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


def trees(arguments: argparse.Namespace) -> int:
    """Measure another build (``--python``) and this one; the status is 1 if this one is slower.

    The load generators are this tree's for both.
    """
    if arguments.python == sys.executable:
        raise InvalidError("trees needs --python: the interpreter, or the folder of a checkout, of the other build")
    fill(arguments, baseline=_OTHER, limit=1.05)
    contenders = {"policybridge": policybridge(arguments, python=sys.executable), _OTHER: policybridge(arguments)}
    measured = measure(arguments, contenders)
    finish(measured, arguments)
    return print_comparison(_only(measured, _OTHER), _only(measured, "policybridge"), arguments.limit, paired=True)


def _only(run: Run, contender: str) -> Run:
    """Give the cases of one contender, renamed to this tree's."""
    cases = [
        msgspec.structs.replace(each, case=msgspec.structs.replace(each.case, contender="policybridge"))
        for each in run.cases
        if each.case.contender == contender
    ]
    return msgspec.structs.replace(run, cases=cases)


def ledger(arguments: argparse.Namespace) -> int:
    """Measure a server with a ledger and one without; the figures are of the ledger's content."""
    fill(arguments, clients="1,16", rounds=9, baseline="policybridge")
    with TemporaryDirectory(prefix="pb-") as folder:
        file = Path(folder) / "ledger.db"
        options = [*arguments.serve_option, "--ledger", str(file)]
        contenders = {"policybridge": policybridge(arguments), _RECORDING: policybridge(arguments, options=options)}
        run = measure(arguments, contenders)
        figures = _figures(file)
    bounds = within(run.cases, Baseline("policybridge"), _LEDGER_LIMIT, contender=_RECORDING, clients=1)
    return finish(run, arguments, figures.items(), bounds)


def workers(arguments: argparse.Namespace) -> int:
    """Measure a server for each number of ``--workers``, and the other ``--contenders``.

    The ratios are to the first server, case by case; ratios to the other contenders stand below.
    """
    counts = [int(count) for count in numbers(arguments.workers)]
    fill(arguments, rounds=9, baseline=_workers(counts[0]))
    contenders: dict[str, Contender] = {
        _workers(count): policybridge(arguments, options=[*arguments.serve_option, "--workers", str(count)])
        for count in counts
    }
    for name in words(arguments.contenders):
        if name != "policybridge":
            contenders[name] = load_contender(name)
    run = measure(arguments, contenders, wanted=_one_of_a_peer)
    return finish(run, arguments, _beside_peers(run.cases, counts))


def _workers(count: int) -> str:
    # The name is also a folder's, whose addresses are words of a line.
    return f"workers-{count}"


def _one_of_a_peer(case: Case) -> bool:
    return case.contender.startswith("workers-") or case.way in {"stream", "unix"}


def _beside_peers(cases: Sequence[Measured], counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    own = [_workers(count) for count in counts]
    for each in cases:
        for other in find(cases, way="stream", clients=each.case.clients, payload=each.case.payload):
            if each.rounds and each.case.contender in own:
                text = f"{each.case.contender}, {each.case.way}, {each.case.clients} clients, {each.case.payload}"
                yield f"{text}: decisions/s over {other.case.contender}", ratio(each, other, "throughput")


def _figures(ledger: Path) -> dict[str, float]:
    command = module("policybridge_client.cli", "sessions", "list", "--ledger", ledger, "--json")
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sessions = [json.loads(line) for line in listed.splitlines()]
    decisions = sum(session["decisions"] for session in sessions)
    size = ledger.stat().st_size
    return {
        "decisions recorded": decisions,
        "decisions lost": sum(session["lost"] for session in sessions),
        "size of the ledger, MB": size / 1e6,
        "bytes for each decision": size / max(1, decisions),
    }
