"""Servers under load, in one interleaved run: PolicyBridge alone; beside floors and peers; two of its own."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from policybridge_bench.bounds import bounds, within
from policybridge_bench.compare import print_comparison
from policybridge_bench.contenders.contract import FLOORS, PEERS, RESTLESS
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.processes import module
from policybridge_bench.ratios import Baseline
from policybridge_bench.results import Run
from policybridge_core.errors import InvalidError

_UNARY = "policybridge/grpc-unary,policybridge/grpc-infer,grpc-echo/unary,triton/unary"
_OTHER = "other"
_RECORDING = "recording"
_LEDGER_LIMIT = 1.15
"""The p50 of one client is promised to be at most so many times that without a ledger."""


def load(arguments: argparse.Namespace) -> int:
    """Measure what ``--contenders`` names; by default PolicyBridge alone."""
    fill(arguments)
    return finish(measure(arguments), arguments)


def peers(arguments: argparse.Namespace) -> int:
    """Measure all contenders but the restless; for each that cannot run here, the reason is printed."""
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


def trees(arguments: argparse.Namespace) -> int:
    """Measure another build beside this one; the status is 1 where this tree is slower than what ``--python`` names.

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
    """Give the cases of one contender, as if it were this tree's."""
    cases = [
        msgspec.structs.replace(each, case=msgspec.structs.replace(each.case, contender="policybridge"))
        for each in run.cases
        if each.case.contender == contender
    ]
    return msgspec.structs.replace(run, cases=cases)


def ledger(arguments: argparse.Namespace) -> int:
    """Measure a server that records beside one that does not; the figures are how much the ledger holds then."""
    fill(arguments, clients="1,16", rounds=9, baseline="policybridge")
    with TemporaryDirectory(prefix="pb-") as folder:
        file = Path(folder) / "ledger.db"
        options = [*arguments.serve_option, "--ledger", str(file)]
        contenders = {"policybridge": policybridge(arguments), _RECORDING: policybridge(arguments, options=options)}
        run = measure(arguments, contenders)
        figures = _figures(file)
    bounds = within(run.cases, Baseline("policybridge"), _LEDGER_LIMIT, contender=_RECORDING, clients=1)
    return finish(run, arguments, figures.items(), bounds)


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
