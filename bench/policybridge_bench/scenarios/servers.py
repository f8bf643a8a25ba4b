"""Servers under load, in one interleaved run: PolicyBridge alone, its variants, or another build beside it."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from policybridge_bench.bounds import within
from policybridge_bench.compare import print_comparison
from policybridge_bench.contenders.contract import Contender, load_contender
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill, numbers, words
from policybridge_bench.processes import module
from policybridge_bench.ratios import Baseline, find, ratio
from policybridge_bench.results import Case, Measured, Run
from policybridge_core.errors import InvalidError

_OTHER = "other"
_RECORDING = "recording"
_LEDGER_LIMIT = 1.15
"""Bound on the p50 of one client, as a multiple of the p50 without a ledger."""


def load(arguments: argparse.Namespace) -> int:
    """Measure what ``--contenders`` names; by default PolicyBridge alone."""
    fill(arguments)
    return finish(measure(arguments), arguments)


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
            contenders[name] = load_contender(name, arguments.known)
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
