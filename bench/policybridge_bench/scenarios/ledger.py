"""Decisions with a ledger and without: one server that records beside one that does not."""

import argparse
import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_bench.bounds import within
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.measuring import finish, measure
from policybridge_bench.options import fill
from policybridge_bench.processes import module
from policybridge_bench.ratios import Baseline

_RECORDING = "recording"
_LIMIT = 1.15
"""The p50 of one client is promised to be at most so many times that without a ledger."""


def run(arguments: argparse.Namespace) -> int:
    """Measure both; the figures are how much the ledger holds then."""
    fill(arguments, clients="1,16", rounds=9, baseline="policybridge")
    with TemporaryDirectory(prefix="pb-") as folder:
        ledger = Path(folder) / "ledger.db"
        options = [*arguments.serve_option, "--ledger", str(ledger)]
        contenders = {"policybridge": policybridge(arguments), _RECORDING: policybridge(arguments, options=options)}
        run = measure(arguments, contenders)
        figures = _figures(ledger)
    bounds = within(run.cases, Baseline("policybridge"), _LIMIT, contender=_RECORDING, clients=1)
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
